"""Annealing of the hops of chains by their shares, compiled (Numba): a move takes a quarter of the time.

What the longest chain costs changes with few swaps, and its smooth stand-in changes up to the root with every one. But
to first order a swap changes a stand-in by the sum over the hops that it touches of share times change. The stand-in
here is the logarithm of the sum over all paths of exp(steepness times length): a hop's share is that of the paths along
it. Shares are found anew every few hundred moves and mixed into the ones before, for else all that has next to none
gets long at once. Circuits are placed by their timing like that, with criticality for shares (Marquardt, Betz and Rose,
Timing-driven placement for FPGAs, 2000). It gets to good orders from any, but not to the last few per cent.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from solvers.ordering.drawing import aim, copy, draw, places, put, room
from solvers.ordering.random_numbers import below, unit

_AIMED = 0.9  # of the moves
_FRESH = 512  # moves between two looks at the shares
_KEPT = 0.96  # of a share, at each of them
_STEEP = 4.0  # over the longest chain: how fast what a path counts for grows with its length


@njit(cache=True)
def _weigh(wait_ptr: Any, waits: Any, after: Any, last: Any, value: Any, longest: Any, kept: Any, done: Any, paths: Any,
           share: Any, weight: Any) -> Any:  # fmt: skip
    """The longest chain; ``weight`` becomes the shares, mixed with what it was. ``longest``: about what it is."""
    steep = _STEEP / longest if longest > 0 else 0.0
    for hop in range(len(value)):
        before, total = 0.0, 0.0
        for w in range(wait_ptr[hop], wait_ptr[hop + 1]):
            before = max(before, done[waits[w]])
            total += paths[waits[w]]
        for w in range(wait_ptr[hop], wait_ptr[hop + 1]):
            share[waits[w]] = paths[waits[w]] / total
        done[hop] = before + value[hop]
        paths[hop] = math.exp(steep * value[hop]) * (total if total > 0 else 1.0)
    longest, total = 0.0, 0.0
    for hop in last:
        longest = max(longest, done[hop])
        total += paths[hop]
    for hop in last:
        share[hop] = paths[hop] / total
    for hop in range(len(value) - 1, -1, -1):
        if after[hop] >= 0:
            share[hop] *= share[after[hop]]
        weight[hop] = kept * weight[hop] + (1 - kept) * share[hop]
    return longest


@njit(cache=True, nogil=True)
def anneal_shares(
    order: Any, wheel: Any, ptr: Any, first: Any, length: Any, stretch: Any, unit_of: Any, class_of: Any, size_of: Any,
    moves: Any, hot: Any, cold: Any, seed: Any, near: Any, source: Any, target: Any, wait_ptr: Any, waits: Any,
    after: Any, last: Any, levels: Any, hop_ptr: Any, hop_of: Any, rtt: Any,
) -> Any:  # fmt: skip
    """(the best order of those at which shares were found anew, its cost). Arguments as in
    :func:`solvers.ordering.chain_kernels.anneal_chain`, but that ``hot`` and ``cold`` are for a hop that has its whole
    chain's share: here they are multiplied by the mean share."""
    hops = len(source)
    state = np.array([seed], dtype=np.uint64)
    place = places(order, len(rtt))
    done, paths, share, weight = np.zeros(hops), np.zeros(hops), np.zeros(hops), np.zeros(hops)
    value = np.empty(hops)
    for hop in range(hops):
        value[hop] = rtt[order[source[hop]], order[target[hop]]]
    best, cost = order.copy(), _weigh(wait_ptr, waits, after, last, value, 0.0, 0.0, done, paths, share, weight)
    best_cost = cost
    mean = 0.0
    for hop in range(hops):
        mean += weight[hop] / hops
    most_ranks = room(length, stretch)
    ranks, hosts = np.empty(most_ranks, np.int64), np.empty(most_ranks, np.int64)
    most = 0
    for rank in range(len(order)):
        most = max(most, hop_ptr[rank + 1] - hop_ptr[rank])
    changed, was = np.empty(most_ranks * most, np.int64), np.empty(most_ranks * most)
    temperature, cooling = mean * hot, (cold / hot) ** (1.0 / max(1, moves))
    for move in range(1, moves + 1):
        temperature *= cooling
        if unit(state) < _AIMED:
            hop = below(state, hops)
            a, b = source[hop], target[hop]
            if below(state, 2):
                a, b = b, a
            count = aim(state, order, a, b, rtt, near, place, unit_of, class_of, size_of, ranks, hosts)
        else:
            count = draw(state, order, wheel, ptr, first, length, stretch, ranks, hosts)
        put(order, ranks, hosts, count)
        found, change = 0, 0.0
        for k in range(count):
            for at in range(hop_ptr[ranks[k]], hop_ptr[ranks[k] + 1]):
                hop = hop_of[at]
                now = rtt[order[source[hop]], order[target[hop]]]
                if now != value[hop]:
                    change += weight[hop] * (now - value[hop])
                    changed[found], was[found] = hop, value[hop]
                    found += 1
                    value[hop] = now
        if change <= 0 or unit(state) < math.exp(-change / temperature):
            for k in range(count):
                place[order[ranks[k]]] = ranks[k]
        else:
            put(order, ranks, hosts, count)
            for k in range(found - 1, -1, -1):
                value[changed[k]] = was[k]
        if move % _FRESH == 0 or move == moves:
            cost = _weigh(wait_ptr, waits, after, last, value, cost, _KEPT, done, paths, share, weight)
            if cost < best_cost:
                best_cost = cost
                copy(order, best)
    return best, best_cost
