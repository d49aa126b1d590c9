"""Annealing where what hosts or groups are loaded with counts too, compiled (Numba).

All state is in arrays. Hosts change their ranks, the hops and loads of these ranks are looked at again, and a move that
is not accepted is taken back the same way.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from solvers.costs.evaluator import SQUARINGS
from solvers.ordering.drawing import copy, draw, put, start_walk
from solvers.ordering.random_numbers import njit_inner, unit

CONTENTION, ALPHA_BETA = 1, 2


class LoadState(NamedTuple):
    """What changes with the order, of E hops and R rounds on H hosts in G groups.

    ``value``, shape (E,), and ``longest``, shape (R,): round trips in microseconds; ``stale``: rounds whose longest hop
    became shorter; ``touched``: rounds whose loads changed; ``moving``, shape (N,): ranks of the move; ``out`` and
    ``into``, shape (R, G): bytes that leave and enter a group; ``sent`` and ``got``, shape (R, H): microseconds that a
    host is busy; ``host_part``, shape (R,): of the busiest host, where that is the same in any order.
    """

    value: Any
    longest: Any
    stale: Any
    touched: Any
    moving: Any
    out: Any
    into: Any
    sent: Any
    got: Any
    host_part: Any


@njit_inner()
def _hops(order: Any, rank: Any, hops: Any, state: Any) -> Any:
    """Look at the hops of one rank again; rounds whose longest hop became shorter are stale."""
    value, longest, stale = state.value, state.longest, state.stale
    for k in range(hops.hop_ptr[rank], hops.hop_ptr[rank + 1]):
        hop = hops.hop_of[k]
        new = hops.distances.rtt_us[order[hops.low[hop]], order[hops.high[hop]]]
        old, r = value[hop], hops.round[hop]
        value[hop] = new
        if new >= longest[r]:
            longest[r] = new
            stale[r] = 0
        elif old == longest[r]:
            stale[r] = 1


@njit_inner()
def _refresh(starts: Any, state: Any) -> Any:
    for r in range(len(state.longest)):
        if state.stale[r]:
            most = 0.0
            for hop in range(starts[r], starts[r + 1]):
                most = max(most, state.value[hop])
            state.longest[r] = most
            state.stale[r] = 0


@njit_inner()
def _load(e: Any, sign: Any, order: Any, loads: Any, state: Any, alike: Any) -> Any:
    """Put on (or take off) what a transfer loads its hosts with (microseconds) and its groups (bytes)."""
    x, y, r, moved = order[loads.source[e]], order[loads.target[e]], loads.round[e], sign * loads.bytes[e]
    if x != y and loads.mode == ALPHA_BETA:
        state.sent[r, x] += moved * loads.slow[x, y]
        state.got[r, y] += moved * loads.slow[x, y]
    elif x != y:
        if not alike:
            state.sent[r, x] += moved / loads.host_out[x]
            state.got[r, y] += moved / loads.host_in[y]
        g, h = loads.group_of[x], loads.group_of[y]
        if g != h:
            state.out[r, g] += moved
            state.into[r, h] += moved


@njit_inner()
def _loads(walk: Any, count: Any, sign: Any, loads: Any, state: Any, alike: Any) -> Any:
    """The same for the transfers of the walk's first ranks, one between two of them once."""
    for i in range(count):
        rank = walk.ranks[i]
        for k in range(loads.edge_ptr[rank], loads.edge_ptr[rank + 1]):
            e = loads.edge_of[k]
            if rank == loads.source[e] or not state.moving[loads.source[e]]:
                state.touched[loads.round[e]] = 1
                _load(e, sign, walk.order, loads, state, alike)


@njit_inner()
def _busiest(r: Any, state: Any) -> Any:
    most, sent, got = 0.0, state.sent, state.got
    for host in range(sent.shape[1]):
        most = max(most, sent[r, host], got[r, host])
    return most


@njit_inner()
def _worst(r: Any, loads: Any, state: Any, alike: Any) -> Any:
    """Microseconds of the busiest resource of round r."""
    if loads.mode == ALPHA_BETA:
        return _busiest(r, state)
    out, into, out_rate, in_rate, most = state.out, state.into, loads.out_rate, loads.in_rate, 0.0
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
    return max(most, state.host_part[r] if alike else _busiest(r, state))


@njit(cache=True, nogil=True)
def anneal_loads(order: Any, moves: Any, count: Any, plan: Any, seed: Any, loads: Any) -> Any:
    """Anneal ``sum over r of weight[r] * (longest hop / 2 + busiest resource)``; (best order, its cost).

    ``loads``: :class:`solvers.ordering.objectives.Loads`; the others as in
    :func:`solvers.ordering.hop_kernels.anneal_hops`.
    """
    hops, weight, host_out, host_in = loads.hops, loads.hops.weight, loads.host_out, loads.host_in
    rtt, n, rounds = hops.distances.rtt_us, len(order), len(weight)
    classes = moves.classes
    walk = start_walk(order, len(rtt), classes, seed)
    # Where each host has one rank and all are as fast, what hosts send and get is the same in any order.
    alike = loads.mode == CONTENTION and host_out.min() == host_out.max() and host_in.min() == host_in.max()
    ranks_of = np.zeros(len(rtt), np.int64)
    for rank in range(n):
        ranks_of[order[rank]] += 1
    alike = alike and ranks_of.max() == 1
    width = len(loads.out_rate) if loads.mode == CONTENTION else 1
    state = LoadState(
        np.zeros(len(hops.low)), np.zeros(rounds), np.zeros(rounds, np.int8), np.zeros(rounds, np.int8),
        np.zeros(n, np.int8), np.zeros((rounds, width)), np.zeros((rounds, width)), np.zeros((rounds, len(rtt))),
        np.zeros((rounds, len(rtt))), np.zeros(rounds),
    )  # fmt: skip
    worst, cost = np.zeros(rounds), 0.0
    for hop in range(len(hops.low)):
        state.value[hop] = rtt[order[hops.low[hop]], order[hops.high[hop]]]
        state.longest[hops.round[hop]] = max(state.longest[hops.round[hop]], state.value[hop])
    for e in range(len(loads.source)):
        _load(e, 1.0, order, loads, state, False)
    for r in range(rounds):
        state.host_part[r] = _busiest(r, state)
        worst[r] = _worst(r, loads, state, alike)
        cost += weight[r] * (state.longest[r] / 2 + worst[r])
    best, best_cost, temperature = order.copy(), cost, plan.hot
    cooling = (plan.cold / plan.hot) ** (1.0 / max(1, count)) if plan.hot > 0 else 1.0
    for _ in range(count):
        temperature *= cooling
        moved = draw(walk, classes)
        if moved == 0:
            continue
        across = not alike
        if alike:
            for k in range(moved):
                across = across or loads.group_of[order[walk.ranks[k]]] != loads.group_of[walk.hosts[k]]
        if across:
            for k in range(moved):
                state.moving[walk.ranks[k]] = 1
        for attempt in range(2):  # the second takes it back
            if across:
                _loads(walk, moved, -1.0, loads, state, alike)
            put(walk, moved)
            if across:
                _loads(walk, moved, 1.0, loads, state, alike)
            for k in range(moved):
                _hops(order, walk.ranks[k], hops, state)
            _refresh(hops.starts, state)
            new = 0.0
            for r in range(rounds):
                if state.touched[r]:
                    worst[r] = _worst(r, loads, state, alike)
                    state.touched[r] = 0
                new += weight[r] * (state.longest[r] / 2 + worst[r])
            if attempt == 1:
                break
            if new <= cost or unit(walk.random) < math.exp((cost - new) / temperature):
                cost = new
                if cost < best_cost - 1e-9 * abs(best_cost):
                    best_cost = cost
                    copy(order, best)
                break
        if across:
            for k in range(moved):
                state.moving[walk.ranks[k]] = 0
    return best, best_cost
