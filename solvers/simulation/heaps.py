"""Heaps of the simulation, compiled with Numba: events by time, queued tasks by priority, flows by their ends.

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
    lags, of which a task has one at a time. ``priorities``, ``queued``: the heaps of queued tasks, of each queue from
    its ``queue_begin`` on ``queue_length``. ``busy``: queues. ``idle``: queues that may go on. ``ready`` (twice a
    task: also after its lead), ``complete``, ``ended``: tasks in order.
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
    priorities: Vector
    queued: Integers
    queue_begin: Integers
    queue_length: Integers
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


def run_state(tasks: int, slots: int, queue_sizes: Integers, links: int, longest_route: int) -> RunState:
    """Return the arrays for so many tasks, flows at once and links.

    :param queue_sizes: tasks of each queue. :param longest_route: links of the longest route.
    """
    queues = len(queue_sizes)

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
        priorities=np.zeros(tasks),
        queued=numbers(tasks),
        queue_begin=np.cumsum(queue_sizes) - queue_sizes,
        queue_length=np.zeros(queues, dtype=np.int64),
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
def add_key(keys: Any, values: Any, begin: int, size: int, key: float, value: int) -> int:
    """Put a value on the heap at ``begin``, the least key first, then the least value; returns its size."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if keys[begin + up] < key or (keys[begin + up] == key and values[begin + up] <= value):
            break
        keys[begin + at], values[begin + at] = keys[begin + up], values[begin + up]
        at = up
    keys[begin + at], values[begin + at] = key, value
    return size + 1


@njit_inner()
def drop_first(keys: Any, values: Any, begin: int, size: int) -> int:
    """Take the first off the heap at ``begin``; returns its size."""
    size -= 1
    key, value, at = keys[begin + size], values[begin + size], 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        here = begin + child
        if child + 1 < size and (
            keys[here + 1] < keys[here] or (keys[here + 1] == keys[here] and values[here + 1] < values[here])
        ):
            child, here = child + 1, here + 1
        if keys[here] > key or (keys[here] == key and values[here] >= value):
            break
        keys[begin + at], values[begin + at] = keys[here], values[here]
        at = child
    keys[begin + at], values[begin + at] = key, value
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
