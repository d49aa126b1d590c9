"""Max-min fair rates of flows that share links, kept up to date as flows begin and end (compiled with Numba).

A link gives each of its flows the same share, except to those that cannot use it (Bertsekas and Gallager, Data
Networks, 6.5.2: progressive filling). When flows begin or end, only the flows that the change reaches through full
links get other rates; all others keep theirs.

Flows sit in slots that are used again. On each link hangs a doubly linked list of its flows, so that a flow begins and
ends in time proportional to the links on its route.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.compilation import njit_inner

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
NONE = -1
UNLIMITED = 1e18  # bytes a microsecond: a link of this capacity limits nothing, and connects no flows
_FULL = 1e-9  # of its capacity: a link with less to spare is full
_APART, _FILLED, _BOUNDS = 0, 1, 2  # of a link: untouched by a filling, filled by it, or only limiting its flows


class FlowTable(NamedTuple):
    """State of up to S flows on L links, at most P links on a route; a place is ``slot * P + position``.

    ``links``, shape (S * P,): the link at each place, -1 where the route is shorter. ``following``, ``preceding``, same
    shape: neighbours in the list of the link, whose head is in ``first``, shape (L,). ``rate``, ``limit``, shape (S,):
    present rate, and the most that the flow takes by itself. ``load``, shape (L,): the sum of the rates on a link.

    Scratch for filling: ``filled`` (new rates), ``fixed``, ``seen``, shape (S,); ``left``, ``unfixed``, ``part`` (in
    the present filling), ``members``, ``heap``, ``keys``, shape (L,).
    """

    links: Integers
    following: Integers
    preceding: Integers
    first: Integers
    rate: Vector
    limit: Vector
    load: Vector
    filled: Vector
    fixed: npt.NDArray[np.bool_]
    seen: npt.NDArray[np.bool_]
    left: Vector
    unfixed: Integers
    part: npt.NDArray[np.int8]
    members: Integers
    heap: Integers
    keys: Vector


def flow_table(slots: int, links: int, longest_route: int) -> FlowTable:
    """Return a table without flows."""
    places = slots * longest_route
    return FlowTable(
        np.full(places, NONE),
        np.full(places, NONE),
        np.full(places, NONE),
        np.full(links, NONE),
        np.zeros(slots),
        np.full(slots, UNLIMITED),
        np.zeros(links),
        np.zeros(slots),
        np.zeros(slots, dtype=np.bool_),
        np.zeros(slots, dtype=np.bool_),
        np.zeros(links),
        np.zeros(links, dtype=np.int64),
        np.zeros(links, dtype=np.int8),
        np.zeros(links, dtype=np.int64),
        np.zeros(links, dtype=np.int64),
        np.zeros(links),
    )


@njit_inner()
def sort(numbers: Any, begin: int, end: int, key: Any) -> None:
    """Sort ``numbers[begin:end]`` by their keys, equal ones by themselves (Shell 1959; NumPy's sort takes seconds to
    compile)."""
    gap = 1
    while gap < (end - begin) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(begin + gap, end):
            number, place = numbers[k], k
            while place >= begin + gap:
                other = numbers[place - gap]
                if key[other] < key[number] or (key[other] == key[number] and other <= number):
                    break
                numbers[place] = other
                place -= gap
            numbers[place] = number
        gap //= 3


@njit_inner()
def insert(table: Any, slot: int, route: Any, limit: float) -> None:
    """Put a flow on the links of its route, shape (P,), padded by -1."""
    longest = len(route)
    table.limit[slot] = limit
    table.rate[slot] = 0.0
    for position in range(longest):
        link = route[position]
        place = slot * longest + position
        table.links[place] = link
        if link < 0:
            break
        head = table.first[link]
        table.following[place], table.preceding[place] = head, NONE
        if head >= 0:
            table.preceding[head] = place
        table.first[link] = place


@njit_inner()
def remove(table: Any, slot: int, longest: int) -> None:
    """Take a flow off its links."""
    for place in range(slot * longest, (slot + 1) * longest):
        link = table.links[place]
        if link < 0:
            break
        before, after = table.preceding[place], table.following[place]
        if before >= 0:
            table.following[before] = after
        else:
            table.first[link] = after
        if after >= 0:
            table.preceding[after] = before
        table.load[link] -= table.rate[slot]
        table.links[place] = NONE
    table.rate[slot] = 0.0


@njit_inner()
def refill(table: Any, capacity: Any, longest: int, changes: Any, slots: Any, limited: bool) -> int:
    """Give max-min fair rates to all flows that a change reaches; all others keep theirs, and are max-min fair with it.

    A change reaches the flows of the changed links, and through them those of every link that is full. A link with room
    to spare only bounds the flows that are reached, by what the others leave; where that turns out to be what holds a
    flow, the link is filled anew as well. So every flow ends with a link that is full and on which none is faster.

    :param capacity: shape (L,); unlimited links connect nothing.
    :param changes: links whose flows or capacity have changed, each once at the front, and how many.
    :param slots: shape (S,): receives the flows whose rates were worked out; how many is returned.
    :param limited: whether any flow has a limit of its own.
    """
    members, part = table.members, table.part
    flows, links, done = 0, 0, 0
    changed, count = changes
    for k in range(count):
        part[changed[k]] = _FILLED
        members[links] = changed[k]
        links += 1
    while True:
        while done < links:
            link = members[done]
            done += 1
            if part[link] != _FILLED:
                continue
            place = table.first[link]
            while place >= 0:
                slot = place // longest
                if not table.seen[slot]:
                    table.seen[slot] = True
                    slots[flows] = slot
                    flows += 1
                    for other in range(slot * longest, (slot + 1) * longest):
                        near = table.links[other]
                        if near >= 0 and part[near] == _APART and capacity[near] < UNLIMITED:
                            part[near] = _FILLED if table.load[near] >= capacity[near] * (1 - _FULL) else _BOUNDS
                            members[links] = near
                            links += 1
                place = table.following[place]
        for k in range(links):
            table.left[members[k]] = capacity[members[k]]
            if part[members[k]] == _BOUNDS:
                table.left[members[k]] -= table.load[members[k]]
            table.unfixed[members[k]] = 0
        for k in range(flows):
            table.fixed[slots[k]] = False
            for place in range(slots[k] * longest, (slots[k] + 1) * longest):
                near = table.links[place]
                if near >= 0 and capacity[near] < UNLIMITED:
                    table.unfixed[near] += 1
                    if part[near] == _BOUNDS:
                        table.left[near] += table.rate[slots[k]]
        if not _fill(table, longest, slots, flows, links, limited):
            break
        done = 0  # some links with room to spare hold flows: these are filled, too
    for k in range(flows):
        slot = slots[k]
        table.seen[slot] = False
        for place in range(slot * longest, (slot + 1) * longest):
            near = table.links[place]
            if near >= 0 and part[near] == _BOUNDS:
                table.load[near] += table.filled[slot] - table.rate[slot]
        table.rate[slot] = table.filled[slot]
    for k in range(links):
        if part[members[k]] == _FILLED:
            table.load[members[k]] = capacity[members[k]] - table.left[members[k]]
        part[members[k]] = _APART
    return flows


@njit_inner()
def _fill(table: Any, longest: int, slots: Any, flows: int, links: int, limited: bool) -> bool:
    """Progressive filling of the flows in ``slots``; returns whether links with room to spare hold some of them, which
    are marked to be filled."""
    members, part, heap, keys = table.members, table.part, table.heap, table.keys
    size = 0
    for k in range(links):
        if table.unfixed[members[k]] > 0:
            size = _push(heap, keys, size, members[k], table.left[members[k]] / table.unfixed[members[k]])
    if limited:  # unlimited flows need no order
        sort(slots, 0, flows, table.limit)
    next_limited, remaining, again = 0, flows, False
    while remaining > 0:
        slot = NONE
        while next_limited < flows:
            slot = slots[next_limited]
            if not table.fixed[slot]:
                break
            next_limited += 1
        least = table.limit[slot]
        link = NONE
        while size > 0:  # shares only rise while others are fixed: the top is the least once it is up to date
            top = heap[0]
            if table.unfixed[top] == 0:
                size = _pop(heap, keys, size)
                continue
            share = table.left[top] / table.unfixed[top]
            if share > keys[top] * (1 + 1e-12):
                size = _pop(heap, keys, size)
                size = _push(heap, keys, size, top, share)
                continue
            link = top
            break
        if link < 0 or least <= keys[link]:
            _fix(table, slot, least, longest)
            remaining -= 1
            continue
        if part[link] == _BOUNDS:
            part[link] = _FILLED
            again = True
        share = max(0.0, table.left[link] / table.unfixed[link])
        place = table.first[link]
        while place >= 0:
            slot = place // longest
            if table.seen[slot] and not table.fixed[slot]:
                _fix(table, slot, share, longest)
                remaining -= 1
            place = table.following[place]
    return again


@njit_inner()
def _fix(table: Any, slot: int, rate: float, longest: int) -> None:
    table.fixed[slot] = True
    table.filled[slot] = rate
    for place in range(slot * longest, (slot + 1) * longest):
        link = table.links[place]
        if link >= 0:
            table.left[link] = max(0.0, table.left[link] - rate)
            table.unfixed[link] -= 1


@njit_inner()
def _push(heap: Any, keys: Any, size: int, link: int, key: float) -> int:
    keys[link] = key
    at = size
    while at > 0 and keys[heap[(at - 1) // 2]] > key:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = link
    return size + 1


@njit_inner()
def _pop(heap: Any, keys: Any, size: int) -> int:
    size -= 1
    last, at = heap[size], 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[heap[child]] >= keys[last]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return size
