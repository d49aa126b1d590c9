"""Shares by measured speed: whole jobs in simulated time, with the real controller."""

from collections.abc import Callable

import pytest

from tests.runners.elastic.simulated_job import SimulatedJob

_SHARD_S = 0.03


def half_speed(host: int, clock: int) -> float:
    """Host 3 takes twice as long."""
    return _SHARD_S * (2 if host == 3 else 1)


def job_of(shares: str, shard_s: Callable[[int, int], float], clocks: int = 160, seed: int = 1) -> SimulatedJob:
    return SimulatedJob(seed, "rttt", shards=28, clocks=clocks, settings={"shares": shares}, shard_s=shard_s)


def seconds(job: SimulatedJob) -> float:
    """Of a job that ends well; its own result says that every clock counts once."""
    job.run()
    assert job.ended == (0, ""), job.ended
    return job.now


def held(job: SimulatedJob) -> list[int]:
    """Shards by host, as last assigned."""
    shards = dict.fromkeys(job.hosts, 0)
    for line in job.log:
        if "'method': 'assign_shards'" in line:
            host = int(line.split("->")[1].split()[0])
            body = eval(line.split("->")[1].split(maxsplit=1)[1])
            shards[host] = sum(len(own) for own in body["workers"].values())
    return list(shards.values())


@pytest.mark.extended
def test_one_of_four_at_half_speed_costs_little() -> None:
    """Bar: 0.65 of the time of equal shares, with every clock exact."""
    equal, by_speed = (
        job_of(shares, lambda host, clock: 1.6 * half_speed(host, clock), 300) for shares in ("slots", "speed")
    )
    assert seconds(by_speed) <= 0.65 * seconds(equal)
    assert held(by_speed) == [8, 8, 8, 4]


def test_equal_hosts_stay_equal() -> None:
    """Those slow for a moment, too: nothing changes hands for less than a lasting difference."""
    job = job_of("speed", lambda host, clock: _SHARD_S * (3 if host == 2 and clock % 40 < 5 else 1), 120)
    seconds(job)
    assert held(job) == [7, 7, 7, 7]
    assert sum("speeds of hosts were measured" in line for line in job.log) == 0


def test_host_that_recovers_gets_its_share_again() -> None:
    job = job_of("speed", lambda host, clock: half_speed(host, clock) if clock < 60 else _SHARD_S)
    seconds(job)
    assert held(job) == [7, 7, 7, 7]


@pytest.mark.extended
def test_very_slow_host_has_a_shard_still() -> None:
    """Or nobody would ever know that it has recovered."""
    job = job_of("speed", lambda host, clock: _SHARD_S * (20 if host == 3 and clock < 30 else 1), 100)
    seconds(job)
    assert held(job) == [7, 7, 7, 7]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.extended)])
def test_hosts_come_and_go(seed: int) -> None:
    """A newcomer, a slow one among them, one that is warned, one that is lost, another controller."""
    job = job_of("speed", half_speed, seed=seed)
    job.later(4.0, lambda: job.join("tt", True))
    job.later(12.0, lambda: job.warn([1], 5.0))
    job.later(22.0, lambda: job.kill(3))
    job.later(30.0, job.kill_controller)
    seconds(job)


def test_log_says_what_hosts_computed() -> None:
    """By host, in every iteration: the times that the workers took."""
    job = job_of("slots", half_speed, 12)
    seconds(job)
    lines = [eval(line.split("log ", 1)[1]) for line in job.log if "'what': 'iteration'" in line]
    assert len(lines) >= 10
    for line in lines[2:]:
        assert {host: row[0] for host, row in line["work"].items()} == pytest.approx(
            {f"h{host}": 7 * half_speed(host, 1) for host in range(4)}
        )
        assert all(row[2] == 1 for row in line["work"].values())
