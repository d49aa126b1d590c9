"""Work of hosts by iteration: seconds that their workers computed and waited for others, and steps, as they report."""

from collections import Counter
from collections.abc import Mapping

from plink.model.elastic.reports import ClockDone
from solvers.elastic.context import Context
from solvers.elastic.observations import HostWork, IterationWork
from solvers.elastic.state import State

_HISTORY_ITERATIONS = 64  # more than are under way


def clock_done(ctx: Context, host: int, report: ClockDone) -> None:
    """Add a clock of one of a host's workers to its iteration."""
    if report.clock == 0:  # which is before the first
        return
    account = ctx.state.work
    iteration = account.get(report.iteration, IterationWork())
    if (report.worker, report.clock) in iteration.reported:
        return  # who stands in for another does again what that one had done
    workers, helped = ctx.state.rebalancing.workers, Counter[int]()
    for worker, count in report.helped.items():
        if worker in workers:
            helped[workers[worker].host] += count
    work = iteration.hosts.get(host, HostWork()).plus(report, helped)
    account = {**account, report.iteration: iteration.plus(host, work, report.worker, report.clock)}
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
    for host, work in sorted(_hosts(state, iteration).items()):
        if host in state.members:
            workers = max(1.0, work.clocks / clocks)
            result[state.members[host].name] = (
                round(work.compute_s / workers, 6),
                round(work.waited_s / workers, 6),
                round(work.steps / workers),
            )
    return result


def help_of_iteration(state: State, iteration: int) -> tuple[float, Mapping[str, Mapping[str, float]]]:
    """Return the share of an iteration's work that workers did for others; and by host which share of its work workers
    of which hosts did for it, where any did."""
    hosts, members = _hosts(state, iteration), state.members
    grains = sum(work.grains for work in hosts.values())
    moved = sum(sum(work.helped.values()) for work in hosts.values())
    result = {
        members[host].name: {
            members[helper].name: round(count / work.grains, 4)
            for helper, count in sorted(work.helped.items())
            if helper in members
        }
        for host, work in sorted(hosts.items())
        if host in members and work.helped
    }
    return (round(moved / grains, 4) if grains else 0.0), result


def _hosts(state: State, iteration: int) -> Mapping[int, HostWork]:
    return state.work.get(iteration, IterationWork()).hosts
