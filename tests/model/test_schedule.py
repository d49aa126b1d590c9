"""A schedule as data: what waits for what, the way back, and the file it is written to."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.schedule import (
    Schedule,
    awaited,
    dependencies,
    forward_and_reverse,
    make_schedule,
    mirrored,
    overwritten,
)
from plink.model.schedule_file import read_schedule, schedule_from_json
from plink.model.storage import render_document

ARRAYS = ("round", "source", "target", "first", "count", "copies")
Row = tuple[int, int, int, int, int, bool]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Transfers as they come, right or not, with something in every round."""
    ranks, chunks = draw(st.integers(2, 5)), draw(st.integers(1, 5))
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        source, target = draw(st.permutations(range(ranks)))[:2]
        first = draw(st.integers(0, chunks - 1))
        count = draw(st.integers(1, chunks - first))
        rows.append((draw(st.integers(0, 5)), source, target, first, count, draw(st.booleans())))
    used = sorted({row[0] for row in rows})
    rows = [(used.index(row[0]), *row[1:]) for row in rows]
    collective = draw(st.sampled_from(["all-reduce", "reduce-scatter", "broadcast"]))
    owners = None
    if collective != "all-reduce":
        owners = np.array(draw(st.lists(st.integers(0, ranks - 1), min_size=chunks, max_size=chunks)), dtype=np.int32)
    return make_schedule("any", ranks, chunks, rows, collective, owners)


def rows_of(schedule: Schedule) -> list[Row]:
    """Transfers as (round, source, target, first, count, copies)."""
    return list(zip(*(getattr(schedule, name).tolist() for name in ARRAYS), strict=True))


def waits_of(after: tuple[Any, Any] | None) -> list[list[int]]:
    """What each transfer waits for, as lists."""
    assert after is not None
    offsets, needed = after
    return [needed[a:b].tolist() for a, b in pairwise(offsets)]


def waits_by_hand(schedule: Schedule) -> list[list[int]]:
    """The definition, word by word: of each chunk that is carried, the transfers that wrote it at the source in earlier
    rounds, back to (and with) the last that replaced it."""
    rows = rows_of(schedule)
    pairs = []
    for t, source, _, first, count, _ in rows:
        needed = set()
        for chunk in range(first, first + count):
            writers = [
                k for k, row in enumerate(rows) if row[0] < t and row[2] == source and 0 <= chunk - row[3] < row[4]
            ]
            for k in reversed(writers):
                needed.add(k)
                if rows[k][5]:
                    break
        pairs.append(sorted(needed))
    return pairs


def order_by_hand(schedule: Schedule) -> set[tuple[int, int]]:
    """Writers of one chunk at one rank that must not change places: going back from each, a copy meets all of them up
    to (and with) another copy, a sum only the last copy."""
    rows = rows_of(schedule)
    pairs = set()
    for m, (t, _, target, first, count, copies) in enumerate(rows):
        for chunk in range(first, first + count):
            for k in reversed(range(m)):
                if rows[k][2] == target and 0 <= chunk - rows[k][3] < rows[k][4]:
                    if rows[k][0] < t and (copies or rows[k][5]):
                        pairs.add((m, k))
                    if rows[k][5]:
                        break
    return pairs


@given(schedules())
def test_copies_and_sums_keep_their_order(schedule: Schedule) -> None:
    later, sooner = overwritten(schedule)
    assert set(zip(later.tolist(), sooner.tolist(), strict=True)) == order_by_hand(schedule)


@given(schedules())
def test_a_file_also_says_what_is_added_to_which_copy(schedule: Schedule) -> None:
    waits = [set(line) for line in waits_by_hand(schedule)]
    for m, k in order_by_hand(schedule):
        if not schedule.copies[m]:
            waits[m].add(k)
    assert waits_of(awaited(schedule)) == [sorted(line) for line in waits]


@given(schedules())
def test_a_transfer_waits_for_what_wrote_what_it_carries(schedule: Schedule) -> None:
    assert waits_of(dependencies(schedule)) == waits_by_hand(schedule)


def test_a_copy_makes_what_was_there_before_irrelevant() -> None:
    """Rank 0 gets two sums and then a copy; of what it sends on only the copy matters, of the other chunk the sums."""
    rows = [(0, 1, 0, 0, 2, 0), (1, 2, 0, 0, 2, 0), (2, 3, 0, 0, 1, 1), (3, 0, 1, 0, 1, 1), (3, 0, 2, 1, 1, 1)]
    schedule = make_schedule("any", 4, 2, rows)
    assert waits_of(dependencies(schedule)) == [[], [], [], [2], [0, 1]]


@given(schedules())
def test_what_is_written_is_read_back(schedule: Schedule) -> None:
    """Through the text of a file: all arrays, all other keys; what waits for what is spelt out in it."""
    read = schedule_from_json(json.loads(render_document(schedule.to_json())), "s")
    for name in ARRAYS:
        assert getattr(read, name).dtype == getattr(schedule, name).dtype
        assert getattr(read, name).tolist() == getattr(schedule, name).tolist()
    assert (read.algo, read.collective, read.ranks, read.chunks) == ("any", schedule.collective, *sizes(schedule))
    assert (read.owners is None) == (schedule.owners is None)
    assert read.owners is None or read.owners.tolist() == schedule.owners.tolist()  # type: ignore[union-attr]
    if len(schedule):
        assert waits_of(read.after) == waits_of(awaited(schedule))
    assert read.to_json() == schedule.to_json()


def sizes(schedule: Schedule) -> tuple[int, int]:
    """Ranks and chunks."""
    return schedule.ranks, schedule.chunks


def test_a_file_is_for_people_too(tmp_path: Path) -> None:
    """One transfer a line; `chunks` only where there are several; compressed where the name says so."""
    schedule = make_schedule("mine", 2, 3, [(0, 0, 1, 0, 2, 0), (1, 1, 0, 0, 1, 1)])
    schedule.write(tmp_path / "s.json")
    assert (tmp_path / "s.json").read_text().splitlines()[6:] == [
        '  "transfers": [',
        '    {"id": 0, "round": 0, "from": 0, "to": 1, "chunk": 0, "chunks": 2, "op": "reduce", "after": []},',
        '    {"id": 1, "round": 1, "from": 1, "to": 0, "chunk": 0, "op": "copy", "after": [0]}',
        "  ]",
        "}",
    ]
    schedule.write(tmp_path / "s.json.gz")
    assert gzip.decompress((tmp_path / "s.json.gz").read_bytes()) == (tmp_path / "s.json").read_bytes()
    assert read_schedule(tmp_path / "s.json.gz").to_json() == read_schedule(tmp_path / "s.json").to_json()


def test_transfers_are_put_in_the_order_of_their_rounds() -> None:
    schedule = make_schedule("any", 3, 1, [(1, 0, 1, 0, 1, 0), (0, 1, 2, 0, 1, 0), (1, 2, 0, 0, 1, 0)])
    assert [row[:3] for row in rows_of(schedule)] == [(0, 1, 2), (1, 0, 1), (1, 2, 0)]
    assert schedule.rounds == 2
    assert schedule.round_slices() == [slice(0, 1), slice(1, 3)]


def test_one_rank_is_no_collective() -> None:
    with pytest.raises(UsageError, match="two ranks or more, not 1"):
        make_schedule("any", 1, 1, [])


def test_transfers_are_described_in_text() -> None:
    schedule = make_schedule("any", 3, 4, [(0, 0, 1, 2, 1, 0), (1, 1, 2, 0, 4, 1)])
    assert schedule.describe(0) == "transfer 0 (round 0, rank 0 -> 1, chunk 2, reduce)"
    assert schedule.describe(1) == "transfer 1 (round 1, rank 1 -> 2, chunks 0-3, copy)"


@given(schedules().filter(lambda schedule: schedule.collective == "reduce-scatter"))
def test_the_way_back_is_the_mirror_image(schedule: Schedule) -> None:
    """Last first, the other way round, copies all; both ways after one another are the all-reduce."""
    back, last = mirrored(schedule), schedule.rounds - 1
    assert back.collective == "all-gather"
    assert (back.owners, back.timing) == (schedule.owners, schedule.timing)
    assert sorted(rows_of(back)) == sorted((last - t, b, a, c, n, True) for t, a, b, c, n, _ in rows_of(schedule))
    assert (np.diff(back.round) >= 0).all()
    both = forward_and_reverse(schedule)
    assert (both.collective, both.owners, both.rounds) == ("all-reduce", None, 2 * schedule.rounds)
    assert rows_of(both) == [
        *rows_of(schedule),
        *((t + schedule.rounds, *rest) for t, *rest in rows_of(back)),
    ]


def test_custom_broadcast_phase() -> None:
    there = make_schedule("any", 2, 1, [(0, 1, 0, 0, 1, 0)], "reduce", np.array([0], dtype=np.int32))
    back = make_schedule("any", 2, 1, [(3, 0, 1, 0, 1, 1)], "broadcast", np.array([0], dtype=np.int32))
    assert rows_of(forward_and_reverse(there, back)) == [(0, 1, 0, 0, 1, False), (4, 0, 1, 0, 1, True)]
    assert mirrored(there).collective == "broadcast"
