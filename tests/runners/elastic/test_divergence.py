"""Replicas that may be behind by a bounded distance: whatever befalls a job, no commit is farther from what they have.

As test_simulated_jobs.py. Distances are taken between the vectors of the primary and those of its replicas' servers,
after everything that happens; nothing that the job says of them counts.
"""

import ast
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from plink.elastic import AdamW
from plink.runtime.elastic.replica.snapshot import PartitionStatus
from plink.runtime.elastic.server import Server
from solvers.elastic import replication
from tests.runners.elastic.simulated_course import job_of, run_exactly
from tests.runners.elastic.simulated_job import SimulatedJob

COURSES = 3
CLOCKS = 5.5  # the bound of the courses in clocks of a row for each shard and partition, of which each adds 1
CASES: list[tuple[str, dict[str, Any]]] = [
    ("bsp", {}), ("ssp:3", {}), ("dssp:1:6", {}), ("elastic-bsp:15", {}), ("asp", {}), ("ordered:4", {}),
    ("bsp", {"rebalance": True}), ("bsp", {"by_speed": True}), ("bsp", {"optimiser": AdamW(0.1)}),
]  # fmt: skip


class Distances:
    """Distances of partitions to their replicas after each commit, which may not exceed a bound.

    A replica counts from the first commit on that its primary makes while it has it: a copy takes its time.

    :ivar largest: of all partitions together.
    """

    def __init__(self, bound: float) -> None:
        self.bound, self.largest = bound, 0.0
        self._seen: dict[tuple[int, int], tuple[int, int, tuple[str, ...]]] = {}

    def __call__(self, job: SimulatedJob) -> None:
        servers = {host.address: host.server for host in job.hosts.values() if host.alive and host._server is not None}
        square, committed = 0.0, False
        for host, server in servers.items():
            for status in server.status():
                if status.role == "serving":
                    *now, replicas = status.generation, status.clocks[-1], status.replicas
                    before = self._seen.get((host, status.partition))
                    if before is None or before[:2] != tuple(now):
                        committed, before = True, (*now, replicas)
                        self._seen[host, status.partition] = before
                    there = (servers[to] for to in replicas if to in servers and to in before[2])
                    square += max((square_between(server, other, status) for other in there), default=0.0)
        if committed:
            self.largest = max(self.largest, math.sqrt(square))
            assert self.largest <= self.bound * (1 + 1e-9)


def square_between(primary: Server, replica: Server, status: PartitionStatus) -> float:
    """The squared distance of a partition to one replica; 0 to one that has yet to roll back, or serves by now."""
    there = next((each for each in replica.status() if each.partition == status.partition), None)
    if there is None or there.role != "replica" or there.generation != status.generation:
        return 0.0
    ours, theirs = (server.actor(status.partition).partition.values for server in (primary, replica))
    tables = [n for n, table in enumerate(primary.config.layout.tables) if not table.name.startswith("plink.")]
    return float(sum(np.sum((ours[n] - theirs[n]) ** 2) for n in tables))


def bounded(job: SimulatedJob, clocks: float) -> Distances:
    """Bound a job that has not begun to the distance of so many clocks, of which each adds 1 to 3 a grain to a row."""
    distances = Distances(clocks * job.grains * math.sqrt(job.shards * job.partitions))
    job._settings = structs.replace(job._settings, divergence=repr(distances.bound))
    job.watch = distances
    return distances


@pytest.mark.parametrize("seed", range(COURSES))
@pytest.mark.parametrize(("rule", "options"), CASES)
def test_random_courses_stay_within_the_bound(rule: str, options: dict[str, Any], seed: int, tmp_path: Path) -> None:
    """A third has checkpoints, half loses messages between servers."""
    options = {"dtype": "float64", **options}
    job = job_of(seed, str(tmp_path) if seed % 3 == 0 else "", rough=seed % 2 == 0, rule=rule, **options)
    bounded(job, CLOCKS)
    run_exactly(job)


@pytest.mark.parametrize("clocks", [1.0, 4.0, 16.0])
def test_quiet_job_pushes_many_clocks_as_one(clocks: float) -> None:
    job = SimulatedJob(1, "rtttt", clocks=80, dtype="float64", settings={"backup_only": 2.0})
    distances = bounded(job, clocks)
    run_exactly(job)
    assert distances.largest > 0.5 * distances.bound
    rounds = replication.status(job._controller.state)["rounds"]
    assert 80 / clocks / 2 <= rounds <= 80 / clocks * 3 + 5


def test_checkpoints_do_not_wait_for_the_bound(tmp_path: Path) -> None:
    """One that is due has a round of its own, however near the replicas are; so has the last clock."""
    settings = {"backup_only": 2.0, "checkpoints": str(tmp_path), "checkpoint_every_s": 1.0, "divergence": "1e9"}
    job = SimulatedJob(1, "rtttt", clocks=80, dtype="float64", settings=settings)
    run_exactly(job)
    clocks = [ast.literal_eval(line.split(" log ", 1)[1])["clock"] for line in job.log if "'checkpoint'" in line]
    assert len(clocks) > 2
    assert clocks[-1] == 80


def test_no_more_clocks_are_lost_than_the_bound_says() -> None:
    """Each row gets 1 at a clock, so that the distance is the clocks that all go back by."""
    job = SimulatedJob(4, "rtttt", clocks=80, dtype="float64", settings={"backup_only": 2.0})
    bounded(job, 6.5)
    job.later(2.5, lambda: job.kill(1))
    run_exactly(job)
    lines = [line for line in job.log if "'rolled back'" in line]
    (redone,) = [ast.literal_eval(line.split(" log ", 1)[1])["redone"] for line in lines]
    assert 1 <= redone <= 6 + 2  # one that was begun, and one ahead of the state
