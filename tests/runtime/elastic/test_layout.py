"""Every row is in one partition, at one place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.elastic import Table
from plink.errors import InputError
from plink.runtime.elastic.arrays.layout import Layout, index


@given(st.integers(1, 60), st.integers(1, 9), st.data())
def test_cut_finds_the_rows_that_were_meant(rows: int, partitions: int, data: st.DataObject) -> None:
    """Whatever rows are asked for: each goes to r mod N as r // N, neighbours as a range."""
    layout = Layout((Table("t", rows, 2),), partitions)
    wanted = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))), dtype=np.int64)
    result = {}
    for partition, places, local in layout.cut(wanted):
        paused = np.arange(partition, rows, partitions)
        assert len(paused) == layout.rows_in(0, partition)
        for row, place in zip(wanted[places], paused[index(local)], strict=True):
            assert row == place
            result[int(row)] = partition
    assert sorted(result) == wanted.tolist()
    assert all(partition == row % partitions for row, partition in result.items())


def test_neighbours_need_no_numbers() -> None:
    layout = Layout((Table("t", 100, 1),), 3)
    assert {part: (where, local) for part, where, local in layout.cut(np.arange(10, 20))} == {
        0: (slice(2, None, 3), range(4, 7)),
        1: (slice(0, None, 3), range(3, 7)),
        2: (slice(1, None, 3), range(3, 6)),
    }


def test_the_partitions_have_all_there_is() -> None:
    layout = Layout((Table("a", 7, 3), Table("b", 2, 1, "int64")), 4)
    assert [sum(layout.rows_in(table, number) for number in range(4)) for table in (0, 1)] == [7, 2]
    assert layout.fingerprint != Layout(layout.tables, 5).fingerprint


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Table("t", 0, 1), "0 rows"),
        (lambda: Table("t", 1, 0), "vectors of 0"),
        (lambda: Table("t", 1, 1, "float16"), "float16"),
        (lambda: Layout((Table("t", 1, 1),), 0), "0 partitions"),
        (lambda: Layout((), 1), "there are none"),
        (lambda: Layout((Table("t", 1, 1), Table("t", 2, 1)), 1), "names of their own"),
        (lambda: Layout((Table("t", 1, 1),), 1).table("u"), "'u'"),
    ],
)
def test_what_cannot_be_is_refused(make: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()  # type: ignore[operator]
