"""What several workers add up: tables of counts, each worker's deltas at each clock, and the sums there must be."""

from collections.abc import Callable

import numpy as np

from plink.elastic import Table, Values
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.worker.client import Client

ROWS, WIDTH = 50, 3
COUNTS = Layout((Table("n", ROWS, WIDTH, "int64"),), 4)
FLOATS = Layout((Table("a", ROWS, WIDTH, "float32"), Table("b", 7, 1, "float64")), 3)
CLOCKS = 30


def deltas(worker: int, clock: int) -> tuple[Values, Values]:
    """Rows, with repetitions, and what a worker adds to them at a clock."""
    generator = np.random.default_rng((worker, clock))
    rows = generator.integers(0, ROWS, 20)
    return rows, generator.integers(-9, 9, (20, WIDTH))


def counted(workers: int, clocks: int) -> Values:
    """All of it, shape (ROWS, WIDTH)."""
    result = np.zeros((ROWS, WIDTH), np.int64)
    for worker in range(workers):
        for clock in range(clocks):
            np.add.at(result, *deltas(worker, clock))
    return result


def count(client: Client, clocks: int, each: Callable[[int], object] = lambda clock: None) -> None:
    """The work of one worker, as far as it has not been done; it reads too, unchecked."""
    while client.now < clocks:
        clock = client.now
        each(clock)
        rows, added = deltas(client.worker, clock)
        client.read("n", rows[:5])
        client.update("n", rows[:10], added[:10])
        client.update("n", rows[10:], added[10:])
        client.push()
