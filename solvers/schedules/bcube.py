"""BCube: B ranks at a time exchange, one digit of their numbers after the other (PLink thesis, 5.2.1)."""

from collections.abc import Sequence

import numpy as np

from plink.errors import UsageError
from plink.model.schedule import Indices, Schedule, forward_and_reverse, make_schedule

_MAX_LEVELS = 64


def bcube(ranks: int, base: int) -> Schedule:
    """The all-reduce over N = B^k ranks: 2k rounds, 2(N-1)/N of the vector sent by every rank.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    return forward_and_reverse(bcube_reduce_scatter(ranks, base))


def bcube_reduce_scatter(ranks: int, base: int) -> Schedule:
    """k rounds; in round i every rank cuts what it is still responsible for, 1/B^i of the vector, into B parts, keeps
    the one of its own i-th digit (the lowest is the 0th) and sends each of the B-1 ranks that differ in that digit only
    the part of its digit. Base 2 is recursive halving with the distance doubling.

    Rank r ends with the chunk whose number has r's digits in reverse order: all ranges are contiguous this way.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    rows, owners = exchanges(ranks, base, range(levels_of("bcube", ranks, base)))
    return make_schedule("bcube", ranks, ranks, rows, "reduce-scatter", owners)


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
