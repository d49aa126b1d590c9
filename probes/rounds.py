"""Which pairs are measured when: rounds of disjoint pairs, so that no host is ever in two measurements at once."""

import numpy as np
import numpy.typing as npt

Pair = tuple[int, int]


class Circle:
    """All pairs of ``n`` hosts in rounds of disjoint pairs: n-1 rounds for even n, n (with one host resting) for odd.

    The circle method (round-robin tournament): one host stays, the others turn around it. Labels and rounds are
    shuffled so that the rounds done so far are a fair sample of all pairs, whenever one stops. A round is made when
    it is asked for: 10,000 hosts have 50 million pairs.
    """

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n = n
        self._turns = n - 1 + n % 2 if n > 1 else 0
        self._label = rng.permutation(n)
        self._turn = rng.permutation(self._turns)

    def __len__(self) -> int:
        return self._turns

    def __getitem__(self, index: int) -> npt.NDArray[np.intp]:
        """The pairs of one round, shape (n // 2, 2), the lower number first.

        :raises IndexError: past the last round.
        """
        turn = self._turn[index]
        step = np.arange(1, (self._turns + 1) // 2)
        places = np.stack([(turn + step) % self._turns, (turn - step) % self._turns], axis=1)
        if self.n % 2 == 0:
            places = np.concatenate([places, [[self._turns, turn]]])
        return np.sort(self._label[places], axis=1)


def rounds(n: int, seed: int) -> list[list[Pair]]:
    """Every round of :class:`Circle` at once, as lists of pairs.

    >>> sorted(sum(rounds(3, seed=1), []))
    [(0, 1), (0, 2), (1, 2)]
    """
    circle = Circle(n, seed)
    return [as_pairs(circle[k]) for k in range(len(circle))]


def as_pairs(pairs: npt.NDArray[np.intp]) -> list[Pair]:
    """Pairs of shape (k, 2) as a list."""
    return list(zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True))
