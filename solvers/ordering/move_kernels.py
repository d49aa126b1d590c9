"""Compiled moves of simulated annealing (Numba): draw a move, apply it, undo it.

Random numbers in compiled loops: splitmix64, so that a seed gives the same numbers with every version of Numba.
"""

from typing import Any, NamedTuple

import numpy as np

from solvers.compilation import njit_inner

MAX_REVERSED_UNITS = 8  # at once; also of a shift
_NEARBY_SWAP_PERIOD = 4  # one swap in so many is between nearby ranks


@njit_inner(error_model="numpy", inline="always")
def random_bits(state: Any) -> Any:
    """Return the next 64 bits; ``state``: one unsigned 64-bit integer in an array (Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit_inner(error_model="numpy")
def random_below(state: Any, n: Any) -> Any:
    """Return a random integer from 0 to n - 1."""
    return np.int64(random_bits(state) % np.uint64(n))


@njit_inner(error_model="numpy")
def random_unit(state: Any) -> Any:
    """Return a random number from 0 up to, not including, 1."""
    return (random_bits(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


class Walk(NamedTuple):
    """Mutable state of a random walk through the orders of N ranks on H hosts.

    ``order``, shape (N,): the host at each rank; ``rank_of``, shape (H,): a rank of each host, -1 without one.
    ``ranks`` and ``hosts``: the last move, in which each of these ranks gets the host beside it; ``random``: state of
    :mod:`solvers.ordering.move_kernels`.
    """

    order: Any
    rank_of: Any
    ranks: Any
    hosts: Any
    random: Any


@njit_inner(error_model="numpy")
def start_walk(order: Any, hosts: Any, classes: Any, seed: Any) -> Any:
    """Return a walk that starts at ``order``, which it changes; ``hosts``: how many there are."""
    rank_of = np.full(hosts, -1)
    for rank in range(len(order)):
        rank_of[order[rank]] = rank
    max_changed_ranks = 0
    for c in range(len(classes.length)):
        max_changed_ranks = max(
            max_changed_ranks, classes.length[c] * (MAX_REVERSED_UNITS if classes.reversible[c] else 2)
        )
    return Walk(
        order,
        rank_of,
        np.empty(max_changed_ranks, np.int64),
        np.empty(max_changed_ranks, np.int64),
        np.array([seed], dtype=np.uint64),
    )


@njit_inner(error_model="numpy")
def draw_move(walk: Any, classes: Any) -> Any:
    """Draw a move of :class:`solvers.ordering.constraints.ClassTable`; return how many ranks it changes (0: no move).

    The contents of two units of a class are swapped; in reversible classes, those of three to eight consecutive units
    may also be reversed or shifted by one. There one swap in four stays in an aligned block of 8 or 64 units: these
    ranks exchange much in hypercubes and trees, and at low temperatures few other swaps are accepted.
    """
    c, changed, is_stretch = classes.wheel[random_below(walk.random, len(classes.wheel))], 0, False
    begin, units, size = classes.ptr[c], classes.ptr[c + 1] - classes.ptr[c], classes.length[c]
    u = v = random_below(walk.random, units)
    if classes.reversible[c] and random_below(walk.random, 4) == 0:
        count, kind = 3 + random_below(walk.random, MAX_REVERSED_UNITS - 2), random_below(walk.random, 3)
        first_unit = begin + u
        is_stretch = (
            u + count <= units
            and classes.first[first_unit + count - 1] == classes.first[first_unit] + (count - 1) * size
        )
        for i in range(count if is_stretch else 0):
            source = count - 1 - i if kind == 0 else (i + kind * 2 - 3) % count
            for k in range(size):
                walk.ranks[changed] = classes.first[first_unit + i] + k
                walk.hosts[changed] = walk.order[classes.first[first_unit + source] + k]
                changed += 1
    if not is_stretch and classes.reversible[c] and random_below(walk.random, _NEARBY_SWAP_PERIOD) == 0:
        block = 8 << (3 * random_below(walk.random, 2))
        v = u // block * block + random_below(walk.random, block)
        v = v if v < units else u
    elif not is_stretch:
        v = random_below(walk.random, units)
    return changed + _swap(walk, classes.first[begin + u], classes.first[begin + v], size if u != v else 0)


@njit_inner(error_model="numpy")
def draw_aimed_move(walk: Any, units: Any, distances: Any, rank: Any, partner: Any) -> Any:
    """Draw a move that gives a rank a host near its partner's; return how many ranks it changes (0: no move).

    The host is one of the nearest, or any that is nearer than the present one. See
    :class:`solvers.ordering.objectives.Distances`.
    """
    partner_host, pick_near = walk.order[partner], random_below(walk.random, 2)
    near_count, ranks = distances.near.shape[1], len(walk.order)
    pick = random_below(walk.random, near_count if pick_near else ranks)
    near_host, any_host = distances.near[partner_host, pick if pick_near else 0], walk.order[0 if pick_near else pick]
    host = near_host if pick_near else any_host
    host_rank, is_nearer = (
        walk.rank_of[host],
        distances.rtt_us[host, partner_host] < distances.rtt_us[walk.order[rank], partner_host],
    )
    is_exchangeable = (
        0 <= units.class_of[rank] == units.class_of[host_rank] and units.unit_of[rank] != units.unit_of[host_rank]
    )
    size = units.size_of[rank] if host_rank >= 0 and (pick_near or is_nearer) and is_exchangeable else 0
    return _swap(walk, units.unit_of[rank], units.unit_of[host_rank], size)


@njit_inner(error_model="numpy", inline="always")
def _swap(walk: Any, first_a: Any, first_b: Any, size: Any) -> Any:
    changed = 0
    for k in range(size):
        walk.ranks[changed], walk.hosts[changed] = first_a + k, walk.order[first_b + k]
        walk.ranks[changed + 1], walk.hosts[changed + 1] = first_b + k, walk.order[first_a + k]
        changed += 2
    return changed


@njit_inner(error_model="numpy")
def apply(walk: Any, changed: Any) -> None:
    """Apply the move; the previous hosts replace it in ``hosts``, so that a second call undoes it."""
    for k in range(changed):
        walk.order[walk.ranks[k]], walk.hosts[k] = walk.hosts[k], walk.order[walk.ranks[k]]


@njit_inner(error_model="numpy")
def commit(walk: Any, changed: Any) -> None:
    """Accept the move: update the ranks of its hosts."""
    for k in range(changed):
        walk.rank_of[walk.order[walk.ranks[k]]] = walk.ranks[k]


@njit_inner(error_model="numpy")
def copy_into(values: Any, to: Any) -> None:
    """Copy values in place; a loop, for slices take Numba half a second each to compile."""
    for k in range(len(values)):
        to[k] = values[k]
