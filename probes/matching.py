"""Rounds of disjoint pairs, the most wanted pairs first."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.intp]

_CHUNK = 128
_TRIES = 8
_JITTER = 0.01


def nearest_pairs(
    least_us: Callable[[Integers], Matrix], closed: Booleans, alive: Booleans, count: int, rng: np.random.Generator
) -> Integers:
    """The ``count`` nearest open pairs of each host alive, nearest of all first, shape (M, 2), i < j.

    :param least_us: of hosts, shape (H,), the predicted round trips to all, shape (H, N).
    :param closed: shape (N, N), symmetric: pairs not to be asked for (again); the diagonal is closed.
    :param alive: shape (N,).
    """
    n = len(alive)
    hosts, dead, count = np.flatnonzero(alive), np.flatnonzero(~alive), min(count, n - 1)
    jitter = 1.0 + _JITTER * rng.random(2 * n)  # each host sees its own stretch of it, so that ties part
    wanted, keys = [], []
    for start in range(0, len(hosts), _CHUNK):
        some = hosts[start : start + _CHUNK]
        distance = least_us(some)
        distance *= np.lib.stride_tricks.sliding_window_view(jitter, n)[rng.integers(0, n, len(some))]
        np.copyto(distance, np.inf, where=closed[some])
        distance[:, dead] = np.inf
        near = np.argpartition(distance, count - 1, axis=1)[:, :count]
        far = np.take_along_axis(distance, near, axis=1)
        row, column = np.nonzero(np.isfinite(far))
        wanted.append(far[row, column])
        keys.append(np.stack([some[row], near[row, column]], axis=1))
    if not keys:
        return np.zeros((0, 2), dtype=np.intp)
    pairs = np.concatenate(keys)[np.argsort(np.concatenate(wanted), kind="stable")]
    return np.asarray(np.sort(pairs, axis=1), dtype=np.intp)


def disjoint(wanted: Integers, closed: Booleans, alive: Booleans, rng: np.random.Generator) -> Integers:
    """Open pairs that share no host, shape (k, 2): greedily in the order of ``wanted``, the hosts left over at random.

    Greedy, all at once: a pair that is the first one left at both of its ends is taken, until none is left (Preis,
    STACS 1999). At random means that a few shuffles are tried: a host with hardly an open pair may go without.

    :param wanted: shape (M, 2), i < j, the most wanted first.
    """
    free = alive.copy()
    found = []
    pairs = wanted[~closed[wanted[:, 0], wanted[:, 1]]]
    while len(pairs := pairs[free[pairs].all(axis=1)]):
        place = np.arange(len(pairs))
        first = np.full(len(free), len(pairs))
        for end in pairs.T:
            np.minimum.at(first, end, place)
        taken = pairs[(first[pairs] == place[:, None]).all(axis=1)]
        free[taken] = False
        found.append(taken)
    rest = np.flatnonzero(free)
    for _ in range(_TRIES):
        rest = rng.permutation(rest)
        couples, odd = rest[: len(rest) // 2 * 2].reshape(-1, 2), rest[len(rest) // 2 * 2 :]
        good = ~closed[couples[:, 0], couples[:, 1]]
        found.append(np.sort(couples[good], axis=1))
        rest = np.concatenate([couples[~good].ravel(), odd])
    return np.concatenate(found)
