"""Request for a plan."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from plink.errors import UsageError, no_choice
from plink.features.order.constraints import RequestedGroups
from plink.model.request import MODEL, SET, SIZE, SMOOTH, Bytes, FeatureRequest, Option, Settings

if TYPE_CHECKING:
    from plink.model.order import RankOrder


@dataclass(frozen=True)
class PlanRequest(FeatureRequest):
    """Request for a plan. ``order``: None: ranks as the hosts stand, or groups one after the other; ``order_source``
    names it in errors. ``groups``: the names of the hosts in each, or how many; None: those the order was found for,
    else those that ``cost`` goes by; ``groups_source`` names them in errors. ``chunks`` and ``weights`` None: plink
    chooses."""

    algo: Annotated[str, Option("The collective's algorithm: 2lha, ring, nccl-tree, ...")] = "2lha"
    size_bytes: Annotated[Bytes, SIZE] = 100e6
    model: Annotated[str, MODEL] = "auto"
    order: "RankOrder | None" = None
    order_source: str = "order"
    groups: RequestedGroups | None = None
    groups_source: str = "groups"
    chunks: Annotated[
        int | None,
        Option(
            "For 2lha: number of equal chunks of the vector; default: 8 a rank, by sizes one.",
            least=1,
            most=100_000,
        ),
    ] = None
    weights: Annotated[
        str | None,
        Option(
            "For 2lha: masters in proportion to group sizes or bandwidth, or for the least time (the default where "
            "that gains a tenth by measured rates; else sizes).",
            choices=("sizes", "bandwidth", "least-time"),
        ),
    ] = None
    options: Annotated[Settings, SET] = field(default_factory=dict[str, int | bool])
    seed: Annotated[int, Option("Draws the random groups to compare with.", least=0)] = 0
    smooth_latencies: Annotated[bool, SMOOTH] = False

    def __post_init__(self) -> None:
        from plink.features.order.algorithms import options_of
        from plink.features.order.hubs import refuse_hubs
        from solvers.schedules.catalogue import ALGORITHMS

        super().__post_init__()
        if self.algo not in ALGORITHMS:
            raise no_choice("--algo", self.algo, ALGORITHMS)
        refuse_hubs(self.algo)
        if self.algo != "2lha":
            for option in ("groups", "chunks", "weights"):
                if getattr(self, option) is not None:
                    raise UsageError(f"--{option} goes with --algo 2lha, not with {self.algo}")
        options_of(self.options, [self.algo])
