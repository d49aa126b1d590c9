"""Annealing where what hosts or groups are loaded with counts too, compiled (Numba).

All state is in arrays. Hosts change their ranks, the hops and loads of these ranks are looked at again, and a move that
is not accepted is taken back the same way.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from solvers.costs.evaluator import SQUARINGS
from solvers.ordering.drawing import copy, draw, put, room
from solvers.ordering.random_numbers import unit

CONTENTION, ALPHA_BETA = 1, 2


@njit(cache=True)
def _hops(order: Any, rank: Any, hop_ptr: Any, hop_of: Any, low: Any, high: Any, when: Any, rtt: Any, value: Any,
          longest: Any, stale: Any) -> Any:  # fmt: skip
    """Look at the hops of one rank again; rounds whose longest hop became shorter are stale."""
    for k in range(hop_ptr[rank], hop_ptr[rank + 1]):
        hop = hop_of[k]
        new, old, r = rtt[order[low[hop]], order[high[hop]]], value[hop], when[hop]
        value[hop] = new
        if new >= longest[r]:
            longest[r] = new
            stale[r] = 0
        elif old == longest[r]:
            stale[r] = 1


@njit(cache=True)
def _refresh(starts: Any, value: Any, longest: Any, stale: Any) -> Any:
    for r in range(len(longest)):
        if stale[r]:
            most = 0.0
            for hop in range(starts[r], starts[r + 1]):
                most = max(most, value[hop])
            longest[r] = most
            stale[r] = 0


@njit(cache=True)
def _load(e: Any, sign: Any, order: Any, mode: Any, source: Any, target: Any, when: Any, moved: Any, group_of: Any,
          slow: Any, host_out: Any, host_in: Any, alike: Any, out: Any, into: Any, sent: Any,
          got: Any) -> Any:  # fmt: skip
    """Put on (or take off) what a transfer loads its hosts with (microseconds) and its groups (bytes)."""
    x, y, r = order[source[e]], order[target[e]], when[e]
    if x == y:
        return
    if mode == ALPHA_BETA:
        busy = sign * moved[e] * slow[x, y]
        sent[r, x] += busy
        got[r, y] += busy
        return
    if not alike:
        sent[r, x] += sign * moved[e] / host_out[x]
        got[r, y] += sign * moved[e] / host_in[y]
    g, h = group_of[x], group_of[y]
    if g != h:
        out[r, g] += sign * moved[e]
        into[r, h] += sign * moved[e]


@njit(cache=True)
def _loads(ranks: Any, count: Any, moving: Any, sign: Any, edge_ptr: Any, edge_of: Any, touched: Any, order: Any,
           mode: Any, source: Any, target: Any, when: Any, moved: Any, group_of: Any, slow: Any, host_out: Any,
           host_in: Any, alike: Any, out: Any, into: Any, sent: Any, got: Any) -> Any:  # fmt: skip
    """The same for the transfers of some ranks, one between two of them once."""
    for i in range(count):
        rank = ranks[i]
        for k in range(edge_ptr[rank], edge_ptr[rank + 1]):
            e = edge_of[k]
            if rank == source[e] or not moving[source[e]]:
                touched[when[e]] = 1
                _load(e, sign, order, mode, source, target, when, moved, group_of, slow, host_out, host_in, alike, out,
                      into, sent, got)  # fmt: skip


@njit(cache=True)
def _busiest(r: Any, sent: Any, got: Any) -> Any:
    most = 0.0
    for host in range(sent.shape[1]):
        most = max(most, sent[r, host], got[r, host])
    return most


@njit(cache=True)
def _worst(r: Any, mode: Any, out: Any, into: Any, out_rate: Any, in_rate: Any, sent: Any, got: Any, alike: Any,
           host_part: Any) -> Any:  # fmt: skip
    """Microseconds of the busiest resource of round r."""
    if mode == ALPHA_BETA:
        return _busiest(r, sent, got)
    most = 0.0
    for g in range(out.shape[1]):
        most = max(most, out[r, g] / out_rate[g], into[r, g] / in_rate[g])
    if most > 0:  # solvers.costs.evaluator.latest
        total = 0.0
        for g in range(out.shape[1]):
            x, y = out[r, g] / out_rate[g] / most, into[r, g] / in_rate[g] / most
            for _ in range(SQUARINGS):
                x, y = x * x, y * y
            total += x + y
        most *= total ** (0.5**SQUARINGS)
    return max(most, host_part[r] if alike else _busiest(r, sent, got))


@njit(cache=True, nogil=True)
def anneal_loads(
    order: Any, wheel: Any, ptr: Any, first: Any, length: Any, stretch: Any, moves: Any, hot: Any, cold: Any, seed: Any,
    mode: Any, weight: Any, low: Any, high: Any, hop_round: Any, starts: Any, hop_ptr: Any, hop_of: Any,
    rtt: Any, source: Any, target: Any, edge_round: Any, moved: Any, edge_ptr: Any, edge_of: Any, group_of: Any,
    out_rate: Any, in_rate: Any, slow: Any, host_out: Any, host_in: Any,
) -> Any:  # fmt: skip
    """Anneal ``sum over r of weight[r] * (longest hop / 2 + busiest resource)``; (best order, its cost).

    ``wheel`` to ``stretch``: the moves, see :mod:`solvers.ordering.drawing`.
    """
    n, rounds = len(order), len(weight)
    state = np.array([seed], dtype=np.uint64)
    value, longest = np.zeros(len(low)), np.zeros(rounds)
    stale, touched = np.zeros(rounds, dtype=np.int8), np.zeros(rounds, dtype=np.int8)
    for hop in range(len(low)):
        value[hop] = rtt[order[low[hop]], order[high[hop]]]
        longest[hop_round[hop]] = max(longest[hop_round[hop]], value[hop])
    # Where each host has one rank and all are as fast, what hosts send and get is the same in any order.
    alike = mode == CONTENTION and host_out.min() == host_out.max() and host_in.min() == host_in.max()
    ranks_of = np.zeros(len(rtt), np.int64)
    for rank in range(n):
        ranks_of[order[rank]] += 1
    alike = alike and ranks_of.max() == 1
    width = len(out_rate) if mode == CONTENTION else 1
    out, into = np.zeros((rounds, width)), np.zeros((rounds, width))
    sent, got = np.zeros((rounds, len(rtt))), np.zeros((rounds, len(rtt)))
    worst, host_part, cost = np.zeros(rounds), np.zeros(rounds), 0.0
    for e in range(len(source)):
        _load(e, 1.0, order, mode, source, target, edge_round, moved, group_of, slow, host_out, host_in, False, out,
              into, sent, got)  # fmt: skip
    for r in range(rounds):
        host_part[r] = _busiest(r, sent, got)
        worst[r] = _worst(r, mode, out, into, out_rate, in_rate, sent, got, alike, host_part)
        cost += weight[r] * (longest[r] / 2 + worst[r])
    best, best_cost = order.copy(), cost
    most_ranks = room(length, stretch)
    ranks, hosts, moving = np.empty(most_ranks, np.int64), np.empty(most_ranks, np.int64), np.zeros(n, np.int8)
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, moves)) if hot > 0 else 1.0
    for _ in range(moves):
        temperature *= cooling
        count = draw(state, order, wheel, ptr, first, length, stretch, ranks, hosts)
        if count == 0:
            continue
        across = not alike
        if alike:
            for k in range(count):
                across = across or group_of[order[ranks[k]]] != group_of[hosts[k]]
        if across:
            for k in range(count):
                moving[ranks[k]] = 1
        for attempt in range(2):  # the second takes it back
            if across:
                _loads(ranks, count, moving, -1.0, edge_ptr, edge_of, touched, order, mode, source, target, edge_round,
                       moved, group_of, slow, host_out, host_in, alike, out, into, sent, got)  # fmt: skip
            put(order, ranks, hosts, count)
            if across:
                _loads(ranks, count, moving, 1.0, edge_ptr, edge_of, touched, order, mode, source, target, edge_round,
                       moved, group_of, slow, host_out, host_in, alike, out, into, sent, got)  # fmt: skip
            for k in range(count):
                _hops(order, ranks[k], hop_ptr, hop_of, low, high, hop_round, rtt, value, longest, stale)
            _refresh(starts, value, longest, stale)
            new = 0.0
            for r in range(rounds):
                if touched[r]:
                    worst[r] = _worst(r, mode, out, into, out_rate, in_rate, sent, got, alike, host_part)
                    touched[r] = 0
                new += weight[r] * (longest[r] / 2 + worst[r])
            if attempt == 1:
                break
            if new <= cost or unit(state) < math.exp((cost - new) / temperature):
                cost = new
                if cost < best_cost - 1e-9 * abs(best_cost):
                    best_cost = cost
                    copy(order, best)
                break
        if across:
            for k in range(count):
                moving[ranks[k]] = 0
    return best, best_cost
