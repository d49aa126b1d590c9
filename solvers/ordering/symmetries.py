"""Permutations of the ranks that change no order's price, and which orders need not be looked at because of them."""

from collections.abc import Iterator

import numpy as np

from plink.model.network import Matrix
from solvers.costs.closed_forms import Order
from solvers.costs.patterns import Pattern


def symmetries(pattern: Pattern, model: str) -> list[Order]:
    """Permutations of the ranks, shape (N,) each, that leave the pattern what it is, found by trying: counting on in
    the digits of any base that N is a power of (shifts are base N, ``xor`` is base 2), and the same mirrored.

    An order costs what it does with its ranks so permuted. For chains under ``latency``: none are looked for.
    """
    n, rank = pattern.ranks, np.arange(pattern.ranks)
    if pattern.everyone or (model == "latency" and pattern.pace == "chain"):
        return []
    shares = pattern.share if model != "latency" else np.zeros(len(pattern.share))

    def written(s: Order) -> tuple[bytes, bytes]:
        source, target = s[pattern.source], s[pattern.target]
        if model == "latency":
            source, target = np.minimum(source, target), np.maximum(source, target)
        key = (pattern.round * n + source) * n + target
        sequence = np.lexsort((shares, key))
        return key[sequence].tobytes(), shares[sequence].tobytes()

    same, found = written(rank), []
    for base in range(2, n + 1):
        digits = round(np.log(n) / np.log(base))
        if base**digits != n:
            continue
        powers = base ** np.arange(digits)
        of_rank = rank[:, None] // powers % base
        for k in range(n):
            added = ((of_rank + of_rank[k]) % base) @ powers
            found += [s for s in (added, (-added) % n) if written(s) == same]
    return found


def superfluous(pattern: Pattern, model: str, rtt_us: Matrix) -> Iterator[tuple[tuple[int, int], ...]]:
    """Choices (rank, its host) no order needs to have all of: another one without them costs the same. Hosts are
    numbered from 0 to N - 1, in any way.

    :param rtt_us: shape (N, N), of all hosts; where it is not symmetric nothing is superfluous.
    """
    n = pattern.ranks
    if not np.array_equal(rtt_us, rtt_us.T, equal_nan=True):
        return
    moves = symmetries(pattern, model)
    # The first host can be brought to the lowest rank of any orbit that it is in.
    lowest = np.arange(n)
    for _ in range(n):
        for move in moves:
            np.minimum.at(lowest, move, lowest.copy())
            lowest = np.minimum(lowest, lowest[move])
    for rank in range(n):
        if lowest[rank] != rank:
            yield ((rank, 0),)
    mirrors = [move for move in moves if move[0] == 0 and move[1] != 1 and (move[move] == np.arange(n)).all()]
    if n > 2 and not lowest.any() and mirrors:
        for v in range(n):
            for t in range(v):
                yield (1, v), (int(mirrors[0][1]), t)
