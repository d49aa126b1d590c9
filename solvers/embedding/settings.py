"""What equation 4.1 leaves open: dimension, alpha, heights, and whether errors count relative to the distance."""

import itertools
import math
from dataclasses import dataclass

from plink.errors import UsageError

_DIMENSIONS = (2, 4, 8, 16, 32)
_HOSTS_PER_DIMENSION = 128
_ALPHAS = (1.0, 2.0)
MAX_DIMENSIONS = 64


@dataclass(frozen=True)
class Setting:
    """One way to fit distances: ``||v_i - v_j||^alpha + h_i + h_j``.

    In ``dimension`` dimensions, with or without ``heights`` h; errors in microseconds or ``relative`` to the
    measurement.

    :raises UsageError: when dimension or alpha is out of range.
    """

    dimension: int
    alpha: float
    heights: bool
    relative: bool

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= MAX_DIMENSIONS:
            raise UsageError(f"dimension {self.dimension}: it takes 1 to {MAX_DIMENSIONS}")
        if not (math.isfinite(self.alpha) and 1.0 <= self.alpha <= 2.0):
            raise UsageError(f"alpha {self.alpha:g}: it takes 1 to 2")


@dataclass(frozen=True)
class EmbeddingConstraints:
    """What the user has fixed; None is chosen by held-out error."""

    dimension: int | None = None
    alpha: float | None = None
    heights: bool | None = None
    relative: bool | None = None

    def settings(self, hosts: int) -> list[Setting]:
        """Return all that remain to be tried for so many hosts, the plainest first.

        Of dimensions are tried those below N / 2, so that pairs outnumber coordinates, and where there are many hosts
        not the fewest: the far pairs are so many that a flat map leaves the near ones no place (2 dimensions had 0.6
        where 32 had 1.0 of the triplets of 1,024 hosts right).

        :raises UsageError: when a value is out of range.
        """
        fewest = min(hosts / _HOSTS_PER_DIMENSION, max(_DIMENSIONS))
        fitting = [dimension for dimension in _DIMENSIONS if fewest <= dimension < max(hosts / 2, 3)]
        return [
            Setting(*values)
            for values in itertools.product(
                fitting if self.dimension is None else [self.dimension],
                _ALPHAS if self.alpha is None else [self.alpha],
                [False, True] if self.heights is None else [self.heights],
                [False, True] if self.relative is None else [self.relative],
            )
        ]
