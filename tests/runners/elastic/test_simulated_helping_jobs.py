"""Whatever befalls a job whose workers help each other: every grain of every clock counts once.

As test_simulated_jobs.py. Hosts come and are lost while they help or are helped, shards change hands, all roll back,
controllers are lost, and messages are late or lost.
"""

from pathlib import Path

import pytest

from tests.runners.elastic.simulated_course import job_of, run_exactly
from tests.runners.elastic.simulated_job import SimulatedJob
from tests.runners.elastic.test_simulated_jobs import finish

COURSES = 60


def moved(job: SimulatedJob) -> int:
    """Return how many grains helpers did for the workers that there are."""
    return sum(host._helping.moved()[0] for host in job.hosts.values() if host._helping is not None)


def test_workers_of_a_quiet_job_help_each_other() -> None:
    job = SimulatedJob(1, "rrttt", shards=10, grains=8, settings={"rebalance": True})
    finish(job)
    assert [line for line in job.log if "others did" in line]
    lines = [eval(line.split("log ", 1)[1]) for line in job.log if "'what': 'iteration'" in line]
    assert any(line["moved"] > 0 for line in lines)
    for line in lines:
        assert line["help"].keys() <= line["work"].keys()
        assert bool(line["help"]) == (line["moved"] > 0)
        for helpers in line["help"].values():
            assert helpers.keys() <= line["work"].keys()
            assert 0 < sum(helpers.values()) <= 1


@pytest.mark.parametrize("seed", range(COURSES))
def test_random_runs_are_exact(seed: int, tmp_path: Path) -> None:
    rule = ("bsp", "bsp", "ssp:3", "dssp:1:5")[seed % 4]
    run_exactly(job_of(seed, str(tmp_path) if seed % 3 == 0 else "", rough=seed % 2 == 0, rebalance=True, rule=rule))
