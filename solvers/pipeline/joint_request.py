"""What the planner for measured networks is asked for."""

from dataclasses import dataclass

from plink.documents.pipeline import Kind, ReduceMode
from plink.model.hosts import Host, Hosts
from solvers.costs.fabric import Fabric
from solvers.pipeline.threshold import StageRange


@dataclass(frozen=True)
class JointRequest:
    """``kind`` None leaves 1f1b or data parallelism to the planner. ``depths`` None: what helps; ``noam``: the
    thesis's.
    ``accumulate``: minibatches that an update averages, of kinds that accumulate. ``memory``: bytes of each host,
    infinite where nobody says. ``compare``: also plan data parallelism, straight stages and other kinds, and price the
    given order."""

    kind: Kind | None = None
    stages: tuple[StageRange, ...] | None = None
    depths: tuple[int, ...] | str | None = None
    accumulate: int = 1
    recompute: bool = False
    vertical_sync: bool = False
    reduce: ReduceMode = "wait"
    straight: bool = False
    all_workers: bool = False
    memory: tuple[float, ...] | None = None
    compare: bool = False
    seed: int = 0
    moves: int = 60_000


@dataclass(frozen=True)
class MeasuredHosts:
    """The hosts of a network, in its order, as ``fabric`` has them. ``usable``: names of those that may be used; None:
    all."""

    hosts: Hosts
    fabric: Fabric
    usable: frozenset[str] | None = None

    @property
    def workers(self) -> tuple[int, ...]:
        """Return the host of each slot that may be used."""
        return tuple(number for number, host in enumerate(self.hosts) if self.may_use(host) for _ in range(host.slots))

    def may_use(self, host: Host) -> bool:
        """Whether a host may be used."""
        return self.usable is None or host.name in self.usable
