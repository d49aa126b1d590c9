"""Requests for advice and for the balance of a step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from plink.errors import UsageError
from plink.model.request import MODEL, SET, SMOOTH, FeatureRequest, Option, Settings
from plink.model.units import format_bytes

if TYPE_CHECKING:
    from solvers.balance_money import NetworkParts

# The algorithms as such; what libraries run are cases of these.
ALL_ALGORITHMS = (
    "ring", "halving-doubling", "recursive-doubling", "tree", "double-binary-tree", "bcube", "2lha", "flat",
    "hubs",
)  # fmt: skip
TUNERS = ("nccl-tuner", "rccl-tuner", "ncclx")
FORMS = ("ring", "halving-doubling", "2lha", "flat", "ps")


@dataclass(frozen=True)
class AdviseRequest(FeatureRequest):
    """Request for advice for sizes from ``min_bytes`` to ``max_bytes``, of these ``algorithms``."""

    min_bytes: float = 1e3
    max_bytes: float = 1e9
    model: Annotated[str, MODEL] = "auto"
    algorithms: Sequence[str] = ALL_ALGORITHMS
    options: Annotated[Settings, SET] = field(default_factory=dict[str, int | bool])
    seed: Annotated[int, Option("Seed of the search for a ring (five seconds at most).", least=0)] = 0
    smooth_latencies: Annotated[bool, SMOOTH] = False

    def __post_init__(self) -> None:
        from solvers.schedules.catalogue import ALGORITHMS

        super().__post_init__()
        if not 0 < self.min_bytes <= self.max_bytes:
            sizes = f"{format_bytes(self.min_bytes)}..{format_bytes(self.max_bytes)}"
            raise UsageError(f"--size {sizes}: give a size of more than 0 bytes, or a range like 1KB..1GB")
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown or not self.algorithms:
            raise UsageError(f"--algos {','.join(unknown)}: choose some of {', '.join(ALGORITHMS)}")
        if self.model == "latency":
            raise UsageError("--model latency knows no sizes; alpha-beta, contention and simulated do")


@dataclass(frozen=True)
class BalanceRequest(FeatureRequest):
    """Request for the balance of a step of ``step_s`` seconds that all-reduces ``parameter_bytes``; ``overlap``: the
    share of the step in which the exchange may go on. ``parts``: what hosts and network cost to buy; None: hosts are
    rented for their ``price=``. ``advise``: its sizes are not used."""

    parameter_bytes: float
    step_s: float
    overlap: float = 1.0
    parts: "NetworkParts | None" = None
    advise: AdviseRequest = field(default_factory=lambda: AdviseRequest(algorithms=FORMS))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.parameter_bytes < math.inf:
            raise UsageError(f"--parameters {self.parameter_bytes:g}: give the bytes a step all-reduces, like 390MB")
        if not 0 < self.step_s < math.inf:
            raise UsageError(f"--step {self.step_s:g}: give how long a step computes, like 350ms")
        if not 0 <= self.overlap <= 1:
            raise UsageError(f"--overlap {self.overlap:g}: give a share of the step from 0 to 1")

    @property
    def hidden_s(self) -> float:
        """The seconds of a step in which the exchange may go on."""
        return self.overlap * self.step_s
