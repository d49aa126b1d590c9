"""Local search for rings, compiled (Numba): Lin-Kernighan steps and Or-opt over neighbour lists, and kicks.

A tour is an array of hosts with the positions of all hosts beside it. Every change is a sequence of 2-opt exchanges,
each of which reverses the shorter side of the ring and is taken back by another exchange (Lin and Kernighan 1973;
Or 1976; Martin, Otto and Felten 1991 for the kick, here between segments that are near each other in the tour).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from solvers.ordering.random_numbers import below, njit_inner, unit

_EPSILON = 1e-7
_ROUNDING = 1e-9
_SPAN = 100  # hosts in each of the two segments that a kick swaps, at most
_LOG = 1 << 14


class Neighbours(NamedTuple):
    """``cost``, shape (N, N), symmetric, N at least 8; ``near``, shape (N, K): hosts to put beside each, the nearest
    first."""

    cost: Any
    near: Any


class Kicks(NamedTuple):
    """``number``: how many; how much dearer, on average, one may leave the tour, at first (``warm``) and at the end
    (``cool``); ``settle``: improve the whole tour first, until no move does; needed where that was not done before."""

    number: int
    warm: float
    cool: float
    settle: bool = False


class _Tour(NamedTuple):
    """``hosts`` and their positions, ``place``, both shape (N,); ``log``, shape (L, 4): the exchanges done."""

    hosts: Any
    place: Any
    log: Any


class _Queue(NamedTuple):
    """``hosts`` whose surroundings may be improved, shape (N,), used in a circle; ``waiting``: whether a host is in."""

    hosts: Any
    waiting: Any


@njit_inner()
def _step(tour: Any, host: Any, way: Any) -> Any:
    """The host after (way 1) or before (way -1) another."""
    k = tour.place[host] + way  # -1 is the last
    return tour.hosts[0 if k == len(tour.hosts) else k]


@njit_inner()
def _reverse(tour: Any, first: Any, last: Any) -> None:
    """Reverse the stretch from one host on to another or, which makes the same ring, all the others."""
    hosts, place = tour.hosts, tour.place
    n, i, j = len(hosts), place[first], place[last]
    inside = j - i + 1
    if inside <= 0:
        inside += n
    if 2 * inside > n:
        i, j, inside = (j + 1) % n, (i - 1) % n, n - inside
    for _ in range(inside // 2):
        a, b = hosts[i], hosts[j]
        hosts[i], hosts[j] = b, a
        place[b], place[a] = i, j
        i += 1
        if i == n:
            i = 0
        j -= 1
        if j < 0:
            j = n - 1


@njit_inner()
def _exchange(tour: Any, used: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Replace the edges (a, b) and (c, d), met as a, b, ..., c, d one way round, by (a, c) and (b, d)."""
    if _step(tour, a, 1) == b:
        _reverse(tour, b, c)
    else:
        _reverse(tour, c, b)
    log = tour.log
    log[used, 0], log[used, 1], log[used, 2], log[used, 3] = a, b, c, d
    return used + 1


@njit_inner()
def _undo(tour: Any, used: Any, keep: Any) -> Any:
    """Take exchanges back until ``keep`` are left."""
    log = tour.log
    for k in range(used - 1, keep - 1, -1):
        _exchange(tour, k, log[k, 0], log[k, 2], log[k, 1], log[k, 3])
    return keep


@njit_inner()
def _relocate(tour: Any, used: Any, first: Any, last: Any, c: Any, d: Any) -> Any:
    """Move the segment from ``first`` forward to ``last`` into the edge (c, d), c before d, as it is."""
    n = len(tour.hosts)
    p, q = _step(tour, first, -1), _step(tour, last, 1)
    if 2 * ((tour.place[c] - tour.place[last]) % n) > n:  # the other way round is shorter
        p, q, first, last, c, d = q, p, last, first, d, c
    used = _exchange(tour, used, p, first, c, d)
    used = _exchange(tour, used, p, c, q, last)
    return _exchange(tour, used, c, last, first, d)


@njit_inner()
def _push(queue: Any, head: Any, count: Any, host: Any) -> Any:
    if not queue.waiting[host]:
        queue.waiting[host] = 1
        queue.hosts[(head + count) % len(queue.hosts)] = host
        count += 1
    return count


@njit_inner()
def _improve(graph: Any, tour: Any, used: Any, t1: Any, way: Any) -> Any:
    """The first 2-opt or sequential 3-opt move found that begins by leaving the edge between t1 and the host after it
    (way 1) or before it (-1); every sum of what is left less what is joined stays positive. (exchanges, saved).

    Moves are priced by positions before anything is moved. With t4 on t2's side of t3 the ring closes after two
    exchanges, and a third may follow; with t4 beyond t3 only a third, between t2 and t3, closes it.
    """
    n, t2 = len(tour.hosts), _step(tour, t1, way)
    left, begin = graph.cost[t1, t2], tour.place[t2] * way
    for k in range(graph.near.shape[1]):
        t3 = graph.near[t2, k]
        gain1 = left - graph.cost[t2, t3]
        if gain1 <= _EPSILON:
            break
        for far in range(2):
            t4 = _step(tour, t3, way if far else -way)
            if t3 == t1 or t4 == t2:
                continue
            gain2 = gain1 + graph.cost[t3, t4]
            if not far and gain2 - graph.cost[t4, t1] > _EPSILON:
                return _exchange(tour, used, t1, t2, t4, t3), gain2 - graph.cost[t4, t1]
            stretch = (tour.place[t3 if far else t4] * way - begin) % n  # positions from t2 to the end of its side
            for m in range(graph.near.shape[1]):
                t5 = graph.near[t4, m]
                gain3 = gain2 - graph.cost[t4, t5]
                if gain3 <= _EPSILON:
                    break
                inside = (tour.place[t5] * way - begin) % n <= stretch
                if far:
                    if not inside:
                        continue
                    for after in range(2):
                        if t5 == (t3 if after else t2):
                            continue
                        t6 = _step(tour, t5, way if after else -way)
                        saved = gain3 + graph.cost[t5, t6] - graph.cost[t6, t1]
                        if saved <= _EPSILON:
                            continue
                        if not after:
                            used = _exchange(tour, used, t1, t2, t6, t5)
                            return _exchange(tour, used, t2, t5, t3, t4), saved
                        if way == 1:
                            return _relocate(tour, used, t2, t5, t3, t4), saved
                        return _relocate(tour, used, t5, t2, t4, t3), saved
                else:
                    if t5 in (t1, t3):
                        continue
                    t6 = _step(tour, t5, way if inside else -way)
                    saved = gain3 + graph.cost[t5, t6] - graph.cost[t6, t1]
                    if saved > _EPSILON:
                        used = _exchange(tour, used, t1, t2, t4, t3)
                        return _exchange(tour, used, t1, t4, t6, t5), saved
    return used, 0.0


@njit_inner()
def _settle(graph: Any, tour: Any, used: Any, queue: Any, count: Any) -> Any:
    """Improve around the hosts in the queue until none of them helps; (exchanges done, what was saved)."""
    head, total = 0, 0.0
    while count > 0:
        host = queue.hosts[head]
        head = (head + 1) % len(queue.hosts)
        count -= 1
        queue.waiting[host] = 0
        better = True
        while better and used < _LOG - 3:
            better = False
            for way in (1, -1):
                begun = used
                used, saved = _improve(graph, tour, used, host, way)
                if saved > 0:
                    total += saved
                    better = True
                    for k in range(begun, used):
                        for end in range(4):
                            count = _push(queue, head, count, tour.log[k, end])
                    break
    return used, total


@njit(cache=True)
def kick(graph: Any, hosts: Any, best: Any, kicks: Any, state: Any) -> Any:
    """Swap two neighbouring segments somewhere, improve around them, take it back if that came out dearer; so many
    times, in place.

    :param graph: :class:`Neighbours`. :param hosts: the tour, shape (N,). :param best: shape (N,), becomes the cheapest
        tour met. :param kicks: :class:`Kicks`. :param state: of :mod:`solvers.ordering.random_numbers`.
    :return: how much cheaper ``best`` is than the tour was.
    """
    n, cost = len(hosts), graph.cost
    tour = _Tour(hosts, np.empty(n, np.int64), np.empty((_LOG, 4), np.int64))
    queue = _Queue(np.empty(n, np.int64), np.zeros(n, np.int8))
    for at in range(n):
        tour.place[hosts[at]] = at
    total, most = 0.0, 0.0
    saved = 1.0 if kicks.settle else 0.0
    none = np.int64(0)  # a literal 0 is a type of its own to Numba: everything below would be compiled twice
    while saved > 0:  # the log is finite: more than one pass
        for at in range(n):
            queue.hosts[at], queue.waiting[at] = hosts[at], 1
        _, saved = _settle(graph, tour, none, queue, n)
        total += saved
    most = total
    for at in range(n):
        best[at] = hosts[at]
    span = min(_SPAN, (n - 2) // 3)
    for k in range(kicks.number):
        at, one, two = below(state, n), 1 + below(state, span), 1 + below(state, span)
        p, s = hosts[at], hosts[(at + 1) % n]
        e, q = hosts[(at + one) % n], hosts[(at + one + 1) % n]
        c, d = hosts[(at + one + two) % n], hosts[(at + one + two + 1) % n]
        dearer = cost[p, q] + cost[c, s] + cost[e, d] - cost[p, s] - cost[e, q] - cost[c, d]
        used = _relocate(tour, none, s, e, c, d)
        count = none
        for host in (p, s, e, q, c, d):
            count = _push(queue, none, count, host)
        used, saved = _settle(graph, tour, used, queue, count)
        passed = -(kicks.warm + (kicks.cool - kicks.warm) * k / kicks.number) * math.log(1 - unit(state))
        if saved - dearer < -passed - _ROUNDING:
            _undo(tour, used, none)
            continue
        total += saved - dearer
        if total > most + _EPSILON:
            most = total
            for at in range(n):
                best[at] = hosts[at]
    return most
