"""Annealing where the longest chain of hops counts (trees), compiled (Numba).

A swap changes when a few hops are done and, up the tree, those that wait for them. The longest chain itself changes
with few swaps, so what is annealed is a stand-in: where two chains join that are about as long, the later end counts a
little more, by a parabola that touches the maximum where they are a width apart. Unlike with a norm the shorter of two
that are further apart counts nothing, so that many a change needs not be followed up to the root. Nine moves of ten
are aimed at a hop of the longest chain: they change one tree's few hops where others change all of several hosts'.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from solvers.ordering.drawing import aim, copy, draw, put, settle, start_walk
from solvers.ordering.random_numbers import below, njit_inner, unit

_AIMED = 0.9  # of the moves
_LEAST = 1e-9  # microseconds: no width is none to divide by
_FRESH = 1024  # moves between two looks at the longest chain itself


class ChainState(NamedTuple):
    """Mutable state of E hops, each shape (E,), microseconds: when a hop is ``done``, the stand-in for that
    (``smooth``), the ``width`` where it joins others; ``changed`` and ``was``: which hops' stand-ins the last move
    changed, and what they were."""

    done: Any
    smooth: Any
    width: Any
    changed: Any
    was: Any


@njit(error_model="numpy", cache=True, inline="always")
def later(one: Any, other: Any, width: Any) -> Any:
    """The later of two state; up to a quarter of the width later than that where they are less than that apart."""
    near = max(0.0, width - abs(one - other))
    return max(one, other) + near * near / (4 * width)


@njit_inner(error_model="numpy", inline="always")
def _stand_in(hop: Any, order: Any, chain: Any, state: Any) -> Any:
    """When a hop is done, from those that it waits for."""
    wait_ptr, waits, smooth = chain.wait_ptr, chain.waits, state.smooth
    took = chain.distances.rtt_us[order[chain.source[hop]], order[chain.target[hop]]]
    first, end = wait_ptr[hop], wait_ptr[hop + 1]
    if first == end:
        return took
    before = smooth[waits[first]]
    for w in range(first + 1, end):
        before = later(before, smooth[waits[w]], state.width[hop])
    return before + took


@njit_inner(error_model="numpy", inline="always")
def _end(last: Any, smooth: Any, width: Any) -> Any:
    """When the hops that nobody waits for are done."""
    end = smooth[last[0]]
    for k in range(1, len(last)):
        end = later(end, smooth[last[k]], width)
    return end


@njit(error_model="numpy", cache=True)
def afresh(order: Any, chain: Any, state: Any) -> Any:
    """The longest chain; ``done`` and ``smooth`` of every hop."""
    longest, done = 0.0, state.done
    for hop in range(len(chain.source)):
        before = 0.0
        for w in range(chain.wait_ptr[hop], chain.wait_ptr[hop + 1]):
            before = max(before, done[chain.waits[w]])
        done[hop] = before + chain.distances.rtt_us[order[chain.source[hop]], order[chain.target[hop]]]
        longest = max(longest, done[hop])
        state.smooth[hop] = _stand_in(hop, order, chain, state)
    return longest


@njit_inner(error_model="numpy")
def _longest(chain: Any, smooth: Any, path: Any) -> Any:
    """How many hops the longest chain has; they are put into ``path``."""
    wait_ptr, waits, hop = chain.wait_ptr, chain.waits, chain.last[0]
    for other in chain.last:
        if smooth[other] > smooth[hop]:
            hop = other
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
def start_chain(chain: Any, most: Any, wide: Any) -> Any:
    """The state before the first hop is looked at; ``most``: ranks that a move changes. Widths grow with the number of
    hops below a hop in a row, by ``wide`` each: shorter chains differ by less."""
    hops, at_rank = len(chain.source), 0
    width = np.zeros(hops)
    for hop in range(hops):
        for w in range(chain.wait_ptr[hop], chain.wait_ptr[hop + 1]):
            width[hop] = max(width[hop], width[chain.waits[w]] + 1)
    for rank in range(len(chain.hop_ptr) - 1):
        at_rank = max(at_rank, chain.hop_ptr[rank + 1] - chain.hop_ptr[rank])
    room = most * at_rank * chain.levels
    changed, was = np.empty(room, np.int64), np.empty(room)
    return ChainState(np.zeros(hops), np.zeros(hops), np.maximum(width, 1e-3) * wide, changed, was)


@njit(error_model="numpy", cache=True)
def follow(walk: Any, moved: Any, chain: Any, state: Any) -> Any:
    """Bring the stand-ins up to date after the first ``moved`` of the walk's ranks got other hosts; how many times one
    changed."""
    found, ranks, smooth, changed, was = 0, walk.ranks, state.smooth, state.changed, state.was
    for k in range(moved):
        for at in range(chain.hop_ptr[ranks[k]], chain.hop_ptr[ranks[k] + 1]):
            hop = chain.hop_of[at]
            leaves = chain.source[hop] == ranks[k]  # what waits for a hop to the rank is one from it, and comes later
            while hop >= 0:
                now = _stand_in(hop, walk.order, chain, state)
                if now == smooth[hop]:
                    break
                changed[found], was[found] = hop, smooth[hop]
                found += 1
                smooth[hop] = now
                hop = chain.after[hop] if leaves else -1
    return found


@njit(error_model="numpy", cache=True, nogil=True)
def anneal_chain(order: Any, moves: Any, count: Any, plan: Any, seed: Any, chain: Any) -> Any:
    """(the best order of those that were looked at, its cost); every 1,024th and the last are. ``chain``:
    :class:`solvers.ordering.objectives.Chain`; the others as in :func:`solvers.ordering.hop_kernels.anneal_hops`."""
    wide, distances = max(chain.width_us, _LEAST), chain.distances
    classes, units = moves
    walk = start_walk(order, len(distances.rtt_us), classes, seed)
    state = start_chain(chain, len(walk.ranks), wide)
    random, smooth, path, in_path = walk.random, state.smooth, np.empty(len(chain.source), np.int64), 0
    best, best_cost = order.copy(), afresh(order, chain, state)
    end = _end(chain.last, smooth, wide * chain.levels)
    temperature, cooling = plan.hot, (plan.cold / plan.hot) ** (1.0 / max(1, count))
    for move in range(1, count + 1):
        temperature *= cooling
        if unit(random) < _AIMED:
            if in_path == 0:
                in_path = _longest(chain, smooth, path)
            hop = path[below(random, in_path)]
            a, b = chain.source[hop], chain.target[hop]
            if below(random, 2):
                a, b = b, a
            moved = aim(walk, units, distances, a, b)
        else:
            moved = draw(walk, classes)
        put(walk, moved)
        found = follow(walk, moved, chain, state)
        new_end = _end(chain.last, smooth, wide * chain.levels)
        if new_end <= end or unit(random) < math.exp((end - new_end) / temperature):
            end, in_path = new_end, 0
            settle(walk, moved)
        else:
            put(walk, moved)
            for k in range(found - 1, -1, -1):
                smooth[state.changed[k]] = state.was[k]
        if move % _FRESH == 0 or move == count:
            cost = afresh(order, chain, state)
            if cost < best_cost:
                best_cost = cost
                copy(order, best)
    return best, best_cost
