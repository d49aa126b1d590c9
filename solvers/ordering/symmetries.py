"""Symmetries of a pattern: rank permutations that change no order's cost, and the choices that they make redundant."""

from collections.abc import Iterator, Sequence

import numpy as np

from plink.model.network import Matrix
from solvers.costs.closed_forms import Order
from solvers.costs.patterns import Pattern


def symmetries(pattern: Pattern, model: str) -> list[Order]:
    """Return rank permutations, shape (N,) each, that leave the pattern the same, so that they change no cost.

    Candidates are digit-wise additions in any base that N is a power of (rotations are base N, ``xor`` is base 2), and
    their mirror images. For chains under ``latency`` there are no candidates.
    """
    n, rank = pattern.ranks, np.arange(pattern.ranks)
    if pattern.all_to_all_share or (model == "latency" and pattern.timing == "chain"):
        return []
    shares = pattern.share if model != "latency" else np.zeros(len(pattern.share))

    def canonical_form(s: Order) -> tuple[bytes, bytes]:
        source, target = s[pattern.source], s[pattern.target]
        if model == "latency":
            source, target = np.minimum(source, target), np.maximum(source, target)
        key = (pattern.round * n + source) * n + target
        by_key = np.lexsort((shares, key))
        return key[by_key].tobytes(), shares[by_key].tobytes()

    pattern_form, permutations = canonical_form(rank), []
    for base in range(2, n + 1):
        digits = round(np.log(n) / np.log(base))
        if base**digits != n:
            continue
        powers = base ** np.arange(digits)
        of_rank = rank[:, None] // powers % base
        for k in range(n):
            shifted = ((of_rank + of_rank[k]) % base) @ powers
            permutations += [s for s in (shifted, (-shifted) % n) if canonical_form(s) == pattern_form]
    return permutations


def redundant_choices(pattern: Pattern, model: str, rtt_us: Matrix) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield sets of choices (rank, host) that may be forbidden: some order without them costs the same.

    :param rtt_us: shape (N, N), of all hosts, in any numbering; where it is not symmetric nothing is redundant.
    """
    n = pattern.ranks
    if not np.array_equal(rtt_us, rtt_us.T, equal_nan=True):
        return
    permutations = symmetries(pattern, model)
    # The first host can be brought to the lowest rank of any orbit that it is in.
    lowest_in_orbit = np.arange(n)
    for _ in range(n):
        for permutation in permutations:
            np.minimum.at(lowest_in_orbit, permutation, lowest_in_orbit.copy())
            lowest_in_orbit = np.minimum(lowest_in_orbit, lowest_in_orbit[permutation])
    for rank in range(n):
        if lowest_in_orbit[rank] != rank:
            yield ((rank, 0),)
    mirrors = [
        permutation
        for permutation in permutations
        if permutation[0] == 0 and permutation[1] != 1 and (permutation[permutation] == np.arange(n)).all()
    ]
    if n > 2 and not lowest_in_orbit.any() and mirrors:
        for v in range(n):
            for t in range(v):
                yield (1, v), (int(mirrors[0][1]), t)


def ordered_ranks(patterns: Sequence[Pattern], model: str) -> list[tuple[int, int]]:
    """Return pairs of ranks, the lower one first: some cheapest order has the lower-numbered host at the first of each.

    Of the orders that symmetries of all patterns make of one another the lexicographically least is meant: a symmetry
    that changes no rank below k cannot bring a lower host to k. Hosts may have any numbers.
    """
    common = set.intersection(*({tuple(s.tolist()) for s in symmetries(pattern, model)} for pattern in patterns))
    first_moved = ((next((k for k, rank in enumerate(s) if rank != k), None), s) for s in common)
    return sorted({(k, s[k]) for k, s in first_moved if k is not None})
