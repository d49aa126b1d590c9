"""How far partitions are, and pushes to backups in rounds, so that all backups have a clock in common to go back to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from solvers.elastic.placement.events import PushedTo
from solvers.elastic.placement.partitions import Partition

# Decisions count clocks that are done, the data path numbers them from 0: the state of clock K has K + 1 done.
SHIFT = 1


@dataclass
class Rounds:
    """``limit``: the clock up to which backups are pushed to now. ``push`` tells all hosts of another."""

    push: Callable[[int], None]
    clocks: dict[int, int] = field(default_factory=dict)
    limit: int = -1

    def reported(
        self, host: int, number: int, report: Sequence[object], partition: Partition, era: int
    ) -> PushedTo | None:
        """What a host says of a partition (role, era, epoch, clock, pushed); the event, if it is its owner's word."""
        role, its_era, _, clock, pushed = report
        if role != "serving" or host != partition.owner or its_era != era:
            return None
        assert isinstance(clock, int)
        assert isinstance(pushed, int)
        self.clocks[number] = clock
        return PushedTo(number, (clock if partition.owner == partition.backup else pushed) + SHIFT, era)

    def clock(self, partitions: int) -> int:
        """The clock that all partitions have reached."""
        return min((self.clocks.get(number, -1) for number in range(partitions)), default=-1)

    def next(self, consistent: int, partitions: int) -> None:
        """Begin the next round, if the last is over and there is something to push.

        :param consistent: clocks done that all backups have.
        """
        clock = self.clock(partitions)
        if consistent - SHIFT >= self.limit and clock > self.limit:
            self.limit = clock
            self.push(clock)

    def rolled_back(self, clock: int) -> None:
        """All are at a clock again."""
        self.clocks = dict.fromkeys(self.clocks, clock)
        self.limit = clock
        self.push(clock)
