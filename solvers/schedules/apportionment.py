"""Whole chunks dealt out in proportion to weights: nobody gets more than one chunk too many or too few."""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]

_ROUNDING = 1e-12  # of all chunks: a share that is so near to a whole number of them is that number


def apportioned(chunks: int, weights: Vector) -> Counts:
    """How many of the chunks each takes, by largest remainders (Hamilton's method): its share ``chunks * w / sum(w)``
    rounded down or up, up where the remainder is largest, the first of equals first.

    :param weights: shape (M,), 0 or more, not all 0. :returns: shape (M,), adding up to ``chunks``.
    """
    shares = _shares(chunks, weights)
    counts = np.floor(shares)
    return _raised(counts, _largest(shares - counts, round(chunks - counts.sum())))


def nested(part: int, chunks: int, weights: Vector) -> tuple[Counts, Counts]:
    """How many of the first ``part`` chunks, and how many of all of them, each takes: both numbers are its share
    rounded down or up, and the second is not below the first.

    Largest remainders twice would not do: with shares of 0.4 of the part and 0.5 of all, one may be rounded up inside
    and down outside. Who has the same whole number in both and is rounded up inside must be so outside; as few as
    possible are chosen inside of those. That this is few enough follows from there being a house-monotone
    apportionment that satisfies quota (Balinski and Young, "The quota method of apportionment", Amer. Math. Monthly
    82, 1975): what it gives for ``part`` and for ``chunks`` is a pair of this kind.

    :param weights: shape (M,), 0 or more, not all 0. :returns: two arrays of shape (M,).
    """
    inner, outer = _shares(part, weights), _shares(chunks, weights)
    low, high = np.floor(inner), np.floor(outer)
    over, above = inner - low, outer - high
    tight = low == high
    raised = _largest(over + (~tight & (over > 0)), round(part - low.sum()))  # remainders are below one
    return _raised(low, raised), _raised(high, _largest(above + (raised & tight), round(chunks - high.sum())))


def _shares(chunks: int, weights: Vector) -> Vector:
    shares: Vector = chunks * (weights / weights.sum())
    whole = np.rint(shares)
    return np.where(np.abs(shares - whole) <= _ROUNDING * chunks, whole, shares)


def _largest(values: Vector, number: int) -> npt.NDArray[np.bool_]:
    """The places of so many of the largest values, the first of equals first."""
    chosen = np.zeros(len(values), dtype=np.bool_)
    chosen[np.argsort(-values, kind="stable")[:number]] = True
    return chosen


def _raised(counts: Vector, chosen: npt.NDArray[np.bool_]) -> Counts:
    return (counts + chosen).astype(np.intp)
