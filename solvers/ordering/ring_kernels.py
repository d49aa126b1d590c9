"""Local search for rings, compiled (Numba): Lin-Kernighan steps and Or-opt over neighbour lists, and kicks.

A tour is an array of hosts with the positions of all hosts beside it. Every change is a sequence of 2-opt exchanges,
each of which reverses the shorter side of the ring and is taken back by another exchange (Lin and Kernighan 1973;
Or 1976; Martin, Otto and Felten 1991 for the kick, here between segments that are near each other in the tour).
"""

import math
from typing import Any

import numpy as np
from numba import njit

from solvers.ordering.random_numbers import below, unit

_EPSILON = 1e-7
_ROUNDING = 1e-9
_SPAN = 100  # hosts in each of the two segments that a kick swaps, at most
_LOG = 1 << 14


@njit(cache=True)
def _step(tour: Any, at: Any, way: Any) -> Any:
    """The host after (way 1) or before (way -1) position ``at``."""
    k = at + way
    if k == len(tour):
        return tour[0]
    return tour[k]  # -1 is the last


@njit(cache=True)
def _reverse(tour: Any, place: Any, i: Any, j: Any) -> None:
    """Reverse the stretch from position i on to position j or, which makes the same ring, all the others."""
    n = len(tour)
    inside = j - i + 1
    if inside <= 0:
        inside += n
    if 2 * inside > n:
        i, j, inside = (j + 1) % n, (i - 1) % n, n - inside
    for _ in range(inside // 2):
        a, b = tour[i], tour[j]
        tour[i], tour[j] = b, a
        place[b], place[a] = i, j
        i += 1
        if i == n:
            i = 0
        j -= 1
        if j < 0:
            j = n - 1


@njit(cache=True)
def _exchange(tour: Any, place: Any, log: Any, used: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Replace the edges (a, b) and (c, d), met as a, b, ..., c, d one way round, by (a, c) and (b, d)."""
    if _step(tour, place[a], 1) == b:
        _reverse(tour, place, place[b], place[c])
    else:
        _reverse(tour, place, place[c], place[b])
    log[used, 0], log[used, 1], log[used, 2], log[used, 3] = a, b, c, d
    return used + 1


@njit(cache=True)
def _undo(tour: Any, place: Any, log: Any, used: Any, keep: Any) -> Any:
    """Take exchanges back until ``keep`` are left."""
    for k in range(used - 1, keep - 1, -1):
        _exchange(tour, place, log, k, log[k, 0], log[k, 2], log[k, 1], log[k, 3])
    return keep


@njit(cache=True)
def _relocate(tour: Any, place: Any, log: Any, used: Any, first: Any, last: Any, c: Any, d: Any) -> Any:
    """Move the segment from ``first`` forward to ``last`` into the edge (c, d), c before d, as it is."""
    n = len(tour)
    p, q = _step(tour, place[first], -1), _step(tour, place[last], 1)
    if 2 * ((place[c] - place[last]) % n) > n:  # the other way round is shorter
        p, q, first, last, c, d = q, p, last, first, d, c
    used = _exchange(tour, place, log, used, p, first, c, d)
    used = _exchange(tour, place, log, used, p, c, q, last)
    return _exchange(tour, place, log, used, c, last, first, d)


@njit(cache=True)
def _push(queue: Any, waiting: Any, head: Any, count: Any, host: Any) -> Any:
    if waiting[host]:
        return count
    waiting[host] = 1
    queue[(head + count) % len(queue)] = host
    return count + 1


@njit(cache=True)
def _improve(cost: Any, near: Any, tour: Any, place: Any, log: Any, used: Any, t1: Any, way: Any) -> Any:
    """The first 2-opt or sequential 3-opt move found that begins by leaving the edge between t1 and the host after it
    (way 1) or before it (-1); every sum of what is left less what is joined stays positive. (exchanges, saved).

    Moves are priced by positions before anything is moved. With t4 on t2's side of t3 the ring closes after two
    exchanges, and a third may follow; with t4 beyond t3 only a third, between t2 and t3, closes it.
    """
    n = len(tour)
    t2 = _step(tour, place[t1], way)
    left, begin = cost[t1, t2], place[t2] * way
    for k in range(near.shape[1]):
        t3 = near[t2, k]
        gain1 = left - cost[t2, t3]
        if gain1 <= _EPSILON:
            break
        for far in range(2):
            t4 = _step(tour, place[t3], way if far else -way)
            if t3 == t1 or t4 == t2:
                continue
            gain2 = gain1 + cost[t3, t4]
            if not far and gain2 - cost[t4, t1] > _EPSILON:
                return _exchange(tour, place, log, used, t1, t2, t4, t3), gain2 - cost[t4, t1]
            stretch = (place[t3 if far else t4] * way - begin) % n  # positions from t2 to the end of its side
            for m in range(near.shape[1]):
                t5 = near[t4, m]
                gain3 = gain2 - cost[t4, t5]
                if gain3 <= _EPSILON:
                    break
                inside = (place[t5] * way - begin) % n <= stretch
                if far:
                    if not inside:
                        continue
                    for after in range(2):
                        if t5 == (t3 if after else t2):
                            continue
                        t6 = _step(tour, place[t5], way if after else -way)
                        saved = gain3 + cost[t5, t6] - cost[t6, t1]
                        if saved <= _EPSILON:
                            continue
                        if not after:
                            used = _exchange(tour, place, log, used, t1, t2, t6, t5)
                            return _exchange(tour, place, log, used, t2, t5, t3, t4), saved
                        if way == 1:
                            return _relocate(tour, place, log, used, t2, t5, t3, t4), saved
                        return _relocate(tour, place, log, used, t5, t2, t4, t3), saved
                else:
                    if t5 in (t1, t3):
                        continue
                    t6 = _step(tour, place[t5], way if inside else -way)
                    saved = gain3 + cost[t5, t6] - cost[t6, t1]
                    if saved > _EPSILON:
                        used = _exchange(tour, place, log, used, t1, t2, t4, t3)
                        return _exchange(tour, place, log, used, t1, t4, t6, t5), saved
    return used, 0.0


@njit(cache=True)
def _settle(cost: Any, near: Any, tour: Any, place: Any, log: Any, used: Any, queue: Any, waiting: Any,
            count: Any) -> Any:  # fmt: skip
    """Improve around the hosts in the queue until none of them helps; (exchanges done, what was saved)."""
    head, total = 0, 0.0
    while count > 0:
        host = queue[head]
        head = (head + 1) % len(queue)
        count -= 1
        waiting[host] = 0
        better = True
        while better and used < _LOG - 3:
            better = False
            for way in (1, -1):
                begun = used
                used, saved = _improve(cost, near, tour, place, log, used, host, way)
                if saved > 0:
                    total += saved
                    better = True
                    for k in range(begun, used):
                        for end in range(4):
                            count = _push(queue, waiting, head, count, log[k, end])
                    break
    return used, total


@njit(cache=True)
def kick(cost: Any, near: Any, tour: Any, best: Any, settle: Any, kicks: Any, warm: Any, cool: Any,
         state: Any) -> Any:  # fmt: skip
    """Swap two neighbouring segments somewhere, improve around them, take it back if that came out dearer; so many
    times, in place. A little dearer is let pass: on average ``warm`` at first, ``cool`` at the end.

    :param cost: shape (N, N), symmetric, N at least 8. :param near: shape (N, K), hosts to put beside each, the
        nearest first. :param tour: shape (N,). :param best: shape (N,), becomes the cheapest tour met. :param settle:
        improve the whole tour first, until no move does; needed where that was not done before. :param state: of
        :mod:`solvers.ordering.random_numbers`.
    :return: how much cheaper ``best`` is than ``tour`` was.
    """
    n = len(tour)
    place, queue, waiting = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int8)
    log = np.empty((_LOG, 4), np.int64)
    for at in range(n):
        place[tour[at]] = at
    total, most = 0.0, 0.0
    saved = 1.0 if settle else 0.0
    none = np.int64(0)  # a literal 0 is a type of its own to Numba: everything below would be compiled twice
    while saved > 0:  # the log is finite: more than one pass
        for at in range(n):
            queue[at], waiting[at] = tour[at], 1
        _, saved = _settle(cost, near, tour, place, log, none, queue, waiting, n)
        total += saved
    most = total
    for at in range(n):
        best[at] = tour[at]
    span = min(_SPAN, (n - 2) // 3)
    for k in range(kicks):
        at, one, two = below(state, n), 1 + below(state, span), 1 + below(state, span)
        p, s = tour[at], tour[(at + 1) % n]
        e, q = tour[(at + one) % n], tour[(at + one + 1) % n]
        c, d = tour[(at + one + two) % n], tour[(at + one + two + 1) % n]
        dearer = cost[p, q] + cost[c, s] + cost[e, d] - cost[p, s] - cost[e, q] - cost[c, d]
        used = _relocate(tour, place, log, none, s, e, c, d)
        count = none
        for host in (p, s, e, q, c, d):
            count = _push(queue, waiting, none, count, host)
        used, saved = _settle(cost, near, tour, place, log, used, queue, waiting, count)
        passed = -(warm + (cool - warm) * k / kicks) * math.log(1 - unit(state))
        if saved - dearer < -passed - _ROUNDING:
            _undo(tour, place, log, used, none)
            continue
        total += saved - dearer
        if total > most + _EPSILON:
            most = total
            for at in range(n):
                best[at] = tour[at]
    return most
