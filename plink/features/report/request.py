"""Request for a report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from plink.model.check import BenchmarkRun
from plink.model.embedding import NetworkEmbedding
from plink.model.order import RankOrder
from plink.model.request import FeatureRequest, Option


@dataclass(frozen=True)
class ReportRequest(FeatureRequest):
    """Request for a report. ``order``: whose way is drawn; ``groups``: the names of the hosts in each, None: by the
    round trips; ``results``: orders that were run; ``embedding``: where the hosts are, None: they are embedded now.
    ``order_source`` and ``groups_source`` name their sources, on the page and in errors; ``no_order``: why there is no
    order, a sentence."""

    order: RankOrder | None = None
    groups: Sequence[Sequence[str]] | None = None
    results: Sequence[BenchmarkRun] = ()
    embedding: NetworkEmbedding | None = None
    seed: Annotated[int, Option("Of the embedding.", least=0, most=2**63 - 1)] = 0
    order_source: str = "order"
    groups_source: str = "groups"
    no_order: str = "No order was given."
