"""Heaps of the simulation, compiled with Numba: events by time, flows by their ends, queued tasks by priority.

Also the arrays in which the main loop keeps them and all else.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.compilation import njit_inner
from solvers.simulation.max_min import NONE, FlowTable, Integers, Vector, flow_table

# Places in ``RunState.lengths``: how long its lists are, and how much of them is handled.
READY, READY_DONE, COMPLETE, COMPLETE_DONE, ENDED, ENDED_DONE, ENDED_SLOTS, IDLE, CHANGED, USED, EVENTS = range(11)


class RunState(NamedTuple):
    """State of the main loop. Python makes the arrays, as each that compiled code makes is compiled for longer.

    ``order``, ``place_of``: flows that are under way, the one that ends first on top; the slots behind are free.
    ``task_of``, ``rate``, ``remaining``, ``since``, ``due``: by slot. ``times``, ``events``: the heap of leads and
    lags, of which a task has one at a time. ``child``, ``sibling``, ``first_queued``, ``busy``: queues. ``idle``:
    queues that may go on. ``ready`` (twice a task: also after its lead), ``complete``, ``ended``: tasks in order.
    ``ended_slots``, ``slot_of_queue``: of flows that ended at this time; the next task of the queue may take the slot
    over, with its rate. ``changed``, ``is_changed``: links. ``filled``: slots with new rates. ``lengths``: of lists.
    """

    table: FlowTable
    order: Integers
    place_of: Integers
    task_of: Integers
    rate: Vector
    remaining: Vector
    since: Vector
    due: Vector
    times: Vector
    events: Integers
    child: Integers
    sibling: Integers
    first_queued: Integers
    busy: npt.NDArray[np.bool_]
    idle: Integers
    ready: Integers
    complete: Integers
    ended: Integers
    ended_slots: Integers
    slot_of_queue: Integers
    changed: Integers
    is_changed: npt.NDArray[np.bool_]
    filled: Integers
    lengths: Integers


def run_state(tasks: int, slots: int, queues: int, links: int, longest_route: int) -> RunState:
    """Return the arrays for so many tasks, flows at once, queues and links.

    :param longest_route: links of the longest route.
    """

    def numbers(length: int) -> Integers:
        return np.full(length, NONE, dtype=np.int64)

    return RunState(
        flow_table(slots, links, longest_route),
        order=np.arange(slots),
        place_of=np.arange(slots),
        task_of=numbers(slots),
        rate=np.zeros(slots),
        remaining=np.zeros(slots),
        since=np.zeros(slots),
        due=np.zeros(slots),
        times=np.zeros(tasks),
        events=numbers(tasks),
        child=numbers(tasks),
        sibling=numbers(tasks),
        first_queued=numbers(queues),
        busy=np.zeros(queues, dtype=np.bool_),
        idle=numbers(2 * queues),
        ready=numbers(2 * tasks),
        complete=numbers(tasks),
        ended=numbers(tasks),
        ended_slots=numbers(slots),
        slot_of_queue=numbers(queues),
        changed=numbers(links),
        is_changed=np.zeros(links, dtype=np.bool_),
        filled=numbers(slots),
        lengths=np.zeros(EVENTS + 1, dtype=np.int64),
    )


@njit_inner()
def add_event(times: Any, events: Any, size: int, time: float, event: int) -> int:
    """Put an event on the heap, the earliest first, then the lowest number."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if times[up] < time or (times[up] == time and events[up] <= event):
            break
        times[at], events[at] = times[up], events[up]
        at = up
    times[at], events[at] = time, event
    return size + 1


@njit_inner()
def drop_event(times: Any, events: Any, size: int) -> int:
    """Take the earliest event off the heap."""
    size -= 1
    time, event, at = times[size], events[size], 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and (
            times[child + 1] < times[child] or (times[child + 1] == times[child] and events[child + 1] < events[child])
        ):
            child += 1
        if times[child] > time or (times[child] == time and events[child] >= event):
            break
        times[at], events[at] = times[child], events[child]
        at = child
    times[at], events[at] = time, event
    return size


@njit_inner()
def sift(order: Any, place_of: Any, due: Any, size: int, at: int) -> None:
    """Move the flow at a place of the heap of ends to where its time belongs."""
    slot = order[at]
    while at > 0 and due[order[(at - 1) // 2]] > due[slot]:
        order[at] = order[(at - 1) // 2]
        place_of[order[at]] = at
        at = (at - 1) // 2
    order[at] = slot
    _sift_down(order, place_of, due, size, at)


@njit_inner()
def heapify(order: Any, place_of: Any, due: Any, size: int) -> None:
    """Make a heap of the flows again after most of their ends have changed."""
    for at in range(size):
        place_of[order[at]] = at
    for at in range(size // 2 - 1, -1, -1):
        _sift_down(order, place_of, due, size, at)


@njit_inner()
def _sift_down(order: Any, place_of: Any, due: Any, size: int, at: int) -> None:
    """Move the flow at a place of the heap of ends down to where its time belongs."""
    slot = order[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and due[order[child + 1]] < due[order[child]]:
            child += 1
        if due[order[child]] >= due[slot]:
            break
        order[at] = order[child]
        place_of[order[at]] = at
        at = child
    order[at] = slot
    place_of[slot] = at


@njit_inner()
def _later(priority: Any, a: int, b: int) -> bool:
    """Whether task a comes after task b in their queue."""
    return bool(priority[a] > priority[b] or (priority[a] == priority[b] and a > b))


@njit_inner()
def join_queued(priority: Any, child: Any, sibling: Any, a: int, b: int) -> int:
    """Join two pairing heaps of queued tasks (Fredman, Sedgewick, Sleator and Tarjan 1986); either may be -1."""
    if a < 0 or b < 0:
        return max(a, b)
    if _later(priority, a, b):
        a, b = b, a
    sibling[b] = child[a]
    child[a] = b
    return a


@njit_inner()
def without_first(priority: Any, child: Any, sibling: Any, root: int) -> int:
    """The heap without its first task: the children, joined in pairs and then from the last to the first."""
    pairs, task = NONE, child[root]
    child[root] = NONE
    while task >= 0:
        second = sibling[task]
        rest = sibling[second] if second >= 0 else NONE
        sibling[task] = NONE
        if second >= 0:
            sibling[second] = NONE
        joined = join_queued(priority, child, sibling, task, second)
        sibling[joined] = pairs
        pairs, task = joined, rest
    root = NONE
    while pairs >= 0:
        rest = sibling[pairs]
        sibling[pairs] = NONE
        root = join_queued(priority, child, sibling, root, pairs)
        pairs = rest
    return root
