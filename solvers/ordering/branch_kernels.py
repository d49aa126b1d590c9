"""Compiled branch and bound over rank orders (Numba), and its input; see :mod:`solvers.ordering.branch_and_bound`."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.compilation import njit, njit_inner
from solvers.costs.evaluator import SQUARINGS
from solvers.costs.fabric import Vector
from solvers.ordering.move_kernels import copy_into

Integers = npt.NDArray[np.int64]
_TIE = 1e-12  # relative: a beginning that saves less is left


class PlacedTransfers(NamedTuple):
    """E transfers in R rounds, all parts of an algorithm together.

    ``round``, ``source``, ``target``: shape (E,), ranks; ``bytes``: of each; ``each``: what its round trip counts by
    itself. ``longest`` and ``busiest``, shape (R,): what the longest round trip and the busiest resource of a round
    count. ``by_later``: the transfers by the higher rank of the two, which begin at ``later_ptr``, shape (N + 1,);
    ``by_earlier`` and ``earlier_ptr``: by the lower one. ``least_sent``, ``least_received`` (bytes) and
    ``least_hops``, shape (R, N + 1): what any rank from this one on has in a round, at least.
    """

    round: Integers
    source: Integers
    target: Integers
    bytes: Vector
    each: Vector
    longest: Vector
    busiest: Vector
    by_later: Integers
    later_ptr: Integers
    by_earlier: Integers
    earlier_ptr: Integers
    least_sent: Vector
    least_received: Vector
    least_hops: Vector


class Chains(NamedTuple):
    """Hops of the chains under ``latency``: as in :class:`solvers.ordering.objectives.Chain`; ``weight``: of the
    longest chain."""

    source: Integers
    target: Integers
    wait_ptr: Integers
    waits: Integers
    weight: float


class HostTables(NamedTuple):
    """H hosts, by their place in the baseline.

    ``rtt_us``, shape (H, H); ``near_us``, shape (H,): to the nearest other host; ``floor_us``: of any hop between hosts
    that have no ranks yet. ``slow_out``, ``slow_in``, shape (H, H): microseconds a byte takes of the sender and the
    receiver, and ``least_out``, ``least_in``, shape (H,), at least. ``paths_out``, ``paths_in``, shape (P, H, H): the
    interfaces that carry a pair's bytes, -1 for none, times ``interface_out`` and ``interface_in``; P = 0 where hosts
    have one each. ``group_of``, shape (T, H): groups by
    tiers, numbered through; ``group_out``, ``group_in``: microseconds a byte takes of their links.
    """

    rtt_us: Matrix
    near_us: Vector
    floor_us: float
    slow_out: Matrix
    slow_in: Matrix
    least_out: Vector
    least_in: Vector
    paths_out: npt.NDArray[np.int32]
    paths_in: npt.NDArray[np.int32]
    interface_out: Vector
    interface_in: Vector
    group_of: Integers
    group_out: Vector
    group_in: Vector


class Allowed(NamedTuple):
    """Which host may come next.

    ``slots``, ``group``, ``pin``, shape (H,): ranks of each host, its group, the first rank it is pinned to or -1.
    ``pinned``, shape (N + 1,): the host pinned to a rank, or -1; ``group_ranks``, shape (G,): ranks of a group;
    ``group_size``, shape (N + 1,): how many ranks a group has that begins at a rank, 0 for any. ``smaller``,
    ``larger``: the host at the first of these ranks has a lower number than the host at the second.
    """

    slots: Integers
    group: Integers
    pin: Integers
    pinned: Integers
    group_ranks: Integers
    group_size: Integers
    smaller: Integers
    larger: Integers


class PlacedState(NamedTuple):
    """What is placed, by the number of hosts that are (first axis).

    ``longest`` and ``busiest``, microseconds, and ``powers``, the sum of what links carry to the 16th, by round;
    ``sending`` and ``receiving``, microseconds, by round and host or interface; ``out`` and ``into`` by round and
    group; ``each``: the sum of what counts by itself; ``child``, ``bound``: the hosts that may come next and their
    bounds, ``count`` of them, of which so many were ``tried``; ``begin``: the next rank; ``lacks``: how many ranks the
    group that is being placed lacks. Without that axis: ``done``, when hops of chains end; ``used``,
    which hosts are placed; ``unit``, shape (R,), microseconds: of what links carry.
    """

    longest: Any
    busiest: Any
    powers: Any
    sending: Any
    receiving: Any
    out: Any
    into: Any
    each: Any
    done: Any
    used: Any
    unit: Any
    child: Any
    bound: Any
    count: Any
    tried: Any
    begin: Any
    lacks: Any


@njit_inner(error_model="numpy")
def _load(state: Any, depth: Any, r: Any, resource: Any, us: Any, is_out: Any) -> Any:
    table = state.sending if is_out else state.receiving
    table[depth, r, resource] += us
    state.busiest[depth, r] = max(state.busiest[depth, r], table[depth, r, resource])


@njit_inner(error_model="numpy")
def _cross(state: Any, depth: Any, r: Any, group: Any, share: Any, is_out: Any) -> Any:
    """Add to what a group's link carries in a round; keep the sum of 16th powers (solvers.costs.evaluator.latest)."""
    table = state.out if is_out else state.into
    before = table[depth, r, group]
    after = before + share
    table[depth, r, group] = after
    for _ in range(SQUARINGS):
        before, after = before * before, after * after
    state.powers[depth, r] += after - before


@njit_inner(error_model="numpy")
def _place(tables: Any, state: Any, order: Any, placed: Any, first: Any, x: Any) -> Any:
    """Put a host on the ranks from ``first`` on, after ``placed`` others; return the lower bound."""
    (transfers, chains, hosts, allowed), unit = tables, state.unit
    depth, end = placed + 1, first + allowed.slots[x]
    for rank in range(first, end):
        order[rank] = x
    for r in range(len(transfers.longest)):  # loops, for slices take Numba half a second each to compile
        state.longest[depth, r] = state.longest[placed, r]
        state.busiest[depth, r] = state.busiest[placed, r]
        state.powers[depth, r] = state.powers[placed, r]
        for k in range(state.sending.shape[2]):
            state.sending[depth, r, k] = state.sending[placed, r, k]
        for k in range(state.receiving.shape[2]):
            state.receiving[depth, r, k] = state.receiving[placed, r, k]
        for k in range(state.out.shape[2]):
            state.out[depth, r, k] = state.out[placed, r, k]
            state.into[depth, r, k] = state.into[placed, r, k]
    each, rtt, near = state.each[placed], hosts.rtt_us, hosts.near_us
    for k in range(transfers.later_ptr[first], transfers.later_ptr[end]):
        e = transfers.by_later[k]
        source, target, r, moved = transfers.source[e], transfers.target[e], transfers.round[e], transfers.bytes[e]
        a, b = order[source], order[target]
        expected, is_source_new, is_target_new = hosts.floor_us, source >= first, target >= first
        if not (is_source_new and is_target_new):
            expected = near[a] if is_target_new else near[b]
        each += transfers.each[e] * (rtt[a, b] - expected)
        state.longest[depth, r] = max(state.longest[depth, r], rtt[a, b])
        if a == b or moved == 0:
            continue
        if len(hosts.paths_out):
            for hop in range(len(hosts.paths_out)):
                if hosts.paths_out[hop, a, b] < 0:
                    break
                i, j = hosts.paths_out[hop, a, b], hosts.paths_in[hop, a, b]
                _load(state, depth, r, i, moved * hosts.slow_out[a, b] * hosts.interface_out[i], True)
                _load(state, depth, r, j, moved * hosts.slow_in[a, b] * hosts.interface_in[j], False)
        else:  # of the end that was there before, so much as it was expected to take is counted already
            least_out = 0.0 if is_source_new else hosts.least_out[a]
            least_in = 0.0 if is_target_new else hosts.least_in[b]
            _load(state, depth, r, a, moved * (hosts.slow_out[a, b] - least_out), True)
            _load(state, depth, r, b, moved * (hosts.slow_in[a, b] - least_in), False)
        for tier in range(len(hosts.group_of)):
            g, h = hosts.group_of[tier, a], hosts.group_of[tier, b]
            if g != h:
                _cross(state, depth, r, g, moved * hosts.group_out[g] / unit[r], True)
                _cross(state, depth, r, h, moved * hosts.group_in[h] / unit[r], False)
    for k in range(transfers.earlier_ptr[first], transfers.earlier_ptr[end]):
        e = transfers.by_earlier[k]
        source, target, r, moved = transfers.source[e], transfers.target[e], transfers.round[e], transfers.bytes[e]
        if source < end and target < end:
            continue
        each += transfers.each[e] * (near[x] - hosts.floor_us)
        state.longest[depth, r] = max(state.longest[depth, r], near[x])
        if len(hosts.paths_out) == 0:
            least = hosts.least_out[x] if source < end else hosts.least_in[x]
            _load(state, depth, r, x, moved * least, source < end)
    state.each[depth] = each
    bound, farthest, slowest_out, slowest_in = each, 0.0, 0.0, 0.0
    for host in range(len(near)):
        if not state.used[host]:
            farthest = max(farthest, near[host])
            slowest_out, slowest_in = max(slowest_out, hosts.least_out[host]), max(slowest_in, hosts.least_in[host])
    for r in range(len(transfers.longest)):
        if transfers.least_hops[r, end]:
            state.longest[depth, r] = max(state.longest[depth, r], farthest)
        sending, receiving = transfers.least_sent[r, end] * slowest_out, transfers.least_received[r, end] * slowest_in
        state.busiest[depth, r] = max(state.busiest[depth, r], sending, receiving)
        if state.powers[depth, r] > state.powers[placed, r]:
            norm = state.powers[depth, r] ** (0.5**SQUARINGS) * unit[r]
            state.busiest[depth, r] = max(state.busiest[depth, r], norm)
        bound += transfers.longest[r] * state.longest[depth, r] + transfers.busiest[r] * state.busiest[depth, r]
    longest_chain, done = 0.0, state.done
    for hop in range(len(chains.source)):
        source, target, begin = chains.source[hop], chains.target[hop], 0.0
        for w in range(chains.wait_ptr[hop], chains.wait_ptr[hop + 1]):
            begin = max(begin, done[chains.waits[w]])
        if source < end:
            hop_us = rtt[order[source], order[target]] if target < end else near[order[source]]
        else:
            hop_us = near[order[target]] if target < end else hosts.floor_us
        done[hop] = begin + hop_us
        longest_chain = max(longest_chain, done[hop])
    return bound + chains.weight * longest_chain


@njit_inner(error_model="numpy")
def _is_allowed(allowed: Any, order: Any, rank: Any, host: Any, open_ranks: Any) -> Any:
    """Whether a host may begin at a rank; ``open_ranks``: how many ranks the group before lacks."""
    if allowed.pin[host] not in (-1, rank) or allowed.pinned[rank] not in (-1, host):
        return False
    for other in range(rank + 1, rank + allowed.slots[host]):
        if allowed.pinned[other] >= 0:
            return False
    if open_ranks > 0:
        if allowed.group[host] != allowed.group[order[rank - 1]]:
            return False
    elif allowed.group_size[rank] not in (0, allowed.group_ranks[allowed.group[host]]):
        return False
    for k in range(len(allowed.smaller)):
        if allowed.larger[k] == rank and order[allowed.smaller[k]] > host:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def search_beginnings(tables: Any, state: Any, order: Any, best: Any, limits: Any) -> Any:
    """Put the cheapest order into ``best``; return (beginnings evaluated, whether all that could matter were).

    ``tables``: (:class:`PlacedTransfers`, :class:`Chains`, :class:`HostTables`, :class:`Allowed`). ``order``: to work
    in. ``limits``: what ``best`` costs, and how many transfers and rounds may be evaluated.
    """
    (transfers, chains, _, allowed), (best_cost, max_work) = tables, limits
    n, ranks, used, child, bound = len(allowed.slots), len(order), state.used, state.child, state.bound
    count, tried, begin, lacks = state.count, state.tried, state.begin, state.lacks
    depth, moves, work, fresh = 0, 0, 0, True
    while depth >= 0:
        rank = begin[depth]
        if fresh:
            count[depth] = tried[depth] = 0
            for host in range(n):
                if used[host] or not _is_allowed(allowed, order, rank, host, lacks[depth]):
                    continue
                end = rank + allowed.slots[host]
                used[host] = 1
                value = _place(tables, state, order, depth, rank, host)
                used[host] = 0
                moves += 1
                work += (
                    transfers.later_ptr[end] - transfers.later_ptr[rank] + len(transfers.longest) + len(chains.source)
                )
                if value >= best_cost * (1 - _TIE):
                    continue
                if end == ranks:
                    best_cost = value
                    copy_into(order, best)
                    continue
                at = count[depth]
                while at > 0 and bound[depth, at - 1] > value:
                    child[depth, at], bound[depth, at] = child[depth, at - 1], bound[depth, at - 1]
                    at -= 1
                child[depth, at], bound[depth, at] = host, value
                count[depth] += 1
            if work > max_work:
                return moves, False
        if tried[depth] == count[depth] or bound[depth, tried[depth]] >= best_cost * (1 - _TIE):
            depth -= 1
            fresh = False
            if depth >= 0:
                used[order[begin[depth]]] = 0
            continue
        host = child[depth, tried[depth]]
        tried[depth] += 1
        used[host] = 1
        _place(tables, state, order, depth, rank, host)
        lack = lacks[depth] if lacks[depth] > 0 else allowed.group_ranks[allowed.group[host]]
        lacks[depth + 1] = lack - allowed.slots[host]
        begin[depth + 1] = rank + allowed.slots[host]
        depth += 1
        fresh = True
    return moves, True
