"""Compiled annealing where the longest hops count (Numba): ``sum over rounds of weight * longest hop``.

Most swaps affect no longest hop and change nothing, so half of the moves are aimed: an end of a round's longest hop
gets a host near the other end. And the annealed cost is, in part, smoothed: the 8-norm of all hops of a round instead
of the longest, which distinguishes orders that have the same longest hop. The best order is that of the exact cost.
"""

import math
from typing import Any

import numpy as np

from solvers.compilation import njit, njit_inner
from solvers.ordering.move_kernels import apply, commit, copy_into, draw_aimed_move, draw_move, start_walk
from solvers.ordering.random_numbers import random_below, random_unit

_AIMED_SHARE = 0.5  # of the moves
_RESUM_PERIOD = 4096  # moves after which sums are added up again, so that rounding errors do not grow


@njit_inner(error_model="numpy", fastmath=True)
def _longest(value: Any, start: Any, end: Any) -> Any:
    most = 0.0
    for hop in range(start, end):
        most = max(most, value[hop])
    return most


@njit_inner(error_model="numpy")
def _eighth_power(x: Any) -> Any:
    x *= x
    x *= x
    return x * x


@njit_inner(error_model="numpy")
def _eighth_root(x: Any) -> Any:
    return math.sqrt(math.sqrt(math.sqrt(max(x, 0.0))))


@njit(error_model="numpy", cache=True, nogil=True)
def anneal_hops(order: Any, moves: Any, count: Any, schedule: Any, seed: Any, hops: Any) -> Any:
    """Anneal the longest hops for ``count`` moves; return (best order, its cost).

    ``moves``: :class:`solvers.ordering.moves.Moves`; ``schedule``: :class:`solvers.ordering.cooling.CoolingSchedule`;
    ``hops``: :class:`solvers.ordering.objectives.Hops`.
    """
    weight, low, high, round_of, starts = hops.weight, hops.low, hops.high, hops.round, hops.starts
    hop_ptr, hop_of, distances, rtt, smoothing = (
        hops.hop_ptr,
        hops.hop_of,
        hops.distances,
        hops.distances.rtt_us,
        schedule.smoothing,
    )
    n, rounds, (classes, units) = len(order), len(weight), moves
    walk = start_walk(order, len(rtt), classes, seed)
    random, ranks = walk.random, walk.ranks
    value, longest, sums = np.empty(len(low)), np.zeros(rounds), np.zeros(rounds)
    stale, longest_hop = np.zeros(rounds, dtype=np.int8), starts[:-1].copy()
    scale, cost = 1e-300, 0.0
    for hop in range(len(low)):
        value[hop] = rtt[order[low[hop]], order[high[hop]]]
        scale = max(scale, value[hop])
    for r in range(rounds):
        longest[r] = _longest(value, starts[r], starts[r + 1])
        cost += weight[r] * longest[r]
    shrink = 1.0 / scale
    best, best_cost = order.copy(), cost
    max_hops_of_rank = 0
    for rank in range(n):
        max_hops_of_rank = max(max_hops_of_rank, hop_ptr[rank + 1] - hop_ptr[rank])
    changed, previous = np.empty(len(ranks) * max_hops_of_rank, np.int64), np.empty(len(ranks) * max_hops_of_rank)
    previous_longest, previous_sums = longest.copy(), sums.copy()
    smoothed_cost, temperature = 0.0, schedule.initial
    cooling = (schedule.final / schedule.initial) ** (1.0 / max(1, count)) if schedule.initial > 0 else 1.0
    for move in range(count):
        if move % _RESUM_PERIOD == 0:
            smoothed_cost = (1 - smoothing) * cost
            for r in range(rounds):
                sums[r] = 0.0
                for hop in range(starts[r], starts[r + 1]):
                    sums[r] += _eighth_power(value[hop] * shrink)
                smoothed_cost += smoothing * scale * weight[r] * _eighth_root(sums[r])
        temperature *= cooling
        if random_unit(random) < _AIMED_SHARE:
            r = random_below(random, rounds)
            if weight[r] == 0:
                continue
            hop = longest_hop[r]  # most of the time it still is
            if value[hop] != longest[r]:
                hop = starts[r]
                while value[hop] != longest[r]:
                    hop += 1
                longest_hop[r] = hop
            a, b = low[hop], high[hop]
            if random_below(random, 2):
                a, b = b, a
            moved = draw_aimed_move(walk, units, distances, a, b)
        else:
            moved = draw_move(walk, classes)
        if moved == 0:
            continue
        copy_into(longest, previous_longest)
        copy_into(sums, previous_sums)
        apply(walk, moved)
        changes = 0
        for k in range(moved):
            for at in range(hop_ptr[ranks[k]], hop_ptr[ranks[k] + 1]):
                hop = hop_of[at]
                new, old, r = rtt[order[low[hop]], order[high[hop]]], value[hop], round_of[hop]
                if new == old:
                    continue
                changed[changes], previous[changes] = hop, old
                changes += 1
                value[hop] = new
                sums[r] += _eighth_power(new * shrink) - _eighth_power(old * shrink)
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
            smooth += weight[r] * _eighth_root(sums[r])
        new_smoothed_cost = (1 - smoothing) * new_cost + smoothing * scale * smooth
        if new_smoothed_cost <= smoothed_cost or random_unit(random) < math.exp(
            (smoothed_cost - new_smoothed_cost) / temperature
        ):
            cost, smoothed_cost = new_cost, new_smoothed_cost
            commit(walk, moved)
            if cost < best_cost - 1e-9 * abs(best_cost):
                best_cost = cost
                copy_into(order, best)
        else:
            apply(walk, moved)
            copy_into(previous_longest, longest)
            copy_into(previous_sums, sums)
            for k in range(changes - 1, -1, -1):
                value[changed[k]] = previous[k]
    return best, best_cost
