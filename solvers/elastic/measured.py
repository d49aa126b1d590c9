"""What is measured of hosts while they work: seconds and steps of iterations, and speeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class HostWork:
    """Work of a host's workers in one iteration, summed up: seconds computed and waited, steps, and clocks; how many
    grains it had, and how many of them workers of which hosts did for it."""

    compute_s: float = 0.0
    waited_s: float = 0.0
    steps: int = 0
    clocks: int = 0
    grains: int = 0
    helped: Mapping[int, int] = field(default_factory=dict)

    def plus(self, compute_s: float, waited_s: float, steps: int) -> "HostWork":
        """Return it with one more clock of one worker."""
        return replace(
            self, compute_s=self.compute_s + compute_s, waited_s=self.waited_s + waited_s, steps=self.steps + steps,
            clocks=self.clocks + 1,
        )  # fmt: skip

    def plus_help(self, grains: int, helped: Mapping[int, int]) -> "HostWork":
        """Return it with the grains of one more clock, of which workers of hosts did so many for it."""
        hosts = dict(self.helped)
        for host, count in helped.items():
            hosts[host] = hosts.get(host, 0) + count
        return replace(self, grains=self.grains + grains, helped=hosts)


@dataclass(frozen=True)
class IterationWork:
    """Work of one iteration by host, of those workers and clocks that are reported."""

    hosts: Mapping[int, HostWork] = field(default_factory=dict)
    reported: frozenset[tuple[int, int]] = frozenset()

    def plus(self, host: int, work: HostWork, worker: int, clock: int) -> "IterationWork":
        """Return it with a clock of a worker, after which that is the host's work."""
        return IterationWork({**self.hosts, host: work}, self.reported | {(worker, clock)})


@dataclass(frozen=True)
class MeasuredSpeeds:
    """State of the measurement of speeds.

    ``seconds``: of a mini-batch of one shard, by host, an exponentially weighted mean. ``clock``: the latest that was
    looked at. ``uneven``: clocks in a row that other shares would have made shorter.
    """

    seconds: Mapping[int, float] = field(default_factory=dict)
    clock: int = 0
    uneven: int = 0
