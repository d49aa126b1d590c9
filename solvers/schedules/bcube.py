"""BCube: B ranks at a time exchange, one digit of their numbers after the other (PLink thesis, 5.2.1).

BML does so on all digits at once, a part of the vector on each.
"""

from collections.abc import Sequence

import numpy as np

from plink.errors import UsageError
from plink.model.schedule import Indices, Schedule, make_schedule

_MAX_LEVELS = 64


def bcube_reduce_scatter(ranks: int, base: int) -> Schedule:
    """k rounds; in round i every rank cuts what it is still responsible for, 1/B^i of the vector, into B parts, keeps
    the one of its own i-th digit (the lowest is the 0th) and sends each of the B-1 ranks that differ in that digit only
    the part of its digit. Base 2 is recursive halving with the distance doubling.

    Rank r ends with the chunk whose number has r's digits in reverse order: all ranges are contiguous this way.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    rows, owners = exchanges(ranks, base, range(levels_of("bcube", ranks, base)))
    return make_schedule("bcube", ranks, ranks, rows, "reduce-scatter", owners)


def bml_reduce_scatter(ranks: int, base: int) -> Schedule:
    """BML's aggregation stage over N = n^k ranks (n the base), k rounds: the vector is cut into kN chunks, thread t has
    chunks t * N to t * N + N - 1 and exchanges in round w with the ranks that differ in digit (w + t) mod k only,
    n^(k-w-1) chunks with each of them.

    A BCube server has k interfaces, one a level, and the k threads never use the same one in a round; so it takes
    (N-1)/(kN) of the time in which one interface sends the whole vector (Wang et al., NeurIPS 2018, section 3).

    Every rank ends with one chunk of each thread. The paper numbers a thread's chunks by the rank that ends with them;
    here they are in the order in which a thread goes through the digits, so that what is sent together is contiguous.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    levels = levels_of("bml", ranks, base)
    rows, owners = [], []
    for thread in range(levels):
        own, ends = exchanges(ranks, base, [(w + thread) % levels for w in range(levels)])
        own[:, 3] += thread * ranks
        rows.append(own)
        owners.append(ends)
    return make_schedule("bml", ranks, levels * ranks, np.concatenate(rows), "reduce-scatter", np.concatenate(owners))


def exchanges(ranks: int, base: int, levels: Sequence[int]) -> tuple[Indices, Indices]:
    """The rows of a reduce-scatter that goes through the digits in the order of ``levels``, one a round, as an array of
    shape (k * N * (B-1), 6), and who ends with which of the N chunks, shape (N,)."""
    rank = np.arange(ranks)
    window, size = np.zeros(ranks, dtype=np.int64), ranks
    rows = [np.empty((0, 6), dtype=np.int64)]
    for when, level in enumerate(levels):
        size //= base
        digit = rank // base**level % base
        other = (digit + np.arange(1, base)[:, None]) % base
        parts = np.broadcast_arrays(when, rank, rank + (other - digit) * base**level, window + other * size, size, 0)
        rows.append(np.stack(parts, axis=-1).reshape(-1, 6))
        window = window + digit * size
    owners = np.empty(ranks, dtype=np.int32)
    owners[window] = rank
    return np.concatenate(rows).astype(np.int32), owners


def levels_of(algo: str, ranks: int, base: int) -> int:
    """k, where the number of ranks is B^k.

    :raises UsageError: where there is no such k.
    """
    if base < 2:
        raise UsageError(f"{algo} needs a base of two or more, not {base}")
    below, levels = base, 1
    while below * base <= ranks:
        below, levels = below * base, levels + 1
    if ranks != below:
        nearest = f"{below} or {below * base}" if below < ranks else str(below)
        raise UsageError(f"{algo} of base {base} needs a power of {base} ranks, not {ranks}; nearest: {nearest}")
    return levels


def base_of(algo: str, ranks: int, levels: int) -> int:
    """B, where the number of ranks is B^k for k ``levels``.

    :raises UsageError: where there is no such B.
    """
    if levels < 1:
        raise UsageError(f"{algo} needs one level or more, not {levels}")
    if levels > _MAX_LEVELS:  # before its powers are worked out
        raise UsageError(f"{algo} with {levels} levels needs 2^{levels} ranks or more, not {ranks}")
    base = 2
    while (base + 1) ** levels <= ranks:
        base += 1
    if base**levels != ranks:
        nearest = f"{base**levels} or {(base + 1) ** levels}" if base**levels < ranks else str(base**levels)
        raise UsageError(
            f"{algo} with {levels} levels needs as many ranks as the power {levels} of some base, not {ranks}; "
            f"nearest: {nearest}"
        )
    return base
