"""When shares follow measured speeds: after so many clocks in a row, each counted once."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from plink.model.elastic.reports import ClockDone
from solvers.elastic import speeds
from solvers.elastic.context import Context
from solvers.elastic.events import SpeedsMeasured
from solvers.elastic.observations import MeasuredSpeeds
from solvers.elastic.recovery import roll_back
from solvers.elastic.speeds import UNEVEN_CLOCKS
from solvers.elastic.state import State
from tests.runners.elastic.simulated_job import SimulatedJob

SLOW, SHARDS = 3, 7
Reports = Iterable[tuple[int, int]]  # host and clock


@cache
def four_hosts() -> State:
    """The state of a job of four hosts with seven shards each, of which nothing is measured yet."""
    settings = {"shares": "speed"}
    job = SimulatedJob(1, "rttt", shards=4 * SHARDS, clocks=30, settings=settings, shard_s=lambda host, clock: 0.03)
    states: list[State] = []

    def note() -> None:
        assert job._controller is not None
        states.append(job._controller.state)

    job.later(4.0, note)
    job.run()
    return replace(states[0], speeds=MeasuredSpeeds())


def report(ctx: Context, host: int, clock: int) -> None:
    """Have a host report a clock."""
    done = ClockDone(
        clock=clock, iteration=clock - 1, batches=1, seconds=1.0, is_leader=False, evaluated_iteration=None,
        objective=None, generation=0, worker=host, shards=SHARDS, compute_s=2.0 if host == SLOW else 1.0,
    )  # fmt: skip
    speeds.clock_done(ctx, host, done)


def decided_at(state: State, reports: Reports) -> int:
    """Return the latest clock that was reported when shards were to change hands."""
    ctx, latest = Context(state, 0.0), 0
    for host, clock in reports:
        latest = max(latest, clock)
        report(ctx, host, clock)
        if any(isinstance(event, SpeedsMeasured) for event in ctx.state.undecided):
            return latest
    raise AssertionError("nothing was decided")


def reports_of(first: int, ahead: int) -> Iterator[tuple[int, int]]:
    """Reports of clocks from the first on; the others are so many clocks ahead of the slow host, and theirs arrive
    before and after its own."""
    for clock in range(first, first + 100):
        yield from ((0, clock + ahead), (SLOW, clock), (1, clock + ahead), (SLOW - 1, clock + ahead))


def test_interleaved_reports_count_each_clock_once() -> None:
    """As under SSP: hosts report clocks c and c + 1 in turn."""
    lockstep = decided_at(four_hosts(), reports_of(1, ahead=0))
    assert lockstep >= UNEVEN_CLOCKS
    assert decided_at(four_hosts(), reports_of(1, ahead=1)) >= lockstep


def test_clocks_count_anew_after_a_roll_back() -> None:
    """From clock 12 to clock 3."""
    ctx = Context(four_hosts(), 0.0)
    for host, clock in reports_of(1, ahead=0):
        if clock > 12:
            break
        report(ctx, host, clock)
    roll_back(ctx, 3, anew=False)
    assert decided_at(ctx.state, reports_of(4, ahead=0)) == 3 + UNEVEN_CLOCKS
