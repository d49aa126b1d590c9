"""How many groups, and how large each may be (PLink thesis 4.2.1, eq. 4.2).

With n hosts in k groups a global master sends and receives about n/k + k messages, which is least at k = sqrt(n).
"""

import math
from dataclasses import dataclass

from plink.errors import UsageError

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Sizes:
    """``number`` groups of ``least`` to ``most`` hosts each, of ``hosts`` hosts in all."""

    hosts: int
    number: int
    least: int
    most: int


def sizes_for(hosts: int, number: int | None = None, elasticity: float = 1.0) -> Sizes:
    """Return round(sqrt(n)) groups, or so many as are given, of n/k/elasticity to n/k*elasticity hosts.

    The thesis names the least size for k = sqrt(n), sqrt(n)/elasticity; for any k that is n/k/elasticity, rounded down.
    A group that is twice as large as the others is as bad as one that is half as large is wasteful, so the most is
    limited by the same factor, rounded up. With 1 sizes are one apart at most.

    :raises UsageError: when there cannot be so many groups, or elasticity is not within 1 and 2.
    """
    check_elasticity(elasticity)
    k = max(1, round(math.sqrt(hosts))) if number is None else number
    if not 1 <= k <= hosts:
        raise UsageError(f"--groups {k}: 1 to {hosts} groups can be made of {hosts} hosts")
    least = math.floor(hosts / k / elasticity + _ROUNDING)
    most = math.ceil(hosts / k * elasticity - _ROUNDING)
    return Sizes(hosts, k, max(1, least), min(hosts - k + 1, most))


def check_elasticity(elasticity: float) -> None:
    """:raises UsageError: when it is not within 1 and 2."""
    if not 1.0 <= elasticity <= 2.0:
        raise UsageError(f"--elasticity {elasticity:g}: it takes 1 (even groups) to 2 (half to twice as large)")
