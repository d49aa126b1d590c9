"""A partition of three workers: what they add at each step of each clock, and the states that follow by the rule."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.elastic import Table, Values
from plink.runtime.elastic.arrays.layout import Layout, index
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.partition import Partition

ROWS, WORKERS = 8, 3
LAYOUT = Layout((Table("a", ROWS, 2, "float32"), Table("n", ROWS, 1, "int64")), 1)
FORMS = range(ROWS), range(2, 5), np.array([0, 3, 7], np.uint32)


def made(**more: bool) -> Partition:
    """With workers 0 to 2 from clock 0 on."""
    partition = Partition(LAYOUT, 0, **more)
    partition.admit(dict.fromkeys(range(WORKERS), 0))
    return partition


def blocks_of(worker: int, clock: int, step: int = 0, seed: int = 0) -> tuple[RowBlock, ...]:
    """What a worker adds at a step; the same however often it is asked for. Many name the same rows."""
    generator = np.random.default_rng((seed, worker, clock, step))
    rows = FORMS[int(generator.choice(3, p=(0.6, 0.2, 0.2)))]
    floats = RowBlock(0, rows, generator.standard_normal((len(rows), 2)).astype(np.float32))
    counts = RowBlock(1, range(ROWS), generator.integers(-5, 5, (ROWS, 1)))
    return () if generator.random() < 0.1 else (floats, counts)


@dataclass(frozen=True)
class Clock:
    """Of one worker: it sent ``first`` steps; if there is a successor, it was to send ``second`` from the beginning.
    Where these are no more it begins anew, and sends one more."""

    first: int
    second: int | None = None

    @property
    def counted(self) -> int:
        """How many steps count."""
        return self.first if self.second is None else max(self.first + 1, self.second)

    def sent(self) -> list[tuple[int, bool]]:
        """Step numbers, and whether each is the last of its clock."""
        if self.second is None:
            return [(step, step == self.first - 1) for step in range(self.first)]
        before = [(step, False) for step in range(self.first)]
        if self.second <= self.first:
            before += [(step, step == self.second - 1) for step in range(self.second)]
        return before + [(step, step == self.counted - 1) for step in range(self.counted)]


Plan = dict[tuple[int, int], Clock]


def folded(blocks: Sequence[RowBlock]) -> list[RowBlock]:
    """Neighbours that name the same rows as one."""
    result: list[RowBlock] = []
    for block in blocks:
        if result and tuple(result[-1].rows) == tuple(block.rows):
            result[-1] = RowBlock(block.table, block.rows, result[-1].values + block.values)
        else:
            result.append(block)
    return result


def states(plan: Plan, seed: int = 0) -> list[list[Values]]:
    """Of clocks -1, 0, ..., by the rule that is written: steps are summed by worker first, then by worker's number."""
    values = [np.zeros((ROWS, 2), np.float32), np.zeros((ROWS, 1), np.int64)]
    result = [[array.copy() for array in values]]
    for clock in range(1 + max(clock for _, clock in plan)):
        for table in (0, 1):
            by_worker: list[RowBlock] = []
            for worker in range(WORKERS):
                steps = [blocks_of(worker, clock, step, seed) for step in range(plan[worker, clock].counted)]
                by_worker += folded([blocks[table] for blocks in steps if blocks])
            for block in folded(by_worker):
                values[table][index(block.rows)] += block.values
        result.append([array.copy() for array in values])
    return result


def equal(partition: Partition, wanted: list[Values]) -> bool:
    """To the bit."""
    return all(np.array_equal(result, array) for result, array in zip(partition.values, wanted, strict=True))
