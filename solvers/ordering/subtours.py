"""A lower bound for rings: the subtour relaxation and blossoms, by cuts and columns (Dantzig, Fulkerson, Johnson 1954).

Each host has two half-used or whole edges, and at least two edges leave every set of hosts. The value is that to which
1-trees converge (Held and Karp 1970), which they do slowly where hosts are in clusters: few of the penalties move at a
time. HiGHS solves the linear program over few edges and few sets; sets that too little leaves, and edges that the duals
find too cheap, are added until there are none, and edges that the duals find dear are dropped.

A ring leaves every set by an even number of edges. So it does not leave it by just the edges of an odd number of teeth:
the edges that leave the set less the teeth are at least one less than there are teeth (blossoms: Edmonds 1965). They
are sought where edges are half used (Padberg and Hong 1980): such a component and the whole edges that leave it.

Any duals give a bound: with ``u`` of the hosts and ``w >= 0`` of the sets, the reduced cost of an edge is its cost less
the ``u`` of its ends and the ``w`` of the sets that it leaves (plus that of those whose tooth it is), and no ring costs
less than ``2 sum(u)``, plus ``w`` times what must leave each set, plus all negative reduced costs. So the bound holds
whenever the time is up, and whatever the solver's rounding.

:func:`branch` goes on from there: an edge whose reduced cost is more than the gap is in no cheaper ring, and few are
left (of 128 hosts 200 to 500). HiGHS decides which of them are used, by branch and cut.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

from plink.model.network import Matrix

_NEAREST = 8  # hosts to which edges are there from the beginning
_TOLERANCE = 1e-6
_FLOW_SCALE = 1 << 20  # of a whole edge: maximum flows take integers
_MAX_LINEAR_PROGRAMS = 400
_STALLED_PROGRAMS, _STALLED_GAIN = 25, 1e-4  # it ends when so many have raised the bound by less, relatively
_CONVERGED = 1e-7  # relative: what dearer edges could still add
_MAX_BRANCHINGS = 60
_MAX_EDGES_PER_HOST, _KEPT_EDGES_PER_HOST = 8, 5
_FEW_CUTS = 10  # blossoms: then minimum cuts, which take longer, are sought, too
_BLOSSOM_THRESHOLDS = (1e-6, 0.05, 0.15, 0.3)  # an edge less used, or less missing, is none or whole
_BLOSSOM_VIOLATION = 0.01
_BRANCH_GAP = 1e-9  # relative: at which HiGHS counts a solution as the best
_INFEASIBLE = 2  # status of scipy.optimize.milp
_POLL_S = 0.1

Edges = npt.NDArray[np.intp]
Members = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Cuts:
    """Sets of hosts, ``members``, shape (K, N), and the teeth of each: edges that leave it, as ``a * N + b``, a < b.

    The edges that leave a set, its teeth counted negatively, are at least 2 without teeth, else 1 less their number.
    """

    members: Members
    teeth: tuple[npt.NDArray[np.int64], ...]

    def __len__(self) -> int:
        return len(self.members)

    @property
    def least(self) -> npt.NDArray[np.float64]:
        """What must leave each set at least, shape (K,)."""
        return np.array([1.0 - len(teeth) if len(teeth) else 2.0 for teeth in self.teeth])

    def leaving(self, edges: Edges) -> Any:
        """Return how edges count in each cut, as a sparse matrix of shape (K, E)."""
        counts = (self.members[:, edges[:, 0]] ^ self.members[:, edges[:, 1]]).astype(np.float64)
        keys = edges.min(axis=1) * self.members.shape[1] + edges.max(axis=1)
        for row, teeth in zip(counts, self.teeth, strict=True):
            if len(teeth):
                row[np.isin(keys, teeth)] = -1.0
        return csr_matrix(counts)

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Cuts":
        """Return some of the cuts."""
        return Cuts(self.members[chosen], tuple(self.teeth[k] for k in np.flatnonzero(chosen)))

    def plus(self, other: "Cuts") -> "Cuts":
        """Return these and other cuts."""
        return Cuts(np.concatenate([self.members, other.members]), self.teeth + other.teeth)


def subtour_cuts(members: Members) -> Cuts:
    """Return the cuts of sets without teeth; ``members``, shape (K, N)."""
    return Cuts(members, (np.zeros(0, dtype=np.int64),) * len(members))


@dataclass(frozen=True)
class SubtourBound:
    """The lower bound, in the unit of the costs, reduced costs, shape (N, N), and the cuts that were needed.

    A ring that uses an edge costs at least the bound plus the edge's reduced cost, where that is positive.
    """

    bound: float
    reduced: Matrix
    cuts: Cuts


def subtour_bound(cost: Matrix, order: npt.NDArray[np.intp], keep_going: Callable[[], bool]) -> SubtourBound:
    """Return the best bound that is found until the relaxation is solved or the time is up.

    :param cost: shape (N, N), symmetric, complete, never negative, N at least 4.
    :param order: shape (N,), a ring: it makes sure that the first linear program has a solution.
    """
    n = len(cost)
    edges = _first_edges(cost, order)
    cuts = subtour_cuts(np.zeros((0, n), dtype=bool))
    best, bounds = SubtourBound(0.0, np.zeros((n, n)), cuts), [0.0]
    for number in range(_MAX_LINEAR_PROGRAMS):
        has_stalled = number > _STALLED_PROGRAMS and best.bound <= bounds[-_STALLED_PROGRAMS] * (1 + _STALLED_GAIN)
        if has_stalled or not keep_going():
            break
        solution = _solve(cost, edges, cuts)
        if solution is None:
            break
        used, host_duals, cut_duals = solution
        reduced, bound = _reduced_costs(cost, cuts, host_duals, cut_duals)
        if bound > best.bound:
            best = SubtourBound(bound, reduced, cuts)
        bounds.append(best.bound)
        value = float(used @ cost[edges[:, 0], edges[:, 1]])
        violated = _violated_cuts(n, edges, used)
        if len(violated):
            cuts = cuts.only(cut_duals > _TOLERANCE * value / n).plus(violated)
        cheap = _cheap_edges(reduced, edges)
        if len(cheap):
            if len(edges) > _MAX_EDGES_PER_HOST * n:
                edges = edges[_is_kept(edges, reduced, used, order)]
            edges = np.concatenate([edges, cheap])
        if not len(violated) and (not len(cheap) or bound >= value * (1 - _CONVERGED)):
            break
    return best


@dataclass(frozen=True)
class BranchLimits:
    """When :func:`branch` ends: after so many nodes of each search tree, at ``deadline`` (of :func:`time.monotonic`;
    None: never), or when ``keep_going`` returns False."""

    nodes: int
    deadline: float | None
    keep_going: Callable[[], bool]


def branch(
    cost: Matrix, limit: float, allowed: Members, relaxation: SubtourBound, limits: BranchLimits
) -> tuple[npt.NDArray[np.intp] | None, float]:
    """Return the cheapest ring, None where a limit ended the search, and a lower bound of all rings up to ``limit``.

    The bound is infinite where there is no such ring.

    :param cost: as for :func:`subtour_bound`. :param limit: what a known ring costs.
    :param allowed: shape (N, N), symmetric: the edges that may be used; the known ring's are.
    """
    n, gap = len(cost), limit - relaxation.bound
    slack = 1e-9 * limit
    useful = np.triu(allowed & (relaxation.reduced <= gap + slack), 1)
    edges = np.argwhere(useful).astype(np.intp)
    cost_of, reduced = cost[edges[:, 0], edges[:, 1]], relaxation.reduced[edges[:, 0], edges[:, 1]]
    needed = np.where(reduced < -gap - slack, 1.0, 0.0)  # without it a ring costs the bound less its reduced cost
    cuts, bound = relaxation.cuts, relaxation.bound
    for _ in range(_MAX_BRANCHINGS):
        left_s = np.inf if limits.deadline is None else limits.deadline - time.monotonic()
        if left_s <= 0 or not limits.keep_going():
            break
        constraints = [LinearConstraint(_ends(n, edges), 2, 2)]
        if len(cuts):
            constraints.append(LinearConstraint(cuts.leaving(edges), cuts.least, np.inf))
        timed = {} if limits.deadline is None else {"time_limit": left_s}
        answer = unless_stopped(
            partial(
                milp,
                cost_of,
                constraints=constraints,
                integrality=np.ones(len(edges)),
                bounds=Bounds(needed, 1),
                options={"mip_rel_gap": _BRANCH_GAP, "node_limit": limits.nodes, **timed},
            ),
            limits.keep_going,
        )
        if answer is None:
            break
        if answer.mip_dual_bound is not None and np.isfinite(answer.mip_dual_bound):
            bound = max(bound, min(limit, float(answer.mip_dual_bound) * (1 - _BRANCH_GAP)))
        if answer.status == _INFEASIBLE:
            return None, np.inf
        if answer.status != 0:
            break
        used = answer.x > 1 / 2
        violated = _violated_sets(n, edges[used], np.ones(int(used.sum())))
        if not len(violated):
            return _tour(edges[used]), bound
        cuts = cuts.plus(subtour_cuts(violated))
    return None, bound


def unless_stopped(call: Callable[[], Any], keep_going: Callable[[], bool]) -> Any:
    """Return the result of a call, None as soon as ``keep_going`` returns False. HiGHS cannot be stopped from outside:
    its thread then ends with the process, which :mod:`plink.__main__` leaves without waiting for it."""
    result = Future[Any]()

    def run() -> None:
        try:
            result.set_result(call())
        except Exception as error:  # for the caller
            result.set_exception(error)

    Thread(target=run, daemon=True, name="plink-solver").start()
    while keep_going():
        try:
            return result.result(_POLL_S)
        except TimeoutError:
            continue
    return None


def _tour(edges: Edges) -> npt.NDArray[np.intp]:
    """Return the ring that N edges make."""
    near: list[list[int]] = [[] for _ in range(len(edges))]
    for a, b in edges.tolist():
        near[a].append(b)
        near[b].append(a)
    tour = [0, near[0][0]]
    while len(tour) < len(edges):
        a, b = near[tour[-1]]
        tour.append(b if a == tour[-2] else a)
    return np.array(tour, dtype=np.intp)


def _first_edges(cost: Matrix, order: npt.NDArray[np.intp]) -> Edges:
    """Return the ring's edges and those to each host's nearest others, shape (E, 2), each with the lower host first."""
    n = len(cost)
    others = cost + np.diag(np.full(n, np.inf))
    near = np.argsort(others, axis=1, kind="stable")[:, : min(_NEAREST, n - 1)]
    a = np.concatenate([order, np.repeat(np.arange(n), near.shape[1])])
    b = np.concatenate([np.roll(order, -1), near.ravel()])
    keys = np.unique(np.minimum(a, b) * n + np.maximum(a, b))
    return np.stack([keys // n, keys % n], axis=1).astype(np.intp)


def _solve(
    cost: Matrix, edges: Edges, cuts: Cuts
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """Return how much of each edge is used, the hosts' duals and the cuts' duals; None: the solver failed."""
    n = len(cost)
    limits = {"A_ub": -cuts.leaving(edges), "b_ub": -cuts.least} if len(cuts) else {}
    answer = linprog(
        cost[edges[:, 0], edges[:, 1]],
        A_eq=_ends(n, edges),
        b_eq=np.full(n, 2.0),
        bounds=(0, 1),
        method="highs",
        **limits,
    )
    if answer.status != 0:
        return None
    cut_duals = np.maximum(0.0, -answer.ineqlin.marginals) if len(cuts) else np.zeros(0)
    return answer.x, answer.eqlin.marginals, cut_duals


def _ends(n: int, edges: Edges) -> Any:
    """Return which edges end at each host, as a sparse matrix of shape (N, E)."""
    number = len(edges)
    rows, columns = edges.T.ravel(), np.tile(np.arange(number), 2)
    return coo_matrix((np.ones(2 * number), (rows, columns)), shape=(n, number)).tocsr()


def _reduced_costs(
    cost: Matrix, cuts: Cuts, host_duals: npt.NDArray[np.float64], cut_duals: npt.NDArray[np.float64]
) -> tuple[Matrix, float]:
    """Return the reduced costs of all edges, shape (N, N), and the bound that the duals give."""
    n, member = len(cost), cuts.members.astype(np.float64)
    inside = cut_duals @ member
    both = (member * cut_duals[:, None]).T @ member
    reduced = cost - host_duals[:, None] - host_duals[None, :] - (inside[:, None] + inside[None, :] - 2 * both)
    for teeth, dual in zip(cuts.teeth, cut_duals.tolist(), strict=True):
        a, b = teeth // n, teeth % n
        reduced[a, b] += 2 * dual
        reduced[b, a] += 2 * dual
    np.fill_diagonal(reduced, 0.0)
    value = 2 * host_duals.sum() + cut_duals @ cuts.least
    bound = value + np.minimum(reduced, 0.0).sum() / 2
    rounding = 1e-12 * (2 * np.abs(host_duals).sum() + cut_duals @ np.abs(cuts.least))
    return reduced, float(bound - rounding)


def _cheap_edges(reduced: Matrix, edges: Edges) -> Edges:
    """Return up to two edges a host, of the most negative reduced costs, that are not there yet."""
    n = len(reduced)
    a, b = np.nonzero(np.triu(reduced < -_TOLERANCE * np.abs(reduced).max(), 1))
    absent = ~np.isin(a * n + b, edges[:, 0] * n + edges[:, 1])
    a, b = a[absent], b[absent]
    chosen = np.argsort(reduced[a, b], kind="stable")[: 2 * n]
    return np.stack([a[chosen], b[chosen]], axis=1)


def _is_kept(
    edges: Edges, reduced: Matrix, used: npt.NDArray[np.float64], order: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    """Return which edges stay: those used, the ring's, and those of the least reduced costs; shape (E,)."""
    n, value = len(reduced), reduced[edges[:, 0], edges[:, 1]]
    place = np.empty(n, dtype=np.intp)
    place[order] = np.arange(n)
    in_ring = np.isin(np.abs(place[edges[:, 0]] - place[edges[:, 1]]), (1, n - 1))
    number = _KEPT_EDGES_PER_HOST * n
    return np.asarray((used > 0) | in_ring | (value <= np.partition(value, number)[number]))


def _violated_cuts(n: int, edges: Edges, used: npt.NDArray[np.float64]) -> Cuts:
    """Return sets that edges leave too little: components, else blossoms and, where they are few, minimum cuts."""
    components = _components(n, edges, used)
    if len(components):
        return subtour_cuts(components)
    blossoms = _blossoms(n, edges, used)
    return blossoms if len(blossoms) >= _FEW_CUTS else subtour_cuts(_violated_sets(n, edges, used)).plus(blossoms)


def _components(n: int, edges: Edges, used: npt.NDArray[np.float64]) -> Members:
    """Return the sets of hosts that no edge leaves, shape (K, N); none where all are connected."""
    a, b = edges[used > _TOLERANCE].T
    number, label = connected_components(coo_matrix((np.ones(len(a)), (a, b)), shape=(n, n)), directed=False)
    sets = label[None, :] == np.arange(number)[:, None]
    return _distinct(sets) if number > 1 else np.zeros((0, n), dtype=bool)


def _violated_sets(n: int, edges: Edges, used: npt.NDArray[np.float64]) -> Members:
    """Return sets, shape (K, N), that fewer than two edges leave: the components, else minimum cuts."""
    components = _components(n, edges, used)
    if len(components):
        return components
    is_used = used > _TOLERANCE
    a, b, weight = edges[is_used, 0], edges[is_used, 1], used[is_used]
    # Hosts that whole edges join are on one side of a cut with less than two, or the cut is no better than theirs.
    whole = weight > 1 - _TOLERANCE
    number, label = connected_components(
        coo_matrix((weight[whole], (a[whole], b[whole])), shape=(n, n)), directed=False
    )
    cuts = _minimum_cuts(number, label[a], label[b], weight)
    return _distinct(cuts[:, label]) if len(cuts) else np.zeros((0, n), dtype=bool)


def _blossoms(n: int, edges: Edges, used: npt.NDArray[np.float64]) -> Cuts:
    """Return sets, with teeth, that edges leave too little: see the module's docstring."""
    blossoms: dict[bytes, tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]] = {}
    keys = edges.min(axis=1) * n + edges.max(axis=1)
    missing = np.minimum(used, 1 - used)
    for threshold in _BLOSSOM_THRESHOLDS:
        inner = missing > threshold
        ends = edges[inner, 0], edges[inner, 1]
        number, label = connected_components(coo_matrix((np.ones(inner.sum()), ends), shape=(n, n)), directed=False)
        outer = label[edges[:, 0]] != label[edges[:, 1]]
        slack = sum(np.bincount(label[edges[outer, end]], missing[outer], number) for end in (0, 1))
        for component in np.flatnonzero((np.bincount(label, minlength=number) > 2) & (slack < 1 - _BLOSSOM_VIOLATION)):
            leaving = outer & ((label[edges[:, 0]] == component) ^ (label[edges[:, 1]] == component))
            is_tooth = leaving & (used > 1 / 2)
            if is_tooth.sum() % 2 == 1 and is_tooth.sum() > 1:
                members = label == component
                blossoms.setdefault(members.tobytes(), (members, keys[is_tooth].astype(np.int64)))
    sets = np.array([members for members, _ in blossoms.values()], dtype=bool).reshape(-1, n)
    return Cuts(sets, tuple(teeth for _, teeth in blossoms.values()))


def _minimum_cuts(n: int, a: Edges, b: Edges, weight: npt.NDArray[np.float64]) -> Members:
    """Return the minimum cuts between node 0 and each other that are worth less than 2, shape (K, N)."""
    apart = a != b
    flows = np.rint(weight[apart] * _FLOW_SCALE).astype(np.int32)
    both = np.concatenate([a[apart], b[apart]]), np.concatenate([b[apart], a[apart]])
    graph = coo_matrix((np.concatenate([flows, flows]), both), shape=(n, n)).tocsr()
    cuts, done = [], np.zeros(n, dtype=bool)
    for target in range(1, n):
        if done[target]:  # already outside of a cut that was found
            continue
        flow = maximum_flow(graph, 0, target)
        if flow.flow_value >= (2 - 1e-3) * _FLOW_SCALE:
            continue
        residual = (graph - flow.flow).tocsr()
        residual.data[residual.data <= 0] = 0
        residual.eliminate_zeros()
        cut = np.zeros(n, dtype=bool)
        cut[breadth_first_order(residual, 0, return_predecessors=False)] = True
        done |= ~cut
        cuts.append(cut)
    return np.array(cuts, dtype=bool).reshape(-1, n)


def _distinct(sets: Members) -> Members:
    """Return each set once; the half with the first host is replaced by the other."""
    return np.unique(np.where(sets[:, :1], ~sets, sets), axis=0)
