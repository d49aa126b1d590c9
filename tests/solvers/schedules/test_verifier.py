"""The verifier says what a simulator says that knows only the definition, and names the transfer that is to blame."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.schedule import Schedule, awaited, dependencies, make_schedule
from plink.schedule_file import schedule_from_json
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from solvers.schedules.verifier import verify
from tests.solvers.requests import requests
from tests.solvers.simulator import Wrong, simulate

Row = list[int]  # round, source, target, first, count, copies
ALL = [(algo, collective) for algo, entry in ALGORITHMS.items() for collective in ("all-reduce", *entry.parts)]


def rows_of(schedule: Schedule) -> list[Row]:
    """The transfers, to be changed."""
    columns = (schedule.round, schedule.source, schedule.target, schedule.first, schedule.count, schedule.copies)
    return np.stack(columns, axis=1).astype(int).tolist()  # type: ignore[no-any-return]


def with_rows(schedule: Schedule, rows: list[Row]) -> Schedule:
    """The same task, done by other transfers."""
    return make_schedule(
        schedule.algo, schedule.ranks, schedule.chunks, rows, schedule.collective, schedule.owners, **schedule.details
    )


def through_a_file(schedule: Schedule) -> Schedule:
    """As somebody reads it who has its file: with ``after`` spelt out."""
    return schedule_from_json(json.loads(json.dumps(schedule.to_json())), "s")


def is_right(schedule: Schedule) -> bool:
    """What the simulator says, of two vectors."""
    try:
        for seed in (1, 2):
            simulate(schedule, seed)
    except Wrong:
        return False
    return True


@st.composite
def made(draw: st.DrawFn, most: int) -> Schedule:
    """Any right schedule of the catalogue."""
    algo, collective = draw(st.sampled_from(ALL))
    ranks, options = draw(requests(algo, most))
    if algo == "ps" and collective != "all-reduce":
        options = dataclasses.replace(options, sharded=collective in ("reduce-scatter", "all-gather"))
        if not (options.sharded or options.servers is None):
            options = dataclasses.replace(options, servers=1)
    return schedule_for(algo, ranks, options, collective)


@settings(max_examples=80, deadline=None)
@given(made(most=40))
def test_what_the_catalogue_makes_is_proven_right(schedule: Schedule) -> None:
    assert verify(schedule) == []


@settings(max_examples=40, deadline=None)
@example(schedule_for("halving-doubling", 6))
@given(made(most=12))
def test_what_is_written_is_proven_right_too(schedule: Schedule) -> None:
    """In the file ``after`` is all that says what waits for what. Six ranks are where halving and doubling adds to what
    a copy has put there."""
    assert verify(through_a_file(schedule)) == []


@pytest.mark.parametrize("algo", ["ring", "flat", "halving-doubling"])
def test_so_are_large_ones(algo: str) -> None:
    assert verify(schedule_for(algo, 128)) == []


# Changed schedules.


@st.composite
def changed(draw: st.DrawFn) -> Schedule:
    """A right schedule with one to three changes; many of them make it wrong, some do no harm."""
    schedule = draw(made(most=9))
    rows = rows_of(schedule)
    n, chunks = schedule.ranks, schedule.chunks
    for _ in range(draw(st.integers(1, 3))):
        if not rows:
            break
        m = draw(st.integers(0, len(rows) - 1))
        row = rows[m]
        what = draw(st.sampled_from(["drop", "move", "source", "target", "range", "op", "swap", "twice", "again"]))
        if what == "drop":
            del rows[m]
        elif what == "move":
            row[0] = draw(st.integers(0, schedule.rounds))
        elif what in ("source", "target"):
            # Now and then to itself, or to a rank that there is none of.
            row[1 if what == "source" else 2] = draw(st.integers(0, n - 1) | st.sampled_from([-1, n]))
        elif what == "range":
            row[3] = draw(st.integers(0, chunks - 1))
            row[4] = draw(st.integers(1, chunks - row[3]) | st.sampled_from([0, chunks + 1]))
        elif what == "op":
            row[5] = 1 - row[5]
        elif what == "swap":
            other = rows[draw(st.integers(0, len(rows) - 1))]
            row[0], other[0] = other[0], row[0]
        elif what == "twice":
            rows.append(list(row))
        else:
            rows.append([draw(st.integers(0, schedule.rounds)), *row[1:]])
    return with_rows(schedule, rows)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changed())
def test_changed_schedules_are_judged_as_the_simulator_does(schedule: Schedule) -> None:
    possible = all(row[4] >= 1 for row in rows_of(schedule))  # what moves nothing does nothing, and is no transfer
    errors = verify(schedule)
    assert (errors == []) == (possible and is_right(schedule)), errors


@settings(max_examples=80, deadline=None)
@given(changed())
def test_what_is_wrong_stays_wrong_in_a_file(schedule: Schedule) -> None:
    """A file says more (what waits for what), which can only bring in errors of its own."""
    if any(error.endswith("nobody sends to itself") for error in verify(schedule)) or not len(schedule):
        return
    assert verify(schedule) == [] or verify(through_a_file(schedule))


def test_what_nobody_needs_may_be_wrong() -> None:
    """Rank 2's chunk is added up twice, and then replaced by the result: every rank ends with every contribution once.
    Whether it is right is told by what is there in the end."""
    rows = [[0, 1, 0, 0, 1, 0], [0, 2, 0, 0, 1, 0], [1, 1, 2, 0, 1, 0], [2, 1, 2, 0, 1, 0]]
    schedule = make_schedule("mine", 3, 1, [*rows, [3, 0, 1, 0, 1, 1], [3, 0, 2, 0, 1, 1]])
    simulate(schedule)
    assert verify(schedule) == []


# What a file says that each transfer waits for.


@settings(max_examples=80, deadline=None)
@given(made(most=9), st.data())
def test_entries_of_after_are_missed_only_when_nothing_else_implies_them(
    schedule: Schedule, data: st.DataObject
) -> None:
    offsets, needed = awaited(schedule)
    entries = list(zip(np.repeat(np.arange(len(schedule)), np.diff(offsets)).tolist(), needed.tolist(), strict=True))
    if not entries:
        return
    removed = data.draw(st.sets(st.sampled_from(entries), min_size=1, max_size=4))
    kept = [pair for pair in entries if pair not in removed]
    later = np.array([m for m, _ in kept], dtype=np.int64)
    after = np.searchsorted(later, np.arange(len(schedule) + 1)), np.array([k for _, k in kept], dtype=np.int32)
    missed = [(m, k) for m, k in sorted(removed) if k not in reached(m, kept)]
    errors = verify(dataclasses.replace(schedule, after=after))
    assert (errors == []) == (missed == [])
    first, carries = dependencies(schedule)
    carried = set(zip(np.repeat(np.arange(len(schedule)), np.diff(first)).tolist(), carries.tolist(), strict=True))
    for m, k in missed:
        said = f"{schedule.describe(m)} sends what transfer {k} writes and does not wait for it"
        if (m, k) not in carried:
            said = f"{schedule.describe(m)} and transfer {k} write the same chunk in no order: one of them copies"
        assert said in errors or len(errors) == 20


def reached(start: int, entries: list[tuple[int, int]]) -> set[int]:
    """What a transfer waits for, also by way of others."""
    found: set[int] = set()
    at = {start}
    while at:
        at = {k for m, k in entries if m in at} - found
        found |= at
    return found


def explicit(rows: list[Row], after: list[list[int]], **changes: int) -> Schedule:
    """A schedule over four ranks and one chunk in which every transfer waits for those listed."""
    schedule = make_schedule("mine", changes.get("ranks", 4), 1, rows)
    offsets = np.cumsum([0, *map(len, after)])
    return dataclasses.replace(schedule, after=(offsets, np.array([k for line in after for k in line], dtype=np.int32)))


# 2 and 3 swap at the beginning; then 0 and 1 are added to the copy at 2, which hands out the sum.
OVERWRITTEN = [[0, 2, 3, 0, 1, 0], [1, 3, 2, 0, 1, 1], [2, 0, 2, 0, 1, 0], [3, 1, 2, 0, 1, 0]]
OVERWRITTEN += [[4, 2, rank, 0, 1, 1] for rank in (0, 1, 3)]
LAST = [[1, 2, 3]] * 3


@pytest.mark.parametrize(
    ("after", "later", "sooner"),
    [
        ([[], [0], [1], [1], *LAST], None, None),
        ([[], [0], [1], [2], *LAST], None, None),
        ([[], [0], [], [1], *LAST], 2, 1),
        ([[], [0], [1], [], *LAST], 3, 1),  # not the one right before it, but the one that copied
    ],
)
def test_what_is_added_to_a_copy_waits_for_it(after: list[list[int]], later: int | None, sooner: int | None) -> None:
    schedule = explicit(OVERWRITTEN, after)
    if later is None:
        assert verify(schedule) == []
        return
    who = f"{schedule.describe(later)} and transfer {sooner}"
    assert verify(schedule) == [f"{who} write the same chunk in no order: one of them copies"]


def test_a_copy_waits_for_all_that_it_replaces() -> None:
    """Rank 1 gets two sums that nobody needs before it gets the result."""
    rows = [[0, 1, 0, 0, 1, 0], [0, 2, 0, 0, 1, 0], [1, 2, 1, 0, 1, 0], [2, 2, 1, 0, 1, 0]]
    rows += [[3, 0, 1, 0, 1, 1], [3, 0, 2, 0, 1, 1]]
    assert verify(explicit(rows, [[], [], [], [], [0, 1, 2, 3], [0, 1]], ranks=3)) == []
    for missing in (2, 3):
        schedule = explicit(rows, [[], [], [], [], [0, 1, 5 - missing], [0, 1]], ranks=3)
        (error,) = verify(schedule)
        assert error.startswith(f"{schedule.describe(4)} and transfer {missing} write the same chunk in no order")


def test_a_deadlock_is_told() -> None:
    schedule = explicit([[0, 0, 1, 0, 1, 0], [0, 1, 0, 0, 1, 0]], [[1], [0]], ranks=2)
    assert verify(schedule) == [
        f"{schedule.describe(0)} waits for transfer 1, which is no earlier: a deadlock",
        f"{schedule.describe(1)} waits for transfer 0, which is no earlier: a deadlock",
    ]


# Who is to blame.


def test_what_is_sent_before_it_is_there() -> None:
    owners = np.zeros(2, dtype=np.int32)
    schedule = make_schedule("mine", 3, 2, [(0, 0, 1, 0, 1, 1), (1, 1, 2, 0, 2, 1)], "broadcast", owners)
    assert verify(schedule) == [f"{schedule.describe(1)} sends chunk 1 before it is there"]


def test_what_is_added_before_there_is_anything() -> None:
    """Nobody knows what stands in the memory of a rank that waits for a broadcast."""
    schedule = make_schedule("mine", 2, 1, [(0, 0, 1, 0, 1, 0)], "broadcast", np.zeros(1, dtype=np.int32))
    assert verify(schedule) == [f"{schedule.describe(0)} adds to chunk 0 before it is there"]


@pytest.mark.parametrize("at", [0, 7, 11])
def test_what_is_added_twice(at: int) -> None:
    """Of two equal transfers the second is one too many."""
    rows = rows_of(schedule_for("ring", 4))
    rows.insert(at, list(rows[at]))
    schedule = with_rows(schedule_for("ring", 4), rows)
    (error,) = verify(schedule)
    assert error.startswith(f"{schedule.describe(at + 1)} adds what rank ")
    assert error.endswith(f" contributed to chunk {schedule.first[at]} a second time")


def test_very_many_at_once_are_not_taken_for_one() -> None:
    """65,537 times the same contribution, which counters of 16 bits could not tell from one."""
    rows = [(0, 1, 0, 0, 1, 0)] * ((1 << 16) + 1) + [(1, 0, 1, 0, 1, 1)]
    (error,) = verify(make_schedule("mine", 2, 1, rows))
    assert error.startswith("transfer 65536 ")


def test_writes_that_have_no_order() -> None:
    rows = [(0, 1, 0, 0, 1, 0), (0, 2, 0, 0, 1, 0), (1, 0, 1, 0, 1, 1), (1, 0, 2, 0, 1, 1), (1, 2, 1, 0, 1, 0)]
    schedule = make_schedule("mine", 3, 1, rows)
    assert verify(schedule) == [f"{schedule.describe(2)} writes chunk 0 in the same round as another: unordered writes"]


def test_what_is_missing_and_who_wrote_last() -> None:
    whole = schedule_for("tree", 3)
    schedule = with_rows(whole, rows_of(whole)[1:])  # 1 does not send
    said = "rank 0 ends without what rank 1 contributed in chunk 0; the last to write it was "
    assert verify(schedule)[0] == said + schedule.describe(0)
    schedule = with_rows(whole, rows_of(whole)[:-1])  # 1 does not get
    assert verify(schedule) == ["rank 1 ends without what rank 0 contributed in chunk 0; nobody sends it any"]


def test_a_missing_one_is_not_put_down_to_a_harmless_other() -> None:
    """Rank 2 adds up something twice that is replaced; what is wrong is that 1 gets nothing."""
    rows = [[0, 1, 0, 0, 1, 0], [0, 2, 0, 0, 1, 0], [1, 1, 2, 0, 1, 0], [2, 1, 2, 0, 1, 0], [3, 0, 2, 0, 1, 1]]
    assert verify(make_schedule("mine", 3, 1, rows)) == [
        "rank 1 ends without what rank 0 contributed in chunk 0; nobody sends it any"
    ]


def test_places_that_there_are_none_of() -> None:
    rows = [(0, 0, 3, 0, 1, 0), (0, 1, 1, 0, 1, 0), (0, 1, 2, 1, 2, 0), (0, 2, 1, 0, 0, 0)]
    schedule = make_schedule("mine", 3, 2, rows)
    assert [error.split(":")[0] for error in verify(schedule)] == [schedule.describe(m) for m in range(4)]
    assert verify(make_schedule("mine", 2, 1, [], contributors=[2])) == ["contributors: there is no rank 2"]


def test_few_errors_tell_as_much_as_many() -> None:
    assert len(verify(make_schedule("mine", 50, 1, []))) == 20


# Servers, large vectors, very many ranks.


def test_servers_of_their_own_neither_add_nor_want_anything() -> None:
    schedule = schedule_for("ps", 4, Options(colocated=False, servers=1))
    assert schedule.details["contributors"] == [0, 1, 2]
    assert verify(schedule) == []
    early = with_rows(schedule, [[0, 3, 0, 0, 1, 0], *([t + 1, *rest] for t, *rest in rows_of(schedule))])
    assert verify(early) == [f"{early.describe(0)} sends chunk 0 before it is there"]
    fewer = with_rows(schedule, rows_of(schedule)[1:])
    assert verify(fewer)[0].startswith("rank 0 ends without what rank 0 contributed in chunk 0")


def test_as_many_chunks_as_elements_cost_nothing() -> None:
    """Somebody may count elements: what always goes together is proven together."""
    whole = schedule_for("ring", 8)
    rows = [[t, a, b, first << 17, count << 17, copies] for t, a, b, first, count, copies in rows_of(whole)]
    assert verify(make_schedule("mine", 8, 1 << 20, rows)) == []
    rows[5][4] -= 1
    schedule = make_schedule("mine", 8, 1 << 20, rows)
    assert any(f"chunk {rows[5][3] + rows[5][4]};" in error for error in verify(schedule))


def test_too_many_ranks_are_refused() -> None:
    with pytest.raises(UsageError, match="40000 ranks are too many to prove"):
        verify(make_schedule("mine", 40_000, 1, [(0, 0, 1, 0, 1, 0)]))


@pytest.mark.parametrize("algo", ["flat", "ring"])
def test_a_long_file_whose_waits_are_roundabout_is_judged_too(algo: str) -> None:
    """Each transfer after the one before it, 48 ranks: right, though no wait is direct; and one link of the chain less
    is found out."""
    document = schedule_for(algo, 48).to_json()
    for m, transfer in enumerate(document["transfers"]):
        del transfer["round"]
        transfer["after"] = [m - 1] if m else []
    assert verify(schedule_from_json(document, "f")) == []
    cut = len(document["transfers"]) - 1
    document["transfers"][cut]["after"] = []
    assert verify(schedule_from_json(document, "f"))
