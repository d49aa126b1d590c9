"""Annealing where longest hops count, compiled (Numba): ``sum over rounds of weight * longest hop``.

Most swaps touch no longest hop and change nothing, so half of the moves are aimed: an end of a round's longest hop gets
a host near the other end. And the cost that is annealed is, in part, a smooth stand-in for the longest hop: the 8-norm
of all hops of the round, which tells orders apart that have the same longest hop. The best by the price is kept.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from solvers.ordering.drawing import aim, copy, draw, put, settle, start_walk
from solvers.ordering.random_numbers import below, njit_inner, unit

_AIMED = 0.5  # of the moves
_DRIFT = 4096  # moves after which sums are added up anew: what is taken off again and again leaves rounding behind


@njit_inner(error_model="numpy", fastmath=True)
def _longest(value: Any, start: Any, end: Any) -> Any:
    most = 0.0
    for hop in range(start, end):
        most = max(most, value[hop])
    return most


@njit_inner(error_model="numpy")
def _eighth(x: Any) -> Any:
    x *= x
    x *= x
    return x * x


@njit_inner(error_model="numpy")
def _root(x: Any) -> Any:
    return math.sqrt(math.sqrt(math.sqrt(max(x, 0.0))))


@njit(error_model="numpy", cache=True, nogil=True)
def anneal_hops(order: Any, moves: Any, count: Any, plan: Any, seed: Any, hops: Any) -> Any:
    """(best order, its cost) of so many ``moves`` (:class:`solvers.ordering.moves.Moves`) by a
    :class:`solvers.ordering.cooling.Plan`; ``hops``: :class:`solvers.ordering.objectives.Hops`."""
    weight, low, high, when, starts = hops.weight, hops.low, hops.high, hops.round, hops.starts
    hop_ptr, hop_of, distances, rtt, soft = hops.hop_ptr, hops.hop_of, hops.distances, hops.distances.rtt_us, plan.soft
    n, rounds, (classes, units) = len(order), len(weight), moves
    walk = start_walk(order, len(rtt), classes, seed)
    random, ranks = walk.random, walk.ranks
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
    most = 0
    for rank in range(n):
        most = max(most, hop_ptr[rank + 1] - hop_ptr[rank])
    changed, was = np.empty(len(ranks) * most, np.int64), np.empty(len(ranks) * most)
    longest_was, sums_was = longest.copy(), sums.copy()
    guide, temperature = 0.0, plan.hot
    cooling = (plan.cold / plan.hot) ** (1.0 / max(1, count)) if plan.hot > 0 else 1.0
    for move in range(count):
        if move % _DRIFT == 0:
            guide = (1 - soft) * cost
            for r in range(rounds):
                sums[r] = 0.0
                for hop in range(starts[r], starts[r + 1]):
                    sums[r] += _eighth(value[hop] * shrink)
                guide += soft * scale * weight[r] * _root(sums[r])
        temperature *= cooling
        if unit(random) < _AIMED:
            r = below(random, rounds)
            if weight[r] == 0:
                continue
            hop = worst[r]  # most of the time it still is
            if value[hop] != longest[r]:
                hop = starts[r]
                while value[hop] != longest[r]:
                    hop += 1
                worst[r] = hop
            a, b = low[hop], high[hop]
            if below(random, 2):
                a, b = b, a
            moved = aim(walk, units, distances, a, b)
        else:
            moved = draw(walk, classes)
        if moved == 0:
            continue
        copy(longest, longest_was)
        copy(sums, sums_was)
        put(walk, moved)
        found = 0
        for k in range(moved):
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
        if new_guide <= guide or unit(random) < math.exp((guide - new_guide) / temperature):
            cost, guide = new_cost, new_guide
            settle(walk, moved)
            if cost < best_cost - 1e-9 * abs(best_cost):
                best_cost = cost
                copy(order, best)
        else:
            put(walk, moved)
            copy(longest_was, longest)
            copy(sums_was, sums)
            for k in range(found - 1, -1, -1):
                value[changed[k]] = was[k]
    return best, best_cost
