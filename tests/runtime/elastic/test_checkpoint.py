"""Partitions in files."""

import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from msgspec import structs

from plink.elastic import StoppingCriterion, Table
from plink.errors import InputError
from plink.model.consistency import parse_rule
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.partition.serialization import begun, parts_of, read_partition, write_partition
from plink.runtime.elastic.server import SavedState
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.primaries import PrimaryAddress
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker import Finished, Worker
from tests.runtime.elastic.stepping import MIXED, SHARDS, Counting
from tests.runtime.elastic.stores import store, together

LAYOUT = Layout((Table("n", 10, 2, "int64"),), 2)


def some() -> Partition:
    """One with a state, a step back and an update that waits."""
    partition = Partition(LAYOUT, 1, history=True)
    partition.admit({0: 0, 1: 0})
    for worker, clock in ((0, 0), (1, 0), (1, 1)):
        partition.update(worker, clock, 0, True, (RowBlock(0, range(5), np.full((5, 2), worker + 1)),))
    return partition


def test_a_partition_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "p1"
    write_partition(path, parts_of(some()), LAYOUT)
    assert [file.name for file in tmp_path.iterdir()] == ["p1"]
    assert path.stat().st_mode & 0o777 == 0o600
    result = read_partition(path, LAYOUT, sees_ahead=False)
    assert (result.number, result.clock, result.can_roll_back()) == (1, 0, [-1, 0])
    result.update(0, 1, 0, True, (RowBlock(0, range(5), np.full((5, 2), 10)),))
    assert (result.values[0] == 3 + 12).all()
    result.roll_back(-1)
    assert not result.values[0].any()


def test_files_that_are_none_or_damaged_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p1"
    write_partition(path, parts_of(some()), LAYOUT)
    whole = path.read_bytes()
    for content in (b"", b"nonsense" * 50, whole[:-3], whole[: len(whole) // 2], whole + b"x", whole + whole):
        path.write_bytes(content)
        with pytest.raises(InputError, match=str(path)):
            read_partition(path, LAYOUT, sees_ahead=False)
    path.unlink()
    with pytest.raises(InputError, match="there is no such file"):
        read_partition(path, LAYOUT, sees_ahead=False)


def test_no_bit_may_be_flipped(tmp_path: Path) -> None:
    path = tmp_path / "p1"
    write_partition(path, parts_of(some()), LAYOUT)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match=str(path)):
            read_partition(path, LAYOUT, sees_ahead=False)


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 0x7F800001), ("float64", 0x7FF0000000000001)])
def test_bytes_that_no_sum_may_have_are_damage_too(tmp_path: Path, dtype: str, bits: int) -> None:
    """Signalling NaNs (IEEE 754, 6.2.1), at which arithmetic stops."""
    path, layout = tmp_path / "p1", Layout((Table("n", 10, 2, dtype),), 2)
    partition = Partition(layout, 1, history=True)
    partition.values[0][:] = 1.5
    write_partition(path, parts_of(partition), layout)
    old, new = np.array([1.5], dtype).tobytes(), np.array([bits], f"u{np.dtype(dtype).itemsize}").tobytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(InputError, match="it is damaged"):
        read_partition(path, layout, sees_ahead=False)


@pytest.mark.parametrize(
    "wrong", [{"clock": "x"}, {"members": 5}, {"members": {"0": [1]}}, {"members": {"a": [0] * 3}}]
)
def test_numbers_of_another_type_are_refused(wrong: dict[str, object]) -> None:
    state = parts_of(some())[0]
    with pytest.raises(RejectedRequest, match="cannot be read"):
        begun(LAYOUT, structs.replace(state, text=json.dumps({**json.loads(state.text), **wrong})), sees_ahead=False)


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        client = run.client(0)
        for _ in range(3):
            client.update("n", range(10), np.ones((10, 2), int))
            client.push()
        for number in (0, 1):
            run.servers[0].checkpoint(number, tmp_path / str(number))
        client.close()
        run.servers[0].close()
        with pytest.raises(RejectedRequest, match="has partition 0, not 1"):
            run.servers[1].restore(1, SavedState(tmp_path / "0"), [0], generation=1, term=1)
        for number in (0, 1):
            saved = SavedState(tmp_path / str(number))
            assert run.servers[1].restore(number, saved, [0], generation=1, term=1) == 2
            run.primaries[number] = PrimaryAddress(run.servers[1].address, 1)
        again = run.client(0, clock=3, generation=1)
        assert (again.read("n", range(10)) == 3).all()
        again.update("n", [4], [[1, 2]])
        again.push()
        assert run.state()[4].tolist() == [4, 5]


RULES = ("bsp", "ssp:2", "dssp:0:3", "elastic-bsp:4", "asp:100ms")
AT_ONCE = StoppingCriterion(seconds=1e-6)


def job(
    folder: Path, rule: str, stop: StoppingCriterion, *, goes_on: bool = False, own: bool = False,
    clock: int | None = None, saves: int | None = None,
) -> tuple[Finished, int]:  # fmt: skip
    """Two workers to their end, from the checkpoint in the folder or from the start, which leave one there.

    :param own: the checkpoint is the same job's. :param clock: that it goes on from. :param saves: that it
        leaves; None: the last.
    :returns: why and where they ended, and how many mini-batches are done.
    """
    app = Counting([0.0] * SHARDS, 1)
    app.stop = stop
    with store(job_layout(app, 2), parse_rule(rule)) as made:
        made.open(0 if goes_on else 2, history=True)
        (server,), first = made.servers, 0
        for number in made.primaries if goes_on else ():
            server.drop(number, 1)
            saved = SavedState(folder / str(number), clock, not own)
            first = 1 + server.restore(number, saved, [0, 1], generation=0, term=1)
            made.primaries[number] = PrimaryAddress(server.address, 1)
        workers = [
            Worker(LoadedShards(app), made.client(number, clock=first), MIXED[number], say=[].append)
            for number in (0, 1)
        ]
        ended = cast(list[Finished], together(*(each.run for each in workers)))
        assert ended[0] == ended[1]
        for number in made.primaries:
            server.checkpoint(number, folder / str(number), saves)
        return ended[0], int(made.state().sum())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (AT_ONCE, "1e-06 s are over"),
        (StoppingCriterion(patience=2), "2 iterations did not improve the objective"),
    ],
)
def test_another_job_trains_on_whatever_ended_the_one_before(
    tmp_path: Path, rule: str, stop: StoppingCriterion, reason: str
) -> None:
    before, done = job(tmp_path, rule, stop)
    assert before.reason == reason
    after, done_then = job(tmp_path, rule, AT_ONCE, goes_on=True)
    assert (after.reason, after.clock > before.clock, done_then > done) == ("1e-06 s are over", True, True)


@pytest.mark.parametrize("rule", RULES)
def test_clocks_are_those_of_all_jobs_together(tmp_path: Path, rule: str) -> None:
    """A job whose checkpoint has all that it asks for says so and does nothing; one that asks for more does it."""
    _, done = job(tmp_path, rule, StoppingCriterion(clocks=6))
    again, done_then = job(tmp_path, rule, StoppingCriterion(clocks=6), goes_on=True)
    assert (again.reason, done_then) == ("6 clocks are done", done)
    more, done_then = job(tmp_path, rule, StoppingCriterion(clocks=12), goes_on=True)
    assert more.reason == "12 clocks are done"
    assert done_then >= 12 * SHARDS
    if not parse_rule(rule).steps:
        assert done_then == 12 * SHARDS


@pytest.mark.parametrize("rule", RULES)
def test_job_that_goes_back_to_its_own_checkpoint_ends_where_it_would_have(tmp_path: Path, rule: str) -> None:
    """What it has decided stands: a worker may have ended by it."""
    ended, done = job(tmp_path, rule, AT_ONCE, saves=1)
    again, done_then = job(tmp_path, rule, AT_ONCE, goes_on=True, own=True, clock=1)
    assert again == ended
    assert done_then == done or parse_rule(rule).steps
