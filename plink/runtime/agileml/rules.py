"""Synchronisation rules: how far a worker may be ahead of the slowest one when it reads.

A worker at clock c has finished all clocks below c. The state of a partition has a clock K: all updates up to K of all
workers are in it. A rule says which K a read at c needs, and whether later updates may be seen.
"""

from dataclasses import dataclass
from typing import Protocol

from plink.errors import InputError


class Rule(Protocol):
    """What partitions and clients ask of a rule; all of a run have the same."""

    @property
    def sees_ahead(self) -> bool:
        """Whether reads are served from all that arrived; otherwise from the state of the latest common clock."""

    def needs(self, clock: int) -> int:
        """The least clock of the state that a worker at ``clock`` may be given."""

    def keeps(self, clock: int, state: int) -> bool:
        """Whether a worker at ``clock`` may go on with what it was given of the state of clock ``state``."""


@dataclass(frozen=True)
class BSP:
    """Bulk synchronous: a worker at clock c sees all updates up to c - 1 and none after, whoever is how far;
    one who takes over for a lost worker too, from the step back that partitions keep."""

    @property
    def sees_ahead(self) -> bool:
        """Never: what others did at the reader's own clock would depend on who is faster."""
        return False

    def needs(self, clock: int) -> int:
        """All that came before."""
        return clock - 1

    def keeps(self, clock: int, state: int) -> bool:
        """Until the next clock."""
        return state == clock - 1


@dataclass(frozen=True)
class SSP:
    """Stale synchronous (Ho et al., NIPS 2013; Harlap thesis, 2.2.1): a worker at clock c sees at least all updates up
    to ``c - slack - 1``, its own of all clocks, and of others' later ones what has arrived."""

    slack: int

    def __post_init__(self) -> None:
        if self.slack < 0:
            raise InputError("slack", f"{self.slack} clocks")

    @property
    def sees_ahead(self) -> bool:
        """Newer is better, as long as nobody waits for it."""
        return True

    def needs(self, clock: int) -> int:
        """All but the last ``slack`` clocks before."""
        return clock - self.slack - 1

    def keeps(self, clock: int, state: int) -> bool:
        """As long as it would be given it again."""
        return state >= self.needs(clock)
