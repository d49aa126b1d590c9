"""Cost of a run: each host's price for as long as it was held, in all and by unit of work.

The cost by unit of work is what a mix of reliable and transient machines is chosen by (Harlap thesis, 4.3).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from plink.errors import UsageError

_HOUR_S = 3600.0


@dataclass(frozen=True)
class Held:
    """Time for which a host was rented.

    ``price``: money per hour, None where it is not known; ``stretches``: from when until when it was held, seconds, in
    any order; where two overlap it was still one host.

    :raises UsageError: for numbers that cannot be.
    """

    host: str
    price: float | None
    stretches: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if self.price is not None and not (math.isfinite(self.price) and self.price >= 0):
            raise UsageError(f"host {self.host}: {self.price} is no price")
        for begin, end in self.stretches:
            if not (math.isfinite(begin) and math.isfinite(end) and begin <= end):
                raise UsageError(f"host {self.host}: it cannot have been held from {begin} s to {end} s")

    @property
    def seconds(self) -> float:
        """Return how long it was held."""
        held, until = 0.0, -math.inf
        for begin, end in sorted(self.stretches):
            held += max(0.0, end - max(begin, until))
            until = max(until, end)
        return held


@dataclass(frozen=True)
class Cost:
    """Cost of a run.

    ``total``: of the hosts that have a price, None when none has; ``per_unit``: of work, None when none was done;
    ``by_host``: those with a price; ``without_price``: those left out, by name.
    """

    total: float | None
    per_unit: float | None
    by_host: dict[str, float] = field(default_factory=dict)
    without_price: tuple[str, ...] = ()


def cost_of(hosts: Iterable[Held], work: float) -> Cost:
    """Return the cost, to the second.

    ``work``: units done (iterations); a host that is given twice, as one that came back under its old name is, counts
    for both.

    :raises UsageError: for an amount of work that cannot be.
    """
    if not (math.isfinite(work) and work >= 0):
        raise UsageError(f"{work} is no amount of work")
    by_host: dict[str, float] = {}
    without: list[str] = []
    for held in hosts:
        if held.price is None:
            without.append(held.host)
        else:
            by_host[held.host] = by_host.get(held.host, 0.0) + held.price * held.seconds / _HOUR_S
    total = math.fsum(by_host.values()) if by_host else None
    per_unit = None if total is None or not work else total / work
    return Cost(total, per_unit, by_host, tuple(dict.fromkeys(without)))
