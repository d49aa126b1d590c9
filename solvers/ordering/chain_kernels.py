"""Annealing where the longest chain of hops counts (trees), compiled (Numba).

A swap changes when a few hops are done and, up the tree, those that wait for them. As in
:mod:`solvers.ordering.hop_kernels` half of the moves are aimed, at a hop of the longest chain, and what is annealed is
in part smooth: chains that join add up as a 4-norm instead of the maximum, so that shorter ones count a little too.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from solvers.ordering.drawing import aim, copy, draw, places, put, room
from solvers.ordering.random_numbers import below, unit

_AIMED = 0.5  # of the moves


@njit(cache=True)
def _times(hop: Any, order: Any, source: Any, target: Any, wait_ptr: Any, waits: Any, rtt: Any, done: Any,
           smooth: Any) -> Any:  # fmt: skip
    """When a hop is done, and its smooth stand-in, from those that it waits for."""
    before, total = 0.0, 0.0
    for w in range(wait_ptr[hop], wait_ptr[hop + 1]):
        before = max(before, done[waits[w]])
        x = smooth[waits[w]]
        x *= x
        total += x * x
    took = rtt[order[source[hop]], order[target[hop]]]
    return before + took, math.sqrt(math.sqrt(total)) + took


@njit(cache=True)
def _ends(last: Any, done: Any, smooth: Any) -> Any:
    """(the longest chain, the 4-norm of the smooth ones) of the hops that nobody waits for."""
    longest, total = 0.0, 0.0
    for hop in last:
        longest = max(longest, done[hop])
        x = smooth[hop]
        x *= x
        total += x * x
    return longest, math.sqrt(math.sqrt(total))


@njit(cache=True)
def _of_longest(state: Any, last: Any, wait_ptr: Any, waits: Any, done: Any, chain: Any) -> Any:
    """A hop of the longest chain."""
    hop = last[0]
    for other in last:
        if done[other] > done[hop]:
            hop = other
    count = 0
    while hop >= 0:
        chain[count] = hop
        count += 1
        latest = -1
        for w in range(wait_ptr[hop], wait_ptr[hop + 1]):
            if latest < 0 or done[waits[w]] > done[latest]:
                latest = waits[w]
        hop = latest
    return chain[below(state, count)]


@njit(cache=True, nogil=True)
def anneal_chain(
    order: Any, wheel: Any, ptr: Any, first: Any, length: Any, stretch: Any, unit_of: Any, class_of: Any, size_of: Any,
    moves: Any, hot: Any, cold: Any, seed: Any, soft: Any, near: Any, source: Any, target: Any, wait_ptr: Any,
    waits: Any, after: Any, last: Any, levels: Any, hop_ptr: Any, hop_of: Any, rtt: Any,
) -> Any:  # fmt: skip
    """(best order, its cost). Hops stand behind those that they wait for; ``after``: the one that waits for each, -1
    for those in ``last``; ``levels``: the most hops in a row. The others as in
    :func:`solvers.ordering.hop_kernels.anneal_hops`."""
    n, hops = len(order), len(source)
    state = np.array([seed], dtype=np.uint64)
    place = places(order, len(rtt))
    done, smooth, chain = np.zeros(hops), np.zeros(hops), np.empty(hops, np.int64)
    for hop in range(hops):
        done[hop], smooth[hop] = _times(hop, order, source, target, wait_ptr, waits, rtt, done, smooth)
    cost, norm = _ends(last, done, smooth)
    best, best_cost, guide = order.copy(), cost, (1 - soft) * cost + soft * norm
    most_ranks = room(length, stretch)
    ranks, hosts = np.empty(most_ranks, np.int64), np.empty(most_ranks, np.int64)
    most = 0
    for rank in range(n):
        most = max(most, hop_ptr[rank + 1] - hop_ptr[rank])
    capacity = most_ranks * most * levels
    changed, was, smooth_was = np.empty(capacity, np.int64), np.empty(capacity), np.empty(capacity)
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, moves)) if hot > 0 else 1.0
    for _ in range(moves):
        temperature *= cooling
        if unit(state) < _AIMED:
            hop = _of_longest(state, last, wait_ptr, waits, done, chain)
            a, b = source[hop], target[hop]
            if below(state, 2):
                a, b = b, a
            count = aim(state, order, a, b, rtt, near, place, unit_of, class_of, size_of, ranks, hosts)
        else:
            count = draw(state, order, wheel, ptr, first, length, stretch, ranks, hosts)
        if count == 0:
            continue
        put(order, ranks, hosts, count)
        found = 0
        for k in range(count):
            for at in range(hop_ptr[ranks[k]], hop_ptr[ranks[k] + 1]):
                hop = hop_of[at]
                while hop >= 0:
                    now, stand_in = _times(hop, order, source, target, wait_ptr, waits, rtt, done, smooth)
                    if now == done[hop] and stand_in == smooth[hop]:
                        break
                    changed[found], was[found], smooth_was[found] = hop, done[hop], smooth[hop]
                    found += 1
                    done[hop], smooth[hop] = now, stand_in
                    hop = after[hop]
        new_cost, norm = _ends(last, done, smooth)
        new_guide = (1 - soft) * new_cost + soft * norm
        if new_guide <= guide or unit(state) < math.exp((guide - new_guide) / temperature):
            cost, guide = new_cost, new_guide
            for k in range(count):
                place[order[ranks[k]]] = ranks[k]
            if cost < best_cost - 1e-9 * abs(best_cost):
                best_cost = cost
                copy(order, best)
        else:
            put(order, ranks, hosts, count)
            for k in range(found - 1, -1, -1):
                done[changed[k]], smooth[changed[k]] = was[k], smooth_was[k]
    return best, best_cost
