"""The ring all-reduce (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms", section 4)."""

import numpy as np
import numpy.typing as npt

from plink.schedule import Indices, Schedule, make_schedule, there_and_back


def ring(ranks: int, step: int = 1) -> Schedule:
    """The all-reduce: 2(N-1) rounds, every rank always sends to rank + ``step`` (1 or -1): 2(N-1)/N of the vector
    through every link.

    :raises UsageError: for fewer than two ranks.
    """
    return there_and_back(ring_reduce_scatter(ranks, step), ring_all_gather(ranks, step))


def ring_reduce_scatter(ranks: int, step: int = 1) -> Schedule:
    """N-1 rounds; rank r ends with chunk r + ``step`` (modulo N). In every round each rank passes one chunk, of 1/N of
    the vector, to its neighbour, which adds its own.

    :raises UsageError: for fewer than two ranks.
    """
    return make_schedule("ring", ranks, ranks, _rows(ranks, step, 0), "reduce-scatter", _owners(ranks, step))


def ring_all_gather(ranks: int, step: int = 1) -> Schedule:
    """N-1 rounds; rank r begins with chunk r + ``step`` and passes on what it has got last.

    :raises UsageError: for fewer than two ranks.
    """
    return make_schedule("ring", ranks, ranks, _rows(ranks, step, 1), "all-gather", _owners(ranks, step))


def _owners(ranks: int, step: int) -> Indices:
    return ((np.arange(ranks) - step) % max(1, ranks)).astype(np.int32)


def _rows(ranks: int, step: int, copies: int) -> npt.NDArray[np.intp]:
    """Rank r sends chunk r - t * step in round t of the reduce-scatter, the next one when it already has its own."""
    when, rank = (axis.ravel() for axis in np.mgrid[: max(0, ranks - 1), :ranks])
    chunk = rank + step * (copies - when)
    ones = np.ones_like(rank)
    return np.stack([when, rank, (rank + step) % ranks, chunk % ranks, ones, copies * ones], axis=1)
