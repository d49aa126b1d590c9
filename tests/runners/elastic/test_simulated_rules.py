"""Whatever befalls a job under each rule: every step of every clock counts once, and staleness is within its bound.

As test_simulated_jobs.py: hosts come, are warned and are lost, shards change hands, all roll back, controllers are
lost, and messages are late or lost. Workers check what they read: at least all that the rule promises, nothing from
beyond its bound, and their own shards as they or their predecessors left them. The extended tier has more courses.
"""

from pathlib import Path
from typing import Any

import pytest

from plink.elastic import AdamW
from plink.model.elastic.fields import UpdateCounts
from tests.runners.elastic.simulated_course import job_of, run_exactly
from tests.runners.elastic.simulated_job import SimulatedJob

COURSES = 5
HELPERS, BY_SPEED = {"rebalance": True}, {"by_speed": True}
CASES = [
    ("ssp:3", {}), ("dssp:1:6", {}), ("elastic-bsp:15", {}), ("asp", {}),
    ("ordered:1", {}), ("ordered:2", {}), ("ordered:9", {}), ("ordered:2:direct", {}),
    ("ssp:1", HELPERS), ("dssp:1:4", HELPERS),
    ("bsp", {"optimiser": AdamW(0.1)}),
    ("bsp", BY_SPEED), ("ssp:2", BY_SPEED), ("dssp:1:4", BY_SPEED),
]  # fmt: skip


def run_course(rule: str, seed: int, folder: Path, options: dict[str, Any]) -> SimulatedJob:
    """One course; a third of them has checkpoints, and half loses messages between servers. It is returned when it is
    over."""
    job = job_of(seed, str(folder) if seed % 3 == 0 else "", rough=seed % 2 == 0, rule=rule, **options)
    run_exactly(job)
    counts = sum((host.server.updates() for host in job.hosts.values() if host._server is not None), UpdateCounts())
    if rule.startswith("ordered"):  # each was held against what its worker had seen
        assert (counts.applied, counts.dropped) == (job.net.applied, job.net.dropped)
        assert counts.largest <= int(rule.split(":")[1])
        assert counts.applied
        assert not (counts.unsent and rule.endswith(":direct"))
    return job


def test_courses_have_sums(tmp_path: Path) -> None:
    """Or they would say nothing of workers of a host that travel as one."""
    jobs = [run_course("ordered:9", seed, tmp_path / str(seed), {"slots": (3, 4)}) for seed in (5, 7, 8, 13)]
    assert sum(job.net.summed for job in jobs) > 10 * len(jobs)


@pytest.mark.extended
def test_some_courses_lose_sums(tmp_path: Path) -> None:
    """One of some forty."""
    jobs = (run_course("ordered:9", seed, tmp_path, {"slots": (3, 4)}) for seed in range(1, 900, 3))
    assert any(job.net.left > job.net.summed for job in jobs)


@pytest.mark.parametrize("seed", range(COURSES))
@pytest.mark.parametrize(("rule", "options"), CASES)
def test_random_courses_are_exact(rule: str, options: dict[str, Any], seed: int, tmp_path: Path) -> None:
    run_course(rule, seed, tmp_path, options)
