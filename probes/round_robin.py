"""Round-robin schedule of all pairs: rounds of disjoint pairs, so that no host is in two measurements at once."""

import numpy as np
import numpy.typing as npt

Pair = tuple[int, int]


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


def all_rounds(n: int, seed: int) -> list[list[Pair]]:
    """Return every round of :class:`RoundRobin`, as lists of pairs.

    >>> sorted(sum(all_rounds(3, seed=1), []))
    [(0, 1), (0, 2), (1, 2)]
    """
    schedule = RoundRobin(n, seed)
    return [as_pairs(schedule[k]) for k in range(len(schedule))]


def as_pairs(pairs: npt.NDArray[np.intp]) -> list[Pair]:
    """Return pairs of shape (k, 2) as a list."""
    return list(zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True))
