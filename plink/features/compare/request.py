"""Request for a comparison of orders."""

from dataclasses import dataclass
from typing import Annotated

from plink.errors import UsageError
from plink.model.request import FeatureRequest, Option

PANEL = "Comparison"


@dataclass(frozen=True)
class CompareRequest(FeatureRequest):
    """Request for a comparison of both orders by runs of a program in pairs."""

    pairs: Annotated[int, Option("Number of runs in each order.", least=1, panel=PANEL)] = 5
    metric: Annotated[
        str | None,
        Option(
            "Metric in the program's output: 'loss: ([0-9.]+)', or a key of a JSON line; default: that of "
            "plink.report_metric, else a time of steps, else the run's duration.",
            panel=PANEL,
        ),
    ] = None
    higher_is_better: Annotated[bool, Option("The metric is a rate, not a time: larger is better.", panel=PANEL)] = (
        False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.higher_is_better and self.metric is None:
            raise UsageError("--higher-is-better goes with --metric")
