"""Ordered: asynchronous, with a bound on the age of updates (MLfabric, Viswanathan and Akella 2020, section 3)."""

import re
from dataclasses import dataclass

from plink.errors import UsageError
from plink.model.rules.asp import ASP, DEFAULT_CLOCK_S
from plink.model.units import parse_duration

MAX_DELAY = 10**6
_SPEC = re.compile(r"ordered:([^:]{0,40})(?::((?!direct$)[^:]{1,20}))?(:direct)?", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)
_BISECTIONS = 40


@dataclass(frozen=True, kw_only=True)
class Ordered(ASP):
    """As ASP, but servers drop an update whose delay is above ``max_delay``: so many others were applied between the
    read that it was computed from and itself. Its worker goes on with the next mini-batch.

    ``direct``: workers send updates without asking partition 0's arbiter first.

    :raises UsageError: a bound below 1 or above :data:`MAX_DELAY`; or as :class:`ASP`.
    """

    max_delay: int
    direct: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_delay <= MAX_DELAY:
            raise UsageError(f"ordered:{self.max_delay}: choose a delay of 1 to {MAX_DELAY} updates")

    def dropped_shares(self, workers: int) -> tuple[float, float]:
        """Return the share of updates that is expected to be dropped where workers are equally fast: if all steps take
        the same time, and if a step's time is exponential.

        In equal steps each worker sends once in n updates, and at most N + 1 of any n in a row are applied: the share
        is 1 - (N + 1) / n. With exponential times the next update is anybody's. If a share a of the m = n - 1 others'
        is applied, the delay exceeds N with probability (a m / (1 + a m)) ** (N + 1), which must be 1 - a.
        """
        others, low, high = workers - 1, 0.0, 1.0
        for _ in range(_BISECTIONS):
            applied = (low + high) / 2
            delay = applied * others  # the mean
            if applied + (delay / (1 + delay)) ** (self.max_delay + 1) < 1:
                low = applied
            else:
                high = applied
        return max(0.0, 1 - (self.max_delay + 1) / max(1, workers)), 1 - high

    def caution(self, workers: int) -> str:
        """Return a line on what to expect of a bound below the number of workers; empty for others."""
        if self.max_delay >= workers:
            return ""
        equal, random = self.dropped_shares(workers)
        return (
            f"--rule ordered:{self.max_delay} with {workers} workers: equally fast, these will drop {equal:.0%} of the "
            f"updates (where all steps are equally long) or {random:.0%} (where they vary at random); plain asp has a "
            f"mean delay of {workers - 1}"
        )


def parse(spec: str) -> Ordered | None:
    """Return the rule of ``ordered:N``, ``ordered:N:SECONDS`` or one of these with ``:direct``; None for another one.

    :raises UsageError: as :class:`Ordered`.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        return None
    if _NUMBER.fullmatch(match[1]) is None:
        raise UsageError(f"{spec}: the delay must be a number, as in ordered:30")
    clock_s = DEFAULT_CLOCK_S if match[2] is None else parse_duration(match[2])
    return Ordered(max_delay=int(match[1]), clock_s=clock_s, direct=match[3] is not None)
