"""Annealing where longest hops count, compiled (Numba): ``sum over rounds of weight * longest hop``.

Most swaps touch no longest hop and change nothing, so half of the moves are aimed: an end of a round's longest hop gets
a host near the other end. And the cost that is annealed is, in part, a smooth stand-in for the longest hop: the 8-norm
of all hops of the round, which tells orders apart that have the same longest hop. The best by the price is kept.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from solvers.ordering.drawing import aim, copy, draw, places, put, room
from solvers.ordering.random_numbers import below, unit

_AIMED = 0.5  # of the moves
_DRIFT = 4096  # moves after which sums are added up anew: what is taken off again and again leaves rounding behind


@njit(cache=True, fastmath=True)
def _longest(value: Any, start: Any, end: Any) -> Any:
    most = 0.0
    for hop in range(start, end):
        most = max(most, value[hop])
    return most


@njit(cache=True)
def _eighth(x: Any) -> Any:
    x *= x
    x *= x
    return x * x


@njit(cache=True)
def _root(x: Any) -> Any:
    return math.sqrt(math.sqrt(math.sqrt(max(x, 0.0))))


@njit(cache=True, nogil=True)
def anneal_hops(
    order: Any, wheel: Any, ptr: Any, first: Any, length: Any, stretch: Any, unit_of: Any, class_of: Any, size_of: Any,
    moves: Any, hot: Any, cold: Any, seed: Any, soft: Any, near: Any, weight: Any, low: Any, high: Any, when: Any,
    starts: Any, hop_ptr: Any, hop_of: Any, rtt: Any,
) -> Any:  # fmt: skip
    """(best order, its cost). ``wheel`` to ``size_of``: the moves; ``soft``: the part of the stand-in, 0 to 1;
    ``near``, shape (hosts, K): the hosts nearest to each; hops by rounds, which begin at ``starts``."""
    n, rounds = len(order), len(weight)
    state = np.array([seed], dtype=np.uint64)
    place = places(order, len(rtt))
    value, longest, sums = np.empty(len(low)), np.zeros(rounds), np.zeros(rounds)
    stale, worst = np.zeros(rounds, dtype=np.int8), starts[:-1].copy()
    scale, cost = 1e-300, 0.0
    for hop in range(len(low)):
        value[hop] = rtt[order[low[hop]], order[high[hop]]]
        scale = max(scale, value[hop])
    for r in range(rounds):
        longest[r] = _longest(value, starts[r], starts[r + 1])
        cost += weight[r] * longest[r]
    shrink = 1.0 / scale
    best, best_cost = order.copy(), cost
    most_ranks = room(length, stretch)
    ranks, hosts = np.empty(most_ranks, np.int64), np.empty(most_ranks, np.int64)
    most = 0
    for rank in range(n):
        most = max(most, hop_ptr[rank + 1] - hop_ptr[rank])
    changed, was = np.empty(most_ranks * most, np.int64), np.empty(most_ranks * most)
    longest_was, sums_was = longest.copy(), sums.copy()
    guide, temperature = 0.0, hot
    cooling = (cold / hot) ** (1.0 / max(1, moves)) if hot > 0 else 1.0
    for move in range(moves):
        if move % _DRIFT == 0:
            guide = (1 - soft) * cost
            for r in range(rounds):
                sums[r] = 0.0
                for hop in range(starts[r], starts[r + 1]):
                    sums[r] += _eighth(value[hop] * shrink)
                guide += soft * scale * weight[r] * _root(sums[r])
        temperature *= cooling
        if unit(state) < _AIMED:
            r = below(state, rounds)
            if weight[r] == 0:
                continue
            hop = worst[r]  # most of the time it still is
            if value[hop] != longest[r]:
                hop = starts[r]
                while value[hop] != longest[r]:
                    hop += 1
                worst[r] = hop
            a, b = low[hop], high[hop]
            if below(state, 2):
                a, b = b, a
            count = aim(state, order, a, b, rtt, near, place, unit_of, class_of, size_of, ranks, hosts)
        else:
            count = draw(state, order, wheel, ptr, first, length, stretch, ranks, hosts)
        if count == 0:
            continue
        copy(longest, longest_was)
        copy(sums, sums_was)
        put(order, ranks, hosts, count)
        found = 0
        for k in range(count):
            for at in range(hop_ptr[ranks[k]], hop_ptr[ranks[k] + 1]):
                hop = hop_of[at]
                new, old, r = rtt[order[low[hop]], order[high[hop]]], value[hop], when[hop]
                if new == old:
                    continue
                changed[found], was[found] = hop, old
                found += 1
                value[hop] = new
                sums[r] += _eighth(new * shrink) - _eighth(old * shrink)
                if new >= longest[r]:
                    longest[r] = new
                    stale[r] = 0
                elif old == longest[r]:
                    stale[r] = 1
        new_cost, smooth = 0.0, 0.0
        for r in range(rounds):
            if stale[r]:
                longest[r] = _longest(value, starts[r], starts[r + 1])
                stale[r] = 0
            new_cost += weight[r] * longest[r]
            smooth += weight[r] * _root(sums[r])
        new_guide = (1 - soft) * new_cost + soft * scale * smooth
        if new_guide <= guide or unit(state) < math.exp((guide - new_guide) / temperature):
            cost, guide = new_cost, new_guide
            for k in range(count):
                place[order[ranks[k]]] = ranks[k]
            if cost < best_cost - 1e-9 * abs(best_cost):
                best_cost = cost
                copy(order, best)
        else:
            put(order, ranks, hosts, count)
            copy(longest_was, longest)
            copy(sums_was, sums)
            for k in range(found - 1, -1, -1):
                value[changed[k]] = was[k]
    return best, best_cost
