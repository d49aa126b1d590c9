"""What the planner for measured networks is asked for."""

from dataclasses import dataclass

import numpy as np

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
    all. ``is_even``: links of all hosts are alike."""

    hosts: Hosts
    fabric: Fabric
    usable: frozenset[str] | None = None
    is_even: bool = False

    @classmethod
    def even(cls, hosts: Hosts, gbps: float, rtt_s: float = 0.0) -> "MeasuredHosts":
        """Return hosts that nobody measured: each sends and receives at this rate, and they share no links."""
        count = len(hosts)
        rates, unlimited = np.full(count, gbps), np.full(1, np.inf)
        fabric = Fabric(
            tuple(hosts.names), rtt_s * 1e6 * (1 - np.eye(count)), None, rates, rates, np.zeros(count, dtype=np.intp),
            unlimited, unlimited, f"assumed: {gbps:g} Gbit/s a host, no shared links",
        )  # fmt: skip
        return cls(hosts, fabric, is_even=True)

    @property
    def workers(self) -> tuple[int, ...]:
        """Return the host of each slot that may be used."""
        return tuple(number for number, host in enumerate(self.hosts) if self.may_use(host) for _ in range(host.slots))

    def may_use(self, host: Host) -> bool:
        """Whether a host may be used."""
        return self.usable is None or host.name in self.usable
