"""Whatever befalls a job, in whatever order words arrive: every clock is done, with every piece in it exactly once.

The hosts of these jobs have real servers, partitions and maps of work; only time, threads and sockets are not real.
What is read is held against what must be there at every clock, by every worker, and at the end.
"""

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
