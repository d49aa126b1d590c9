"""DSSP: dynamic stale synchronous, a staleness bound within a range (Zhao et al., ICDCS 2019)."""

import re
from dataclasses import dataclass

from plink.errors import UsageError
from plink.model.consistency import MAX_APART_CLOCKS, Rule

_SPEC = re.compile(r"dssp:(\d{1,9}):(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class DSSP(Rule):
    """Stale synchronous with a bound between ``lower`` and ``upper``: a worker that is ``lower`` clocks ahead of the
    slowest goes on for as many clocks as make it wait least then, but is never more than ``upper`` ahead.

    :raises UsageError: ``lower`` above ``upper``, or ``upper`` above :data:`MAX_APART_CLOCKS`.
    """

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= self.upper <= MAX_APART_CLOCKS:
            raise UsageError(
                f"dssp:{self.lower}:{self.upper}: choose two bounds of 0 to {MAX_APART_CLOCKS} clocks, the lower first"
            )

    @property
    def apart(self) -> int:
        """The upper bound."""
        return self.upper

    def needs(self, clock: int) -> int:
        """Return the clock ``upper`` + 1 before, at least the first values of the tables; a worker may wait for a later
        one."""
        return clock - 1 if clock == 0 else max(0, clock - self.upper - 1)


def parse(spec: str) -> DSSP | None:
    """Return the rule of ``dssp:L:U``; None for another one.

    :raises UsageError: as :class:`DSSP`.
    """
    match = _SPEC.fullmatch(spec)
    return None if match is None else DSSP(int(match[1]), int(match[2]))
