"""Work of hosts by iteration: seconds that their workers computed and waited for others, and steps, as they report."""

from collections.abc import Mapping

from plink.model.elastic.reports import ClockDone
from solvers.elastic.context import Context
from solvers.elastic.measured import HostWork
from solvers.elastic.state import State

_HISTORY_ITERATIONS = 64  # more than are under way


def clock_done(ctx: Context, host: int, report: ClockDone) -> None:
    """Add a clock of one of a host's workers to its iteration."""
    if report.clock == 0:  # which is before the first
        return
    account = ctx.state.work
    hosts = account.get(report.iteration, {})
    work = hosts.get(host, HostWork()).plus(report.compute_s, report.waited_s, report.steps)
    account = {**account, report.iteration: {**hosts, host: work}}
    if (oldest := min(account)) <= max(account) - _HISTORY_ITERATIONS:
        del account[oldest]
    ctx.state.work = account


def rolled_back(ctx: Context) -> None:
    """Reset after a roll-back: iterations under way are done again."""
    ctx.state.work = {}


def of_iteration(state: State, iteration: int) -> Mapping[str, tuple[float, float, int]]:
    """Return seconds computed and waited, and steps, by host, of a mean worker in a whole iteration."""
    clocks = state.progress.batches
    result = {}
    for host, work in sorted(state.work.get(iteration, {}).items()):
        if host in state.members:
            workers = max(1.0, work.clocks / clocks)
            result[state.members[host].name] = (
                round(work.compute_s / workers, 6), round(work.waited_s / workers, 6), round(work.steps / workers),
            )  # fmt: skip
    return result
