"""Moves of annealing, compiled (Numba): which ranks get which hosts next."""

from typing import Any, NamedTuple

import numpy as np

from solvers.ordering.random_numbers import below, njit_inner

STRETCH = 8  # units that are reversed or moved on at once, at most
_NEARER = 4  # one swap in so many is between ranks near each other


class Walk(NamedTuple):
    """Mutable state of a walk through the orders of N ranks on H hosts.

    ``order``, shape (N,): the host at each rank; ``place``, shape (H,): a rank of each host, -1 for those that have
    none; ``ranks`` and ``hosts``: the move drawn last, which ranks get which hosts; ``random``: of
    :mod:`solvers.ordering.random_numbers`.
    """

    order: Any
    place: Any
    ranks: Any
    hosts: Any
    random: Any


@njit_inner(error_model="numpy")
def start_walk(order: Any, hosts: Any, classes: Any, seed: Any) -> Any:
    """A walk from ``order``, which it changes, on so many hosts."""
    place = np.full(hosts, -1)
    for rank in range(len(order)):
        place[order[rank]] = rank
    most = 0  # ranks that a move changes
    for c in range(len(classes.length)):
        most = max(most, classes.length[c] * (STRETCH if classes.stretch[c] else 2))
    return Walk(order, place, np.empty(most, np.int64), np.empty(most, np.int64), np.array([seed], dtype=np.uint64))


@njit_inner(error_model="numpy")
def draw(walk: Any, classes: Any) -> Any:
    """Draw a move, see :class:`solvers.ordering.moves.Class`; how many ranks it changes (0: none).

    The contents of two units of a class are swapped, or, in classes that say so, those of three to eight that follow
    each other are reversed or moved on by one. There one swap in four stays in an aligned block of 8 or 64 units:
    hypercubes and trees tie such ranks together, and when it is cold few other swaps are any good.
    """
    c, moved, turned = classes.wheel[below(walk.random, len(classes.wheel))], 0, False
    begin, units, size = classes.ptr[c], classes.ptr[c + 1] - classes.ptr[c], classes.length[c]
    u = v = below(walk.random, units)
    if classes.stretch[c] and below(walk.random, 4) == 0:
        many, kind = 3 + below(walk.random, STRETCH - 2), below(walk.random, 3)
        at = begin + u
        turned = u + many <= units and classes.first[at + many - 1] == classes.first[at] + (many - 1) * size
        for i in range(many if turned else 0):
            source = many - 1 - i if kind == 0 else (i + kind * 2 - 3) % many
            for k in range(size):
                walk.ranks[moved] = classes.first[at + i] + k
                walk.hosts[moved] = walk.order[classes.first[at + source] + k]
                moved += 1
    if not turned and classes.stretch[c] and below(walk.random, _NEARER) == 0:
        block = 8 << (3 * below(walk.random, 2))
        v = u // block * block + below(walk.random, block)
        v = v if v < units else u
    elif not turned:
        v = below(walk.random, units)
    return moved + _swap(walk, classes.first[begin + u], classes.first[begin + v], size if u != v else 0)


@njit_inner(error_model="numpy")
def aim(walk: Any, units: Any, distances: Any, rank: Any, partner: Any) -> Any:
    """Give a rank a host that is near the host of another rank, or any that is nearer than the one it has; how many
    ranks that changes (0: none). See :class:`solvers.ordering.objectives.Distances`."""
    at, near = walk.order[partner], below(walk.random, 2)
    many, ranks = distances.near.shape[1], len(walk.order)
    pick = below(walk.random, many if near else ranks)
    nearby, anywhere = distances.near[at, pick if near else 0], walk.order[0 if near else pick]
    host = nearby if near else anywhere
    other, nearer = walk.place[host], distances.rtt_us[host, at] < distances.rtt_us[walk.order[rank], at]
    alike = 0 <= units.class_of[rank] == units.class_of[other] and units.unit_of[rank] != units.unit_of[other]
    size = units.size_of[rank] if other >= 0 and (near or nearer) and alike else 0
    return _swap(walk, units.unit_of[rank], units.unit_of[other], size)


@njit_inner(error_model="numpy", inline="always")
def _swap(walk: Any, one: Any, other: Any, size: Any) -> Any:
    moved = 0
    for k in range(size):
        walk.ranks[moved], walk.hosts[moved] = one + k, walk.order[other + k]
        walk.ranks[moved + 1], walk.hosts[moved + 1] = other + k, walk.order[one + k]
        moved += 2
    return moved


@njit_inner(error_model="numpy")
def put(walk: Any, moved: Any) -> None:
    """Put the hosts at their ranks; those that were there take their place in ``hosts``, to be put back."""
    for k in range(moved):
        walk.order[walk.ranks[k]], walk.hosts[k] = walk.hosts[k], walk.order[walk.ranks[k]]


@njit_inner(error_model="numpy")
def settle(walk: Any, moved: Any) -> None:
    """Keep the move: hosts have new places."""
    for k in range(moved):
        walk.place[walk.order[walk.ranks[k]]] = walk.ranks[k]


@njit_inner(error_model="numpy")
def copy(values: Any, to: Any) -> None:
    """The same values, in place; as a loop, for slices take Numba half a second each to compile."""
    for k in range(len(values)):
        to[k] = values[k]
