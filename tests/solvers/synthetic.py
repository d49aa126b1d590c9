"""Networks made up for tests: random symmetric costs, and racks whose distances are known."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Tour = npt.NDArray[np.intp]


def random_costs(n: int, seed: int, low: int = 0, high: int = 1000) -> Matrix:
    """Symmetric whole numbers, shape (n, n), 0 on the diagonal; ties are likely when the range is small."""
    drawn = np.random.default_rng(seed).integers(low, high, size=(n, n)).astype(float)
    cost = np.triu(drawn, 1)
    return cost + cost.T


def racks(sizes: list[int], seed: int, near: float = 40.0, far: float = 90.0) -> tuple[Matrix, npt.NDArray[np.intp]]:
    """Noise-free round trips of hosts dealt to racks at random, and the rack of every host."""
    rack_of = np.repeat(np.arange(len(sizes)), sizes)
    np.random.default_rng(seed).shuffle(rack_of)
    cost = np.where(rack_of[:, None] == rack_of[None, :], near, far)
    np.fill_diagonal(cost, 0.0)
    return cost, rack_of


def blocks(labels: npt.NDArray[Any]) -> int:
    """How many stretches of equal labels a ring has (one when all are equal)."""
    return max(1, int((labels != np.roll(labels, 1)).sum()))


def loop_cost(cost: Matrix, order: Tour) -> float:
    """The ring's cost as the thesis writes it, one hop after the other."""
    total = 0.0
    for i in range(len(order)):
        total += cost[order[i], order[i - 1]]
    return total


def brute_force(cost: Matrix) -> float:
    """The cheapest ring of all, by trying each."""
    n = len(cost)
    return min(loop_cost(cost, np.array((0, *rest))) for rest in itertools.permutations(range(1, n)))
