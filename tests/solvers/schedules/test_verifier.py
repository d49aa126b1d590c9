"""The verifier says what a simulator says that knows only the definition, and names the transfer that is to blame."""

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.schedule import Schedule, awaited, dependencies, make_schedule
from plink.model.schedule_file import schedule_from_json
from solvers.schedules import verifier
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from solvers.schedules.verifier import verify
from tests.solvers.requests import requests
from tests.solvers.simulator import Wrong, simulate

Row = list[int]  # round, source, target, first, count, copies
Move = tuple[int, int, int, int, int, int]
ALL = [(algo, collective) for algo, entry in ALGORITHMS.items() for collective in ("all-reduce", *entry.parts)]


def rows_of(schedule: Schedule) -> list[Row]:
    """The transfers, to be changed."""
    columns = (schedule.round, schedule.source, schedule.target, schedule.first, schedule.count, schedule.copies)
    return np.stack(columns, axis=1).astype(int).tolist()  # type: ignore[no-any-return]


def with_rows(schedule: Schedule, rows: list[Row]) -> Schedule:
    """The same task, done by other transfers."""
    return make_schedule(
        schedule.algo,
        schedule.ranks,
        schedule.chunks,
        rows,
        schedule.collective,
        schedule.owners,
        contributors=schedule.contributors,
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


def owned(collective: str, ranks: int, owners: list[int], rows: list[Move]) -> Schedule:
    return make_schedule("mine", ranks, len(owners), rows, collective, np.array(owners, dtype=np.int32))


RIGHT: list[Move] = [(0, 1, 0, 0, 4, 0), (0, 2, 0, 0, 4, 0), (1, 0, 1, 0, 4, 1), (1, 0, 2, 0, 4, 1)]


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


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changed())
def test_mutated_schedules_verify_as_simulated(schedule: Schedule) -> None:
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


def test_unneeded_results_may_be_wrong() -> None:
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
    remaining = [pair for pair in entries if pair not in removed]
    later = np.array([m for m, _ in remaining], dtype=np.int64)
    after = np.searchsorted(later, np.arange(len(schedule) + 1)), np.array([k for _, k in remaining], dtype=np.int32)
    missed = [(m, k) for m, k in sorted(removed) if k not in reached(m, remaining)]
    errors = verify(dataclasses.replace(schedule, after=after))
    assert (errors == []) == (missed == [])
    first, carries = dependencies(schedule)
    contribution = set(zip(np.repeat(np.arange(len(schedule)), np.diff(first)).tolist(), carries.tolist(), strict=True))
    for m, k in missed:
        message = f"{schedule.describe(m)} sends what transfer {k} writes and does not wait for it"
        if (m, k) not in contribution:
            message = f"{schedule.describe(m)} and transfer {k} write the same chunk in no order: one of them copies"
        assert message in errors or len(errors) == 20


def reached(start: int, entries: list[tuple[int, int]]) -> set[int]:
    """What a transfer waits for, also by way of others."""
    result: set[int] = set()
    at = {start}
    while at:
        at = {k for m, k in entries if m in at} - result
        result |= at
    return result


def explicit(rows: list[Row], after: list[list[int]], **changes: int) -> Schedule:
    """A schedule over four ranks and one chunk in which every transfer waits for those listed."""
    schedule = make_schedule("mine", changes.get("ranks", 4), 1, rows)
    offsets = np.cumsum([0, *map(len, after)])
    return dataclasses.replace(schedule, after=(offsets, np.array([k for line in after for k in line], dtype=np.int32)))


def test_a_copy_waits_for_all_that_it_replaces() -> None:
    """Rank 1 gets two sums that nobody needs before it gets the result."""
    rows = [[0, 1, 0, 0, 1, 0], [0, 2, 0, 0, 1, 0], [1, 2, 1, 0, 1, 0], [2, 2, 1, 0, 1, 0]]
    rows += [[3, 0, 1, 0, 1, 1], [3, 0, 2, 0, 1, 1]]
    assert verify(explicit(rows, [[], [], [], [], [0, 1, 2, 3], [0, 1]], ranks=3)) == []
    for missing in (2, 3):
        schedule = explicit(rows, [[], [], [], [], [0, 1, 5 - missing], [0, 1]], ranks=3)
        (error,) = verify(schedule)
        assert error.startswith(f"{schedule.describe(4)} and transfer {missing} write the same chunk in no order")


# Who is to blame.


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


def test_writes_that_have_no_order() -> None:
    rows = [(0, 1, 0, 0, 1, 0), (0, 2, 0, 0, 1, 0), (1, 0, 1, 0, 1, 1), (1, 0, 2, 0, 1, 1), (1, 2, 1, 0, 1, 0)]
    schedule = make_schedule("mine", 3, 1, rows)
    assert verify(schedule) == [f"{schedule.describe(2)} writes chunk 0 in the same round as another: unordered writes"]


def test_what_is_missing_and_who_wrote_last() -> None:
    whole = schedule_for("tree", 3)
    schedule = with_rows(whole, rows_of(whole)[1:])  # 1 does not send
    message = "rank 0 ends without what rank 1 contributed in chunk 0; the last to write it was "
    assert verify(schedule)[0] == message + schedule.describe(0)
    schedule = with_rows(whole, rows_of(whole)[:-1])  # 1 does not get
    assert verify(schedule) == ["rank 1 ends without what rank 0 contributed in chunk 0; nobody sends it any"]


def test_few_errors_are_as_informative_as_many() -> None:
    assert len(verify(make_schedule("mine", 50, 1, []))) == 20


# Servers, large vectors, very many ranks.


def test_servers_of_their_own_neither_add_nor_want_anything() -> None:
    schedule = schedule_for("ps", 4, Options(colocated=False, servers=1))
    assert schedule.contributors == [0, 1, 2]
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


@pytest.mark.parametrize(("algo", "ranks"), [("flat", 32), ("ring", 40)])
def test_long_file_with_circuitous_waits_is_verified(algo: str, ranks: int) -> None:
    """Each transfer after the one before it: right, though no wait is direct; and one link of the chain less
    is found out."""
    document = schedule_for(algo, ranks).to_json()
    for m, transfer in enumerate(document["transfers"]):
        del transfer["round"]
        transfer["after"] = [m - 1] if m else []
    assert verify(schedule_from_json(document, "f")) == []
    cut = len(document["transfers"]) - 1
    document["transfers"][cut]["after"] = []
    assert verify(schedule_from_json(document, "f"))


def test_memory_of_a_long_file_grows_with_its_transfers() -> None:
    """Not with their square, though most waits are indirect."""
    whole = schedule_for("ring", 120)
    schedule = dataclasses.replace(whole, after=awaited(whole))
    tracemalloc.start()
    try:
        assert verify(schedule) == []
        assert tracemalloc.get_traced_memory()[1] < 1000 * len(schedule)
    finally:
        tracemalloc.stop()


# Errors one by one.


def test_impossible_transfers_are_named_alone() -> None:
    """One step beyond the first or the last rank or chunk, from a rank to itself, or of no chunks; no other error is
    reported then."""
    beyond: list[Move] = [(1, -1, 0, 0, 1, 0), (1, 0, -1, 0, 1, 0), (1, 3, 0, 0, 1, 0), (1, 0, 3, 0, 1, 0)]
    beyond += [(1, 2, 2, 0, 1, 0), (1, 0, 1, -1, 1, 0), (1, 0, 1, 4, 1, 0), (1, 0, 1, 3, 2, 0), (1, 0, 1, 0, 5, 0)]
    beyond += [(1, 0, 1, 2, 0, 0), (1, 0, 1, 2, -1, 0)]
    assert verify(make_schedule("mine", 3, 4, RIGHT)) == []
    for row in beyond:
        schedule = make_schedule("mine", 3, 4, [*RIGHT, row])
        (m,) = [m for m in range(5) if tuple(rows_of(schedule)[m]) == row]
        (error,) = verify(schedule)
        assert error.split(":")[0] == schedule.describe(m)
    assert len(verify(make_schedule("mine", 3, 4, [(0, 1, 1, 0, 1, 0)] * 25))) == 20


@pytest.mark.parametrize(("named", "who"), [([0, 3], 3), ([-1, 0], -1), ([4, 1], 4)])
def test_contributors_that_are_no_ranks(named: list[int], who: int) -> None:
    assert verify(make_schedule("mine", 3, 4, RIGHT, contributors=[2, 0, 1, 2])) == []
    (error,) = verify(make_schedule("mine", 3, 4, RIGHT, contributors=named))
    assert f"no rank {who}" in error


def test_rounds_come_in_their_order() -> None:
    right = make_schedule("mine", 3, 4, RIGHT)
    wrong = dataclasses.replace(right, round=right.round[::-1].copy())
    assert verify(wrong) == ["the transfers are not in the order of their rounds"]
    assert verify(dataclasses.replace(right, round=right.round + np.int32(7))) == []


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


def test_twenty_missing_waits_are_enough() -> None:
    """Thirty ranks send to the first, which hands out the sum without waiting for any."""
    rows = [(0, rank, 0, 0, 1, 0) for rank in range(1, 31)] + [(1, 0, rank, 0, 1, 1) for rank in range(1, 31)]
    schedule = make_schedule("mine", 31, 1, rows)
    after = np.zeros(61, dtype=np.int64), np.zeros(0, dtype=np.int32)
    assert verify(dataclasses.replace(schedule, after=after)) == [
        f"{schedule.describe(30)} sends what transfer {k} writes and does not wait for it" for k in range(20)
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


def test_two_copies_at_once_have_no_order_and_two_additions_need_none() -> None:
    gather: list[Move] = [(0, 0, 1, 0, 1, 1), (1, 0, 2, 0, 1, 1), (1, 1, 2, 0, 1, 1)]
    schedule = owned("broadcast", 3, [0], gather)
    assert verify(schedule) == [
        f"{schedule.describe(m)} writes chunk 0 in the same round as another: unordered writes" for m in (1, 2)
    ]
    # Into two places there is nothing to order.
    assert verify(owned("broadcast", 3, [0], [(0, 0, 1, 0, 1, 1), (0, 0, 2, 0, 1, 1)])) == []
    assert verify(owned("reduce", 3, [0], [(0, 1, 0, 0, 1, 0), (0, 2, 0, 0, 1, 0)])) == []


def test_a_broadcast_to_very_many_can_be_proven() -> None:
    """It takes one count a rank, where an all-reduce takes one for every two."""
    assert verify(schedule_for("tree", 40_000, Options(fan_out=200), "broadcast")) == []


def test_some_chunks_at_a_time_find_the_same_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fits in memory at once: schedules of several chunks, right and wrong."""
    doubled: list[Move] = [*((t, 1, 0, t, 2, 0) for t in range(4)), (5, 0, 1, 0, 5, 1)]
    ring = schedule_for("ring", 5)
    rows = rows_of(ring)
    schedules = [
        ring,
        with_rows(ring, rows[:7] + rows[8:]),
        schedule_for("ring", 5, None, "all-gather"),
        make_schedule("mine", 2, 5, doubled),
        owned("broadcast", 3, [0] * 4, [(0, 0, 1, 0, 3, 1), (1, 1, 2, 0, 4, 1)]),
        owned("all-gather", 3, [0, 1, 2], [(0, 0, 1, 0, 1, 1), (0, 1, 2, 1, 1, 1), (1, 1, 2, 0, 1, 1)]),
    ]
    whole = [sorted(verify(schedule)) for schedule in schedules]
    for block_bytes in (1, 50, 100):
        monkeypatch.setattr(verifier, "_BLOCK_BYTES", block_bytes)
        assert [sorted(verify(schedule)) for schedule in schedules] == whole
