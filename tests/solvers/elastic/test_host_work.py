"""Work of hosts by iteration: each clock of each worker counts once, for the host that reported it first."""

from dataclasses import replace

from plink.model.elastic.reports import ClockDone
from solvers.elastic import host_work
from solvers.elastic.context import Context
from solvers.elastic.observations import ReportedWork, TrainingProgress
from tests.solvers.elastic.test_speeds import four_hosts


def context(batches: int) -> Context:
    return Context(replace(four_hosts(), progress=TrainingProgress(batches=batches), work=ReportedWork()), 0.0)


def report(ctx: Context, host: int, worker: int, clock: int, *, compute_s: float = 1.0, grains: int = 0) -> None:
    """Have a host report a clock of an iteration of two."""
    done = ClockDone(
        clock=clock, iteration=(clock - 1) // 2, batches=2, seconds=9.0, is_leader=False, evaluated_iteration=None,
        objective=None, generation=0, worker=worker, shards=7, steps=3, compute_s=compute_s, waited_s=0.5,
        grains=grains,
    )  # fmt: skip
    host_work.clock_done(ctx, host, done)


def test_stand_in_counts_for_clocks_that_the_lost_worker_did_not_report() -> None:
    """Worker 3 is lost after it has reported clock 1; host 1 does clocks 1 and 2 in its name."""
    ctx = context(batches=2)
    for clock in (1, 2):
        report(ctx, 1, 1, clock)
    report(ctx, 3, 3, 1, compute_s=2.0, grains=8)
    for clock in (1, 2):
        report(ctx, 1, 3, clock, compute_s=4.0)
    names = {host: member.name for host, member in ctx.state.members.items()}
    assert host_work.of_iteration(ctx.state, 0) == {
        names[1]: (4.0, 1.0, 6),  # three clocks in all, of a mean worker in an iteration of two
        names[3]: (2.0, 0.5, 3),
    }


def test_repeated_report_counts_once() -> None:
    ctx = context(batches=2)
    for clock in (1, 1, 2, 1, 2):
        report(ctx, 0, 0, clock, grains=8)
    assert list(host_work.of_iteration(ctx.state, 0).values()) == [(2.0, 1.0, 6)]


def test_a_host_that_has_left_keeps_its_work() -> None:
    """Also beyond a roll-back, in an iteration that is not done again."""
    ctx = context(batches=2)
    name = ctx.state.members[3].name
    for clock in (1, 2, 3):
        report(ctx, 3, 3, clock)
    ctx.state.members = {}
    host_work.rolled_back(ctx, 3)
    assert host_work.of_iteration(ctx.state, 0) == {name: (2.0, 1.0, 6)}
    assert not host_work.of_iteration(ctx.state, 1)


def test_clocks_count_again_after_a_roll_back() -> None:
    ctx = context(batches=2)
    report(ctx, 0, 0, 1, compute_s=7.0)
    host_work.rolled_back(ctx, 0)
    for clock in (1, 2):
        report(ctx, 0, 0, clock)
    assert list(host_work.of_iteration(ctx.state, 0).values()) == [(2.0, 1.0, 6)]
