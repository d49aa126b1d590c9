"""Additions that notice when a sum is too large, held against numbers without end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.runtime.elastic.arrays.checked_sums import Overflow, add, add_at

INTEGERS = ("int32", "int64")
FLOATS = ("float32", "float64")


def near_the_ends(dtype: str) -> st.SearchStrategy[int]:
    """And small ones, and halves of the largest."""
    room = np.iinfo(dtype)
    close = [room.min, room.min + 1, room.min // 2, -1, 0, 1, room.max // 2, room.max // 2 + 1, room.max - 1, room.max]
    return st.one_of(st.sampled_from(close), st.integers(room.min, room.max))


@given(st.data(), st.sampled_from(INTEGERS), st.booleans())
def test_integers_that_wrap_around_are_found_and_no_others(data: st.DataObject, dtype: str, in_place: bool) -> None:
    pairs = data.draw(st.lists(st.tuples(near_the_ends(dtype), near_the_ends(dtype)), min_size=1, max_size=5))
    first, second = (np.array([[pair[k]] for pair in pairs], dtype=dtype) for k in (0, 1))
    exact, room = [item + other for item, other in pairs], np.iinfo(dtype)
    wrong = [row for row, total in enumerate(exact) if not room.min <= total <= room.max]
    if wrong:
        with pytest.raises(Overflow) as error:
            add(first, second, first if in_place else None)
        assert error.value.row == wrong[0]
    else:
        assert add(first, second, first if in_place else None)[:, 0].tolist() == exact


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_compared_to_the_last(dtype: str) -> None:
    """They are so block by block."""
    for rows, width in ((1, 3), (70_000, 3), (3, 70_000), (257, 1024)):
        first, second = np.zeros((rows, width), dtype), np.ones((rows, width), dtype)
        first[-1, -1] = np.iinfo(dtype).max
        with pytest.raises(Overflow) as error:
            add(first, second)
        assert error.value.row == rows - 1
        first[-1, -1] -= 1
        assert np.array_equal(add(first, second), first + second)


@given(st.data(), st.sampled_from(INTEGERS))
def test_integers_at_rows_that_come_twice(data: st.DataObject, dtype: str) -> None:
    """Only what they end with counts: what another one takes away in the same call has room."""
    rows = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    added = [data.draw(near_the_ends(dtype)) for _ in rows]
    before = [data.draw(near_the_ends(dtype)) for _ in range(4)]
    exact, room = list(before), np.iinfo(dtype)
    for row, more in zip(rows, added, strict=True):
        exact[row] += more
    wrong = [row for row in range(4) if not room.min <= exact[row] <= room.max]
    values = np.array(before, dtype=dtype)[:, None]
    if wrong:
        with pytest.raises(Overflow) as error:
            add_at(values, np.array(rows), np.array(added, dtype=dtype)[:, None])
        assert error.value.row == wrong[0]
        exact = before
    else:
        add_at(values, np.array(rows), np.array(added, dtype=dtype)[:, None])
    assert values[:, 0].tolist() == exact


@pytest.mark.parametrize(
    ("dtype", "sign", "rows", "width"), [("float32", 1, 3, 7), ("float64", -1, 64, 33), ("float32", -1, 1025, 16)]
)
def test_floats_that_become_infinite_are_found(dtype: str, sign: int, rows: int, width: int) -> None:
    """Wherever they are, in whichever lane of the processor."""
    most = sign * np.finfo(dtype).max
    second = np.ones((rows, width), dtype)
    for place in {(0, 0), (rows // 2, width // 2), (rows - 1, width - 1)}:
        for in_place in (False, True):
            first = np.ones((rows, width), dtype)
            first[place] = second[place] = most
            with pytest.raises(Overflow) as error:
                add(first, second, first if in_place else None)
            assert error.value.row == place[0]
        first = np.ones((rows, width), dtype)
        first[place] = most
        before = first.copy()
        with pytest.raises(Overflow) as error:
            add_at(first, np.arange(rows), second)
        assert error.value.row == place[0]
        assert np.array_equal(first, before)
        second[place] = 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_at_their_ends_are_no_overflow(dtype: str) -> None:
    most = np.finfo(dtype).max
    ends = np.array([[most, -most, most, np.finfo(dtype).smallest_subnormal]], dtype)
    other = np.array([[-most, most, 0, 0]], dtype)
    assert add(ends, other).tolist() == [[0, 0, most, ends[0, 3]]]
    add_at(ends, np.array([0, 0]), np.concatenate([other, -other]))
    assert ends.tolist() == [[most, -most, most, ends[0, 3]]]
