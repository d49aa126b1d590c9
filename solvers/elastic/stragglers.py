"""Stragglers: whom all others wait for, by the clocks that hosts report; one that hangs hangs the job.

Of the clock at which a controller begins to listen some may have been reported before, so only those after it count.
"""

from collections import Counter
from dataclasses import replace

from solvers.elastic.context import Context
from solvers.elastic.observations import Stragglers, Wait
from solvers.elastic.state import State

LONG_WAIT_S = 10.0
_LONGEST_FACTOR = 3  # times as long as any clock took so far
_HISTORY_CLOCKS = 64  # more than workers may be apart


def clock_done(stragglers: Stragglers, host: int, clock: int, now: float) -> Stragglers:
    """Note that a worker of the host has done a clock."""
    first, longest_s = stragglers.first, stragglers.longest_s
    if first is None:
        first = clock
    else:
        longest_s = max(longest_s, now - stragglers.at_s)
    newest = max(clock, stragglers.newest)
    hosts = stragglers.done.get(clock, {})
    done = {**stragglers.done, clock: {**hosts, host: hosts.get(host, 0) + 1}}
    done.pop(newest - _HISTORY_CLOCKS, None)
    return replace(stragglers, first=first, newest=newest, done=done, at_s=now, longest_s=longest_s)


def rolled_back(stragglers: Stragglers) -> Stragglers:
    """Reset after a roll-back: all clocks are reported anew."""
    return replace(stragglers, first=None, newest=-1, done={})


def waits(state: State, now: float) -> Wait | None:
    """Return who is waited for, where that takes unusually long; None where all wait for something else."""
    if state.ending.finished or state.cluster.halted or state.migration.opening:
        return None
    stragglers, workers = state.stragglers, state.rebalancing.workers.values()
    seconds = now - stragglers.at_s
    if (
        stragglers.first is None
        or stragglers.newest <= stragglers.first
        or seconds < max(LONG_WAIT_S, _LONGEST_FACTOR * stragglers.longest_s)
    ):
        return None
    for clock in range(max(stragglers.first + 1, stragglers.newest - state.settings.apart), stragglers.newest + 2):
        due = Counter(worker.host for worker in workers if worker.first <= clock)
        done = stragglers.done.get(clock, {})
        if late := tuple(sorted(host for host, number in due.items() if done.get(host, 0) < number)):
            return Wait(clock, late, seconds)
    return None


def note(ctx: Context) -> None:
    """Note whom all wait for, once for each clock."""
    wait, last = waits(ctx.state, ctx.now), ctx.state.stragglers.noted
    if wait is not None and (last is None or (wait.clock, wait.hosts) != (last.clock, last.hosts)):
        ctx.state.stragglers = replace(ctx.state.stragglers, noted=wait)
        names = ", ".join(names_of(ctx.state, wait))
        ctx.note(f"clock {wait.clock} waits for {names} since {wait.seconds:.0f} s")


def names_of(state: State, wait: Wait) -> list[str]:
    """Return the names of those that are waited for."""
    return [state.members[host].name for host in wait.hosts if host in state.members]
