"""Event-driven simulation of a job on shared resources, at the level of flows (compiled with Numba).

Between two events every flow has a constant rate, the max-min fair one of :mod:`solvers.simulation.max_min`: what long
TCP flows get, whose windows have grown and whose round trips are alike (Bonald and Massoulié, SIGMETRICS 2001). There
are no packets, so losses and slow start are not seen.

Events are the end of a flow, of a lead or of a lag, and changes of a capacity. Events of one time are handled together
before rates are worked out anew, so that the rounds of a symmetric collective cost one filling each. Where the next
task of a queue takes the route of the one that has just ended, no rate changes and none is worked out. Large jobs may
trade precision for speed: rates are then worked out at most once in ``refresh_us``.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer, UsageError
from solvers.compilation import njit
from solvers.simulation.heaps import add_event, drop_event, heapify, join_queued, run_state, sift, without_first
from solvers.simulation.job import (
    CapacityChanges,
    Integers,
    Resources,
    Tasks,
    Vector,
    amounts_moved,
    check,
    dependents_of,
)
from solvers.simulation.max_min import NONE, UNLIMITED, insert, refill, remove, sort

_BEGINS, _COMPLETES = 0, 1
_SAME_TIME = 1e-12  # of the present time, in which events count as simultaneous
_WAITING, _QUEUED, _LEADING, _FLOWING, _LAGGING, _DONE = range(6)
_STATES = ("waits for others", "is queued", "is about to begin", "is under way", "is arriving", "is done")
_FINISHED, _STUCK, _TOO_LONG, _TOO_MANY_EVENTS = 0, 1, 2, 3
_UNLIMITED_EVENTS = 1 << 62
_MAX_SHOWN_TASKS = 3


@dataclass(frozen=True)
class Timeline:
    """``begin_us``, ``end_us``, shape (M,): when each task began to use its resources and when it was complete, lag
    included. ``makespan_us``: the last end. ``moved``, shape (L,): the amount that each resource carried."""

    begin_us: Vector
    end_us: Vector
    makespan_us: float
    moved: Vector


class _Problem(NamedTuple):
    """All that the main loop reads, as arrays; see :mod:`solvers.simulation.job`."""

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
    dependent_middles: Integers
    dependents: Integers
    change_us: Vector
    change_resource: Integers
    change_capacity: Vector


class _Limits(NamedTuple):
    """When a run is given up, and how often rates are worked out; see :func:`simulate`."""

    time_us: float
    events: int
    refresh_us: float


def simulate(
    resources: Resources, tasks: Tasks, changes: CapacityChanges | None = None, limit_us: float = float("inf"),
    max_events: int = _UNLIMITED_EVENTS, refresh_us: float = 0.0,
) -> Timeline:  # fmt: skip
    """Run a job.

    :param limit_us: simulated time at which it is given up. :param max_events: how many times at which anything begins
        or ends are simulated before it is given up. :param refresh_us: simulated time for which rates may be out of
        date: what begins waits for so long at most, and what ended flows leave lies idle for as long. 0: exact.
    :raises UsageError: as :func:`solvers.simulation.job.check`, and for tasks that wait for each other in a circle.
    :raises NoAnswer: when a limit is reached, or a flow can never end; says what was waiting for what.
    """
    changes = changes or CapacityChanges()
    check(resources, tasks, changes)
    (offsets, middles, waiting), waits_for = dependents_of(tasks), np.diff(tasks.after[0]).astype(np.int64)
    if _circular(waits_for.copy(), offsets, waiting):
        raise UsageError(f"tasks wait for each other in a circle, among them {_circle(tasks)}")
    m, queues = len(tasks), int(tasks.queue.max(initial=-1)) + 1
    problem = _Problem(
        np.minimum(resources.capacity, UNLIMITED), _limiting(resources, changes),
        np.minimum(resources.limit, UNLIMITED), tasks.route, tasks.amount, tasks.lead_us, tasks.lag_us, tasks.queue,
        tasks.priority, offsets, middles, waiting, changes.at_us, changes.resource,
        np.minimum(changes.capacity, UNLIMITED),
    )  # fmt: skip
    begin, end = np.full(m, np.nan), np.full(m, np.nan)
    state = np.zeros(m, dtype=np.int8)
    unqueued = int(((tasks.queue < 0) & (tasks.amount > 0)).sum())
    flows_at_once = max(1, unqueued + min(m, 2 * queues))  # one that ends, one that begins
    limits = _Limits(limit_us, max_events, refresh_us)
    run = run_state(m, flows_at_once, queues, len(resources.capacity), problem.routes.shape[1])
    is_limited = bool((problem.limits < UNLIMITED).any())
    outcome, now = _run(problem, waits_for, (begin, end, state), run, is_limited, limits)
    if outcome != _FINISHED:
        reason = {
            _TOO_LONG: f"it is not done after {limit_us:g} us of simulated time",
            _TOO_MANY_EVENTS: f"it is not done after {max_events} events ({now:g} us of simulated time)",
            _STUCK: f"nothing can happen after {now:g} us of simulated time",
        }[outcome]
        raise NoAnswer(f"simulation stopped: {reason}; {_stuck(resources, tasks, state)}")
    return Timeline(begin, end, float(end.max()) if m else 0.0, amounts_moved(resources, tasks))


def _limiting(resources: Resources, changes: CapacityChanges) -> Integers:
    """The routes without resources that never limit anything, the others moved to the front of each row."""
    limits = np.isfinite(resources.capacity)
    limits[changes.resource] = True
    routes = np.where((resources.routes >= 0) & limits[resources.routes], resources.routes, NONE)
    order = np.argsort(routes < 0, axis=1, kind="stable")
    return np.ascontiguousarray(np.take_along_axis(routes, order, axis=1), dtype=np.int64)


def _circle(tasks: Tasks) -> str:
    """One circle of tasks that wait for each other, as text."""
    offsets, needed = tasks.after
    remaining = np.diff(offsets).astype(np.int64)
    begins, _, waiting = dependents_of(tasks)
    _circular(remaining, begins, waiting)
    task = int(np.flatnonzero(remaining > 0)[0])
    path: list[int] = []
    while task not in path:
        path.append(task)
        task = next(int(t) for t in needed[offsets[task] : offsets[task + 1]] if remaining[t] > 0)
    shown = path[path.index(task) :][:_MAX_SHOWN_TASKS]
    return " -> ".join([*map(tasks.describe, shown), "..."])


def _stuck(resources: Resources, tasks: Tasks, state: npt.NDArray[np.int8]) -> str:
    """What was waiting for what, for a person."""
    lines = []
    for task in np.flatnonzero(state != _DONE).tolist()[:_MAX_SHOWN_TASKS]:
        route = resources.routes[tasks.route[task]]
        offsets, needed = tasks.after
        others = [int(t) for t in needed[offsets[task] : offsets[task + 1]] if state[t] != _DONE]
        reason = f" ({tasks.describe(others[0])})" if state[task] == _WAITING and others else ""
        over = (
            f" over {', '.join(resources.name(int(link)) for link in route if link >= 0)}"
            if state[task] == _FLOWING
            else ""
        )
        lines.append(f"{tasks.describe(task)} {_STATES[state[task]]}{reason}{over}")
    return "; ".join([*lines, *(["..."] if int((state != _DONE).sum()) > _MAX_SHOWN_TASKS else [])])


@njit(cache=True)
def _circular(waits_for: Any, offsets: Any, waiting: Any) -> bool:
    """Whether some tasks can never begin (Kahn 1962); ``waits_for`` is above 0 for these afterwards."""
    m = len(waits_for)
    ready = np.empty(m, dtype=np.int64)
    number, done = 0, 0
    for task in range(m):
        if waits_for[task] == 0:
            ready[number] = task
            number += 1
    while done < number:
        task = ready[done]
        done += 1
        for k in range(offsets[task], offsets[task + 1]):
            waits_for[waiting[k]] -= 1
            if waits_for[waiting[k]] == 0:
                ready[number] = waiting[k]
                number += 1
    return number < m


@njit(cache=True)
def _run(problem: Any, waits_for: Any, results: Any, run: Any, limited: bool, limits_of_run: Any) -> Any:
    """Handle all events of one time, work out rates anew, go on to the next time; returns (outcome, time)."""
    capacity, routes, limits, route_of, amount, lead_us, lag_us, queue_of, priority = problem[:9]
    offsets, middles, waiting, change_us, change_resource, change_capacity = problem[9:]
    begin_us, end_us, state = results
    limit_us, max_events, refresh_us = limits_of_run
    table, order, place_of, task_of, rate, remaining, since, due, times, events, child, sibling = run[:12]
    first_queued, busy, idle, ready, complete, ended, ended_slots, slot_of_queue = run[12:20]
    changed, is_changed, filled = run[20:]
    m, longest = len(route_of), routes.shape[1]
    used, size, idle_end, ready_end, ready_done, complete_end, complete_done = 0, 0, 0, 0, 0, 0, 0
    ended_end, ended_done, ended_slots_end, changed_end = 0, 0, 0, 0
    fresh_until = -np.inf
    for task in range(m):
        if waits_for[task] == 0:
            ready[ready_end] = task
            ready_end += 1
    now, next_change, event_count = 0.0, 0, 0
    while True:
        # All that begins, ends and completes at this time, until nothing follows from it any more.
        while True:
            starting = NONE
            if complete_done < complete_end:
                task = complete[complete_done]
                complete_done += 1
                state[task], end_us[task] = _DONE, now
                for k in range(middles[task], offsets[task + 1]):
                    waits_for[waiting[k]] -= 1
                    if waits_for[waiting[k]] == 0:
                        ready[ready_end] = waiting[k]
                        ready_end += 1
            elif ended_done < ended_end:
                task = ended[ended_done]
                ended_done += 1
                for k in range(offsets[task], middles[task]):
                    waits_for[waiting[k]] -= 1
                    if waits_for[waiting[k]] == 0:
                        ready[ready_end] = waiting[k]
                        ready_end += 1
                if lag_us[task] > 0:
                    state[task] = _LAGGING
                    size = add_event(times, events, size, now + lag_us[task], 2 * task + _COMPLETES)
                else:
                    complete[complete_end] = task
                    complete_end += 1
                queue = queue_of[task]
                if queue >= 0:
                    busy[queue] = True  # until all that is ready at this time is queued
                    idle[idle_end] = queue
                    idle_end += 1
            elif ready_done < ready_end:
                task = ready[ready_done]
                ready_done += 1
                queue = queue_of[task]
                if queue >= 0 and state[task] == _WAITING:
                    state[task] = _QUEUED
                    first_queued[queue] = join_queued(priority, child, sibling, first_queued[queue], task)
                    if not busy[queue]:
                        busy[queue] = True  # until all that is ready at this time is queued
                        idle[idle_end] = queue
                        idle_end += 1
                else:
                    starting = task
            elif idle_end > 0:
                idle_end -= 1
                queue = idle[idle_end]
                starting = first_queued[queue]
                busy[queue] = starting >= 0
                if starting >= 0:
                    first_queued[queue] = without_first(priority, child, sibling, starting)
            else:
                break
            if starting < 0:
                continue
            if lead_us[starting] > 0 and state[starting] != _LEADING:
                state[starting] = _LEADING
                size = add_event(times, events, size, now + lead_us[starting], 2 * starting + _BEGINS)
                continue
            begin_us[starting] = now
            if amount[starting] == 0:
                ended[ended_end] = starting
                ended_end += 1
                continue
            state[starting] = _FLOWING
            queue = queue_of[starting]
            if queue >= 0 and slot_of_queue[queue] >= 0:
                slot = slot_of_queue[queue]
                if route_of[task_of[slot]] == route_of[starting] and rate[slot] > 0:
                    slot_of_queue[queue] = NONE
                    task_of[slot], remaining[slot], since[slot] = starting, amount[starting], now
                    due[slot] = now + amount[starting] / rate[slot]
                    sift(order, place_of, due, used, place_of[slot])
                    continue
            slot = order[used]
            place_of[slot] = used
            used += 1
            task_of[slot] = starting
            remaining[slot], since[slot], rate[slot], due[slot] = amount[starting], now, 0.0, np.inf
            insert(table, slot, routes[route_of[starting]], limits[route_of[starting]])
            finite = False
            for position in range(longest):
                link = routes[route_of[starting], position]
                if link >= 0 and capacity[link] < UNLIMITED:
                    finite = True
                    if not is_changed[link]:
                        is_changed[link] = True
                        changed[changed_end] = link
                        changed_end += 1
            if not finite:  # only its own limit holds it
                rate[slot] = limits[route_of[starting]]
                due[slot] = now + amount[starting] / rate[slot]
                sift(order, place_of, due, used, place_of[slot])
        if complete_end == m:
            return _FINISHED, now
        for k in range(ended_slots_end):
            slot = ended_slots[k]
            if due[slot] < np.inf:  # taken over
                continue
            queue = queue_of[task_of[slot]]
            if queue >= 0:
                slot_of_queue[queue] = NONE
            for position in range(longest):
                link = routes[route_of[task_of[slot]], position]
                if link < 0:
                    break
                if capacity[link] < UNLIMITED and not is_changed[link]:
                    is_changed[link] = True
                    changed[changed_end] = link
                    changed_end += 1
            remove(table, slot, longest)
            used -= 1
            place, last = place_of[slot], order[used]
            order[place], order[used] = last, slot
            place_of[last], place_of[slot] = place, used
            if place < used:
                sift(order, place_of, due, used, place)
        ended_slots_end = 0
        if changed_end > 0 and now >= fresh_until:
            fresh_until = now + refresh_us
            flows = refill(table, capacity, longest, (changed, changed_end), filled, limited)
            for k in range(changed_end):
                is_changed[changed[k]] = False
            changed_end = 0
            many = 4 * flows > used
            for k in range(flows):
                slot = filled[k]
                if table.rate[slot] == rate[slot]:
                    continue
                remaining[slot] = max(0.0, remaining[slot] - rate[slot] * (now - since[slot]))
                since[slot], rate[slot] = now, table.rate[slot]
                due[slot] = now + remaining[slot] / rate[slot] if rate[slot] > 0 else np.inf
                if not many:
                    sift(order, place_of, due, used, place_of[slot])
            if many:
                heapify(order, place_of, due, used)
        upcoming = times[0] if size > 0 else np.inf
        if used > 0:
            upcoming = min(upcoming, due[order[0]])
        if next_change < len(change_us):
            upcoming = min(upcoming, max(now, change_us[next_change]))
        if changed_end > 0:
            upcoming = min(upcoming, fresh_until)
        if upcoming == np.inf:
            return _STUCK, now
        if upcoming > limit_us:
            return _TOO_LONG, limit_us
        event_count += 1
        if event_count > max_events:
            return _TOO_MANY_EVENTS, now
        now = upcoming
        while next_change < len(change_us) and change_us[next_change] <= now:
            link = change_resource[next_change]
            capacity[link] = change_capacity[next_change]
            next_change += 1
            if not is_changed[link]:
                is_changed[link] = True
                changed[changed_end] = link
                changed_end += 1
        soon = now * (1 + _SAME_TIME)
        while size > 0 and times[0] <= soon:
            task, kind = events[0] // 2, events[0] % 2
            size = drop_event(times, events, size)
            if kind == _COMPLETES:
                complete[complete_end] = task
                complete_end += 1
            else:
                ready[ready_end] = task
                ready_end += 1
        first_ended = ended_end
        while used > 0 and due[order[0]] <= soon:
            slot = order[0]
            task = task_of[slot]
            due[slot] = np.inf
            sift(order, place_of, due, used, 0)
            ended_slots[ended_slots_end] = slot
            ended_slots_end += 1
            if queue_of[task] >= 0:
                slot_of_queue[queue_of[task]] = slot
            ended[ended_end] = task
            ended_end += 1
        sort(ended, first_ended, ended_end, waits_for)  # which is 0 for all: by number
