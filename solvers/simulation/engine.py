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

from plink.errors import NoAnswer
from solvers.compilation import njit_borrowing
from solvers.simulation.heaps import (
    CHANGED,
    COMPLETE,
    COMPLETE_DONE,
    ENDED,
    ENDED_DONE,
    ENDED_SLOTS,
    EVENTS,
    IDLE,
    READY,
    READY_DONE,
    USED,
    add_key,
    drop_first,
    heapify,
    run_state,
    sift,
)
from solvers.simulation.job import (
    CapacityChanges,
    Integers,
    Resources,
    Tasks,
    Vector,
    amounts_moved,
    dependents_of,
)
from solvers.simulation.max_min import NONE, UNLIMITED, insert, refill, remove, sort

_BEGINS, _COMPLETES = 0, 1
_SAME_TIME = 1e-12  # of the present time, in which events count as simultaneous
_WAITING, _QUEUED, _LEADING, _FLOWING, _LAGGING, _DONE = range(6)
_STATES = ("waits for others", "is queued", "is about to begin", "is under way", "is arriving", "is done")
_FINISHED, _STUCK, _TOO_LONG = 0, 1, 2
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
    priority: Vector
    dependent_offsets: Integers
    dependent_middles: Integers
    dependents: Integers
    change_us: Vector
    change_resource: Integers
    change_capacity: Vector


class _Limits(NamedTuple):
    """When a run is given up, and how often rates are worked out; see :func:`simulate`."""

    time_us: float
    refresh_us: float


def simulate(
    resources: Resources,
    tasks: Tasks,
    changes: CapacityChanges | None = None,
    limit_us: float = float("inf"),
    refresh_us: float = 0.0,
) -> Timeline:
    """Run a job.

    :param limit_us: simulated time at which it is given up. :param refresh_us: simulated time for which rates may be
        out of date: what begins waits for so long at most, and what ended flows leave lies idle for as long. 0: exact.
    :raises NoAnswer: when the limit is reached, a flow can never end, or tasks wait for each other in a circle; says
        what was waiting for what.
    """
    changes = changes or CapacityChanges()
    (offsets, middles, waiting), waits_for = dependents_of(tasks), np.diff(tasks.after[0]).astype(np.int64)
    m, queue_sizes = len(tasks), np.bincount(tasks.queue[tasks.queue >= 0])
    capacity, limit, changed = (
        np.minimum(each, UNLIMITED) for each in (resources.capacity, resources.limit, changes.capacity)
    )
    columns = tasks.route, tasks.amount, tasks.lead_us, tasks.lag_us, tasks.queue, tasks.priority.astype(np.float64)
    dependents = offsets, middles, waiting
    routes = _limiting(resources, changes)
    problem = _Problem(capacity, routes, limit, *columns, *dependents, changes.at_us, changes.resource, changed)
    begin, end = np.full(m, np.nan), np.full(m, np.nan)
    state = np.zeros(m, dtype=np.int8)
    unqueued = int(((tasks.queue < 0) & (tasks.amount > 0)).sum())
    flows_at_once = max(1, unqueued + min(m, 2 * len(queue_sizes)))  # one that ends, one that begins
    limits = _Limits(limit_us, refresh_us)
    run = run_state(m, flows_at_once, queue_sizes, len(resources.capacity), problem.routes.shape[1])
    is_limited = bool((problem.limits < UNLIMITED).any())
    outcome, now = _run(problem, waits_for, (begin, end, state), run, is_limited, limits)
    if outcome != _FINISHED:
        reason = {
            _TOO_LONG: f"it is not done after {limit_us:g} us of simulated time",
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


def _stuck(resources: Resources, tasks: Tasks, state: npt.NDArray[np.int8]) -> str:
    """What was waiting for what, for a person."""
    unfinished = np.flatnonzero(state != _DONE).tolist()
    lines = ["tasks wait for each other in a circle"] if (state[unfinished] == _WAITING).all() else []
    for task in unfinished[:_MAX_SHOWN_TASKS]:
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
    return "; ".join([*lines, *(["..."] if len(unfinished) > _MAX_SHOWN_TASKS else [])])


@njit_borrowing(no_cpython_wrapper=False)
def _run(problem: Any, waits_for: Any, results: Any, run: Any, limited: bool, limits: Any) -> Any:
    """Handle all events of one time, work out rates anew, go on to the next time; returns (outcome, time)."""
    count, change_us = run.lengths, problem.change_us
    for task in range(len(waits_for)):
        if waits_for[task] == 0:
            _append(run.ready, count, READY, task)
    now, next_change, fresh_until = 0.0, 0, -np.inf
    while True:
        _resolve(problem, waits_for, results, run, now)
        if count[COMPLETE] == len(waits_for):
            return _FINISHED, now
        _free_slots(problem, run)
        if count[CHANGED] > 0 and now >= fresh_until:
            fresh_until = now + limits.refresh_us
            _refresh_rates(problem, run, limited, now)
        upcoming = run.times[0] if count[EVENTS] > 0 else np.inf
        if count[USED] > 0:
            upcoming = min(upcoming, run.due[run.order[0]])
        if next_change < len(change_us):
            upcoming = min(upcoming, max(now, change_us[next_change]))
        if count[CHANGED] > 0:
            upcoming = min(upcoming, fresh_until)
        if upcoming == np.inf:
            return _STUCK, now
        if upcoming > limits.time_us:
            return _TOO_LONG, limits.time_us
        now = upcoming
        while next_change < len(change_us) and change_us[next_change] <= now:
            link = problem.change_resource[next_change]
            problem.capacity[link] = problem.change_capacity[next_change]
            next_change += 1
            _mark_changed(run, link)
        _take_events(problem, waits_for, run, now * (1 + _SAME_TIME))


@njit_borrowing()
def _append(numbers: Any, count: Any, which: int, number: int) -> None:
    """Append to one of the lists of a run."""
    numbers[count[which]] = number
    count[which] += 1


@njit_borrowing()
def _mark_changed(run: Any, link: int) -> None:
    if not run.is_changed[link]:
        run.is_changed[link] = True
        _append(run.changed, run.lengths, CHANGED, link)


@njit_borrowing()
def _release(problem: Any, waits_for: Any, run: Any, begin: int, end: int) -> None:
    """Count down what these dependents wait for; those that wait for nothing more are ready."""
    for k in range(begin, end):
        task = problem.dependents[k]
        waits_for[task] -= 1
        if waits_for[task] == 0:
            _append(run.ready, run.lengths, READY, task)


@njit_borrowing()
def _make_idle(run: Any, queue: int) -> None:
    """Let a queue go on once all that is ready at this time is queued."""
    run.busy[queue] = True
    _append(run.idle, run.lengths, IDLE, queue)


@njit_borrowing()
def _resolve(problem: Any, waits_for: Any, results: Any, run: Any, now: float) -> None:
    """Handle all that begins, ends and completes at this time, until nothing follows from it any more."""
    begin_us, end_us, state = results
    count, offsets, middles = run.lengths, problem.dependent_offsets, problem.dependent_middles
    while True:
        if count[COMPLETE_DONE] < count[COMPLETE]:
            task = run.complete[count[COMPLETE_DONE]]
            count[COMPLETE_DONE] += 1
            state[task], end_us[task] = _DONE, now
            _release(problem, waits_for, run, middles[task], offsets[task + 1])
        elif count[ENDED_DONE] < count[ENDED]:
            task = run.ended[count[ENDED_DONE]]
            count[ENDED_DONE] += 1
            _release(problem, waits_for, run, offsets[task], middles[task])
            if problem.lag_us[task] > 0:
                state[task] = _LAGGING
                _schedule(run, now + problem.lag_us[task], 2 * task + _COMPLETES)
            else:
                _append(run.complete, count, COMPLETE, task)
            if problem.queue_of[task] >= 0:
                _make_idle(run, problem.queue_of[task])
        elif count[READY_DONE] < count[READY]:
            task = run.ready[count[READY_DONE]]
            count[READY_DONE] += 1
            queue = problem.queue_of[task]
            if queue >= 0 and state[task] == _WAITING:
                state[task] = _QUEUED
                begin, length = run.queue_begin[queue], run.queue_length[queue]
                priority = problem.priority[task]
                run.queue_length[queue] = add_key(run.priorities, run.queued, begin, length, priority, task)
                if not run.busy[queue]:
                    _make_idle(run, queue)
            else:
                _start(problem, run, begin_us, state, task, now)
        elif count[IDLE] > 0:
            count[IDLE] -= 1
            queue = run.idle[count[IDLE]]
            begin, length = run.queue_begin[queue], run.queue_length[queue]
            run.busy[queue] = length > 0
            if length > 0:
                task = run.queued[begin]
                run.queue_length[queue] = drop_first(run.priorities, run.queued, begin, length)
                _start(problem, run, begin_us, state, task, now)
        else:
            break


@njit_borrowing()
def _schedule(run: Any, time: float, event: int) -> None:
    run.lengths[EVENTS] = add_key(run.times, run.events, 0, run.lengths[EVENTS], time, event)


@njit_borrowing()
def _start(problem: Any, run: Any, begin_us: Any, state: Any, task: int, now: float) -> None:
    """Start a task: first its lead, then its flow, which takes over the slot of the one before it where that fits."""
    if problem.lead_us[task] > 0 and state[task] != _LEADING:
        state[task] = _LEADING
        _schedule(run, now + problem.lead_us[task], 2 * task + _BEGINS)
        return
    begin_us[task] = now
    amount, route, queue = problem.amount[task], problem.route_of[task], problem.queue_of[task]
    if amount == 0:
        _append(run.ended, run.lengths, ENDED, task)
        return
    state[task] = _FLOWING
    used = run.lengths[USED]
    if queue >= 0 and run.slot_of_queue[queue] >= 0:
        slot = run.slot_of_queue[queue]
        if problem.route_of[run.task_of[slot]] == route and run.rate[slot] > 0:
            run.slot_of_queue[queue] = NONE
            run.task_of[slot], run.remaining[slot], run.since[slot] = task, amount, now
            run.due[slot] = now + amount / run.rate[slot]
            sift(run.order, run.place_of, run.due, used, run.place_of[slot])
            return
    slot = run.order[used]
    run.place_of[slot] = used
    run.lengths[USED] += 1
    run.task_of[slot] = task
    run.remaining[slot], run.since[slot], run.rate[slot], run.due[slot] = amount, now, 0.0, np.inf
    insert(run.table, slot, problem.routes[route], problem.limits[route])
    finite = False
    for position in range(problem.routes.shape[1]):
        link = problem.routes[route, position]
        if link >= 0 and problem.capacity[link] < UNLIMITED:
            finite = True
            _mark_changed(run, link)
    if not finite:  # only its own limit holds it
        run.rate[slot] = problem.limits[route]
        run.due[slot] = now + amount / run.rate[slot]
        sift(run.order, run.place_of, run.due, used + 1, run.place_of[slot])


@njit_borrowing()
def _free_slots(problem: Any, run: Any) -> None:
    """Free the slots of flows that ended and that no task took over."""
    longest, order, place_of, count = problem.routes.shape[1], run.order, run.place_of, run.lengths
    for k in range(count[ENDED_SLOTS]):
        slot = run.ended_slots[k]
        if run.due[slot] < np.inf:  # taken over
            continue
        queue = problem.queue_of[run.task_of[slot]]
        if queue >= 0:
            run.slot_of_queue[queue] = NONE
        for position in range(longest):
            link = problem.routes[problem.route_of[run.task_of[slot]], position]
            if link < 0:
                break
            if problem.capacity[link] < UNLIMITED:
                _mark_changed(run, link)
        remove(run.table, slot, longest)
        count[USED] -= 1
        place, last = place_of[slot], order[count[USED]]
        order[place], order[count[USED]] = last, slot
        place_of[last], place_of[slot] = place, count[USED]
        if place < count[USED]:
            sift(order, place_of, run.due, count[USED], place)
    count[ENDED_SLOTS] = 0


@njit_borrowing()
def _refresh_rates(problem: Any, run: Any, limited: bool, now: float) -> None:
    """Work out the rates that the changed links reach, and when their flows end."""
    count, used, rate = run.lengths, run.lengths[USED], run.rate
    changes = run.changed, count[CHANGED]
    flows = refill(run.table, problem.capacity, problem.routes.shape[1], changes, run.filled, limited)
    for k in range(count[CHANGED]):
        run.is_changed[run.changed[k]] = False
    count[CHANGED] = 0
    many = 4 * flows > used
    for k in range(flows):
        slot = run.filled[k]
        if run.table.rate[slot] == rate[slot]:
            continue
        run.remaining[slot] = max(0.0, run.remaining[slot] - rate[slot] * (now - run.since[slot]))
        run.since[slot], rate[slot] = now, run.table.rate[slot]
        run.due[slot] = now + run.remaining[slot] / rate[slot] if rate[slot] > 0 else np.inf
        if not many:
            sift(run.order, run.place_of, run.due, used, run.place_of[slot])
    if many:
        heapify(run.order, run.place_of, run.due, used)


@njit_borrowing()
def _take_events(problem: Any, waits_for: Any, run: Any, soon: float) -> None:
    """Take the leads, lags and flows that end by this time."""
    count = run.lengths
    while count[EVENTS] > 0 and run.times[0] <= soon:
        task, kind = run.events[0] // 2, run.events[0] % 2
        count[EVENTS] = drop_first(run.times, run.events, 0, count[EVENTS])
        if kind == _COMPLETES:
            _append(run.complete, count, COMPLETE, task)
        else:
            _append(run.ready, count, READY, task)
    first_ended = count[ENDED]
    while count[USED] > 0 and run.due[run.order[0]] <= soon:
        slot = run.order[0]
        task = run.task_of[slot]
        run.due[slot] = np.inf
        sift(run.order, run.place_of, run.due, count[USED], 0)
        _append(run.ended_slots, count, ENDED_SLOTS, slot)
        if problem.queue_of[task] >= 0:
            run.slot_of_queue[problem.queue_of[task]] = slot
        _append(run.ended, count, ENDED, task)
    sort(run.ended, first_ended, count[ENDED], waits_for)  # which is 0 for all: by number
