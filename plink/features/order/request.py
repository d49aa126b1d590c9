"""Request for an order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from plink.errors import UsageError, no_choice
from plink.features.order.constraints import RequestedGroups
from plink.model.request import Bytes, FeatureRequest, Option, Settings, Text

if TYPE_CHECKING:
    from plink.model.topology import Topology

_OBJECTIVE, _HOSTS, _SEARCH = "Objective", "Hosts and constraints", "Search"
_MAX_DIGITS = 9


def _pins(words: Sequence[str]) -> dict[str, int]:
    pinned: dict[str, int] = {}
    for word in words:
        name, _, rank = word.rpartition("=")
        if not name or not rank.isdecimal() or len(rank) > _MAX_DIGITS:
            raise UsageError(f"--pin {word}: write a host's name, = and its first rank, node1=0")
        if pinned.setdefault(name, int(rank)) != int(rank):
            raise UsageError(f"--pin: {name} cannot have rank {pinned[name]} and rank {rank}")
    return pinned


@dataclass(frozen=True)
class OrderRequest(FeatureRequest):
    """Request for an order. ``model`` ``simulated``: the search goes by ``contention``, and its best orders are
    simulated. ``groups``: hosts kept together, by name, or how many groups to form; ``groups_source`` names them in
    errors. ``prior``: how near hosts are that were not measured. ``time_limit_s`` None: until nothing has come of the
    search for long, 10 s at most (60 s with ``prove``). ``max_moves``: with them no clock is looked at, so that a seed
    gives the same order however busy the machine is."""

    algo: Annotated[
        str, Option("The collective's algorithm, or a library's own (gloo, nccl, ...).", panel=_OBJECTIVE)
    ] = "ring"
    size_bytes: Annotated[
        Bytes, Option("Bytes to reduce (64KB, 100MB); the latency model ignores them.", ("--size",), panel=_OBJECTIVE)
    ] = 100e6
    model: Annotated[str, Option("Cost model.", panel=_OBJECTIVE)] = "auto"
    options: Annotated[
        Settings, Option("An option of the algorithm: --set base=4, --set fan-out=3.", ("--set",), panel=_OBJECTIVE)
    ] = field(default_factory=dict[str, int | bool])
    objective: Annotated[
        str,
        Option(
            "For rings: minimise the sum of round trips, or bottleneck: the longest one, then the sum.",
            choices=("auto", "sum", "bottleneck"),
            panel=_OBJECTIVE,
        ),
    ] = "auto"
    pins: Annotated[
        Mapping[str, int],
        Text("HOST=RANK", _pins, repeated=True),
        Option("Pin a host's first rank.", ("--pin",), panel=_HOSTS),
    ] = field(default_factory=dict[str, int])
    groups: RequestedGroups | None = None
    groups_source: str = "groups"
    prior: "Topology | None" = None
    time_limit_s: Annotated[
        float | None,
        Option(
            "Seconds to search; default: until it finds nothing better, 10 at most.",
            ("--time-limit",),
            least=0,
            most=1e6,
            metavar="SECONDS",
            panel=_SEARCH,
        ),
    ] = None
    max_moves: Annotated[
        int | None,
        Option("Maximum number of moves, instead of a time limit: reproducible.", least=1, most=10**12, panel=_SEARCH),
    ] = None
    seed: Annotated[int, Option("Makes the search reproducible.", least=0, most=2**63 - 1, panel=_SEARCH)] = 0
    prove: Annotated[bool, Option("Prove optimality by exact methods; exit code 3 without a proof.", panel=_SEARCH)] = (
        False
    )
    force: Annotated[bool, Option("Take the found order even if its gain is within noise.", panel=_SEARCH)] = False
    smooth_latencies: Annotated[
        bool, Option("Smooth round trips by an embedding; `plink embed` shows whether it helps.", panel=_HOSTS)
    ] = False

    def __post_init__(self) -> None:
        from plink.features.order.algorithms import options_of
        from plink.features.order.hubs import refuse_hubs
        from solvers.costs.by_name import NAMES, SIMULATED

        super().__post_init__()
        if self.algo not in NAMES:
            raise no_choice("--algo", self.algo, NAMES)
        refuse_hubs(self.algo)
        if self.max_moves is not None and self.time_limit_s is not None:
            raise UsageError("--max-moves replaces the time limit; omit --time-limit")
        if self.model == SIMULATED and self.objective in ("sum", "bottleneck"):
            raise UsageError(f"--objective {self.objective} uses round trips only; omit --model {SIMULATED}")
        if self.model == SIMULATED and self.prove:
            raise UsageError(f"--prove: no exact method knows --model {SIMULATED}; omit one of the two")
        for name, rank in self.pins.items():
            if type(rank) is not int:
                raise UsageError(f"--pin {name}={rank}: a rank is a whole number")
        options_of(self.options, [self.algo])
