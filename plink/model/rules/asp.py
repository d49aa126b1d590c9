"""ASP: asynchronous; nobody waits for anybody, and clocks go by time (Dean and others 2012)."""

import re
from dataclasses import dataclass

from plink.errors import UsageError
from plink.model.consistency import Rule
from plink.model.units import parse_duration

DEFAULT_CLOCK_S, MIN_CLOCK_S, MAX_CLOCK_S = 2.0, 0.1, 600.0
_APART_CLOCKS = 8  # whoever is behind ends clocks without a step, so nobody ever is that far behind unless it hangs
_SPEC = re.compile(r"asp(?::(.{1,20}))?", re.ASCII)


@dataclass(frozen=True)
class ASP(Rule):
    """A clock is a stretch of time: each worker does as many steps as it can, and sends and reads with each. The worker
    that has shard 0 ends its clock after ``clock_s``, the others when they notice that. So there are clocks to roll
    back to, of about the same time everywhere, and no barrier.

    :raises UsageError: a clock shorter than :data:`MIN_CLOCK_S` or longer than :data:`MAX_CLOCK_S`.
    """

    apart = _APART_CLOCKS
    steps = True
    clock_s: float = DEFAULT_CLOCK_S

    def __post_init__(self) -> None:
        if not MIN_CLOCK_S <= self.clock_s <= MAX_CLOCK_S:
            raise UsageError(
                f"clocks of {self.clock_s:g}s: choose a clock of {MIN_CLOCK_S * 1000:g}ms to {MAX_CLOCK_S:g}s, longer "
                "than a mini-batch takes"
            )

    def needs(self, clock: int) -> int:
        """Return the clock that is so many before; at least the first values of the tables."""
        return clock - 1 if clock == 0 else max(0, clock - 1 - _APART_CLOCKS)


def parse(spec: str) -> ASP | None:
    """Return the rule of ``asp`` or ``asp:SECONDS``; None for another one.

    :raises UsageError: as :class:`ASP`.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        return None
    return ASP() if match[1] is None else ASP(parse_duration(match[1]))
