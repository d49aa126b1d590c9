"""What a clock adds to a partition: the sums of the workers' updates, or what optimisers make of them."""

from collections.abc import Sequence

import numpy as np

from plink.elastic.app_error import called
from plink.elastic.tables import Values
from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.arrays.row_blocks import RowBlock, TooLarge, add_to


def additions_of(layout: Layout, values: Sequence[Values], sums: Sequence[RowBlock], clock: int) -> Sequence[RowBlock]:
    """Return the additions of a clock. All rows of a table with an optimiser go on at every clock, also where nothing
    was added: the number of partitions makes no difference.

    :param values: of all tables of the partition, before the clock.
    :raises TooLarge: a sum, or an addition, is. :raises AppError: an optimiser made a mistake.
    """
    for name, optimiser in layout.optimisers.items() if clock else ():  # clock 0 has first values
        table = layout.table(name)
        tables = [table, *(layout.table(moment.name) for moment in optimiser.moments(layout.tables[table]))]
        state = [values[number] for number in tables]
        gradient = np.zeros_like(state[0])
        if not len(gradient):
            continue
        add_to({table: gradient}, [block for block in sums if block.table == table])
        location = f"table {name!r}: its optimiser at clock {clock}"
        with np.errstate(all="ignore"):  # checked below
            additions = called(location, optimiser.additions, state, gradient, clock)
        rows = range(len(gradient))
        blocks = [RowBlock(number, rows, each) for number, each in zip(tables, additions, strict=True)]
        for block in blocks:
            wrong = ~np.isfinite(block.values).all(axis=1)
            if wrong.any():
                raise TooLarge(block, int(wrong.argmax()))
        sums = [*(block for block in sums if block.table != table), *blocks]
    return sums
