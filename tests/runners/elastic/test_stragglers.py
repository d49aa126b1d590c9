"""Whom a job waits for, from what its hosts tell of clocks."""

import pytest

from solvers.elastic import stragglers
from solvers.elastic.member import Member
from solvers.elastic.observations import Wait
from solvers.elastic.settings import Settings
from solvers.elastic.start import start
from solvers.elastic.state import Rebalancing, WorkerAssignment, initial

HOSTS = {0: 4, 1: 4, 2: 5, 3: 6}


class Waiting:
    """A job at work with four workers on three hosts."""

    def __init__(self) -> None:
        self.job = initial(Settings("", 1, 4, ((8, 8),), 0.0, 0.0), 1, 0.0)
        self.job.placement = start([Member(4, "h4", "reliable")], (1.0,), 4).cluster
        workers = {number: WorkerAssignment(host, (number,), 0) for number, host in HOSTS.items()}
        self.job.rebalancing = Rebalancing(workers=workers)

    def report_clocks(self, host: int, clock: int, now: float) -> None:
        """One of its workers has done a clock."""
        self.job.stragglers = stragglers.clock_done(self.job.stragglers, host, clock, now)

    def rolled_back(self) -> None:
        """All clocks are told anew."""
        self.job.stragglers = stragglers.rolled_back(self.job.stragglers)

    def now(self, now: float) -> Wait | None:
        """Who is waited for."""
        return stragglers.waits(self.job, now)


def report_clocks(waiting: Waiting, clocks: range, hosts: tuple[int, ...] = (4, 4, 5, 6), at: float = 0.0) -> None:
    """These workers have done these clocks, one a second."""
    for second, clock in enumerate(clocks):
        for host in hosts:
            waiting.report_clocks(host, clock, at + second)


@pytest.mark.parametrize(("done", "late"), [((4, 4, 6), (5,)), ((4, 5, 6), (4,))])
def test_the_host_whose_workers_have_not_all_done_it_is_named(done: tuple[int, ...], late: tuple[int, ...]) -> None:
    """And not before it takes long."""
    waiting = Waiting()
    report_clocks(waiting, range(5))
    report_clocks(waiting, range(5, 6), done, at=4.0)
    assert waiting.now(13.9) is None
    assert waiting.now(16.0) == Wait(5, late, 12.0)


def test_where_clocks_take_long_nobody_is_late_so_soon() -> None:
    waiting = Waiting()
    for clock in range(4):
        report_clocks(waiting, range(clock, clock + 1), at=20.0 * clock)
    assert waiting.now(60.0 + 59.0) is None
    assert waiting.now(60.0 + 61.0) == Wait(4, (4, 5, 6), 61.0)


def test_no_durations_for_the_first_clock_and_after_a_roll_back() -> None:
    """Some may have told it to the controller before."""
    waiting = Waiting()
    report_clocks(waiting, range(7, 8), (4,))
    assert waiting.now(100.0) is None
    report_clocks(waiting, range(8, 10))
    waiting.rolled_back()
    assert waiting.now(200.0) is None
