"""What a pattern costs while some of an order is undecided: tables of whole numbers over the units that may move.

M units are lists of ranks of one length; unit u gets the contents (the hosts, in their order) of unit v. A hop between
two ranks then costs a number, or what a table says of the contents of one unit or of two. Everything is scaled and
rounded DOWN, so that no order costs less in truth than the tables say.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.costs.closed_forms import Order
from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector
from solvers.costs.patterns import Pattern

EPSILON = 1e-6  # orders that are cheaper by a smaller share do not count
_BITS = 29  # of the bound: Z3 is quick with numbers of one machine word

Table = npt.NDArray[np.int64]
Cost = Callable[[Order, Order], Vector]


@dataclass(frozen=True)
class Term:
    """``values[v]``, shape (M,), if unit ``units[0]`` gets the contents of v; or ``values[v, w]``, shape (M, M), if
    two units get those of v and w (the diagonal means nothing). None is below 0."""

    units: tuple[int, ...]
    values: Table

    def entries(self) -> list[tuple[tuple[tuple[int, int], ...], int]]:
        """(choices, what they cost) of every entry; a choice: (unit, whose contents)."""
        if len(self.units) == 1:
            return [(((self.units[0], v),), value) for v, value in enumerate(self.values.tolist())]
        u, w = self.units
        rows = enumerate(self.values.tolist())
        return [(((u, v), (w, t)), value) for v, row in rows for t, value in enumerate(row) if v != t]


@dataclass(frozen=True)
class Load:
    """``least`` and what the terms add to it."""

    least: int
    terms: tuple[Term, ...]

    def value(self, contents: list[int]) -> int:
        """What it is when unit u gets the contents of ``contents[u]``."""
        return self.least + sum(int(term.values[tuple(contents[u] for u in term.units)]) for term in self.terms)


@dataclass(frozen=True)
class Longest:
    """The largest of the loads, and not less than the 16-norm of those that are ``shared`` (see
    :func:`solvers.costs.evaluator.latest`)."""

    loads: tuple[Load, ...]
    shared: tuple[Load, ...] = ()

    @property
    def least(self) -> int:
        """No choice makes it smaller."""
        return max((load.least for load in (*self.loads, *self.shared)), default=0)


class Window:
    """The units of an order that may exchange their contents.

    :param order: shape (N,), the host at each rank.
    :param units: at least two disjoint lists of ranks, all of one length.
    :param below: more than 0; microseconds. ``bound`` is a whole number that no order exceeds which costs less than
        ``below * (1 - EPSILON)``.
    """

    def __init__(self, order: Order, units: Sequence[Sequence[int]], below: float) -> None:
        ranks = np.array(units, dtype=np.intp)
        assert ranks.ndim == 2, "units of different lengths"
        assert len(np.unique(ranks)) == ranks.size, "a rank in two units"
        self.order, self.ranks, self.size = order, ranks, len(ranks)
        self.contents = order[ranks]
        self.unit_of = np.full(len(order), -1, dtype=np.intp)
        self.unit_of[ranks] = np.arange(self.size)[:, None]
        self._place_of = np.zeros(len(order), dtype=np.intp)
        self._place_of[ranks] = np.arange(ranks.shape[1])[None, :]
        # A power of two: whole microseconds stay whole.
        self.scale = 2.0 ** np.floor(_BITS - np.log2(below))
        self.bound = int(np.floor(below * (1 - EPSILON) * self.scale)) + 1
        self._off = ~np.eye(self.size, dtype=bool)

    def identity(self) -> list[int]:
        """The choice that leaves the order as it is."""
        return list(range(self.size))

    def placed(self, contents: Sequence[int]) -> Order:
        """The order, shape (N,), in which unit u has the contents of ``contents[u]``."""
        order = self.order.copy()
        order[self.ranks] = self.contents[np.asarray(contents)]
        return order

    def load(self, source: Order, target: Order, weight: Vector, cost: Cost) -> Load:
        """The sum of ``weight * cost(host of source, host of target)`` over hops, all of shape (E,). A cost that is
        not known (NaN) is more than the bound."""
        moving = (self.unit_of[source] >= 0) | (self.unit_of[target] >= 0)
        still = ~moving
        fixed = weight[still] * cost(self.order[source[still]], self.order[target[still]])
        least = int(self._whole(fixed.sum())) if len(fixed) else 0
        tables: dict[tuple[int, ...], Table] = {}
        for a, b, w in zip(source[moving].tolist(), target[moving].tolist(), weight[moving].tolist(), strict=True):
            key, values = self._table(a, b, w, cost)
            tables[key] = tables[key] + values if key in tables else values
        return self._normal(least, tables)

    def _whole(self, cost_us: Vector) -> Table:
        with np.errstate(invalid="ignore"):
            scaled = np.nan_to_num(np.floor(cost_us * self.scale), nan=self.bound + 1.0, posinf=self.bound + 1.0)
        whole: Table = np.minimum(scaled, self.bound + 1).astype(np.int64)
        return whole

    def _table(self, a: int, b: int, weight: float, cost: Cost) -> tuple[tuple[int, ...], Table]:
        u, w = int(self.unit_of[a]), int(self.unit_of[b])
        of_a = self.contents[:, self._place_of[a]] if u >= 0 else self.order[[a]]
        of_b = self.contents[:, self._place_of[b]] if w >= 0 else self.order[[b]]
        if u < 0 or w < 0 or u == w:
            return (max(u, w),), self._whole(weight * cost(*np.broadcast_arrays(of_a, of_b)))
        values = self._whole(weight * cost(*np.broadcast_arrays(of_a[:, None], of_b[None, :])))
        values[~self._off] = 0
        return ((u, w), values) if u < w else ((w, u), values.T)

    def _normal(self, least: int, tables: dict[tuple[int, ...], Table]) -> Load:
        """Terms that begin at 0; tables of two units that depend on one of them only are tables of that one."""
        single = {units[0]: values.copy() for units, values in tables.items() if len(units) == 1}
        pairs: dict[tuple[int, ...], Table] = {}
        for units, values in tables.items():
            if len(units) == 1:
                continue
            rows = np.where(self._off, values, values.max()).min(axis=1)
            columns = np.where(self._off, values, values.max()).min(axis=0)
            for unit, part, spread in ((units[0], rows, rows[:, None]), (units[1], columns, columns[None, :])):
                if ((values == spread) | ~self._off).all():
                    single[unit] = single.get(unit, np.zeros(self.size, dtype=np.int64)) + part
                    break
            else:
                pairs[units] = values
        if len({unit for units in tables for unit in units}) == self.size:
            least += self._reduce(single, pairs)
        terms = []
        for units, values in [*(((u,), one) for u, one in single.items()), *pairs.items()]:
            lowest = int(values.min() if len(units) == 1 else values[self._off].min())
            rest = np.maximum(values - lowest, 0)
            least += lowest
            if rest.any():
                terms.append(Term(units, rest))
        return Load(least, tuple(terms))

    def _reduce(self, single: dict[int, Table], pairs: dict[tuple[int, ...], Table]) -> int:
        """Move what any choice costs out of the tables, in place; what comes out as a number.

        With ``values[v, w] >= a[v] + b[w]`` in every table of two units, a and b go to the tables of one; and with
        ``single[u][v] >= c[u] + d[v]`` the sums of c and d are a number, for every content is somewhere. The largest
        such duals (assignment problems) leave little in the tables that is not a real difference between orders.
        """
        if pairs:
            a, b = _duals(np.min(list(pairs.values()), axis=0), self._off)
            for units, values in pairs.items():
                pairs[units] = np.where(self._off, values - a[:, None] - b[None, :], 0)
                for unit, part in zip(units, (a, b), strict=True):
                    single[unit] = single.get(unit, np.zeros(self.size, dtype=np.int64)) + part
        matrix = np.zeros((self.size, self.size), dtype=np.int64)
        for unit, one in single.items():
            matrix[unit] = one
        c, d = _duals(matrix, np.ones_like(self._off))
        matrix -= c[:, None] + d[None, :]
        single.clear()
        single.update(enumerate(matrix))
        return int(c.sum() + d.sum())


def _duals(matrix: Table, allowed: npt.NDArray[np.bool_]) -> tuple[Table, Table]:
    """Whole numbers (a, b), shape (M,) each, with ``a[i] + b[j] <= matrix[i, j]`` where allowed and a large sum."""
    from scipy.optimize import linprog

    size = len(matrix)
    i, j = np.nonzero(allowed)
    rows = np.zeros((len(i), 2 * size))
    rows[np.arange(len(i)), i] = 1
    rows[np.arange(len(i)), size + j] = 1
    found = linprog(-np.ones(2 * size), rows, matrix[i, j].astype(float), bounds=(None, None))
    a = np.floor(found.x[:size]).astype(np.int64) if found.x is not None else np.zeros(size, dtype=np.int64)
    room = np.where(allowed, matrix - a[:, None], np.iinfo(np.int64).max)
    return a, room.min(axis=0)


def longest_of(window: Window, pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> list[Longest]:
    """What the price is the sum of, for any pattern that is not a chain under ``latency``."""
    rtt = fabric.rtt_us
    if model == "latency" and pattern.pace == "pipeline":
        links = np.unique(pattern.source * pattern.ranks + pattern.target)
        hops = links // pattern.ranks, links % pattern.ranks
        return [Longest((window.load(*hops, np.ones(len(links)), lambda i, j: rtt[i, j]),))]
    low, high = np.minimum(pattern.source, pattern.target), np.maximum(pattern.source, pattern.target)
    found = []
    for number, begin in enumerate(pattern.starts.tolist()):
        hops_of = slice(begin, int(np.searchsorted(pattern.round, number, side="right")))
        weight = pattern.there[number] if model == "latency" else pattern.repeat[number]
        if weight == 0:
            continue
        pairs = np.unique(low[hops_of] * pattern.ranks + high[hops_of])
        a, b = pairs // pattern.ranks, pairs % pattern.ranks
        factor = weight if model == "latency" else weight / 2
        moving = (window.unit_of[a] >= 0) | (window.unit_of[b] >= 0)
        still = rtt[window.order[a[~moving]], window.order[b[~moving]]].max(initial=0.0)
        loads = [Load(int(np.floor(still * factor * window.scale)), ())]
        for k in np.flatnonzero(moving).tolist():
            loads.append(window.load(a[[k]], b[[k]], np.array([factor]), lambda i, j: rtt[i, j]))
        found.append(Longest(tuple(loads)))
        if model != "latency":
            found.append(_busiest(window, pattern, fabric, hops_of, size_bytes * weight, model))
    return found


def _busiest(window: Window, pattern: Pattern, fabric: Fabric, hops: slice, size: float, model: str) -> Longest:
    """The busiest host (and group) of one round."""
    source, target, moved = pattern.source[hops], pattern.target[hops], pattern.share[hops] * size / BYTES_PER_US
    loads = []
    for ends, cost in _host_costs(fabric, model):
        for which, cost_there in _carriers(window.order, source if ends == 0 else target, ends, cost):
            loads.append(window.load(source[which], target[which], moved[which], cost_there))
    if model == "alpha-beta":
        return Longest(tuple(loads))
    shared = []
    for group in range(len(fabric.group_out_gbps)):
        mine = fabric.group_of == group
        for leaving, gbps in ((True, fabric.group_out_gbps[group]), (False, fabric.group_in_gbps[group])):
            if np.isfinite(gbps):
                cost = _crossing(mine, leaving, gbps)
                shared.append(window.load(source, target, moved, cost))
    return Longest(tuple(loads), tuple(shared))


def _host_costs(fabric: Fabric, model: str) -> Iterator[tuple[int, Cost]]:
    """(0 for who sends, 1 for who receives; the cost of one hop a Gbit/s-microsecond moved)."""
    if model == "alpha-beta":
        slow = 1.0 / pair_rates(fabric)
        np.fill_diagonal(slow, 0.0)
        yield 0, lambda i, j: slow[i, j]
        yield 1, lambda i, j: slow[i, j]
    else:
        yield 0, lambda i, j: np.where(i == j, 0.0, 1 / fabric.host_out_gbps[i])
        yield 1, lambda i, j: np.where(i == j, 0.0, 1 / fabric.host_in_gbps[j])


def _carriers(order: Order, ends: Order, end: int, cost: Cost) -> Iterator[tuple[Order | slice, Cost]]:
    """What one host carries: its rank's hops if every host has one rank; else of all hops those that are its own."""
    if len(np.unique(order)) == len(order):
        for rank in np.unique(ends).tolist():
            yield np.flatnonzero(ends == rank), cost
        return
    for host in np.unique(order).tolist():
        yield slice(None), _of_host(host, end, cost)


def _of_host(host: int, end: int, cost: Cost) -> Cost:
    return lambda i, j: np.where((i, j)[end] == host, cost(i, j), 0.0)


def _crossing(mine: npt.NDArray[np.bool_], leaving: bool, gbps: float) -> Cost:
    def cost(i: Order, j: Order) -> Vector:
        inside, outside = (i, j) if leaving else (j, i)
        return np.where(mine[inside] & ~mine[outside], 1 / gbps, 0.0)

    return cost
