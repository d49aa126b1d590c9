"""Work of hosts by iteration: seconds that their workers computed and waited for others, and steps, as they report."""

from collections import Counter
from collections.abc import Mapping

from plink.model.elastic.reports import ClockDone
from solvers.elastic.context import Context
from solvers.elastic.observations import HostWork, ReportedWork
from solvers.elastic.state import State

_HISTORY_ITERATIONS = 64  # more than are under way


def clock_done(ctx: Context, host: int, report: ClockDone) -> None:
    """Add a clock of one of a host's workers to its iteration."""
    work, members = ctx.state.work, ctx.state.members
    if report.clock <= work.reached.get(report.worker, 0) or host not in members:
        return  # clock 0 is before the first; who stands in for another does again what that one had done
    workers, helped = ctx.state.rebalancing.workers, Counter[str]()
    for worker, count in report.helped.items():
        if worker in workers and workers[worker].host in members:
            helped[members[workers[worker].host].name] += count
    name, hosts = members[host].name, work.iterations.get(report.iteration, {})
    hosts = {**hosts, name: hosts.get(name, HostWork()).plus(report, helped)}
    iterations = {**work.iterations, report.iteration: hosts}
    if (oldest := min(iterations)) <= max(iterations) - _HISTORY_ITERATIONS:
        del iterations[oldest]
    ctx.state.work = ReportedWork(iterations, {**work.reached, report.worker: report.clock})


def rolled_back(ctx: Context, clock: int) -> None:
    """Reset after a roll-back: iterations that are not over at a clock are done again."""
    over = clock // ctx.state.progress.batches
    iterations = {number: hosts for number, hosts in ctx.state.work.iterations.items() if number < over}
    ctx.state.work = ReportedWork(iterations)


def of_iteration(state: State, iteration: int) -> Mapping[str, tuple[float, float, int]]:
    """Return seconds computed and waited, and steps, by host, of a mean worker in a whole iteration."""
    clocks = state.progress.batches
    result = {}
    for host, work in sorted(_hosts(state, iteration).items()):
        workers = max(1.0, work.clocks / clocks)
        result[host] = (
            round(work.compute_s / workers, 6),
            round(work.waited_s / workers, 6),
            round(work.steps / workers),
        )
    return result


def help_of_iteration(state: State, iteration: int) -> tuple[float, Mapping[str, Mapping[str, float]]]:
    """Return the share of an iteration's work that workers did for others; and by host which share of its work workers
    of which hosts did for it, where any did."""
    hosts = _hosts(state, iteration)
    grains = sum(work.grains for work in hosts.values())
    moved = sum(sum(work.helped.values()) for work in hosts.values())
    result = {
        host: {helper: round(count / work.grains, 4) for helper, count in sorted(work.helped.items())}
        for host, work in sorted(hosts.items())
        if work.helped
    }
    return (round(moved / grains, 4) if grains else 0.0), result


def _hosts(state: State, iteration: int) -> Mapping[str, HostWork]:
    return state.work.iterations.get(iteration, {})
