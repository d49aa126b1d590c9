"""Compiled annealing of round trips (Numba): of the longest hop of each round, and of the longest chain.

Hops: ``sum over rounds of weight * longest hop``. Most swaps affect no longest hop and change nothing, so half of the
moves are aimed: an end of a round's longest hop gets a host near the other end. And the annealed cost is, in part,
smoothed: the 8-norm of all hops of a round instead of the longest, which distinguishes orders that have the same
longest hop. The best order is that of the exact cost.

Chains, as in trees: a swap changes the end times of a few hops and, up the tree, of those that wait for them. Few swaps
change the longest chain itself, so that a smoothed maximum is annealed: where two chains of about the same length join,
the later end counts a little more, by a parabola that touches the maximum where they are a width apart. Beyond that,
unlike with a norm, the shorter one has no effect, so that many changes need not be propagated to the root. Nine moves
of ten are aimed at a hop of the longest chain: they change the few hops of one tree, other moves all hops of several
hosts.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from solvers.compilation import njit, njit_inner
from solvers.ordering.move_kernels import (
    apply,
    commit,
    copy_into,
    draw_aimed_move,
    draw_move,
    random_below,
    random_unit,
    start_walk,
)

_AIMED_AT_ROUNDS = 0.5  # of the moves
_RESUM_PERIOD = 4096  # moves after which sums are added up again, so that rounding errors do not grow
_AIMED_AT_CHAIN = 0.9  # of the moves
_MIN_WIDTH_US = 1e-9  # it is divided by
_EVALUATION_PERIOD = 1024  # moves between two evaluations of the longest chain itself


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

    ``moves``: :class:`solvers.ordering.constraints.Moves`; ``schedule``, ``hops``: ``CoolingSchedule`` and ``Hops`` of
    :mod:`solvers.ordering.objectives`.
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
        if random_unit(random) < _AIMED_AT_ROUNDS:
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


class ChainState(NamedTuple):
    """Mutable state of E hops, each shape (E,), microseconds.

    ``done``: when a hop ends; ``smooth``: the same by smoothed maxima, of this ``width`` each. ``changed`` and
    ``previous``: the hops whose ``smooth`` the last move changed, and its values before.
    """

    done: Any
    smooth: Any
    width: Any
    changed: Any
    previous: Any


@njit(error_model="numpy", cache=True, inline="always")
def smooth_max(a: Any, b: Any, width: Any) -> Any:
    """Return a smoothed maximum: up to a quarter of the width more where the two are less than a width apart."""
    overlap = max(0.0, width - abs(a - b))
    return max(a, b) + overlap * overlap / (4 * width)


@njit_inner(error_model="numpy", inline="always")
def _smooth_end(hop: Any, order: Any, chain: Any, state: Any) -> Any:
    """Return when a hop ends by the smoothed ends of the hops that it waits for."""
    wait_ptr, waits, smooth = chain.wait_ptr, chain.waits, state.smooth
    hop_us = chain.distances.rtt_us[order[chain.source[hop]], order[chain.target[hop]]]
    first, end = wait_ptr[hop], wait_ptr[hop + 1]
    if first == end:
        return hop_us
    begin_us = smooth[waits[first]]
    for w in range(first + 1, end):
        begin_us = smooth_max(begin_us, smooth[waits[w]], state.width[hop])
    return begin_us + hop_us


@njit_inner(error_model="numpy", inline="always")
def _smooth_total(last: Any, smooth: Any, width: Any) -> Any:
    """Return the smoothed end of the hops for which no hop waits."""
    total = smooth[last[0]]
    for k in range(1, len(last)):
        total = smooth_max(total, smooth[last[k]], width)
    return total


@njit(error_model="numpy", cache=True)
def evaluate_chain(order: Any, chain: Any, state: Any) -> Any:
    """Compute ``done`` and ``smooth`` of every hop; return the length of the longest chain."""
    longest, done = 0.0, state.done
    for hop in range(len(chain.source)):
        begin_us = 0.0
        for w in range(chain.wait_ptr[hop], chain.wait_ptr[hop + 1]):
            begin_us = max(begin_us, done[chain.waits[w]])
        done[hop] = begin_us + chain.distances.rtt_us[order[chain.source[hop]], order[chain.target[hop]]]
        longest = max(longest, done[hop])
        state.smooth[hop] = _smooth_end(hop, order, chain, state)
    return longest


@njit_inner(error_model="numpy")
def _longest_path(chain: Any, smooth: Any, path: Any) -> Any:
    """Put the hops of the longest chain into ``path``; return how many there are."""
    wait_ptr, waits, hop = chain.wait_ptr, chain.waits, chain.last[0]
    for candidate in chain.last:
        if smooth[candidate] > smooth[hop]:
            hop = candidate
    count = 0
    while hop >= 0:
        path[count] = hop
        count += 1
        latest = -1
        for w in range(wait_ptr[hop], wait_ptr[hop + 1]):
            if latest < 0 or smooth[waits[w]] > smooth[latest]:
                latest = waits[w]
        hop = latest
    return count


@njit(error_model="numpy", cache=True)
def start_chain(chain: Any, max_changed_ranks: Any, hop_width: Any) -> Any:
    """Return the state before the first evaluation; ``max_changed_ranks``: by one move.

    Widths grow with the number of hops in the chain below a hop, by ``hop_width`` each: shorter chains differ by less.
    """
    hops, max_hops_of_rank = len(chain.source), 0
    width = np.zeros(hops)
    for hop in range(hops):
        for w in range(chain.wait_ptr[hop], chain.wait_ptr[hop + 1]):
            width[hop] = max(width[hop], width[chain.waits[w]] + 1)
    for rank in range(len(chain.hop_ptr) - 1):
        max_hops_of_rank = max(max_hops_of_rank, chain.hop_ptr[rank + 1] - chain.hop_ptr[rank])
    capacity = max_changed_ranks * max_hops_of_rank * chain.levels
    changed, previous = np.empty(capacity, np.int64), np.empty(capacity)
    return ChainState(np.zeros(hops), np.zeros(hops), np.maximum(width, 1e-3) * hop_width, changed, previous)


@njit(error_model="numpy", cache=True)
def update_chain(walk: Any, moved: Any, chain: Any, state: Any) -> Any:
    """Update the smoothed ends once the first ``moved`` of the walk's ranks have new hosts; return how many changed."""
    changes, ranks, smooth, changed, previous = 0, walk.ranks, state.smooth, state.changed, state.previous
    for k in range(moved):
        for at in range(chain.hop_ptr[ranks[k]], chain.hop_ptr[ranks[k] + 1]):
            hop = chain.hop_of[at]
            from_rank = (
                chain.source[hop] == ranks[k]
            )  # only a hop from the rank waits for a hop to it, and that one follows
            while hop >= 0:
                new_end = _smooth_end(hop, walk.order, chain, state)
                if new_end == smooth[hop]:
                    break
                changed[changes], previous[changes] = hop, smooth[hop]
                changes += 1
                smooth[hop] = new_end
                hop = chain.after[hop] if from_rank else -1
    return changes


@njit(error_model="numpy", cache=True, nogil=True)
def anneal_chain(order: Any, moves: Any, count: Any, schedule: Any, seed: Any, chain: Any) -> Any:
    """Anneal the longest chain; return (the best order, its cost) of every 1,024th order and the last.

    ``chain``: :class:`solvers.ordering.objectives.Chain`; the others as in
    :func:`solvers.ordering.latency_kernels.anneal_hops`.
    """
    hop_width, distances = max(chain.width_us, _MIN_WIDTH_US), chain.distances
    classes, units = moves
    walk = start_walk(order, len(distances.rtt_us), classes, seed)
    state = start_chain(chain, len(walk.ranks), hop_width)
    random, smooth, path, path_length = walk.random, state.smooth, np.empty(len(chain.source), np.int64), 0
    best, best_cost = order.copy(), evaluate_chain(order, chain, state)
    total = _smooth_total(chain.last, smooth, hop_width * chain.levels)
    temperature, cooling = schedule.initial, (schedule.final / schedule.initial) ** (1.0 / max(1, count))
    for move in range(1, count + 1):
        temperature *= cooling
        if random_unit(random) < _AIMED_AT_CHAIN:
            if path_length == 0:
                path_length = _longest_path(chain, smooth, path)
            hop = path[random_below(random, path_length)]
            a, b = chain.source[hop], chain.target[hop]
            if random_below(random, 2):
                a, b = b, a
            moved = draw_aimed_move(walk, units, distances, a, b)
        else:
            moved = draw_move(walk, classes)
        apply(walk, moved)
        changes = update_chain(walk, moved, chain, state)
        new_total = _smooth_total(chain.last, smooth, hop_width * chain.levels)
        if new_total <= total or random_unit(random) < math.exp((total - new_total) / temperature):
            total, path_length = new_total, 0
            commit(walk, moved)
        else:
            apply(walk, moved)
            for k in range(changes - 1, -1, -1):
                smooth[state.changed[k]] = state.previous[k]
        if move % _EVALUATION_PERIOD == 0 or move == count:
            cost = evaluate_chain(order, chain, state)
            if cost < best_cost:
                best_cost = cost
                copy_into(order, best)
    return best, best_cost
