"""Rounds of disjoint pairs of hosts: all pairs by the circle method of round-robin tournaments, or a matching of those
that are worth most."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Pair = tuple[int, int]
Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.intp]
_CHUNK = 128
_SHUFFLES = 8
_JITTER = 0.01


class RoundRobin:
    """All pairs of ``n`` hosts in rounds of disjoint pairs: n-1 rounds for even n, n (with one host idle) for odd n.

    The circle method of round-robin tournaments: one host stays, the others rotate around it. Labels and rounds are
    shuffled, so that any prefix of the rounds is a fair sample of all pairs. A round is computed on demand: 10,000
    hosts have 50 million pairs.
    """

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n = n
        self._rounds = n - 1 + n % 2 if n > 1 else 0
        self._label = rng.permutation(n)
        self._round = rng.permutation(self._rounds)

    def __len__(self) -> int:
        return self._rounds

    def __getitem__(self, index: int) -> npt.NDArray[np.intp]:
        """Return the pairs of a round, shape (n // 2, 2), the lower index first.

        :raises IndexError: past the last round.
        """
        round_ = self._round[index]
        offset = np.arange(1, (self._rounds + 1) // 2)
        places = np.stack([(round_ + offset) % self._rounds, (round_ - offset) % self._rounds], axis=1)
        if self.n % 2 == 0:
            places = np.concatenate([places, [[self._rounds, round_]]])
        return np.sort(self._label[places], axis=1)


def as_pairs(pairs: npt.NDArray[np.intp]) -> list[Pair]:
    """Return pairs of shape (k, 2) as a list."""
    return list(zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True))


def nearest_pairs(
    lower_bound_us: Callable[[Integers], Matrix],
    closed: Booleans,
    alive: Booleans,
    count: int,
    rng: np.random.Generator,
) -> Integers:
    """Return the ``count`` nearest open pairs of each host alive, nearest of all first, shape (M, 2), i < j.

    :param lower_bound_us: returns for hosts, shape (H,), lower bounds of the round trips to all, shape (H, N).
    :param closed: shape (N, N), symmetric: pairs that are not to be measured (again); the diagonal is closed.
    :param alive: shape (N,).
    """
    n = len(alive)
    hosts, dead, count = np.flatnonzero(alive), np.flatnonzero(~alive), min(count, n - 1)
    jitter = 1.0 + _JITTER * rng.random(2 * n)  # each host gets its own section of it, which breaks ties
    distances, candidates = [], []
    for start in range(0, len(hosts), _CHUNK):
        chunk = hosts[start : start + _CHUNK]
        distance = lower_bound_us(chunk)
        distance *= np.lib.stride_tricks.sliding_window_view(jitter, n)[rng.integers(0, n, len(chunk))]
        np.copyto(distance, np.inf, where=closed[chunk])
        distance[:, dead] = np.inf
        nearest = np.argpartition(distance, count - 1, axis=1)[:, :count]
        nearest_distance = np.take_along_axis(distance, nearest, axis=1)
        row, column = np.nonzero(np.isfinite(nearest_distance))
        distances.append(nearest_distance[row, column])
        candidates.append(np.stack([chunk[row], nearest[row, column]], axis=1))
    if not candidates:
        return np.zeros((0, 2), dtype=np.intp)
    pairs = np.concatenate(candidates)[np.argsort(np.concatenate(distances), kind="stable")]
    return np.asarray(np.sort(pairs, axis=1), dtype=np.intp)


def disjoint(priority: Integers, closed: Booleans, alive: Booleans, rng: np.random.Generator) -> Integers:
    """Return open pairs that share no host, shape (k, 2): greedily by ``priority``, the remaining hosts at random.

    The greedy matching is vectorised: a pair that comes first for both of its hosts is taken, until none remains
    (Preis, STACS 1999). The remaining hosts are shuffled a few times; a host with few open pairs may get none.

    :param priority: shape (M, 2), i < j, the most important first.
    """
    unmatched = alive.copy()
    taken = []
    pairs = priority[~closed[priority[:, 0], priority[:, 1]]]
    while len(pairs := pairs[unmatched[pairs].all(axis=1)]):
        place = np.arange(len(pairs))
        first = np.full(len(unmatched), len(pairs))
        for end in pairs.T:
            np.minimum.at(first, end, place)
        greedy = pairs[(first[pairs] == place[:, None]).all(axis=1)]
        unmatched[greedy] = False
        taken.append(greedy)
    remaining = np.flatnonzero(unmatched)
    for _ in range(_SHUFFLES):
        remaining = rng.permutation(remaining)
        candidates, odd = remaining[: len(remaining) // 2 * 2].reshape(-1, 2), remaining[len(remaining) // 2 * 2 :]
        is_open = ~closed[candidates[:, 0], candidates[:, 1]]
        taken.append(np.sort(candidates[is_open], axis=1))
        remaining = np.concatenate([candidates[~is_open].ravel(), odd])
    return np.concatenate(taken)
