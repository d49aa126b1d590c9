"""What is measured of hosts while they work: seconds and steps of iterations, and speeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HostWork:
    """Work of a host's workers in one iteration, summed up: seconds computed and waited, steps, and clocks."""

    compute_s: float = 0.0
    waited_s: float = 0.0
    steps: int = 0
    clocks: int = 0

    def plus(self, compute_s: float, waited_s: float, steps: int) -> "HostWork":
        """Return it with one more clock of one worker."""
        return HostWork(self.compute_s + compute_s, self.waited_s + waited_s, self.steps + steps, self.clocks + 1)


@dataclass(frozen=True)
class MeasuredSpeeds:
    """State of the measurement of speeds.

    ``seconds``: of a mini-batch of one shard, by host, an exponentially weighted mean. ``clock``: the latest that was
    looked at. ``uneven``: clocks in a row that other shares would have made shorter.
    """

    seconds: Mapping[int, float] = field(default_factory=dict)
    clock: int = 0
    uneven: int = 0
