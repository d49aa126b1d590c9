"""What is said when more workers do the work, or fewer: a line each time, however many turns that takes."""

import re

import pytest

from tests.runners.elastic.simulated_job import SimulatedJob
from tests.runners.elastic.test_simulated_jobs import finish

AGENT_MESSAGES = re.compile(
    r"say from clock \d+ on (\d+) workers? on (\d+) hosts? do(?:es)? the work, before (\d+) on (\d+); the global batch "
    r"stays the same: one mini-batch of each of the 24 shards \(strong scaling\)"
)


def announced(job: SimulatedJob) -> list[tuple[int, ...]]:
    """Workers and hosts, and those before, each time."""
    return [tuple(map(int, item.groups())) for line in job.log if (item := AGENT_MESSAGES.search(line))]


@pytest.mark.parametrize(("settings", "hosts"), [({}, [2, 5, 3]), ({"backup_only": 2.0}, [2, 4, 2])])
def test_a_line_for_hosts_that_come_together_and_one_for_some_that_leave(
    settings: dict[str, float], hosts: list[int]
) -> None:  # fmt: skip
    """Also where the stage changes with them, reliable hosts stop to work, and another controller takes over."""
    job = SimulatedJob(1, "rt", shards=24, clocks=200, settings=settings)
    job.later(2.0, lambda: job.join("ttt", True) and None)
    job.later(4.0, job.kill_controller)
    job.later(8.0, lambda: job.warn([2, 3], 4.0))
    finish(job)
    assert [now for _, now, _, _ in announced(job)] == hosts[1:]
    assert [before for *_, before in announced(job)] == hosts[:-1]
    (more, _, first, _), (fewer, _, before, _) = announced(job)
    assert more == before
    slots = {number: member.slots for number, member in job._members_by_number.items()}
    stay = [number for number in slots if number not in (2, 3) and (not settings or number)]
    assert fewer == sum(slots[number] for number in stay)
    assert first == slots[0] + slots[1]


def test_a_line_for_a_host_that_fails() -> None:
    job = SimulatedJob(2, "rttt", shards=24, clocks=120)
    job.later(3.0, lambda: job.kill(2))
    finish(job)
    ((_, now, _, before),) = announced(job)
    assert (now, before) == (3, 4)


def test_unchanged_size_is_not_reported() -> None:
    job = SimulatedJob(1, "rrtt", shards=24, clocks=60)
    job.later(1.5, job.kill_controller)
    finish(job)
    assert not announced(job)
