"""Compiled local search for rings (Numba): Lin-Kernighan steps and Or-opt over neighbour lists, and perturbations.

A tour is an array of hosts with the positions of all hosts beside it. Every change is a sequence of 2-opt exchanges,
each of which reverses the shorter side of the ring and can be undone by another exchange (Lin and Kernighan 1973; Or
1976; Martin, Otto and Felten 1991 for the double-bridge perturbation, here of segments that are near in the tour).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from solvers.compilation import njit, njit_inner
from solvers.ordering.move_kernels import random_below, random_unit

_EPSILON = 1e-7
_ROUNDING = 1e-9
_MAX_SEGMENT_HOSTS = 100  # in each of the two segments that a perturbation swaps
_MAX_LOGGED_EXCHANGES = 1 << 14


class Neighbours(NamedTuple):
    """Candidate lists: ``cost``, shape (N, N), symmetric, N at least 8; ``near``, shape (N, K), nearest first."""

    cost: Any
    near: Any


class Perturbations(NamedTuple):
    """Perturbations to try: how many, and the temperature of the first and the last.

    A temperature is the mean increase of the cost that is accepted. ``to_local_optimum``: improve the whole tour first,
    until no move does; needed once for each tour.
    """

    iterations: int
    initial: float
    final: float
    to_local_optimum: bool = False


class _Tour(NamedTuple):
    """``hosts`` of a tour and their ``position``, both shape (N,); ``log``, shape (L, 4): the exchanges done."""

    hosts: Any
    position: Any
    log: Any


class _Queue(NamedTuple):
    """Circular queue of ``hosts``, shape (N,), whose surroundings may be improved; ``waiting``: which are in it."""

    hosts: Any
    waiting: Any


@njit_inner()
def _step(tour: Any, host: Any, direction: Any) -> Any:
    """Return the host after (direction 1) or before (direction -1) another."""
    k = tour.position[host] + direction  # -1 is the last
    return tour.hosts[0 if k == len(tour.hosts) else k]


@njit_inner()
def _reverse(tour: Any, first: Any, last: Any) -> None:
    """Reverse the segment from one host to another or, which makes the same ring, the rest."""
    hosts, position = tour.hosts, tour.position
    n, i, j = len(hosts), position[first], position[last]
    inside = j - i + 1
    if inside <= 0:
        inside += n
    if 2 * inside > n:
        i, j, inside = (j + 1) % n, (i - 1) % n, n - inside
    for _ in range(inside // 2):
        a, b = hosts[i], hosts[j]
        hosts[i], hosts[j] = b, a
        position[b], position[a] = i, j
        i += 1
        if i == n:
            i = 0
        j -= 1
        if j < 0:
            j = n - 1


@njit_inner()
def _exchange(tour: Any, used: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Replace the edges (a, b) and (c, d), in this sequence in one direction, by (a, c) and (b, d)."""
    if _step(tour, a, 1) == b:
        _reverse(tour, b, c)
    else:
        _reverse(tour, c, b)
    log = tour.log
    log[used, 0], log[used, 1], log[used, 2], log[used, 3] = a, b, c, d
    return used + 1


@njit_inner()
def _undo(tour: Any, used: Any, keep: Any) -> Any:
    """Undo exchanges until ``keep`` remain."""
    log = tour.log
    for k in range(used - 1, keep - 1, -1):
        _exchange(tour, k, log[k, 0], log[k, 2], log[k, 1], log[k, 3])
    return keep


@njit_inner()
def _relocate(tour: Any, used: Any, first: Any, last: Any, c: Any, d: Any) -> Any:
    """Move the segment from ``first`` forward to ``last`` into the edge (c, d), c before d, unreversed."""
    n = len(tour.hosts)
    p, q = _step(tour, first, -1), _step(tour, last, 1)
    if 2 * ((tour.position[c] - tour.position[last]) % n) > n:  # the other direction is shorter
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
def _improve(graph: Any, tour: Any, used: Any, t1: Any, direction: Any) -> Any:
    """Apply the first improving 2-opt or sequential 3-opt move that removes an edge at t1; return (exchanges, saved).

    The edge is that to the host after t1 (direction 1) or before it (-1). Partial gains, edges removed less edges
    added, stay positive. Gains are computed by positions before anything is moved. With t4 on t2's side of t3 the ring
    closes after two exchanges, and a third may follow; with t4 beyond t3 only a third, between t2 and t3, closes it.
    """
    n, t2 = len(tour.hosts), _step(tour, t1, direction)
    removed, begin = graph.cost[t1, t2], tour.position[t2] * direction
    for k in range(graph.near.shape[1]):
        t3 = graph.near[t2, k]
        gain1 = removed - graph.cost[t2, t3]
        if gain1 <= _EPSILON:
            break
        for beyond in range(2):
            t4 = _step(tour, t3, direction if beyond else -direction)
            if t3 == t1 or t4 == t2:
                continue
            gain2 = gain1 + graph.cost[t3, t4]
            if not beyond and gain2 - graph.cost[t4, t1] > _EPSILON:
                return _exchange(tour, used, t1, t2, t4, t3), gain2 - graph.cost[t4, t1]
            side_length = (
                tour.position[t3 if beyond else t4] * direction - begin
            ) % n  # positions from t2 to the end of its side
            for m in range(graph.near.shape[1]):
                t5 = graph.near[t4, m]
                gain3 = gain2 - graph.cost[t4, t5]
                if gain3 <= _EPSILON:
                    break
                inside = (tour.position[t5] * direction - begin) % n <= side_length
                if beyond:
                    if not inside:
                        continue
                    for after in range(2):
                        if t5 == (t3 if after else t2):
                            continue
                        t6 = _step(tour, t5, direction if after else -direction)
                        saved = gain3 + graph.cost[t5, t6] - graph.cost[t6, t1]
                        if saved <= _EPSILON:
                            continue
                        if not after:
                            used = _exchange(tour, used, t1, t2, t6, t5)
                            return _exchange(tour, used, t2, t5, t3, t4), saved
                        if direction == 1:
                            return _relocate(tour, used, t2, t5, t3, t4), saved
                        return _relocate(tour, used, t5, t2, t4, t3), saved
                else:
                    if t5 in (t1, t3):
                        continue
                    t6 = _step(tour, t5, direction if inside else -direction)
                    saved = gain3 + graph.cost[t5, t6] - graph.cost[t6, t1]
                    if saved > _EPSILON:
                        used = _exchange(tour, used, t1, t2, t4, t3)
                        return _exchange(tour, used, t1, t4, t6, t5), saved
    return used, 0.0


@njit_inner()
def _improve_around(graph: Any, tour: Any, used: Any, queue: Any, count: Any) -> Any:
    """Improve around the hosts in the queue until none improves; return (exchanges done, cost saved)."""
    head, total_saved = 0, 0.0
    while count > 0:
        host = queue.hosts[head]
        head = (head + 1) % len(queue.hosts)
        count -= 1
        queue.waiting[host] = 0
        is_improving = True
        while is_improving and used < _MAX_LOGGED_EXCHANGES - 3:
            is_improving = False
            for direction in (1, -1):
                used_before = used
                used, saved = _improve(graph, tour, used, host, direction)
                if saved > 0:
                    total_saved += saved
                    is_improving = True
                    for k in range(used_before, used):
                        for end in range(4):
                            count = _push(queue, head, count, tour.log[k, end])
                    break
    return used, total_saved


@njit(cache=True)
def perturb(graph: Any, hosts: Any, best: Any, perturbations: Any, state: Any) -> Any:
    """Perturb a tour in place: swap two adjacent segments, improve around them, undo it if the cost is not accepted.

    :param graph: :class:`Neighbours`. :param hosts: the tour, shape (N,). :param best: shape (N,), becomes the cheapest
        tour. :param perturbations: :class:`Perturbations`. :param state: of :mod:`solvers.ordering.move_kernels`.
    :return: how much less ``best`` costs than the tour did.
    """
    n, cost = len(hosts), graph.cost
    tour = _Tour(hosts, np.empty(n, np.int64), np.empty((_MAX_LOGGED_EXCHANGES, 4), np.int64))
    queue = _Queue(np.empty(n, np.int64), np.zeros(n, np.int8))
    for at in range(n):
        tour.position[hosts[at]] = at
    total, best_total = 0.0, 0.0
    saved = 1.0 if perturbations.to_local_optimum else 0.0
    zero = np.int64(0)  # a literal 0 is a type of its own to Numba: everything below would be compiled twice
    while saved > 0:  # the log is finite: more than one pass
        for at in range(n):
            queue.hosts[at], queue.waiting[at] = hosts[at], 1
        _, saved = _improve_around(graph, tour, zero, queue, n)
        total += saved
    best_total = total
    for at in range(n):
        best[at] = hosts[at]
    max_segment = min(_MAX_SEGMENT_HOSTS, (n - 2) // 3)
    for k in range(perturbations.iterations):
        at, length_a, length_b = (
            random_below(state, n),
            1 + random_below(state, max_segment),
            1 + random_below(state, max_segment),
        )
        p, s = hosts[at], hosts[(at + 1) % n]
        e, q = hosts[(at + length_a) % n], hosts[(at + length_a + 1) % n]
        c, d = hosts[(at + length_a + length_b) % n], hosts[(at + length_a + length_b + 1) % n]
        added = cost[p, q] + cost[c, s] + cost[e, d] - cost[p, s] - cost[e, q] - cost[c, d]
        used = _relocate(tour, zero, s, e, c, d)
        count = zero
        for host in (p, s, e, q, c, d):
            count = _push(queue, zero, count, host)
        used, saved = _improve_around(graph, tour, used, queue, count)
        accepted = -(
            perturbations.initial + (perturbations.final - perturbations.initial) * k / perturbations.iterations
        ) * math.log(1 - random_unit(state))
        if saved - added < -accepted - _ROUNDING:
            _undo(tour, used, zero)
            continue
        total += saved - added
        if total > best_total + _EPSILON:
            best_total = total
            for at in range(n):
                best[at] = hosts[at]
    return best_total
