"""When a program is to blame for hosts that die one after another, and when nobody is."""

import pytest

from solvers.elastic import failures
from solvers.elastic.failures import ENDED, CrashLoop


class Deaths:
    """Those of one job."""

    def __init__(self) -> None:
        self.state = CrashLoop()

    def answered(self, host: int, request: int) -> None:
        """It was alive then."""
        self.state = failures.answered(self.state, host, request)

    def died(self, host: int, reason: str, clock: int, request: int) -> bool:
        """Whether it counts."""
        self.state, counts = failures.died(self.state, (host, f"h{host}"), reason, clock, request)
        return counts

    @property
    def blame(self) -> str | None:
        """Why the job is to end."""
        return failures.blame(self.state)

    @property
    def suspicion(self) -> str | None:
        """What may be behind it."""
        return failures.suspicion(self.state)


EXIT, KILLED = f"{ENDED} 7", f"{ENDED} 137"


def one_after_another(deaths: Deaths, times: int, reason: str, clock: int = 59) -> list[str | None]:
    """Each of them has answered something after the one before it; what is blamed after each."""
    blamed = []
    for host in range(times):
        deaths.answered(host, 10 * host + 5)
        deaths.died(host, reason, clock, 10 * host + 9)
        blamed.append(deaths.blame)
    return blamed


def test_three_that_end_themselves_at_one_clock_are_too_many() -> None:
    assert one_after_another(Deaths(), 3, EXIT) == [
        None,
        None,
        "3 hosts died one after another while clock 60 was worked on (last: h2, exit code 7): the program may end its "
        "own process, or run out of memory",
    ]


def test_of_those_that_were_killed_it_takes_more() -> None:
    """The kernel does that when memory is out, but so may somebody who wants the host back."""
    blamed = one_after_another(Deaths(), 6, KILLED)
    assert blamed[:5] == [None] * 5
    assert blamed[5] is not None
    assert blamed[5].startswith("6 hosts died one after another while clock 60")


def test_those_that_die_together_are_one() -> None:
    """None of them has answered what it was asked after the first had died. Where nobody is left they are named."""
    deaths = Deaths()
    for host in range(5):
        deaths.answered(host, 8)
    assert [deaths.died(host, EXIT, 59, 9) for host in range(5)] == [True, False, False, False, False]
    assert deaths.blame is None
    assert deaths.suspicion is not None
    assert deaths.suspicion.startswith("5 hosts died while clock 60 was worked on (last: h4, exit code 7)")


def test_a_job_that_was_rolled_back_has_not_got_on() -> None:
    deaths = Deaths()
    one_after_another(deaths, 2, EXIT, 59)
    deaths.answered(7, 100)
    deaths.died(7, EXIT, 40, 101)
    assert deaths.blame is not None
    assert "3 hosts died one after another while clock 60" in deaths.blame


@pytest.mark.parametrize("reason", [f"{ENDED} 143", "nothing was heard of it for 1.6 s", "the connection was lost"])
def test_released_or_partitioned_host_does_not_count(reason: str) -> None:
    deaths = Deaths()
    assert one_after_another(deaths, 9, reason) == [None] * 9
    assert deaths.suspicion is None
