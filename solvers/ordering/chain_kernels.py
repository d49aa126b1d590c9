"""Annealing where the longest chain of hops counts (trees), compiled (Numba).

A swap changes when a few hops are done and, up the tree, those that wait for them. The longest chain itself changes
with few swaps, so what is annealed is a stand-in: where two chains join that are about as long, the later end counts a
little more, by a parabola that touches the maximum where they are a width apart. Unlike with a norm the shorter of two
that are further apart counts nothing, so that many a change needs not be followed up to the root. Nine moves of ten
are aimed at a hop of the longest chain: they change one tree's few hops where others change all of several hosts'.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from solvers.ordering.drawing import aim, copy, draw, places, put, room
from solvers.ordering.random_numbers import below, unit

_AIMED = 0.9  # of the moves
_LEAST = 1e-9  # microseconds: no width is none to divide by
_FRESH = 1024  # moves between two looks at the longest chain itself


@njit(cache=True, inline="always")
def later(one: Any, other: Any, width: Any) -> Any:
    """The later of two ends; up to a quarter of the width later than that where they are less than that apart."""
    near = max(0.0, width - abs(one - other))
    return max(one, other) + near * near / (4 * width)


@njit(cache=True, inline="always")
def _stand_in(hop: Any, order: Any, source: Any, target: Any, wait_ptr: Any, waits: Any, rtt: Any, smooth: Any,
              width: Any) -> Any:  # fmt: skip
    """When a hop is done, from those that it waits for."""
    took = rtt[order[source[hop]], order[target[hop]]]
    first, end = wait_ptr[hop], wait_ptr[hop + 1]
    if first == end:
        return took
    before = smooth[waits[first]]
    for w in range(first + 1, end):
        before = later(before, smooth[waits[w]], width[hop])
    return before + took


@njit(cache=True, inline="always")
def _ends(last: Any, smooth: Any, width: Any) -> Any:
    """When the hops that nobody waits for are done."""
    end = smooth[last[0]]
    for k in range(1, len(last)):
        end = later(end, smooth[last[k]], width)
    return end


@njit(cache=True)
def afresh(order: Any, source: Any, target: Any, wait_ptr: Any, waits: Any, rtt: Any, done: Any, smooth: Any,
            width: Any) -> Any:  # fmt: skip
    """The longest chain; ``done`` and ``smooth`` of every hop."""
    longest = 0.0
    for hop in range(len(source)):
        before = 0.0
        for w in range(wait_ptr[hop], wait_ptr[hop + 1]):
            before = max(before, done[waits[w]])
        done[hop] = before + rtt[order[source[hop]], order[target[hop]]]
        longest = max(longest, done[hop])
        smooth[hop] = _stand_in(hop, order, source, target, wait_ptr, waits, rtt, smooth, width)
    return longest


@njit(cache=True)
def _longest(last: Any, wait_ptr: Any, waits: Any, smooth: Any, chain: Any) -> Any:
    """How many hops the longest chain has; they are put into ``chain``."""
    hop = last[0]
    for other in last:
        if smooth[other] > smooth[hop]:
            hop = other
    count = 0
    while hop >= 0:
        chain[count] = hop
        count += 1
        latest = -1
        for w in range(wait_ptr[hop], wait_ptr[hop + 1]):
            if latest < 0 or smooth[waits[w]] > smooth[latest]:
                latest = waits[w]
        hop = latest
    return count


@njit(cache=True)
def widths(wait_ptr: Any, waits: Any, wide: Any) -> Any:
    """Of each hop, by how many are below it in a row: shorter chains differ by less."""
    width = np.zeros(len(wait_ptr) - 1)
    for hop in range(len(width)):
        for w in range(wait_ptr[hop], wait_ptr[hop + 1]):
            width[hop] = max(width[hop], width[waits[w]] + 1)
    return np.maximum(width, 1e-3) * wide


@njit(cache=True)
def follow(ranks: Any, count: Any, order: Any, source: Any, target: Any, wait_ptr: Any, waits: Any, after: Any,
           hop_ptr: Any, hop_of: Any, rtt: Any, smooth: Any, width: Any, changed: Any, was: Any) -> Any:  # fmt: skip
    """Bring ``smooth`` up to date after the first ``count`` ``ranks`` got other hosts; how many times a hop's changed:
    which, and what it was, is in ``changed`` and ``was``."""
    found = 0
    for k in range(count):
        for at in range(hop_ptr[ranks[k]], hop_ptr[ranks[k] + 1]):
            hop = hop_of[at]
            leaves = source[hop] == ranks[k]  # what waits for a hop to the rank is a hop from it, and comes later
            while hop >= 0:
                now = _stand_in(hop, order, source, target, wait_ptr, waits, rtt, smooth, width)
                if now == smooth[hop]:
                    break
                changed[found], was[found] = hop, smooth[hop]
                found += 1
                smooth[hop] = now
                hop = after[hop] if leaves else -1
    return found


@njit(cache=True, nogil=True)
def anneal_chain(
    order: Any, wheel: Any, ptr: Any, first: Any, length: Any, stretch: Any, unit_of: Any, class_of: Any, size_of: Any,
    moves: Any, hot: Any, cold: Any, seed: Any, wide: Any, near: Any, source: Any, target: Any, wait_ptr: Any,
    waits: Any, after: Any, last: Any, levels: Any, hop_ptr: Any, hop_of: Any, rtt: Any,
) -> Any:  # fmt: skip
    """(the best order of those that were looked at, its cost); every 1,024th and the last are. Hops stand behind those
    that they wait for; ``after``: the one that waits for each, which begins where it ends, -1 for those in ``last``;
    ``levels``: the most hops in a row; ``hop_of``: of each rank, first the hops to it, then those from it; ``wide``:
    how far apart two chains end of which the shorter does not count, for each hop (microseconds). The others as in
    :func:`solvers.ordering.hop_kernels.anneal_hops`."""
    hops, wide = len(source), max(wide, _LEAST)
    state = np.array([seed], dtype=np.uint64)
    place, width = places(order, len(rtt)), widths(wait_ptr, waits, wide)
    done, smooth, chain, in_chain = np.zeros(hops), np.zeros(hops), np.empty(hops, np.int64), 0
    best, best_cost = order.copy(), afresh(order, source, target, wait_ptr, waits, rtt, done, smooth, width)
    end = _ends(last, smooth, wide * levels)
    most_ranks = room(length, stretch)
    ranks, hosts = np.empty(most_ranks, np.int64), np.empty(most_ranks, np.int64)
    most = 0
    for rank in range(len(order)):
        most = max(most, hop_ptr[rank + 1] - hop_ptr[rank])
    capacity = most_ranks * most * levels
    changed, was = np.empty(capacity, np.int64), np.empty(capacity)
    temperature, cooling = hot, (cold / hot) ** (1.0 / max(1, moves))
    for move in range(1, moves + 1):
        temperature *= cooling
        if unit(state) < _AIMED:
            if in_chain == 0:
                in_chain = _longest(last, wait_ptr, waits, smooth, chain)
            hop = chain[below(state, in_chain)]
            a, b = source[hop], target[hop]
            if below(state, 2):
                a, b = b, a
            count = aim(state, order, a, b, rtt, near, place, unit_of, class_of, size_of, ranks, hosts)
        else:
            count = draw(state, order, wheel, ptr, first, length, stretch, ranks, hosts)
        put(order, ranks, hosts, count)
        found = follow(ranks, count, order, source, target, wait_ptr, waits, after,
                       hop_ptr, hop_of, rtt, smooth, width, changed, was)  # fmt: skip
        new_end = _ends(last, smooth, wide * levels)
        if new_end <= end or unit(state) < math.exp((end - new_end) / temperature):
            end, in_chain = new_end, 0
            for k in range(count):
                place[order[ranks[k]]] = ranks[k]
        else:
            put(order, ranks, hosts, count)
            for k in range(found - 1, -1, -1):
                smooth[changed[k]] = was[k]
        if move % _FRESH == 0 or move == moves:
            cost = afresh(order, source, target, wait_ptr, waits, rtt, done, smooth, width)
            if cost < best_cost:
                best_cost = cost
                copy(order, best)
    return best, best_cost
