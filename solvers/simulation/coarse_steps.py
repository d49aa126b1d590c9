"""Estimate of a job's time: flows in coarse steps, at rates that are nearly max-min fair (compiled with Numba).

The simulator (:mod:`solvers.simulation.engine`) works out rates anew whenever a flow ends. This estimate does so once a
step, for all flows at once, by a fixed number of corrections of equal shares. What ends within a step ends at its own
time, at the step's rates; what follows begins at the next step and is credited with the time since it could begin. So
time is not lost to steps, only rates are out of date within one.

A job of N flows at once takes as long as (steps) x (corrections) x (links that N flows use), whatever its number of
transfers: 1 to 5 ms for collectives of 64 hosts, where a simulation takes 10 to 100.
"""

from typing import Any, NamedTuple

import numpy as np

from plink.errors import NoAnswer
from solvers.compilation import njit, njit_inner
from solvers.simulation.heaps import join_queued, without_first
from solvers.simulation.job import CapacityChanges, Integers, Resources, Tasks, Vector, amounts_moved, check
from solvers.simulation.max_min import NONE, UNLIMITED

_STEPS = 250  # in the least time that the busiest resource and the latencies need
_STEPS_A_ROUND = 16  # at least, for a chain of many rounds, or a pipeline of many segments
_EXACT_MAX_TASKS = 512  # of so few tasks every end is a step of its own
_CORRECTIONS = 3  # of equal shares, towards max-min fair ones
_SAME_TIME = 1e-12  # of the present time, in which tasks count as simultaneous


class _Job(NamedTuple):
    """What the compiled loop reads, as arrays; see :mod:`solvers.simulation.job`."""

    capacity: Vector
    routes: Integers
    limits: Vector
    route_of: Integers
    amount: Vector
    lead_us: Vector
    lag_us: Vector
    queue_of: Integers
    priority: Integers
    dependent_offsets: Integers
    dependents: Integers


class _Links(NamedTuple):
    """Of each link, shape (L,): ``crossing``: flows on it; ``share``: what it gives one of them; ``held``: flows that
    get the least there; ``elsewhere``: what the others of its flows get."""

    crossing: Vector
    share: Vector
    held: Vector
    elsewhere: Vector


def estimate_us(resources: Resources, tasks: Tasks, dependents: tuple[Integers, Integers], rounds: int) -> float:
    """Return about how long a job takes, microseconds.

    :param dependents: those of :func:`solvers.simulation.job.dependents_of`. :param rounds: about how many tasks of the
        longest chain follow each other.
    :raises UsageError: as :func:`solvers.simulation.job.check`.
    :raises NoAnswer: for tasks that wait for each other in a circle.
    """
    check(resources, tasks, CapacityChanges())
    if not len(tasks):
        return 0.0
    capacity = np.minimum(resources.capacity, UNLIMITED)
    step_us = busiest_us = 0.0
    if len(tasks) > _EXACT_MAX_TASKS:
        busiest_us = float((amounts_moved(resources, tasks) / np.maximum(capacity, 1 / UNLIMITED)).max(initial=0.0))
        least_us = busiest_us + rounds * float(tasks.lag_us.mean() + tasks.lead_us.mean())
        step_us = least_us / max(_STEPS, _STEPS_A_ROUND * rounds)
    job = _Job(
        capacity, resources.routes, np.minimum(resources.limit, UNLIMITED), tasks.route, tasks.amount, tasks.lead_us,
        tasks.lag_us, tasks.queue, tasks.priority, *dependents,
    )  # fmt: skip
    queues = int(tasks.queue.max(initial=-1)) + 1
    end = float(_estimate(job, np.diff(tasks.after[0]).astype(np.int64), queues, step_us))
    if end < 0:
        raise NoAnswer("no estimate: some transfers wait for each other in a circle")
    return max(end, busiest_us)  # what a step's rates are out of date may be more than links carry


@njit_inner()
def _put_on_links(job: Any, task: int, links: Any, sign: float) -> None:
    """Add a flow to the links of its route, or with sign -1 take it off."""
    for position in range(job.routes.shape[1]):
        link = job.routes[job.route_of[task], position]
        if link >= 0:
            links.crossing[link] += sign


@njit_inner()
def _choose_rates(job: Any, active: Any, count: int, links: Any, rate: Any, tightest: Any) -> None:
    """Give each flow the least share of its links, or its own limit."""
    for k in range(count):
        task = active[k]
        least, at = job.limits[job.route_of[task]], NONE
        for position in range(job.routes.shape[1]):
            link = job.routes[job.route_of[task], position]
            if link >= 0 and links.share[link] < least:
                least, at = links.share[link], link
        rate[task], tightest[task] = least, at


@njit_inner()
def _share(job: Any, active: Any, count: int, links: Any, rate: Any, tightest: Any) -> None:
    """Work out all rates: equal shares, then what the flows held elsewhere leave goes to those that a link holds."""
    capacity, crossing, share, held, elsewhere = job.capacity, links.crossing, links.share, links.held, links.elsewhere
    for link in range(len(capacity)):
        share[link] = capacity[link] / crossing[link] if crossing[link] > 0 else capacity[link]
    _choose_rates(job, active, count, links, rate, tightest)
    for _ in range(_CORRECTIONS):
        held[:] = 0.0
        elsewhere[:] = 0.0
        for k in range(count):
            task = active[k]
            for position in range(job.routes.shape[1]):
                link = job.routes[job.route_of[task], position]
                if link >= 0 and tightest[task] == link:
                    held[link] += 1
                elif link >= 0:
                    elsewhere[link] += rate[task]
        for link in range(len(capacity)):
            if crossing[link] > 0:  # at least an equal share, which no max-min fair rate of a held flow is below
                spare = (capacity[link] - elsewhere[link]) / max(1.0, held[link])
                share[link] = max(capacity[link] / crossing[link], spare)
        _choose_rates(job, active, count, links, rate, tightest)


@njit(cache=True)
def _estimate(job: Any, waits_for: Any, queues: int, step_us: float) -> float:
    """Return the end of the last task; -1 where some can never begin."""
    m, longest = len(job.amount), len(job.capacity)
    links = _Links(np.zeros(longest), np.zeros(longest), np.zeros(longest), np.zeros(longest))
    remaining, ready_us, credit_us = job.amount.copy(), np.zeros(m), np.zeros(m)
    rate, tightest = np.zeros(m), np.full(m, NONE)
    busy, free_us = np.zeros(queues, np.bool_), np.zeros(queues)
    queued, child, sibling = np.full(queues, NONE), np.full(m, NONE), np.full(m, NONE)  # heaps of what is ready
    idle, idle_count = np.empty(queues, np.int64), 0
    active, active_count = np.empty(m, np.int64), 0
    pending, pending_count = np.empty(m, np.int64), 0  # what waits for nothing but its time
    for task in range(m):
        if waits_for[task] == 0:
            pending[pending_count] = task
            ready_us[task] = job.lead_us[task]
            pending_count += 1
    now, done, last_end = 0.0, 0, 0.0
    while done < m:
        # Begin what can begin: of each idle queue the task of the lowest priority.
        still_pending, next_us = 0, np.inf
        for k in range(pending_count):
            task, queue = pending[k], job.queue_of[pending[k]]
            if ready_us[task] > now * (1 + _SAME_TIME):
                pending[still_pending] = task
                still_pending += 1
                next_us = min(next_us, ready_us[task])
            elif queue >= 0:
                queued[queue] = join_queued(job.priority, child, sibling, queued[queue], task)
                if not busy[queue]:
                    busy[queue] = True  # until all that is ready is queued
                    idle[idle_count] = queue
                    idle_count += 1
            else:
                active[active_count], credit_us[task] = task, now - ready_us[task]
                active_count += 1
                _put_on_links(job, task, links, 1.0)
        pending_count = still_pending
        for k in range(idle_count):
            queue = idle[k]
            task = queued[queue]
            busy[queue] = task >= 0
            if task >= 0:
                queued[queue] = without_first(job.priority, child, sibling, task)
                active[active_count], credit_us[task] = task, now - max(ready_us[task], free_us[queue])
                active_count += 1
                _put_on_links(job, task, links, 1.0)
        idle_count = 0
        if active_count == 0:
            if next_us == np.inf:
                return -1.0
            now = next_us
            continue
        _share(job, active, active_count, links, rate, tightest)
        step = next_us - now
        for k in range(active_count):
            task = active[k]
            remaining[task] -= rate[task] * credit_us[task]
            credit_us[task] = 0.0
            step = min(step, remaining[task] / rate[task])
        step = max(step, step_us)
        still_active = 0
        for k in range(active_count):
            task = active[k]
            takes_us = remaining[task] / rate[task]
            if takes_us > step * (1 + _SAME_TIME):
                remaining[task] -= rate[task] * step
                active[still_active] = task
                still_active += 1
                continue
            done += 1
            _put_on_links(job, task, links, -1.0)
            queue = job.queue_of[task]
            if queue >= 0:
                free_us[queue] = now + takes_us
                idle[idle_count] = queue
                idle_count += 1
            end_us = now + takes_us + job.lag_us[task]
            last_end = max(last_end, end_us)
            for position in range(job.dependent_offsets[task], job.dependent_offsets[task + 1]):
                other = job.dependents[position]
                waits_for[other] -= 1
                ready_us[other] = max(ready_us[other], end_us + job.lead_us[other])
                if waits_for[other] == 0:
                    pending[pending_count] = other
                    pending_count += 1
        active_count = still_active
        now += max(0.0, step)
    return last_end
