"""Moves of annealing, compiled (Numba): which ranks get which hosts next."""

from typing import Any

import numpy as np
from numba import njit

from solvers.ordering.random_numbers import below

STRETCH = 8  # units that are reversed or moved on at once, at most
_NEARER = 4  # one swap in so many is between ranks near each other


@njit(cache=True)
def draw(state: Any, order: Any, wheel: Any, ptr: Any, first: Any, length: Any, stretch: Any, ranks: Any,
         hosts: Any) -> Any:  # fmt: skip
    """Draw a move, see :class:`solvers.ordering.moves.Moves`: how many ranks it changes (0: none), what they get.

    The contents of two units of a class are swapped, or, in classes that say so, those of three to eight that follow
    each other are reversed or moved on by one. There one swap in four stays in an aligned block of 8 or 64 units:
    hypercubes and trees tie such ranks together, and when it is cold few other swaps are any good.
    """
    c = wheel[below(state, len(wheel))]
    units, size, moved = ptr[c + 1] - ptr[c], length[c], 0
    u = below(state, units)
    if stretch[c] and below(state, 4) == 0:
        many, kind = 3 + below(state, STRETCH - 2), below(state, 3)
        at = ptr[c] + u
        if u + many <= units and first[at + many - 1] == first[at] + (many - 1) * size:
            for i in range(many):
                source = many - 1 - i if kind == 0 else (i + kind * 2 - 3) % many
                for k in range(size):
                    ranks[moved], hosts[moved] = first[at + i] + k, order[first[at + source] + k]
                    moved += 1
            return moved
    if stretch[c] and below(state, _NEARER) == 0:
        block = 8 << (3 * below(state, 2))
        v = u // block * block + below(state, block)
        if v >= units:
            return 0
    else:
        v = below(state, units)
    if u == v:
        return 0
    return _swap(order, first[ptr[c] + u], first[ptr[c] + v], size, ranks, hosts)


@njit(cache=True)
def aim(state: Any, order: Any, rank: Any, partner: Any, rtt: Any, near: Any, place: Any, unit_of: Any, class_of: Any,
        size_of: Any, ranks: Any, hosts: Any) -> Any:  # fmt: skip
    """Give a rank a host that is near the host of another rank, or any that is nearer than the one it has; how many
    ranks that changes (0: none)."""
    if below(state, 2):
        host = near[order[partner], below(state, near.shape[1])]
    else:
        host = order[below(state, len(order))]
        if rtt[host, order[partner]] >= rtt[order[rank], order[partner]]:
            return 0
    other = place[host]
    if other < 0 or class_of[rank] < 0 or class_of[rank] != class_of[other] or unit_of[rank] == unit_of[other]:
        return 0
    return _swap(order, unit_of[rank], unit_of[other], size_of[rank], ranks, hosts)


@njit(cache=True)
def _swap(order: Any, one: Any, other: Any, size: Any, ranks: Any, hosts: Any) -> Any:
    moved = 0
    for k in range(size):
        ranks[moved], hosts[moved] = one + k, order[other + k]
        ranks[moved + 1], hosts[moved + 1] = other + k, order[one + k]
        moved += 2
    return moved


@njit(cache=True)
def put(order: Any, ranks: Any, hosts: Any, moved: Any) -> None:
    """Put the hosts at their ranks; those that were there take their place in ``hosts``, to be put back."""
    for k in range(moved):
        order[ranks[k]], hosts[k] = hosts[k], order[ranks[k]]


@njit(cache=True)
def room(length: Any, stretch: Any) -> Any:
    """The most ranks that a move changes."""
    most = 0
    for c in range(len(length)):
        most = max(most, length[c] * (STRETCH if stretch[c] else 2))
    return most


@njit(cache=True)
def copy(values: Any, to: Any) -> None:
    """The same values, in place; as a loop, for slices take Numba half a second each to compile."""
    for k in range(len(values)):
        to[k] = values[k]


@njit(cache=True)
def places(order: Any, hosts: Any) -> Any:
    """A rank of each of the hosts, shape (hosts,); -1 for those that have none."""
    place = np.full(hosts, -1)
    for rank in range(len(order)):
        place[order[rank]] = rank
    return place
