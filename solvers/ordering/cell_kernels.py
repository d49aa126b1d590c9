"""Compiled branch and bound over assignments of blocks of ranks to cells of hosts (Numba): see mesh_bounds."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.compilation import njit, njit_inner
from solvers.costs.evaluator import SQUARINGS
from solvers.costs.fabric import Vector

Integers = npt.NDArray[np.int64]
_TIE = 1e-12  # relative: a beginning that saves less is left


class Exchanges(NamedTuple):
    """What N blocks exchange with earlier ones; those of block k are from ``begin[k]`` to ``begin[k + 1]``.

    ``phase``, ``partner``, shape (E,); ``sent``, ``received``: bytes to the partner and from it.
    """

    begin: Integers
    phase: Integers
    partner: Integers
    sent: Vector
    received: Vector


class Cells(NamedTuple):
    """C cells of hosts behind the links of G groups.

    ``links``, shape (G, C): which cells a group has; ``rates``, shape (G, 2): what it sends and receives, bytes/us;
    ``apart_us``, shape (C, C): the least latency between hosts of two cells.
    """

    links: npt.NDArray[np.bool_]
    rates: Vector
    apart_us: Vector


class Phases(NamedTuple):
    """What P phases take at least, shape (P,), for bytes of hosts and for latency, and how often each occurs.

    ``rounds_wait``: of several busy links the latest counts (solvers.costs.evaluator.latest), else the busiest.
    """

    host_us: Vector
    latency_us: Vector
    repeat: Vector
    rounds_wait: bool


class AssignedBlocks(NamedTuple):
    """State of the search. ``depth``, shape (1,): blocks assigned; ``cell``, shape (N,): of each block, -1 untried;
    ``free``, shape (C,): hosts without a block; ``load_us``, shape (N + 1, P, 2 G), and ``longest_us``, shape
    (N + 1, P), by depth; ``least_us``, shape (1,): the cost of the cheapest assignment."""

    depth: Integers
    cell: Integers
    free: Integers
    load_us: Vector
    longest_us: Vector
    least_us: Vector


@njit_inner(error_model="numpy")
def _cost_us(phases: Any, load_us: Any, longest_us: Any) -> Any:
    cost = 0.0
    for p in range(len(phases.repeat)):
        busy = 0.0
        for k in range(load_us.shape[1]):
            busy = max(busy, load_us[p, k])
        if phases.rounds_wait and busy > 0:
            total = 0.0
            for k in range(load_us.shape[1]):
                power = load_us[p, k] / busy
                for _ in range(SQUARINGS):
                    power *= power
                total += power
            for _ in range(SQUARINGS):
                total = np.sqrt(total)
            busy *= total
        cost += (max(phases.host_us[p], busy) + max(phases.latency_us[p], longest_us[p])) * phases.repeat[p]
    return cost


@njit(cache=True, error_model="numpy")
def search_cells(exchanges: Any, cells: Any, phases: Any, state: Any, enough_us: float, steps: int) -> int:
    """Go on with a search for ``steps`` more assignments of a block; return how many are left, 0 where it is not over.

    Bytes between assigned blocks stay on their links whatever follows, so the cost of a beginning is a lower bound.
    The search is over, too, when its cheapest assignment costs ``enough_us`` or less.
    """
    groups, count = cells.links.shape
    cell, free = state.cell, state.free
    depth = state.depth[0]
    while steps > 0 and depth >= 0 and state.least_us[0] > enough_us:
        if cell[depth] >= 0:
            free[cell[depth]] += 1
        cell[depth] += 1
        while cell[depth] < count and free[cell[depth]] == 0:
            cell[depth] += 1
        if cell[depth] == count:
            cell[depth] = -1
            depth -= 1
            continue
        steps -= 1
        here = cell[depth]
        free[here] -= 1
        load_us, longest_us = state.load_us[depth + 1], state.longest_us[depth + 1]
        load_us[:] = state.load_us[depth]
        longest_us[:] = state.longest_us[depth]
        for e in range(exchanges.begin[depth], exchanges.begin[depth + 1]):
            p, there = exchanges.phase[e], cell[exchanges.partner[e]]
            longest_us[p] = max(longest_us[p], cells.apart_us[here, there])
            for g in range(groups):
                if cells.links[g, here] != cells.links[g, there]:
                    out, into = exchanges.sent[e], exchanges.received[e]
                    if cells.links[g, there]:
                        out, into = into, out
                    load_us[p, 2 * g] += out / cells.rates[g, 0]
                    load_us[p, 2 * g + 1] += into / cells.rates[g, 1]
        cost = _cost_us(phases, load_us, longest_us)
        if cost < state.least_us[0] * (1 - _TIE):
            if depth + 1 == len(cell):
                state.least_us[0] = cost
            else:
                depth += 1
    state.depth[0] = depth
    return steps
