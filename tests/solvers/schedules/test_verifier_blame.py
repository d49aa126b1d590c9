"""What the verifier says of schedules that are wrong in one way each: which transfer, which rank, which chunk."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from plink.schedule import Schedule, make_schedule
from solvers.schedules import verifier
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.verifier import contributors_of, verify

Row = tuple[int, int, int, int, int, int]  # round, source, target, first, count, copies


def owned(collective: str, ranks: int, owners: list[int], rows: list[Row]) -> Schedule:
    return make_schedule("mine", ranks, len(owners), rows, collective, np.array(owners, dtype=np.int32))


# Places that there are none of.

RIGHT: list[Row] = [(0, 1, 0, 0, 4, 0), (0, 2, 0, 0, 4, 0), (1, 0, 1, 0, 4, 1), (1, 0, 2, 0, 4, 1)]


@pytest.mark.parametrize(
    "row",
    [
        (1, -1, 0, 0, 1, 0),
        (1, 0, -1, 0, 1, 0),
        (1, 3, 0, 0, 1, 0),
        (1, 0, 3, 0, 1, 0),
        (1, 2, 2, 0, 1, 0),
        (1, 0, 1, -1, 1, 0),
        (1, 0, 1, 4, 1, 0),
        (1, 0, 1, 3, 2, 0),
        (1, 0, 1, 0, 5, 0),
        (1, 0, 1, 2, 0, 0),
        (1, 0, 1, 2, -1, 0),
    ],
)
def test_a_transfer_that_cannot_be_is_told_alone(row: Row) -> None:
    """One step beyond the first or the last rank or chunk, from a rank to itself, or of no chunks; no other error is
    told then."""
    schedule = make_schedule("mine", 3, 4, [*RIGHT[:2], row, *RIGHT[2:]])
    (m,) = [m for m in range(5) if (schedule.source[m], schedule.target[m], schedule.count[m]) == row[1:3] + row[4:5]]
    assert verify(schedule) == [
        f"{schedule.describe(m)}: there are ranks 0 to 2 and chunks 0 to 3, and nobody sends to itself"
    ]
    assert verify(make_schedule("mine", 3, 4, RIGHT)) == []


def test_the_last_rank_and_the_last_chunk_are_there() -> None:
    rows: list[Row] = [(0, 2, 0, 3, 1, 0), (0, 2, 0, 0, 3, 0), (0, 1, 0, 0, 4, 0), *RIGHT[2:]]
    assert verify(make_schedule("mine", 3, 4, rows)) == []


def test_rounds_come_in_their_order() -> None:
    right = make_schedule("mine", 3, 4, RIGHT)
    wrong = dataclasses.replace(right, round=right.round[::-1].copy())
    assert verify(wrong) == ["the transfers are not in the order of their rounds"]
    assert verify(dataclasses.replace(right, round=right.round + np.int32(7))) == []


@pytest.mark.parametrize(("named", "who"), [([0, 3], 3), ([-1, 0], -1), ([0, 7, 5], 5), ([4, 1], 4)])
def test_contributors_that_there_are_none_of(named: list[int], who: int) -> None:
    schedule = make_schedule("mine", 3, 4, RIGHT, contributors=named)
    assert verify(schedule) == [f"contributors: there is no rank {who}"]


def test_contributors_are_told_once_and_in_order() -> None:
    assert contributors_of(make_schedule("mine", 4, 1, [], contributors=[3, 1, 3])).tolist() == [1, 3]
    assert contributors_of(make_schedule("mine", 4, 1, [])).tolist() == [0, 1, 2, 3]
    assert verify(make_schedule("mine", 3, 4, RIGHT, contributors=[2, 0, 1, 2])) == []


def test_twenty_impossible_transfers_are_enough() -> None:
    schedule = make_schedule("mine", 3, 4, [(0, 1, 1, 0, 1, 0)] * 25)
    errors = verify(schedule)
    assert [error.split(":")[0] for error in errors] == [schedule.describe(m) for m in range(20)]


@pytest.mark.parametrize("waits", [0, 1])
def test_a_transfer_waits_for_earlier_rounds_only(waits: int) -> None:
    """Of its own round, and itself, is no earlier."""
    schedule = make_schedule("mine", 3, 4, RIGHT)
    after = np.array([0, 0, 1, 3, 5]), np.array([waits, 0, 1, 0, 1], dtype=np.int32)
    assert verify(dataclasses.replace(schedule, after=after)) == [
        f"{schedule.describe(1)} waits for transfer {waits}, which is no earlier: a deadlock"
    ]
    fine = np.array([0, 0, 0, 2, 4]), np.array([0, 1, 0, 1], dtype=np.int32)
    assert verify(dataclasses.replace(schedule, after=fine)) == []


def test_what_is_sent_on_without_waiting_is_told_for_each() -> None:
    """Both that hand out the sum, and both that it is of."""
    schedule = make_schedule("mine", 3, 4, RIGHT)
    after = np.zeros(5, dtype=np.int64), np.zeros(0, dtype=np.int32)
    errors = verify(dataclasses.replace(schedule, after=after))
    for m in (2, 3):
        for k in (0, 1):
            assert f"{schedule.describe(m)} sends what transfer {k} writes and does not wait for it" in errors
    assert len(errors) == 4


def test_twenty_missing_waits_are_enough() -> None:
    """Thirty ranks send to the first, which hands out the sum without waiting for any."""
    rows = [(0, rank, 0, 0, 1, 0) for rank in range(1, 31)] + [(1, 0, rank, 0, 1, 1) for rank in range(1, 31)]
    schedule = make_schedule("mine", 31, 1, rows)
    after = np.zeros(61, dtype=np.int64), np.zeros(0, dtype=np.int32)
    assert verify(dataclasses.replace(schedule, after=after)) == [
        f"{schedule.describe(30)} sends what transfer {k} writes and does not wait for it" for k in range(20)
    ]


@pytest.mark.parametrize(
    ("second", "sends", "writes"),
    [
        ([1], [], []),  # what the rounds say
        ([], [(2, 1)], [(3, 1), (4, 0)]),
        ([0], [(2, 1)], [(3, 1)]),  # the last but one still waits for the first, by way of others
    ],
)
def test_who_waits_by_way_of_others_waits(
    second: list[int], sends: list[tuple[int, int]], writes: list[tuple[int, int]]
) -> None:
    """A chain of four ranks, up (transfers 0 to 2) and down (3 to 5), each transfer after the one before it. What comes
    down replaces what went up, which it awaits through all between."""
    schedule = schedule_for("tree", 4, Options(fan_out=1))
    lines = [[], [0], second, [2], [3], [4]]
    offsets = np.cumsum([0, *map(len, lines)])
    needed = np.array([k for line in lines for k in line], dtype=np.int32)
    assert verify(dataclasses.replace(schedule, after=(offsets, needed))) == [
        *(f"{schedule.describe(m)} sends what transfer {k} writes and does not wait for it" for m, k in sends),
        *(
            f"{schedule.describe(m)} and transfer {k} write the same chunk in no order: one of them copies"
            for m, k in writes
        ),
    ]


# Results.


def test_nothing_is_done() -> None:
    """Every rank lacks the first of the others' contributions."""
    schedule = make_schedule("mine", 3, 1, [])
    assert verify(schedule) == [
        f"rank {rank} ends without what rank {lacks} contributed in chunk 0; nobody sends it any"
        for rank, lacks in ((0, 1), (1, 0), (2, 0))
    ]


def test_a_contribution_is_told_by_its_rank_not_by_its_number() -> None:
    """Ranks 1 and 3 contribute; rank 1 gets nothing of 3, and of the others nobody is asked."""
    rows: list[Row] = [(0, 1, 2, 0, 1, 0), (1, 2, 3, 0, 1, 0)]
    schedule = make_schedule("mine", 4, 1, rows, contributors=[1, 3])
    assert verify(schedule) == ["rank 1 ends without what rank 3 contributed in chunk 0; nobody sends it any"]


def test_a_chunk_is_told_by_its_own_number() -> None:
    """Chunks 0-1 and 2-5 go together; of the latter rank 1 gets nothing, of the former only the second comes back."""
    rows: list[Row] = [(0, 1, 0, 0, 2, 0), (0, 1, 0, 2, 4, 0), (1, 0, 1, 1, 1, 1)]
    schedule = make_schedule("mine", 2, 6, rows)
    assert verify(schedule) == [
        "rank 1 ends without what rank 0 contributed in chunk 0; nobody sends it any",
        "rank 1 ends without what rank 0 contributed in chunk 2; nobody sends it any",
    ]


def test_only_owners_have_to_end_with_a_reduction() -> None:
    right = owned("reduce-scatter", 3, [0, 2, 2], [(0, 1, 0, 0, 1, 0), (0, 2, 0, 0, 1, 0), (0, 0, 2, 1, 2, 0)])
    assert verify(right) == [
        f"rank 2 ends without what rank 1 contributed in chunk 1; the last to write it was {right.describe(2)}"
    ]
    done = owned("reduce-scatter", 3, [0, 2, 2], [
        (0, 1, 0, 0, 1, 0), (0, 2, 0, 0, 1, 0), (0, 0, 2, 1, 2, 0), (0, 1, 2, 1, 2, 0)
    ])  # fmt: skip
    assert verify(done) == []
    # Neighbouring chunks that always go together, but end at different ranks.
    swapped = owned("reduce-scatter", 2, [0, 1], [(0, 1, 0, 0, 2, 0)])
    assert verify(swapped) == ["rank 1 ends without what rank 0 contributed in chunk 1; nobody sends it any"]


def test_the_last_to_write_is_told() -> None:
    """Rank 1's sum of rank 0's and its own is replaced by what rank 2 has."""
    schedule = make_schedule("mine", 3, 1, [(0, 0, 1, 0, 1, 0), (1, 2, 1, 0, 1, 1)])
    assert verify(schedule) == [
        "rank 0 ends without what rank 1 contributed in chunk 0; nobody sends it any",
        f"rank 1 ends without what rank 0 contributed in chunk 0; the last to write it was {schedule.describe(1)}",
        "rank 2 ends without what rank 0 contributed in chunk 0; nobody sends it any",
    ]


# Twice.


@pytest.mark.parametrize("apart", [0, 1])
def test_what_comes_by_two_ways_is_once_too_often(apart: int) -> None:
    """Rank 1 sends to 2, and both send to 0, at once or one after the other: the last one of them is one too many."""
    rows: list[Row] = [(0, 1, 2, 0, 1, 0), (1, 2, 0, 0, 1, 0), (1 + apart, 1, 0, 0, 1, 0)]
    rows += [(3, 0, 1, 0, 1, 1), (3, 0, 2, 0, 1, 1)]
    schedule = make_schedule("mine", 3, 1, rows)
    assert verify(schedule) == [f"{schedule.describe(2)} adds what rank 1 contributed to chunk 0 a second time"]


def test_what_is_twice_there_is_told_once_where_it_began() -> None:
    """Three times the same, and what it makes is sent on; the second time is to blame for all."""
    rows: list[Row] = [(t, 1, 0, 0, 1, 0) for t in range(3)]
    schedule = make_schedule("mine", 3, 2, [*rows, (3, 2, 0, 0, 2, 0), (3, 1, 0, 1, 1, 0),
                                           (4, 0, 1, 0, 2, 1), (4, 0, 2, 0, 2, 1)])  # fmt: skip
    assert verify(schedule) == [f"{schedule.describe(1)} adds what rank 1 contributed to chunk 0 a second time"]


def test_what_is_newly_there_twice_is_told_beside_what_was_already() -> None:
    """Rank 1's is there a second time by transfer 1, rank 2's by transfer 3, in one place."""
    rows: list[Row] = [(0, 1, 0, 0, 1, 0), (1, 1, 0, 0, 1, 0), (2, 2, 0, 0, 1, 0), (3, 2, 0, 0, 1, 0)]
    schedule = make_schedule("mine", 3, 1, [*rows, (4, 0, 1, 0, 1, 1), (4, 0, 2, 0, 1, 1)])
    assert verify(schedule) == [
        f"{schedule.describe(1)} adds what rank 1 contributed to chunk 0 a second time",
        f"{schedule.describe(3)} adds what rank 2 contributed to chunk 0 a second time",
    ]


def test_very_many_at_once_are_counted_beside_a_single_one() -> None:
    """65,537 times the same contribution at rank 0, and once at rank 2, in one round."""
    rows: list[Row] = [(0, 1, 0, 0, 1, 0)] * ((1 << 16) + 1)
    schedule = owned("reduce", 3, [0], [*rows, (0, 1, 2, 0, 1, 0), (0, 2, 0, 0, 1, 0)])
    assert verify(schedule) == [
        f"{schedule.describe(len(schedule) - 1)} adds what rank 1 contributed to chunk 0 a second time"
    ]


def test_a_contribution_that_comes_twice_is_told_by_its_rank() -> None:
    """Ranks 1 and 3 contribute."""
    rows: list[Row] = [(0, 3, 1, 0, 1, 0), (1, 3, 1, 0, 1, 0), (2, 1, 3, 0, 1, 1)]
    schedule = make_schedule("mine", 4, 1, rows, contributors=[1, 3])
    assert verify(schedule) == [f"{schedule.describe(1)} adds what rank 3 contributed to chunk 0 a second time"]


def test_a_result_that_is_added_to_itself() -> None:
    """What is handed out counts as one thing; chunks by their own numbers."""
    rows: list[Row] = [(0, 0, 1, 0, 3, 1), (1, 0, 1, 2, 1, 0)]
    schedule = owned("broadcast", 2, [0, 0, 0], rows)
    assert verify(schedule) == [f"{schedule.describe(1)} adds the result to chunk 2 a second time"]


def test_many_that_come_at_once_are_added_up_each_in_its_place() -> None:
    """Every rank sends every other one everything; then all have all, and one more is one too many."""
    n = 5
    rows: list[Row] = [(0, a, b, 0, 2, 0) for a in range(n) for b in range(n) if a != b]
    assert verify(make_schedule("mine", n, 2, rows)) == []
    for extra in range(n - 1):
        schedule = make_schedule("mine", n, 2, [*rows, (1, extra, n - 1, 1, 1, 0)])
        assert verify(schedule) == [
            f"{schedule.describe(len(rows))} adds what rank 0 contributed to chunk 1 a second time"
        ]


# Writes in one round, and what is not there yet.


def test_two_copies_at_once_have_no_order_and_two_additions_need_none() -> None:
    gather: list[Row] = [(0, 0, 1, 0, 1, 1), (1, 0, 2, 0, 1, 1), (1, 1, 2, 0, 1, 1)]
    schedule = owned("broadcast", 3, [0], gather)
    assert verify(schedule) == [
        f"{schedule.describe(m)} writes chunk 0 in the same round as another: unordered writes" for m in (1, 2)
    ]
    # Into two places there is nothing to order.
    assert verify(owned("broadcast", 3, [0], [(0, 0, 1, 0, 1, 1), (0, 0, 2, 0, 1, 1)])) == []
    assert verify(owned("reduce", 3, [0], [(0, 1, 0, 0, 1, 0), (0, 2, 0, 0, 1, 0)])) == []


def test_places_are_told_apart_by_rank_and_chunk() -> None:
    """Two owners and three ranks: in each round no place is written twice, whichever numbers are alike."""
    rows: list[Row] = [(0, 1, 0, 1, 1, 1), (0, 0, 2, 0, 1, 1), (1, 0, 1, 0, 1, 1), (1, 0, 2, 1, 1, 1)]
    assert verify(owned("all-gather", 3, [0, 1], rows)) == []


def test_what_is_sent_before_it_is_there_ends_the_run() -> None:
    """Of later rounds nothing is said: what is wrong there may follow from it. Each transfer is told once, by its first
    chunk that is not there."""
    rows: list[Row] = [(0, 0, 2, 0, 1, 1), (0, 1, 2, 0, 4, 1), (1, 2, 1, 1, 3, 1)]
    schedule = owned("broadcast", 3, [0, 0, 0, 0], [(0, 0, 2, 0, 1, 1), (1, 1, 0, 1, 3, 1), (2, 2, 1, 3, 1, 1)])
    assert verify(schedule) == [f"{schedule.describe(1)} sends chunk 1 before it is there"]
    early = owned("broadcast", 3, [0, 0, 0, 0], rows)
    assert verify(early) == [f"{early.describe(1)} sends chunk 0 before it is there"]


def test_twenty_that_are_sent_too_early_are_enough() -> None:
    rows: list[Row] = [(0, a, 0, 0, 1, 1) for a in range(1, 26)]
    schedule = owned("broadcast", 26, [0], rows)
    assert verify(schedule) == [f"{schedule.describe(m)} sends chunk 0 before it is there" for m in range(20)]


def test_what_is_gathered_is_kept_by_chunk_and_owner() -> None:
    """Three owners of two chunks each; whoever sends what another owns sends nothing."""
    owners = [0, 0, 1, 1, 2, 2]
    rows: list[Row] = [(0, a, b, 2 * a, 2, 1) for a in range(3) for b in range(3) if a != b]
    assert verify(owned("all-gather", 3, owners, rows)) == []
    for a in range(3):
        schedule = owned("all-gather", 3, owners, [*rows, (0, a, (a + 1) % 3, (2 * a + 3) % 6, 1, 1)])
        (error,) = verify(schedule)
        assert error == f"{schedule.describe(6)} sends chunk {(2 * a + 3) % 6} before it is there"
    fewer = owned("all-gather", 3, owners, rows[:-1])
    assert verify(fewer) == ["rank 1 ends without it in chunk 4; nobody sends it any"]


def test_a_broadcast_to_very_many_can_be_proven() -> None:
    """It takes one count a rank, where an all-reduce takes one for every two."""
    assert verify(schedule_for("tree", 40_000, Options(fan_out=200), "broadcast")) == []


# Some chunks at a time.


def wrong_ones() -> list[Any]:
    """Schedules of several chunks, right and wrong in every way."""
    ring = schedule_for("ring", 5)
    kept = np.arange(len(ring)) != 7
    columns = ("round", "source", "target", "first", "count", "copies")
    missing = dataclasses.replace(ring, **{name: getattr(ring, name)[kept] for name in columns})
    doubled = [*((t, 1, 0, t, 2, 0) for t in range(4)), (5, 0, 1, 0, 5, 1)]
    return [
        ring,
        missing,
        schedule_for("ring", 5, None, "all-gather"),
        schedule_for("2lha", 5, Options(groups=((0, 1), (2, 3, 4))), "reduce-scatter"),
        make_schedule("mine", 2, 5, doubled),
        owned("broadcast", 3, [0] * 4, [(0, 0, 1, 0, 3, 1), (1, 1, 2, 0, 4, 1)]),
        owned("all-gather", 3, [0, 1, 2], [(0, 0, 1, 0, 1, 1), (0, 1, 2, 1, 1, 1), (1, 1, 2, 0, 1, 1)]),
    ]


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("block", [1, 2, 3])
def test_some_chunks_at_a_time_say_the_same_as_all_at_once(
    number: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = wrong_ones()[number]
    whole = verify(schedule)
    each = 2 * schedule.ranks * (1 if schedule.collective in ("all-gather", "broadcast") else schedule.ranks)
    monkeypatch.setattr(verifier, "_BLOCK_BYTES", block * each)
    assert sorted(verify(schedule)) == sorted(whole)
    monkeypatch.setattr(verifier, "_BLOCK_BYTES", 1)  # at least one chunk at a time
    assert sorted(verify(schedule)) == sorted(whole)
