"""Cost of a pattern while a window of an order is undecided: integer tables over the units that may be exchanged.

M units are lists of ranks of one length; unit u gets the contents (the hosts, in their order) of unit v. A hop between
two ranks then costs a constant, or an entry of a table by the contents of one unit or of two. All costs are scaled and
rounded down, so that no order costs less than the tables say.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.closed_forms import Order
from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector
from solvers.costs.patterns import Pattern

EPSILON = 1e-6  # relative improvements below this do not count
_BOUND_BITS = 29  # Z3 is quick with numbers of one machine word

Table = npt.NDArray[np.int64]
Cost = Callable[[Order, Order], Vector]


@dataclass(frozen=True)
class Term:
    """Cost by the contents of one unit or of two; never negative.

    ``values[v]``, shape (M,), if unit ``units[0]`` gets the contents of v; or ``values[v, w]``, shape (M, M), if two
    units get those of v and w (the diagonal is not used).
    """

    units: tuple[int, ...]
    values: Table

    def entries(self) -> list[tuple[tuple[tuple[int, int], ...], int]]:
        """Return (choices, cost) of every entry; a choice is (unit, whose contents)."""
        if len(self.units) == 1:
            return [(((self.units[0], v),), value) for v, value in enumerate(self.values.tolist())]
        u, w = self.units
        rows = enumerate(self.values.tolist())
        return [(((u, v), (w, t)), value) for v, row in rows for t, value in enumerate(row) if v != t]


@dataclass(frozen=True)
class LinearLoad:
    """A sum: the constant ``minimum`` and terms."""

    minimum: int
    terms: tuple[Term, ...]

    def value(self, contents: list[int]) -> int:
        """Return the load when unit u gets the contents of ``contents[u]``."""
        return self.minimum + sum(int(term.values[tuple(contents[u] for u in term.units)]) for term in self.terms)


@dataclass(frozen=True)
class LongestLoad:
    """The largest of the loads; at least the 16-norm of the ``shared`` ones.

    See :func:`solvers.costs.evaluator.latest`.
    """

    loads: tuple[LinearLoad, ...]
    shared: tuple[LinearLoad, ...] = ()

    @property
    def minimum(self) -> int:
        """Lower bound over all choices."""
        return max((load.minimum for load in (*self.loads, *self.shared)), default=0)


class Window:
    """Units of an order that may exchange their contents.

    :param order: shape (N,), the host at each rank.
    :param units: at least two disjoint lists of ranks, all of one length.
    :param below: positive, microseconds. The integer ``bound`` is at least the scaled cost of every order that costs
        less than ``below * (1 - EPSILON)``.
    """

    def __init__(self, order: Order, units: Sequence[Sequence[int]], below: float) -> None:
        ranks = np.array(units, dtype=np.intp)
        assert ranks.ndim == 2, "units of different lengths"
        assert len(np.unique(ranks)) == ranks.size, "a rank in two units"
        self.order, self.ranks, self.size = order, ranks, len(ranks)
        self.contents = order[ranks]
        self.unit_of = np.full(len(order), -1, dtype=np.intp)
        self.unit_of[ranks] = np.arange(self.size)[:, None]
        self._offset_of = np.zeros(len(order), dtype=np.intp)
        self._offset_of[ranks] = np.arange(ranks.shape[1])[None, :]
        # A power of two: integer microseconds stay exact.
        self.scale = 2.0 ** np.floor(_BOUND_BITS - np.log2(below))
        self.bound = int(np.floor(below * (1 - EPSILON) * self.scale)) + 1
        self._off_diagonal = ~np.eye(self.size, dtype=bool)

    def identity(self) -> list[int]:
        """Return the choice that leaves the order unchanged."""
        return list(range(self.size))

    def materialise(self, contents: Sequence[int]) -> Order:
        """Return the order, shape (N,), in which unit u has the contents of ``contents[u]``."""
        order = self.order.copy()
        order[self.ranks] = self.contents[np.asarray(contents)]
        return order

    def load(self, source: Order, target: Order, weight: Vector, cost: Cost) -> LinearLoad:
        """Return the sum of ``weight * cost(host of source, host of target)`` over hops, all of shape (E,).

        An unknown cost (NaN) counts as more than the bound.
        """
        is_moving = (self.unit_of[source] >= 0) | (self.unit_of[target] >= 0)
        is_fixed = ~is_moving
        fixed = weight[is_fixed] * cost(self.order[source[is_fixed]], self.order[target[is_fixed]])
        minimum = int(self._to_integers(fixed.sum())) if len(fixed) else 0
        tables: dict[tuple[int, ...], Table] = {}
        for a, b, w in zip(
            source[is_moving].tolist(), target[is_moving].tolist(), weight[is_moving].tolist(), strict=True
        ):
            key, values = self._table(a, b, w, cost)
            tables[key] = tables[key] + values if key in tables else values
        return self._normalised(minimum, tables)

    def _to_integers(self, cost_us: Vector) -> Table:
        with np.errstate(invalid="ignore"):
            scaled = np.nan_to_num(np.floor(cost_us * self.scale), nan=self.bound + 1.0, posinf=self.bound + 1.0)
        integers: Table = np.minimum(scaled, self.bound + 1).astype(np.int64)
        return integers

    def _table(self, a: int, b: int, weight: float, cost: Cost) -> tuple[tuple[int, ...], Table]:
        u, w = int(self.unit_of[a]), int(self.unit_of[b])
        of_a = self.contents[:, self._offset_of[a]] if u >= 0 else self.order[[a]]
        of_b = self.contents[:, self._offset_of[b]] if w >= 0 else self.order[[b]]
        if u < 0 or w < 0 or u == w:
            return (max(u, w),), self._to_integers(weight * cost(*np.broadcast_arrays(of_a, of_b)))
        values = self._to_integers(weight * cost(*np.broadcast_arrays(of_a[:, None], of_b[None, :])))
        values[~self._off_diagonal] = 0
        return ((u, w), values) if u < w else ((w, u), values.T)

    def _normalised(self, minimum: int, tables: dict[tuple[int, ...], Table]) -> LinearLoad:
        """Return a load whose terms have minimum 0; a table of two units that depends on one becomes a table of one."""
        single = {units[0]: values.copy() for units, values in tables.items() if len(units) == 1}
        pairs: dict[tuple[int, ...], Table] = {}
        for units, values in tables.items():
            if len(units) == 1:
                continue
            rows = np.where(self._off_diagonal, values, values.max()).min(axis=1)
            columns = np.where(self._off_diagonal, values, values.max()).min(axis=0)
            for unit, marginal, broadcast in ((units[0], rows, rows[:, None]), (units[1], columns, columns[None, :])):
                if ((values == broadcast) | ~self._off_diagonal).all():
                    single[unit] = single.get(unit, np.zeros(self.size, dtype=np.int64)) + marginal
                    break
            else:
                pairs[units] = values
        if len({unit for units in tables for unit in units}) == self.size:
            minimum += self._reduce(single, pairs)
        terms = []
        for units, values in [*(((u,), table) for u, table in single.items()), *pairs.items()]:
            lowest = int(values.min() if len(units) == 1 else values[self._off_diagonal].min())
            remainder = np.maximum(values - lowest, 0)
            minimum += lowest
            if remainder.any():
                terms.append(Term(units, remainder))
        return LinearLoad(minimum, tuple(terms))

    def _reduce(self, single: dict[int, Table], pairs: dict[tuple[int, ...], Table]) -> int:
        """Reduce the tables in place by costs that every choice has; return the sum of these.

        With ``values[v, w] >= a[v] + b[w]`` in every table of two units, a and b move to the tables of one; and with
        ``single[u][v] >= c[u] + d[v]`` the sums of c and d are constant, for each content is in some unit. The largest
        such duals (of assignment problems) leave little but real differences between orders in the tables.
        """
        if pairs:
            a, b = _duals(np.min(list(pairs.values()), axis=0), self._off_diagonal)
            for units, values in pairs.items():
                pairs[units] = np.where(self._off_diagonal, values - a[:, None] - b[None, :], 0)
                for unit, dual in zip(units, (a, b), strict=True):
                    single[unit] = single.get(unit, np.zeros(self.size, dtype=np.int64)) + dual
        matrix = np.zeros((self.size, self.size), dtype=np.int64)
        for unit, table in single.items():
            matrix[unit] = table
        c, d = _duals(matrix, np.ones_like(self._off_diagonal))
        matrix -= c[:, None] + d[None, :]
        single.clear()
        single.update(enumerate(matrix))
        return int(c.sum() + d.sum())


def _duals(matrix: Table, allowed: npt.NDArray[np.bool_]) -> tuple[Table, Table]:
    """Return integers (a, b), shape (M,) each, of a large sum with ``a[i] + b[j] <= matrix[i, j]`` where allowed."""
    from scipy.optimize import linprog

    size = len(matrix)
    i, j = np.nonzero(allowed)
    rows = np.zeros((len(i), 2 * size))
    rows[np.arange(len(i)), i] = 1
    rows[np.arange(len(i)), size + j] = 1
    solution = linprog(-np.ones(2 * size), rows, matrix[i, j].astype(float), bounds=(None, None))
    a = np.floor(solution.x[:size]).astype(np.int64) if solution.x is not None else np.zeros(size, dtype=np.int64)
    residual = np.where(allowed, matrix - a[:, None], np.iinfo(np.int64).max)
    return a, residual.min(axis=0)


def longest_loads(window: Window, pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> list[LongestLoad]:
    """Return the parts whose sum is the cost, for any pattern but a chain under ``latency``."""
    rtt = fabric.rtt_us
    if model == "latency" and pattern.timing == "pipeline":
        links = np.unique(pattern.source * pattern.ranks + pattern.target)
        hops = links // pattern.ranks, links % pattern.ranks
        return [LongestLoad((window.load(*hops, np.ones(len(links)), lambda i, j: rtt[i, j]),))]
    low, high = np.minimum(pattern.source, pattern.target), np.maximum(pattern.source, pattern.target)
    parts = []
    for number, begin in enumerate(pattern.starts.tolist()):
        hops_of = slice(begin, int(np.searchsorted(pattern.round, number, side="right")))
        weight = pattern.reduce_repeat[number] if model == "latency" else pattern.repeat[number]
        if weight == 0:
            continue
        pairs = np.unique(low[hops_of] * pattern.ranks + high[hops_of])
        a, b = pairs // pattern.ranks, pairs % pattern.ranks
        if model == "contention" and pattern.timing == "pipeline":
            source, target = pattern.source[hops_of], pattern.target[hops_of]
            share = np.full(len(source), weight / 2 / len(source))  # the mean of all hops counts
            parts.append(LongestLoad((window.load(source, target, share, lambda i, j: rtt[i, j]),)))
            parts.append(_busiest_resource(window, pattern, fabric, hops_of, size_bytes * weight, model))
            continue
        factor = weight if model == "latency" else weight / 2
        is_moving = (window.unit_of[a] >= 0) | (window.unit_of[b] >= 0)
        longest_fixed = rtt[window.order[a[~is_moving]], window.order[b[~is_moving]]].max(initial=0.0)
        loads = [LinearLoad(int(np.floor(longest_fixed * factor * window.scale)), ())]
        for k in np.flatnonzero(is_moving).tolist():
            loads.append(window.load(a[[k]], b[[k]], np.array([factor]), lambda i, j: rtt[i, j]))
        parts.append(LongestLoad(tuple(loads)))
        if model != "latency":
            parts.append(_busiest_resource(window, pattern, fabric, hops_of, size_bytes * weight, model))
    return parts


def _busiest_resource(
    window: Window, pattern: Pattern, fabric: Fabric, hops: slice, size: float, model: str
) -> LongestLoad:
    """Return the load of the busiest host or interface (and group) in one round."""
    source, target, weight = pattern.source[hops], pattern.target[hops], pattern.share[hops] * size / BYTES_PER_US
    loads = [window.load(source, target, weight, cost) for cost in _interface_costs(fabric, model)]
    for ends, cost in () if loads else _host_costs(fabric, model):
        for hop_subset, hop_cost in _loads_by_host(window.order, source if ends == 0 else target, ends, cost):
            loads.append(window.load(source[hop_subset], target[hop_subset], weight[hop_subset], hop_cost))
    if model == "alpha-beta":
        return LongestLoad(tuple(loads))
    shared = []
    for tier in fabric.tiers:
        for group in range(len(tier.out_gbps)):
            for leaving, gbps in ((True, tier.out_gbps[group]), (False, tier.in_gbps[group])):
                if np.isfinite(gbps):
                    cost = _crossing_cost(tier.group_of == group, leaving, gbps)
                    shared.append(window.load(source, target, weight, cost))
    return LongestLoad(tuple(loads), tuple(shared))


def _host_costs(fabric: Fabric, model: str) -> Iterator[tuple[int, Cost]]:
    """Yield (0 for senders or 1 for receivers, the cost of one hop per Gbit/s-microsecond sent)."""
    if model == "alpha-beta":
        slow = 1.0 / pair_rates(fabric)
        np.fill_diagonal(slow, 0.0)
        yield 0, lambda i, j: slow[i, j]
        yield 1, lambda i, j: slow[i, j]
    else:
        yield 0, lambda i, j: np.where(i == j, 0.0, 1 / fabric.host_out_gbps[i])
        yield 1, lambda i, j: np.where(i == j, 0.0, 1 / fabric.host_in_gbps[j])


def _interface_costs(fabric: Fabric, model: str) -> Iterator[Cost]:
    """Yield the cost of a hop by what it loads of one interface; nothing where hosts have one each."""
    for ends in fabric.resources:
        if ends.paths is not None:
            slow = 1.0 / pair_rates(fabric) if model == "alpha-beta" else None
            for interface, gbps in enumerate(ends.gbps.tolist()):
                crosses = (ends.paths == interface).any(axis=0)
                table = np.where(crosses, 1 / gbps if slow is None else slow, 0.0)
                yield partial(_entry_of, table)


def _entry_of(table: Matrix, i: Order, j: Order) -> Vector:
    return np.asarray(table[i, j])


def _loads_by_host(order: Order, ends: Order, end: int, cost: Cost) -> Iterator[tuple[Order | slice, Cost]]:
    """Yield (hops, their cost) that load one host: those of its rank, or, with several ranks a host, all hops."""
    if len(np.unique(order)) == len(order):
        for rank in np.unique(ends).tolist():
            yield np.flatnonzero(ends == rank), cost
        return
    for host in np.unique(order).tolist():
        yield slice(None), _cost_at_host(host, end, cost)


def _cost_at_host(host: int, end: int, cost: Cost) -> Cost:
    return lambda i, j: np.where((i, j)[end] == host, cost(i, j), 0.0)


def _crossing_cost(in_group: npt.NDArray[np.bool_], leaving: bool, gbps: float) -> Cost:
    def cost(i: Order, j: Order) -> Vector:
        inside, outside = (i, j) if leaving else (j, i)
        return np.where(in_group[inside] & ~in_group[outside], 1 / gbps, 0.0)

    return cost
