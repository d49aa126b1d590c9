"""Changes by a partition's steps: records to undo them, and vectors that are pushed to replicas."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from plink.elastic.app_error import called
from plink.elastic.tables import Values
from plink.runtime.elastic.arrays.array_pool import empty
from plink.runtime.elastic.arrays.layout import Layout, same_rows
from plink.runtime.elastic.arrays.row_blocks import RowBlock, TooLarge, add_to


class Participant(Struct, array_like=True):
    """A worker that takes part: the clocks from ``first`` to ``until`` (None: no end yet) need its update; it sent all
    of ``finished`` and before, ``steps`` steps of the clock after, and of ``finished`` itself ``finished_steps``, if
    that is not 0."""

    first: int
    finished: int
    until: int | None = None
    steps: int = 0
    finished_steps: int = 0

    @property
    def begun(self) -> int:
        """Return the latest clock that it has sent anything of."""
        return self.finished + (self.steps > 0)

    def has_pending(self, clock: int) -> bool:
        """Return whether the state of ``clock`` has to wait for it."""
        return self.first <= clock and (self.until is None or clock <= self.until) and self.finished < clock

    def ending(self, until: int) -> "Participant":
        """Return it as one that ends with a clock, if it does not end before."""
        until = until if self.until is None else min(self.until, until)
        finished = min(self.finished, until)
        steps = self.steps if self.finished < until else 0
        return Participant(self.first, finished, until, steps, self.finished_steps * (finished == self.finished))


@dataclass
class Ahead:
    """Updates of one clock that is not in the state yet: the sums of the workers ``summed``, and the rest."""

    summed: list[int] = field(default_factory=list)
    sums: list[RowBlock] = field(default_factory=list)
    waiting: dict[int, tuple[RowBlock, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Undo:
    """Undo record: the vectors that the step from clock ``before`` to clock ``after`` changed, as they were."""

    before: int
    after: int
    blocks: tuple[RowBlock, ...]


_BLOCK_ELEMENTS = 1 << 16  # numbers


def additions_of(layout: Layout, values: Sequence[Values], sums: Sequence[RowBlock], clock: int) -> Sequence[RowBlock]:
    """Return the additions of a clock. All rows of a table with an optimiser go on at every clock, also where nothing
    was added: the number of partitions makes no difference.

    An optimiser is called for some rows at a time, whose numbers and all that it makes of them stay in the cache.

    :param values: of all tables of the partition, before the clock.
    :raises TooLarge: a sum, or an addition, is. :raises AppError: an optimiser made a mistake.
    """
    for name, optimiser in layout.optimisers.items() if clock else ():  # clock 0 has first values
        table = layout.table(name)
        tables = [table, *(layout.table(moment.name) for moment in optimiser.moments(layout.tables[table]))]
        state = [values[number] for number in tables]
        if not len(state[0]):
            continue
        rows, theirs = range(len(state[0])), [block for block in sums if block.table == table]
        if len(theirs) == 1 and same_rows(theirs[0].rows, rows):
            gradient = theirs[0].values
        else:
            gradient = empty(len(rows), state[0].shape[1], state[0].dtype)
            gradient[:] = 0
            add_to({table: gradient}, theirs)
        location = f"table {name!r}: its optimiser at clock {clock}"
        shapes = zip(tables, state, strict=True)
        blocks = [RowBlock(number, rows, empty(len(rows), each.shape[1], each.dtype)) for number, each in shapes]
        step = max(1, _BLOCK_ELEMENTS // gradient.shape[1])
        for start in rows[::step]:
            part = slice(start, start + step)
            with np.errstate(all="ignore"):  # checked below
                additions = called(location, optimiser.additions, [each[part] for each in state], gradient[part], clock)
                for block, each in zip(blocks, additions, strict=True):
                    block.values[part] = each
            for block in blocks:
                finite = np.isfinite(block.values[part])
                if not finite.all():
                    raise TooLarge(block, start + int(finite.all(axis=1).argmin()))
        sums = [*(block for block in sums if block.table != table), *blocks]
    return sums
