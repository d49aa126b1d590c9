"""Whatever befalls a job, in whatever order words arrive: every clock is done, with every piece in it exactly once.

The hosts of these jobs have real servers, partitions and maps of work; only time, threads and sockets are not real.
What is read is held against what must be there at every clock, by every worker, and at the end.
"""

import ast
from pathlib import Path

import pytest

from tests.runners.agile.simulated_course import job_of
from tests.runners.agile.simulated_job import SimulatedJob

# Seeds that once found a mistake, of some 600.
FOUND = (13, 18, 19, 32, 41, 46, 49, 83, 104, 135, 142, 217, 264)


def finish(job: SimulatedJob) -> None:
    """To its end; what was said, if that is not what it should be."""
    try:
        job.run()
        assert job.ended == (0, "")
    except BaseException:
        print("\n".join(job.log[-120:]))
        raise


@pytest.mark.parametrize("tiers", ["r", "rr", "rt", "rtttt", "rrttt"])
def test_a_quiet_job(tiers: str) -> None:
    """What the rest is to be compared with."""
    job = SimulatedJob(1, tiers)
    finish(job)
    assert not [line for line in job.log if "rolled back" in line]


@pytest.mark.parametrize("seed", [*range(1, 12), *FOUND])
def test_a_job_to_which_things_happen(seed: int) -> None:
    """Hosts come, are warned and are lost, transient ones all at once too; controllers are lost."""
    finish(job_of(seed))


@pytest.mark.parametrize("seed", range(3))
def test_all_reliable_hosts_may_be_lost_where_there_are_checkpoints(seed: int, tmp_path: Path) -> None:
    """The job goes on from the latest; where none was written yet it says so."""
    job = job_of(seed, str(tmp_path))
    job.run()
    assert job.ended == (0, "") or (job.ended and "no checkpoint was written" in job.ended[1])


def moves(job: SimulatedJob, leaving: list[int], seconds: float) -> list[tuple[float, bool, int]]:
    """Orders to move a partition away from those who leave: after how many seconds of warning, whether any of these
    still worked, and how many partitions were already on their way to the same host."""
    job.later(2.0, lambda: job.warn(leaving, seconds))
    found: list[tuple[float, bool, int]] = []
    going: dict[int, str] = {}
    note = job.note

    def noted(text: str) -> None:
        note(text)
        arrow, host, word = (*text.split(" ", 2), "", "")[:3]
        if arrow != "->":
            return
        said = ast.literal_eval(word)
        if said["do"] == "prepare" and int(host) in leaving:
            working = any(job.hosts[number].workers.own() for number in leaving)
            found.append((job.now - 2.0, working, list(going.values()).count(said["address"])))
            going[said["partition"]] = said["address"]
        elif said["do"] == "commit":
            going.pop(said["partition"], None)

    job.note = noted  # type: ignore[method-assign]
    finish(job)
    assert not [line for line in job.log if "rolled back" in line]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_partitions_leave_after_workers_and_one_at_a_time_where_there_is_time(seed: int) -> None:
    job = SimulatedJob(seed, "rtttttt", partitions=12, clocks=80)
    orders = moves(job, [3, 4, 5], 60.0)
    assert len(orders) >= 4
    assert [(working, before) for _, working, before in orders] == [(False, 0)] * len(orders)


@pytest.mark.parametrize("seed", range(3))
def test_partitions_leave_at_once_where_there_is_none(seed: int) -> None:
    """A quarter of the warning is waited for workers, or others to arrive, and no longer."""
    job = SimulatedJob(seed, "rtttttt", partitions=12, clocks=80)
    orders = moves(job, [3, 4, 5], 1.0)
    assert len(orders) >= 4
    assert max(after for after, _, _ in orders) <= 0.25 + 0.2
