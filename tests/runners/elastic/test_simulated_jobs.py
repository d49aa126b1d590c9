"""Whatever befalls a job, in whatever order words arrive: every clock is done, with every shard in it exactly once.

The hosts of these jobs have real servers, partitions and maps of work; only time, threads and sockets are not real.
What is read is held against what must be there at every clock, by every worker, and at the end.
"""

import ast
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plink.runtime.elastic.host.checkpoint_folder import latest
from plink.runtime.elastic.partition.partition import RejectedRequest
from tests.runners.elastic.simulated_course import job_of
from tests.runners.elastic.simulated_job import SimulatedJob

# Seeds that once found a mistake, of some 600.
REGRESSION_SEEDS = (13, 18, 32, 46, 83, 104, 142, 217, 264, 1011)
# in which the host that is unheard of was in time to begin a clock of others
SILENT = ((0, "rtt"), (5, "rtttt"), (9, "rtttt"), (13, "rtt"), (34, "rtttt"))
FOUND_ALL = (5, 51, 67, 134, 150)  # in which the last reliable host is lost with the controller, or before the start
NEAR_THE_END = (920092, 920252)  # in which a barrier comes after the last clock
ROUGH = (296,)  # in which a new replica had a clock that no round of replication ended with
STAGE_1 = {"active": 100.0, "backup_only": 200.0}  # transient hosts only work


def finish(job: SimulatedJob) -> None:
    """To its end; what was said, if that is not what it should be."""
    try:
        job.run()
        assert job.ended == (0, "")
    except BaseException:
        print("\n".join(job.log[-120:]))
        raise


@pytest.mark.parametrize("tiers", ["r", "rt", "rrttt"])
def test_a_quiet_job(tiers: str) -> None:
    """What the rest is to be compared with."""
    before = set(threading.enumerate())
    job = SimulatedJob(1, tiers)
    finish(job)
    assert not [line for line in job.log if "rolled back" in line]
    assert not set(threading.enumerate()) - before  # of jobs before it some may be ending


@pytest.mark.parametrize("seed", [*range(1, 4), *REGRESSION_SEEDS])
def test_a_job_to_which_things_happen(seed: int) -> None:
    """Hosts come, are warned and are lost, transient ones all at once too; controllers are lost."""
    finish(job_of(seed))


@pytest.mark.parametrize("seed", [0, *FOUND_ALL])
def test_all_reliable_hosts_may_be_lost_where_there_are_checkpoints(seed: int, tmp_path: Path) -> None:
    """The job goes on from the latest; where none was written yet it says so."""
    job = job_of(seed, str(tmp_path))
    job.run()
    assert job.ended == (0, "") or (job.ended and "no checkpoint was written" in job.ended[1])


@pytest.mark.parametrize("seed", NEAR_THE_END)
def test_shards_that_change_hands_after_the_last_clock(seed: int, tmp_path: Path) -> None:
    """Who had the shards before says where the job ended, also to another controller."""
    finish(job_of(seed, str(tmp_path)))


@pytest.mark.extended
@pytest.mark.parametrize("seed", ROUGH)
def test_lost_messages_between_servers(seed: int, tmp_path: Path) -> None:
    """Every partition can go back to the clock that all go back to, or the job goes on from a checkpoint."""
    finish(job_of(seed, str(tmp_path), rough=True))


def refuse(*arguments: object) -> None:
    raise RejectedRequest("no")


def test_host_that_cannot_roll_back_is_evicted() -> None:
    job = SimulatedJob(3, "rtttt", clocks=60)
    job.later(1.9, lambda: setattr(job.hosts[2].server, "roll_back", refuse))
    job.later(2.0, lambda: job.kill(1))
    finish(job)
    assert [line for line in job.log if "it cannot roll back to clock" in line]


@pytest.mark.extended
def test_refusing_replica_falls_back_to_a_checkpoint(tmp_path: Path) -> None:
    job = SimulatedJob(3, "rtttt", clocks=60, settings={"checkpoints": str(tmp_path), "checkpoint_every_s": 0.0})
    job.later(1.9, lambda: setattr(job.hosts[0].server, "restore_to", refuse))
    job.later(2.0, lambda: job.kill(1))
    finish(job)
    assert [line for line in job.log if "cannot be restored from h0" in line]
    assert [line for line in job.log if "goes on from the checkpoint" in line]


def test_warned_last_reliable_host_writes_a_checkpoint_at_once(tmp_path: Path) -> None:
    """And the job goes on from it on the host that comes in its place."""
    job = SimulatedJob(3, "rttt", clocks=60, settings={"checkpoints": str(tmp_path), "checkpoint_every_s": 1e6})
    job.later(1.0, lambda: job.warn([0], 2.0))
    job.later(4.5, lambda: job.join("r", False))
    finish(job)
    warning, written, joined = (
        next(index for index, line in enumerate(job.log) if text in line)
        for text in ("no reliable host stays: write a checkpoint or add one", "'what': 'checkpoint'", "join ['h4")
    )
    assert warning < written < joined


@pytest.mark.parametrize("seed", range(3))
def test_second_worker_lost_during_the_first_ones_barrier(seed: int) -> None:
    """It still takes part from that turn on, and is stood in for up to the next."""
    job = SimulatedJob(seed, "rtttt", clocks=60, settings=STAGE_1)
    lost: list[int] = []

    def lose(host: int) -> None:
        lost.append(host)
        job.hosts[host].die()
        job.later(0.0, lambda: job._lost(host, "killed"))

    def receive(host: int, message: dict[str, Any]) -> None:
        if message["method"] == "set_participants" and lost == [4]:
            lose(3)

    listen(job, receive)
    job.later(1.5, lambda: lose(4))
    finish(job)
    assert lost == [4, 3]


@pytest.mark.parametrize("seed", [1, 2])
def test_worker_lost_at_the_first_barrier_of_another_controller(seed: int) -> None:
    """Who stands in for it does every clock with the shards that it had then, also those before the barrier."""
    job = SimulatedJob(seed, "rttt", settings=STAGE_1)
    lost: list[int] = []
    stands_in: list[dict[str, Any]] = []

    def receive(host: int, message: dict[str, Any]) -> None:
        if message["method"] == "assign_shards" and len(job.hosts) > 4 and host and not lost:
            lost.append(host)
            job.kill(host)
        elif message["method"] == "take_over":
            stands_in.append(message)

    listen(job, receive)
    job.later(2.0, job.kill_controller)
    job.later(4.0, lambda: job.join("tt", True))
    finish(job)
    assert lost
    assert stands_in
    assert all(message["had"][0][0] <= message["clock"] for message in stands_in)


@pytest.mark.extended
@pytest.mark.parametrize(("seed", "tiers"), SILENT)
def test_a_host_that_is_only_unheard_of_works_on_in_vain(seed: int, tiers: str) -> None:
    """Its line to the launcher is cut, and it still reaches the servers: it may have begun the clock from which others
    do its work."""
    job = SimulatedJob(seed, tiers, partitions=2, clocks=150, settings=STAGE_1)
    host = job.hosts[len(tiers) - 1]

    def cut() -> None:
        host._says = lambda message: None
        host.hear = lambda message: None  # type: ignore[method-assign]
        host.die = lambda: None  # type: ignore[method-assign]
        job.later(30.0, lambda: setattr(host, "alive", False))  # it ends itself

    job.later(2.0, cut)
    finish(job)


@dataclass
class Order:
    """To move a partition away from who leaves: when it was given, after the first warning, and when it was done;
    whether any of those still worked then, and which hosts had one on its way already."""

    at_s: float
    source: int
    to: str
    working: bool
    busy: list[int | str]
    done_s: float = math.inf


def listen(job: SimulatedJob, does: Callable[[int, dict[str, Any]], None]) -> None:
    """To what the controller says, and to whom."""
    note = job.note

    def noted(text: str) -> None:
        note(text)
        if text.startswith("-> "):
            _, host, message = text.split(" ", 2)
            does(int(host), ast.literal_eval(message))

    job.note = noted  # type: ignore[method-assign]


def orders_of(job: SimulatedJob, leaving: list[int], *warnings: float) -> list[Order]:
    """Seconds that are left; the second warning comes at once."""
    for k, seconds in enumerate(warnings):
        job.later(2.0 + 0.02 * k, lambda seconds=seconds: job.warn(leaving, seconds))  # type: ignore[misc]
    result: list[Order] = []
    going: dict[int, Order] = {}

    def receive(host: int, message: dict[str, Any]) -> None:
        if message["method"] == "prepare" and host in leaving:
            working = any(job.hosts[number].workers.own() for number in leaving)
            busy = [
                end for item in going.values() for end in (item.source, item.to) if end in (host, message["address"])
            ]
            going[message["partition"]] = Order(job.now - 2.0, host, message["address"], working, busy)
            result.append(going[message["partition"]])
        elif message["method"] == "commit" and message["partition"] in going:
            going.pop(message["partition"]).done_s = job.now - 2.0

    listen(job, receive)
    finish(job)
    assert not [line for line in job.log if "rolled back" in line]
    assert len(result) >= 4
    return result


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(2))
def test_partitions_migrate_after_workers_one_at_a_time(seed: int) -> None:
    """And hosts rest after each, for three times as long as it took."""
    orders = orders_of(SimulatedJob(seed, "rtttttt", partitions=12, clocks=80), [3, 4, 5], 60.0)
    assert not any(order.working or order.busy for order in orders)
    rests = [
        (later.at_s - order.done_s) / (order.done_s - order.at_s)
        for k, order in enumerate(orders)
        for later in orders[k + 1 :]
        if later.to == order.to or later.source == order.source
    ]
    assert rests
    assert min(rests) >= 2.5  # the commit is said a moment after the copy is there


@pytest.mark.extended
@pytest.mark.parametrize("warnings", [(1.0,), (60.0, 1.0)], ids=["at first", "at second"])
def test_partitions_leave_at_once_where_there_is_none(warnings: tuple[float, ...]) -> None:
    """A quarter of what is left is waited for workers and for others to arrive, and no longer; the last word counts."""
    orders = orders_of(SimulatedJob(2, "rtttttt", partitions=12, clocks=80), [3, 4, 5], *warnings)
    assert max(order.at_s for order in orders) <= 0.25 + 0.2
    assert any(order.working for order in orders)


@pytest.mark.parametrize("tiers", ["r", "rtttt"])
def test_a_job_that_ends_leaves_a_checkpoint_of_its_last_clock(tiers: str, tmp_path: Path) -> None:
    job = SimulatedJob(3, tiers, settings={"checkpoints": str(tmp_path), "checkpoint_every_s": 1e9})
    finish(job)
    result = latest(tmp_path)
    assert result is not None
    assert result.clock == job.clocks


@pytest.mark.extended
def test_last_reliable_hosts_notice_loses_little_work(tmp_path: Path) -> None:
    """There is a checkpoint of shortly before it goes."""
    remaining = {"checkpoints": str(tmp_path), "checkpoint_every_s": 1e9}
    job = SimulatedJob(1, "rtt", clocks=150, settings=remaining)
    job.later(2.0, lambda: job.warn([0], 3.0))
    finish(job)
    (gone,) = (at(line) for line in job.log if "host 0 is gone" in line)
    before = [at(line) for line in job.log if "'what': 'checkpoint'" in line and at(line) < gone]
    assert before[-1] > gone - 1.0
    assert [line for line in job.log if "'what': 'rolled back'" in line]


def at(line: str) -> float:
    """When it was noted."""
    return float(line.split()[0])
