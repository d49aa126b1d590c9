"""Compiled annealing where the loads of hosts or groups count too (Numba).

All state is in arrays. A move exchanges hosts, and the hops and loads of their ranks are evaluated again. A move that
is not accepted is undone in the same way.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from solvers.compilation import njit, njit_inner
from solvers.costs.evaluator import SQUARINGS
from solvers.ordering.move_kernels import apply, copy_into, draw_move, random_unit, start_walk

CONTENTION, ALPHA_BETA = 1, 2


class LoadState(NamedTuple):
    """Mutable state by the order: of E hops and R rounds on H hosts (or interfaces of hosts) in G groups of all tiers.

    ``value``, shape (E,), and ``longest``, shape (R,): round trips in microseconds; ``stale``: rounds whose longest hop
    became shorter; ``touched``: rounds whose loads changed; ``moving``, shape (N,): ranks of the move; ``out`` and
    ``into``, shape (R, G): bytes that leave and enter a group; ``sending`` and ``receiving``, shape (R, H):
    microseconds that a host is busy; ``host_part``, shape (R,): of the busiest host, where all orders have the same;
    ``hop_sum``, shape (R,): of a pipeline, half the round trips of all hops together; ``worst``, shape (R,): what the
    busiest resource takes.
    """

    value: Any
    longest: Any
    stale: Any
    touched: Any
    moving: Any
    out: Any
    into: Any
    sending: Any
    receiving: Any
    host_part: Any
    hop_sum: Any
    worst: Any


@njit_inner()
def _update_hops(order: Any, rank: Any, hops: Any, state: Any) -> Any:
    """Evaluate the hops of one rank again; rounds whose longest hop became shorter are stale."""
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
def _update_longest(starts: Any, state: Any) -> Any:
    for r in range(len(state.longest)):
        if state.stale[r]:
            maximum = 0.0
            for hop in range(starts[r], starts[r + 1]):
                maximum = max(maximum, state.value[hop])
            state.longest[r] = maximum
            state.stale[r] = 0


@njit_inner()
def _add_load(e: Any, sign: Any, order: Any, loads: Any, state: Any, uniform: Any) -> Any:
    """Add (or, with sign -1, subtract) the load of a transfer: microseconds to its hosts, bytes to its groups."""
    x, y, r, moved = order[loads.source[e]], order[loads.target[e]], loads.round[e], sign * loads.bytes[e]
    if loads.pipelined:
        state.hop_sum[r] += sign * loads.hops.distances.rtt_us[x, y] / 2
    if x != y and loads.mode == ALPHA_BETA and len(loads.paths_out):
        for hop in range(len(loads.paths_out)):
            if loads.paths_out[hop, x, y] < 0:
                break
            state.sending[r, loads.paths_out[hop, x, y]] += moved * loads.slow[x, y]
            state.receiving[r, loads.paths_in[hop, x, y]] += moved * loads.slow[x, y]
    elif x != y and loads.mode == ALPHA_BETA:
        state.sending[r, x] += moved * loads.slow[x, y]
        state.receiving[r, y] += moved * loads.slow[x, y]
    elif x != y:
        if len(loads.paths_out):
            for hop in range(len(loads.paths_out)):
                if loads.paths_out[hop, x, y] < 0:
                    break
                sender, receiver = loads.paths_out[hop, x, y], loads.paths_in[hop, x, y]
                state.sending[r, sender] += moved / loads.host_out[sender]
                state.receiving[r, receiver] += moved / loads.host_in[receiver]
        elif not uniform:
            state.sending[r, x] += moved / loads.host_out[x]
            state.receiving[r, y] += moved / loads.host_in[y]
        for tier in range(len(loads.group_of)):
            g, h = loads.group_of[tier, x], loads.group_of[tier, y]
            if g != h:
                state.out[r, g] += moved
                state.into[r, h] += moved


@njit_inner()
def _add_loads(walk: Any, count: Any, sign: Any, loads: Any, state: Any, uniform: Any) -> Any:
    """Add the loads of the transfers of the walk's first ``count`` ranks, those between two of them once."""
    for i in range(count):
        rank = walk.ranks[i]
        for k in range(loads.edge_ptr[rank], loads.edge_ptr[rank + 1]):
            e = loads.edge_of[k]
            if rank == loads.source[e] or not state.moving[loads.source[e]]:
                state.touched[loads.round[e]] = 1
                _add_load(e, sign, walk.order, loads, state, uniform)


@njit_inner()
def _busiest_host(r: Any, state: Any) -> Any:
    maximum, sending, receiving = 0.0, state.sending, state.receiving
    for host in range(sending.shape[1]):
        maximum = max(maximum, sending[r, host], receiving[r, host])
    return maximum


@njit_inner()
def _busiest_resource(r: Any, loads: Any, state: Any, uniform: Any) -> Any:
    """Return how many microseconds the busiest resource of round r takes."""
    if loads.mode == ALPHA_BETA:
        return _busiest_host(r, state)
    out, into, out_rate, in_rate, maximum = state.out, state.into, loads.out_rate, loads.in_rate, 0.0
    for g in range(out.shape[1]):
        maximum = max(maximum, out[r, g] / out_rate[g], into[r, g] / in_rate[g])
    if maximum > 0:  # solvers.costs.evaluator.latest
        total = 0.0
        for g in range(out.shape[1]):
            x, y = out[r, g] / out_rate[g] / maximum, into[r, g] / in_rate[g] / maximum
            for _ in range(SQUARINGS):
                x, y = x * x, y * y
            total += x + y
        maximum *= total ** (0.5**SQUARINGS)
    return max(maximum, state.host_part[r] if uniform else _busiest_host(r, state))


@njit_inner()
def _round_us(r: Any, busiest: Any, loads: Any, state: Any) -> Any:
    """Return how many microseconds round r takes; ``busiest``: its busiest resource."""
    if loads.pipelined:  # solvers.costs.evaluator.mean_latency
        return state.hop_sum[r] / loads.hops_in[r] + busiest
    return state.longest[r] / 2 + busiest


def anneal_loads(order: Any, moves: Any, count: Any, schedule: Any, seed: Any, loads: Any) -> Any:
    """Anneal ``sum over r of weight[r] * (longest hop / 2 + busiest resource)``, of a pipeline with the
    mean hop instead of the longest; return (best order, its cost).

    ``loads``: :class:`solvers.ordering.objectives.Loads`; the others as in
    :func:`solvers.ordering.latency_kernels.anneal_hops`.
    """
    hops, host_out, host_in = loads.hops, loads.host_out, loads.host_in
    n, rounds, hosts = len(order), len(hops.weight), len(hops.distances.rtt_us)
    # Where each host has one rank and all have the same rate, hosts' loads are the same in any order.
    uniform = loads.mode == CONTENTION and host_out.min() == host_out.max() and host_in.min() == host_in.max()
    uniform = bool(uniform and np.bincount(order).max() == 1 and len(loads.paths_out) == 0)
    width = len(loads.out_rate) if loads.mode == CONTENTION else 1
    # Made here, for each array that compiled code makes is compiled for a tenth of a second.
    state = LoadState(
        np.zeros(len(hops.low)),
        np.zeros(rounds),
        np.zeros(rounds, np.int8),
        np.zeros(rounds, np.int8),
        np.zeros(n, np.int8),
        np.zeros((rounds, width)),
        np.zeros((rounds, width)),
        np.zeros((rounds, len(host_out))),
        np.zeros((rounds, len(host_out))),
        np.zeros(rounds),
        np.zeros(rounds),
        np.zeros(rounds),
    )
    best = order.copy()
    return best, _anneal((order, best), moves.classes, schedule, loads, state, (count, seed, uniform, hosts))


@njit(cache=True, nogil=True)
def _anneal(orders: Any, classes: Any, schedule: Any, loads: Any, state: Any, numbers: Any) -> Any:
    """Anneal the first order; put the best one into the second, and return its cost.

    ``numbers``: of moves, the seed, whether hosts' loads are the same in any order, of hosts.
    """
    (order, best), (count, seed, uniform, hosts) = orders, numbers
    hops, weight, rtt, worst = loads.hops, loads.hops.weight, loads.hops.distances.rtt_us, state.worst
    rounds, cost = len(weight), 0.0
    walk = start_walk(order, hosts, classes, seed)
    for hop in range(len(hops.low)):
        state.value[hop] = rtt[order[hops.low[hop]], order[hops.high[hop]]]
        state.longest[hops.round[hop]] = max(state.longest[hops.round[hop]], state.value[hop])
    for e in range(len(loads.source)):
        _add_load(e, 1.0, order, loads, state, False)
    for r in range(rounds):
        state.host_part[r] = _busiest_host(r, state)
        worst[r] = _busiest_resource(r, loads, state, uniform)
        cost += weight[r] * _round_us(r, worst[r], loads, state)
    best_cost, temperature = cost, schedule.initial
    cooling = (schedule.final / schedule.initial) ** (1.0 / max(1, count)) if schedule.initial > 0 else 1.0
    for _ in range(count):
        temperature *= cooling
        moved = draw_move(walk, classes)
        if moved == 0:
            continue
        loads_change = not uniform or loads.pipelined
        if uniform and not loads_change:
            for k in range(moved):
                for tier in range(len(loads.group_of)):
                    before, after = loads.group_of[tier, order[walk.ranks[k]]], loads.group_of[tier, walk.hosts[k]]
                    loads_change = loads_change or before != after
        if loads_change:
            for k in range(moved):
                state.moving[walk.ranks[k]] = 1
        for attempt in range(2):  # the second undoes the move
            if loads_change:
                _add_loads(walk, moved, -1.0, loads, state, uniform)
            apply(walk, moved)
            if loads_change:
                _add_loads(walk, moved, 1.0, loads, state, uniform)
            for k in range(moved):
                _update_hops(order, walk.ranks[k], hops, state)
            _update_longest(hops.starts, state)
            new = 0.0
            for r in range(rounds):
                if state.touched[r]:
                    worst[r] = _busiest_resource(r, loads, state, uniform)
                    state.touched[r] = 0
                new += weight[r] * _round_us(r, worst[r], loads, state)
            if attempt == 1:
                break
            if new <= cost or random_unit(walk.random) < math.exp((cost - new) / temperature):
                cost = new
                if cost < best_cost - 1e-9 * abs(best_cost):
                    best_cost = cost
                    copy_into(order, best)
                break
        if loads_change:
            for k in range(moved):
                state.moving[walk.ranks[k]] = 0
    return best_cost
