"""Annealing where what hosts or groups are loaded with counts too, compiled (Numba).

All state is in arrays. Hosts change their ranks, the hops and loads of these ranks are looked at again, and a move that
is not accepted is taken back the same way.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from solvers.costs.evaluator import SQUARINGS
from solvers.ordering.drawing import STRETCH, draw, put
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
def _loads(order: Any, ranks: Any, count: Any, moving: Any, sign: Any, mode: Any, edge_ptr: Any, edge_of: Any,
           source: Any, target: Any, when: Any, moved: Any, group_of: Any, slow: Any, out: Any, into: Any,
           touched: Any) -> Any:  # fmt: skip
    """Put on (or take off) what the transfers of some ranks load their resources with; one between two of them once."""
    for i in range(count):
        rank = ranks[i]
        for k in range(edge_ptr[rank], edge_ptr[rank + 1]):
            e = edge_of[k]
            s, t, r = source[e], target[e], when[e]
            if rank != s and moving[s]:
                continue
            x, y = order[s], order[t]
            if mode == CONTENTION:
                g, h = group_of[x], group_of[y]
                if g != h:
                    out[r, g] += sign * moved[e]
                    into[r, h] += sign * moved[e]
                    touched[r] = 1
            else:
                busy = sign * moved[e] * slow[x, y]
                out[r, s] += busy
                into[r, t] += busy
                touched[r] = 1


@njit(cache=True)
def _worst(r: Any, mode: Any, out: Any, into: Any, out_rate: Any, in_rate: Any, order: Any, sent: Any, got: Any,
           host_out: Any, host_in: Any, alike: Any, host_part: Any) -> Any:  # fmt: skip
    """Microseconds of the busiest resource of round r."""
    most = 0.0
    if mode == ALPHA_BETA:
        for rank in range(out.shape[1]):
            most = max(most, out[r, rank], into[r, rank])
        return most
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
    if alike:
        return max(most, host_part[r])
    for rank in range(len(order)):
        most = max(most, sent[r, rank] / host_out[order[rank]], got[r, rank] / host_in[order[rank]])
    return most


@njit(cache=True)
def anneal_loads(
    order: Any, wheel: Any, ptr: Any, first: Any, length: Any, stretch: Any, moves: Any, hot: Any, cold: Any, seed: Any,
    mode: Any, weight: Any, low: Any, high: Any, hop_round: Any, starts: Any, hop_ptr: Any, hop_of: Any,
    rtt: Any, source: Any, target: Any, edge_round: Any, moved: Any, edge_ptr: Any, edge_of: Any, group_of: Any,
    out_rate: Any, in_rate: Any, slow: Any, sent: Any, got: Any, host_out: Any, host_in: Any, alike: Any,
) -> Any:  # fmt: skip
    """Anneal ``sum over r of weight[r] * (longest hop / 2 + busiest resource)``; (best order, its cost).

    ``wheel`` to ``stretch``: the moves, see ``_draw`` and :class:`solvers.ordering.moves.Moves`.
    """
    n, rounds = len(order), len(weight)
    state = np.array([seed], dtype=np.uint64)
    value, longest = np.zeros(len(low)), np.zeros(rounds)
    stale, touched = np.zeros(rounds, dtype=np.int8), np.zeros(rounds, dtype=np.int8)
    for hop in range(len(low)):
        value[hop] = rtt[order[low[hop]], order[high[hop]]]
        longest[hop_round[hop]] = max(longest[hop_round[hop]], value[hop])
    width = n if mode == ALPHA_BETA else len(out_rate)
    out, into = np.zeros((rounds, width)), np.zeros((rounds, width))
    worst, host_part = np.zeros(rounds), np.zeros(rounds)
    for e in range(len(source)):
        x, y, r = order[source[e]], order[target[e]], edge_round[e]
        if mode == ALPHA_BETA:
            out[r, source[e]] += moved[e] * slow[x, y]
            into[r, target[e]] += moved[e] * slow[x, y]
        elif group_of[x] != group_of[y]:
            out[r, group_of[x]] += moved[e]
            into[r, group_of[y]] += moved[e]
    for r in range(rounds):
        if mode == CONTENTION and alike:
            for rank in range(n):
                host_part[r] = max(host_part[r], sent[r, rank] / host_out[0], got[r, rank] / host_in[0])
        worst[r] = _worst(r, mode, out, into, out_rate, in_rate, order, sent, got, host_out, host_in, alike, host_part)
    cost = 0.0
    for r in range(rounds):
        cost += weight[r] * (longest[r] / 2 + worst[r])
    best, best_cost = order.copy(), cost
    room = STRETCH * length.max()
    ranks, hosts, moving = np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(n, np.int8)
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, moves)) if hot > 0 else 1.0
    for _ in range(moves):
        temperature *= cooling
        count = draw(state, order, wheel, ptr, first, length, stretch, ranks, hosts)
        if count == 0:
            continue
        across = mode == ALPHA_BETA or (mode == CONTENTION and not alike)
        if mode == CONTENTION and alike:
            for k in range(count):
                across = across or group_of[order[ranks[k]]] != group_of[hosts[k]]
        if across:
            for k in range(count):
                moving[ranks[k]] = 1
        for attempt in range(2):  # the second takes it back
            if across:
                _loads(order, ranks, count, moving, -1.0, mode, edge_ptr, edge_of, source, target, edge_round, moved,
                       group_of, slow, out, into, touched)  # fmt: skip
            put(order, ranks, hosts, count)
            if across:
                _loads(order, ranks, count, moving, 1.0, mode, edge_ptr, edge_of, source, target, edge_round, moved,
                       group_of, slow, out, into, touched)  # fmt: skip
                if not alike:
                    for k in range(count):
                        for at in range(edge_ptr[ranks[k]], edge_ptr[ranks[k] + 1]):
                            touched[edge_round[edge_of[at]]] = 1
            for k in range(count):
                _hops(order, ranks[k], hop_ptr, hop_of, low, high, hop_round, rtt, value, longest, stale)
            _refresh(starts, value, longest, stale)
            new = 0.0
            for r in range(rounds):
                if touched[r]:
                    worst[r] = _worst(r, mode, out, into, out_rate, in_rate, order, sent, got, host_out, host_in, alike,
                                      host_part)  # fmt: skip
                    touched[r] = 0
                new += weight[r] * (longest[r] / 2 + worst[r])
            if attempt == 1:
                break
            if new <= cost or unit(state) < math.exp((cost - new) / temperature):
                cost = new
                if cost < best_cost - 1e-9 * abs(best_cost):
                    best_cost = cost
                    best[:] = order
                break
        if across:
            for k in range(count):
                moving[ranks[k]] = 0
    return best, best_cost
