"""The schedule file, anybody's: what may be left out, what is refused and at which place."""

from typing import Any

import pytest

from plink.errors import InputError
from plink.model.schedule import Schedule
from plink.model.schedule_file import schedule_from_json

Row = dict[str, Any]


def document(*transfers: Any, **changes: Any) -> dict[str, Any]:
    """An all-reduce over two ranks in two transfers, or others, with changes."""
    rows = list(transfers) or [row(0, 0, 1), row(1, 1, 0, op="copy")]
    return {"schema": "plink.schedule/1", "ranks": 2, "chunks": 2, "transfers": rows} | changes


def row(when: int | None, source: int, target: int, **changes: Any) -> Row:
    """One transfer of both chunks."""
    round_key = {} if when is None else {"round": when}
    return round_key | {"from": source, "to": target, "chunk": 0, "chunks": 2, "op": "reduce"} | changes


def read(*transfers: Any, **changes: Any) -> Schedule:
    """The schedule of that document."""
    return schedule_from_json(document(*transfers, **changes), "s")


def waits(schedule: Schedule) -> list[list[int]]:
    """What the file said that each transfer waits for."""
    assert schedule.after is not None
    offsets, needed = schedule.after
    return [needed[offsets[m] : offsets[m + 1]].tolist() for m in range(len(schedule))]


def test_what_may_be_left_out() -> None:
    """A name, the collective, ids, `chunks` of one, `after` where there are rounds."""
    schedule = read({"round": 0, "from": 0, "to": 1, "chunk": 1, "op": "reduce"})
    assert (schedule.algo, schedule.collective, schedule.owners, schedule.after) == (
        "unnamed",
        "all-reduce",
        None,
        None,
    )
    assert (schedule.first.tolist(), schedule.count.tolist()) == ([1], [1])


def test_ranges_of_chunks_end_with_the_last_chunk() -> None:
    schedule = read(row(0, 0, 1, chunk=3, chunks=4), chunks=7)
    assert (schedule.first.tolist(), schedule.count.tolist()) == ([3], [4])


def test_rounds_with_gaps_are_the_same_order() -> None:
    schedule = read(row(2_000_000_000, 0, 1, id="b", after=["a"]), row(7, 1, 0, id="a"), row(7, 0, 1, id="c"))
    assert schedule.round.tolist() == [0, 0, 1]
    assert schedule.source.tolist() == [1, 0, 0]
    assert waits(schedule) == [[], [], [0]]  # by the new places


def test_without_rounds_the_longest_chain_makes_them() -> None:
    """d waits for a and, by way of b and c, for a again: the longer way counts."""
    rows = [
        row(None, 0, 1, id="d", after=["a", "c"]),
        row(None, 1, 0, id="c", after=["b"]),
        row(None, 0, 1, id="b", after=["a"]),
        row(None, 1, 0, id="a", after=[]),
    ]
    schedule = read(*rows)
    assert schedule.round.tolist() == [0, 1, 2, 3]
    assert waits(schedule) == [[], [0], [1], [0, 2]]


def test_no_transfers_are_a_schedule_too() -> None:
    schedule = schedule_from_json(document() | {"transfers": []}, "s")
    assert (len(schedule), schedule.rounds) == (0, 0)


def test_unknown_keys_are_passed_over() -> None:
    assert read(timing="chain", made={"by": "hand"}, later=[1, 2]).timing == "chain"
    assert len(read(row(0, 0, 1, colour="green"))) == 1


@pytest.mark.parametrize(
    ("changes", "location", "reason"),
    [
        ({"schema": "plink.order/1"}, "s: schema", "expected 'plink.schedule/1'"),
        ({"collective": "all-to-all"}, "s: collective", "choose one of all-gather, all-reduce"),
        ({"ranks": 1}, "s: ranks", "expected a whole number >= 2, got 1"),
        ({"ranks": (1 << 20) + 1}, "s: ranks", "<= 1048576"),
        ({"chunks": 0}, "s: chunks", "got 0"),
        ({"transfers": None}, "s: transfers", "expected a list, got null"),
        ({"collective": "broadcast"}, "s: owners", "a broadcast needs the owner of each chunk, 2 ranks"),
        ({"collective": "reduce", "owners": [0, 2]}, "s: owners", "2 ranks"),
        ({"contributors": []}, "s: contributors", "expected a list of 1 or more"),
        ({"contributors": [2]}, "s: contributors", "ranks from 0 to 1"),
    ],
)
def test_a_bad_key_is_named(changes: dict[str, Any], location: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read(**changes)
    assert caught.value.location == location
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("changes", "location", "reason"),
    [
        ({"from": 2}, ".from", "2 is not a number from 0 to 1"),
        ({"to": -1}, ".to", ">= 0, got -1"),
        ({"to": 0}, "", "rank 0 sends to itself"),
        ({"chunk": 2}, ".chunk", "2 is not a number from 0 to 1"),
        ({"chunk": 1}, ".chunks", "2 is not a number from 1 to 1"),
        ({"op": "add"}, ".op", "choose one of copy, reduce"),
        ({"round": -1}, ".round", "got -1"),
        ({"after": 0}, ".after", "expected a list"),
        ({"after": [7]}, ".after", "there is no transfer 7"),
        ({"after": [1]}, "", "in round 1 and waits for transfers[1], which is in round 1: it would wait for ever"),
        ({"id": 0}, ".id", "0 is taken"),
        ({"id": [1]}, ".id", "got a list"),
    ],
)
def test_a_bad_transfer_is_named(changes: Row, location: str, reason: str) -> None:
    """The second of three, so that it is not by chance the first that is named."""
    rows = [row(0, 0, 1), row(1, 0, 1, **changes), row(2, 1, 0)]
    with pytest.raises(InputError) as caught:
        read(*rows)
    assert caught.value.location == f"s: transfers[1]{location}"
    assert reason in caught.value.reason


def test_what_no_transfer_can_do_without() -> None:
    for missing in ("from", "to", "chunk", "op"):
        bad = row(1, 1, 0)
        del bad[missing]
        with pytest.raises(InputError, match=rf"^s: transfers\[1\].{missing}: is missing"):
            read(row(0, 0, 1), bad)


@pytest.mark.parametrize(
    ("rows", "place", "reason"),
    [
        ([row(0, 0, 1), row(None, 1, 0)], 1, "give `round` in all transfers"),
        ([row(None, 0, 1, after=[]), row(1, 1, 0, after=[0])], 0, "give `round` in all transfers"),
        ([row(None, 0, 1, after=[]), row(None, 1, 0)], 1, "or `after` in all of them"),
        (
            [row(None, 0, 1, after=[]), row(None, 1, 0, after=[0, 3]), row(None, 0, 1, after=[1]),
             row(None, 1, 0, after=[2]), row(None, 1, 0, after=[3])],
            1, "waits for itself: transfers[1] after transfers[3] after transfers[2] after transfers[1]",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_put_in_rounds(rows: list[Row], place: int, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read(*rows)
    assert caught.value.location == f"s: transfers[{place}]"
    assert reason in caught.value.reason


def test_a_long_cycle_is_abbreviated() -> None:
    """Found in no time, and in one line."""
    rows = [row(None, 0, 1, after=[(m + 1) % 5_000]) for m in range(5_000)]
    with pytest.raises(InputError, match=r"transfers\[11\] after \.\.\. after transfers\[0\]$"):
        read(*rows)
