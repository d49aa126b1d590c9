"""Bound on how far the parameters may be from what their replicas have (MLfabric; Viswanathan and Akella 2020, 3.3)."""

import math
from dataclasses import dataclass

from plink.errors import UsageError


@dataclass(frozen=True)
class DivergenceBound:
    """Largest distance, the L2 norm over all tables of floats; ``relative``: a share of the replicas' norm instead."""

    value: float
    relative: bool = False

    def square(self, share: float, norm_square: float) -> float:
        """Return the squared distance that one partition may have. ``share``: of all numbers, those that it has;
        ``norm_square``: of its replica. Partitions that keep these keep the bound together: their squares add up."""
        return self.value**2 * (norm_square if self.relative else share)


def parse_divergence(text: str) -> DivergenceBound | None:
    """Return the bound that is written as a distance (``0.5``) or a share (``1%``); None for 0, or nothing: replicas
    are pushed to as fast as the network takes it.

    :raises UsageError: it is no number, negative, or not finite.
    """
    relative = text.endswith("%")
    try:
        value = float(text.removesuffix("%") or 0) / (100 if relative else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"--divergence {text}: write a distance of 0 or more (0.5), or a share of the norm (1%)")
    return DivergenceBound(value, relative) if value else None


def check_divergence(text: str, float_tables: int) -> None:
    """Check that a program has parameters with a distance. :raises UsageError: it has integers only."""
    if parse_divergence(text) is not None and not float_tables:
        raise UsageError("--divergence is a distance of tables of floats, and this program has integers only: omit it")
