"""A lower bound for rings: the subtour relaxation, solved by cuts and columns (Dantzig, Fulkerson and Johnson 1954).

Each host has two half-used or whole edges, and at least two edges leave every set of hosts. The value is that to which
1-trees converge (Held and Karp 1970), which they do slowly where hosts are in clusters: few of the penalties move at a
time. HiGHS solves the linear program over few edges and few sets; sets that too little leaves, and edges that the duals
find too cheap, are added until there are none.

Any duals give a bound: with ``u`` of the hosts and ``w >= 0`` of the sets, the reduced cost of an edge is its cost less
the ``u`` of its ends and the ``w`` of the sets that it leaves, and no ring costs less than ``2 sum(u) + 2 sum(w)`` plus
all negative reduced costs. So the bound holds whenever the time is up, and whatever the solver's rounding.

:func:`branch` goes on from there: an edge whose reduced cost is more than the gap is in no cheaper ring, and few are
left (of 128 hosts 200 to 500). HiGHS decides which of them are used, by branch and cut.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

_NEAREST = 8  # hosts to which edges are there from the beginning
_TOLERANCE = 1e-6
_FLOW_SCALE = 1 << 20  # of a whole edge: maximum flows take integers
_MAX_LINEAR_PROGRAMS = 400
_CONVERGED = 1e-7  # relative: what dearer edges could still add
_MAX_BRANCHINGS = 60
_BRANCH_GAP = 1e-9  # relative: at which HiGHS counts a solution as the best

Edges = npt.NDArray[np.intp]
Members = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SubtourBound:
    """The lower bound, in the unit of the costs, reduced costs, shape (N, N), and the sets that were needed, (K, N).

    A ring that uses an edge costs at least the bound plus the edge's reduced cost, where that is positive.
    """

    bound: float
    reduced: Matrix
    sets: Members


def subtour_bound(cost: Matrix, order: npt.NDArray[np.intp], keep_going: Callable[[], bool]) -> SubtourBound:
    """Return the best bound that is found until the relaxation is solved or the time is up.

    :param cost: shape (N, N), symmetric, complete, never negative, N at least 4.
    :param order: shape (N,), a ring: it makes sure that the first linear program has a solution.
    """
    n = len(cost)
    edges = _first_edges(cost, order)
    sets = np.zeros((0, n), dtype=bool)
    best = SubtourBound(0.0, np.zeros((n, n)), sets)
    for _ in range(_MAX_LINEAR_PROGRAMS):
        if not keep_going():
            break
        solution = _solve(cost, edges, sets)
        if solution is None:
            break
        used, host_duals, set_duals = solution
        reduced, bound = _reduced_costs(cost, sets, host_duals, set_duals)
        if bound > best.bound:
            best = SubtourBound(bound, reduced, sets)
        value = float(used @ cost[edges[:, 0], edges[:, 1]])
        violated = _violated_sets(n, edges, used)
        if len(violated):
            sets = np.concatenate([sets[set_duals > _TOLERANCE * value / n], violated])
        cheap = _cheap_edges(reduced, edges)
        if len(cheap):
            edges = np.concatenate([edges, cheap])
        if not len(violated) and (not len(cheap) or bound >= value * (1 - _CONVERGED)):
            break
    return best


@dataclass(frozen=True)
class BranchLimits:
    """When :func:`branch` ends: after so many nodes of each search tree, at ``deadline`` (of :func:`time.monotonic`;
    None: never), or, between search trees, when ``keep_going`` returns False."""

    nodes: int
    deadline: float | None
    keep_going: Callable[[], bool]


def branch(
    cost: Matrix, limit: float, allowed: Members, relaxation: SubtourBound, limits: BranchLimits
) -> tuple[npt.NDArray[np.intp] | None, float]:
    """Return the cheapest ring, None where a limit ended the search, and a lower bound of all rings up to ``limit``.

    :param cost: as for :func:`subtour_bound`. :param limit: what a known ring costs.
    :param allowed: shape (N, N), symmetric: the edges that may be used; the known ring's are.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    n, gap = len(cost), limit - relaxation.bound
    slack = 1e-9 * limit
    useful = np.triu(allowed & (relaxation.reduced <= gap + slack), 1)
    edges = np.argwhere(useful).astype(np.intp)
    cost_of, reduced = cost[edges[:, 0], edges[:, 1]], relaxation.reduced[edges[:, 0], edges[:, 1]]
    needed = np.where(reduced < -gap - slack, 1.0, 0.0)  # without it a ring costs the bound less its reduced cost
    sets, bound = relaxation.sets, relaxation.bound
    for _ in range(_MAX_BRANCHINGS):
        left_s = np.inf if limits.deadline is None else limits.deadline - time.monotonic()
        if left_s <= 0 or not limits.keep_going():
            break
        ends, leaves = _incidence(n, edges, sets)
        answer = milp(
            cost_of,
            constraints=[LinearConstraint(ends, 2, 2), *([LinearConstraint(leaves, 2, np.inf)] if len(sets) else [])],
            integrality=np.ones(len(edges)), bounds=Bounds(needed, 1),
            options={"mip_rel_gap": _BRANCH_GAP, "node_limit": limits.nodes}
            | ({} if limits.deadline is None else {"time_limit": left_s}),
        )  # fmt: skip
        if answer.mip_dual_bound is not None and np.isfinite(answer.mip_dual_bound):
            bound = max(bound, min(limit, float(answer.mip_dual_bound) * (1 - _BRANCH_GAP)))
        if answer.status != 0:
            break
        used = answer.x > 1 / 2
        violated = _violated_sets(n, edges[used], np.ones(int(used.sum())))
        if not len(violated):
            return _tour(edges[used]), bound
        sets = np.concatenate([sets, violated])
    return None, bound


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
    cost: Matrix, edges: Edges, sets: Members
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """Return how much of each edge is used, the hosts' duals and the sets' duals; None: the solver failed."""
    from scipy.optimize import linprog

    n = len(cost)
    ends, leaves = _incidence(n, edges, sets)
    limits = {"A_ub": -leaves, "b_ub": np.full(len(sets), -2.0)} if len(sets) else {}
    answer = linprog(
        cost[edges[:, 0], edges[:, 1]], A_eq=ends, b_eq=np.full(n, 2.0), bounds=(0, 1), method="highs", **limits
    )
    if answer.status != 0:
        return None
    set_duals = np.maximum(0.0, -answer.ineqlin.marginals) if len(sets) else np.zeros(0)
    return answer.x, answer.eqlin.marginals, set_duals


def _incidence(n: int, edges: Edges, sets: Members) -> tuple[Any, Any]:
    """Return which edges end at each host, and which leave each set, as sparse matrices of shapes (N, E), (K, E)."""
    from scipy.sparse import coo_matrix, csr_matrix

    number = len(edges)
    rows, columns = edges.T.ravel(), np.tile(np.arange(number), 2)
    ends = coo_matrix((np.ones(2 * number), (rows, columns)), shape=(n, number)).tocsr()
    return ends, csr_matrix((sets[:, edges[:, 0]] ^ sets[:, edges[:, 1]]).astype(float))


def _reduced_costs(
    cost: Matrix, sets: Members, host_duals: npt.NDArray[np.float64], set_duals: npt.NDArray[np.float64]
) -> tuple[Matrix, float]:
    """Return the reduced costs of all edges, shape (N, N), and the bound that the duals give."""
    member = sets.astype(np.float64)
    inside = set_duals @ member
    both = (member * set_duals[:, None]).T @ member
    reduced = cost - host_duals[:, None] - host_duals[None, :] - (inside[:, None] + inside[None, :] - 2 * both)
    np.fill_diagonal(reduced, 0.0)
    value = 2 * host_duals.sum() + 2 * set_duals.sum()
    bound = value + np.minimum(reduced, 0.0).sum() / 2
    rounding = 1e-12 * (2 * np.abs(host_duals).sum() + 2 * set_duals.sum())
    return reduced, float(bound - rounding)


def _cheap_edges(reduced: Matrix, edges: Edges) -> Edges:
    """Return up to two edges a host, of the most negative reduced costs, that are not there yet."""
    n = len(reduced)
    a, b = np.nonzero(np.triu(reduced < -_TOLERANCE * np.abs(reduced).max(), 1))
    absent = ~np.isin(a * n + b, edges[:, 0] * n + edges[:, 1])
    a, b = a[absent], b[absent]
    chosen = np.argsort(reduced[a, b], kind="stable")[: 2 * n]
    return np.stack([a[chosen], b[chosen]], axis=1)


def _violated_sets(n: int, edges: Edges, used: npt.NDArray[np.float64]) -> Members:
    """Return sets, shape (K, N), that fewer than two edges leave: the components, else minimum cuts."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    is_used = used > _TOLERANCE
    a, b, weight = edges[is_used, 0], edges[is_used, 1], used[is_used]
    number, label = connected_components(coo_matrix((weight, (a, b)), shape=(n, n)), directed=False)
    if number > 1:
        return _distinct(label[None, :] == np.arange(number)[:, None])
    # Hosts that whole edges join are on one side of a cut with less than two, or the cut is no better than theirs.
    whole = weight > 1 - _TOLERANCE
    number, label = connected_components(
        coo_matrix((weight[whole], (a[whole], b[whole])), shape=(n, n)), directed=False
    )
    cuts = _minimum_cuts(number, label[a], label[b], weight)
    return _distinct(cuts[:, label]) if len(cuts) else np.zeros((0, n), dtype=bool)


def _minimum_cuts(n: int, a: Edges, b: Edges, weight: npt.NDArray[np.float64]) -> Members:
    """Return the minimum cuts between node 0 and each other that are worth less than 2, shape (K, N)."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

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
