"""Lower bounds of every order of a mesh of ranks: by what must cross the links of groups of hosts.

The hosts of a group hold some set of as many blocks of ranks. What that set sends to all others, and receives from
them, crosses the group's links, traffic after traffic. :func:`cut_bound` takes the set that is cheapest, for one group
at a time; :func:`assignment_bound` gives each block to a group, of all tiers at once. Both hold whatever host of its
group a block is on: a busiest host needs its bytes over its rate, and a latency is that of the nearest hosts which the
assignment allows. Constraints of the orders are left out.

A phase is what is over before the next one begins. By rounds (``contention``) it is a round: it ends when the latest
of the shared links is done (:func:`solvers.costs.evaluator.latest`), and half the longest hop later. As ranks play it
(``simulated``) it is one operation of a traffic: rounds overlap, links keep to the sum of their bytes, and of all
latencies only the one of the last message is certain not to be hidden.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp
from scipy.sparse import block_diag, csr_array, diags_array, eye_array, hstack, kron, vstack

from plink.model.mesh import Mesh
from solvers.costs.by_name import SIMULATED
from solvers.costs.evaluator import SQUARINGS, latest
from solvers.costs.fabric import BYTES_PER_US, Vector
from solvers.costs.mesh_patterns import mesh_pattern, traffic_pattern, weight_of
from solvers.costs.patterns import Pattern
from solvers.ordering.crossing import least_of_clusters, rates_of_hosts
from solvers.ordering.problem import OrderingProblem
from solvers.ordering.subtours import unless_stopped

ASSIGNMENT = "assignment"
_MAX_SETS, _MAX_ASSIGNMENTS = 60_000, 300_000  # that are tried one by one
_MAX_BLOCKS = 256  # beyond which sets are not bounded; seconds
_AT_ONCE = 4_000_000  # numbers in memory: sets or assignments times hops
_MAX_SIDES = 20_000  # hops times groups of an integer programme
_ALL_SUBSETS_PHASES = 4
_CONVERGED = 1e-7  # relative
_NODES = 20_000  # of one search tree of HiGHS, where there is no time limit
_MAX_PROGRAMMES = 40  # each with the tangents at the one before's solution
_NORM = 2**SQUARINGS
Labels = npt.NDArray[np.intp]
Sets = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MeshPhases:
    """What P phases of a mesh need of N hosts with a block of ranks each.

    ``pattern``: hops in bytes, a round for each phase. ``host_us``, ``latency_us``, shape (P,): what a phase takes at
    least for the bytes of a busiest host, and for latency. ``cells``, shape (N,): hosts with the same number are in the
    same groups of all tiers; ``apart_us``, shape (C, C): the least latency between hosts of two cells. ``links``, shape
    (G, C): which cells each group with limits has; ``rates``, shape (G, 2): what it sends and receives, bytes/us.
    ``by_rounds``: rounds wait for each other.
    """

    pattern: Pattern
    host_us: Vector
    latency_us: Vector
    cells: Labels
    apart_us: Vector
    links: Sets
    rates: Vector
    by_rounds: bool

    @classmethod
    def of(cls, problem: OrderingProblem) -> "MeshPhases":
        """Prepare the bounds of a mesh; all hosts have the same number of ranks."""
        fabric, hosts, mesh = problem.fabric, problem.hosts, problem.options.mesh
        assert mesh is not None
        n, by_rounds = len(hosts), problem.model != SIMULATED
        pattern = mesh_pattern(mesh, n) if by_rounds else _operations(mesh, n)
        phases = len(pattern.repeat)
        host_us = np.zeros(phases)
        rates = rates_of_hosts(fabric, hosts, problem.model)
        for ends, rate in zip((pattern.source, pattern.target), rates, strict=True):
            load = np.bincount(pattern.round * n + ends, pattern.share, phases * n).reshape(phases, n)
            # The largest loads on the fastest hosts: no assignment does better in the worst of the quotients.
            np.maximum(host_us, (np.sort(load, axis=1) / (np.sort(rate) * BYTES_PER_US)).max(axis=1), out=host_us)
        apart = fabric.rtt_us[np.ix_(hosts, hosts)] / 2 + np.diag(np.full(n, np.inf))
        nearest = apart.min(axis=1)
        partners = np.zeros((phases, n), dtype=bool)
        partners[pattern.round, pattern.source] = partners[pattern.round, pattern.target] = True
        latency_us = np.where(partners.all(axis=1) & by_rounds, nearest.max(), nearest.min())
        labels = np.array([tier.group_of[hosts] for tier in fabric.tiers])
        combinations, cells = np.unique(labels, axis=1, return_inverse=True)
        cells = cells.ravel()
        groups = [(tier, links, g) for tier, links in enumerate(fabric.tiers) for g in np.unique(labels[tier])]
        gbps = np.array([[links.out_gbps[g], links.in_gbps[g]] for _, links, g in groups]).reshape(-1, 2)
        members = np.array([combinations[tier] == g for tier, _, g in groups]).reshape(len(groups), -1)
        limited = np.isfinite(gbps).any(axis=1) & ~members.all(axis=1) & (problem.model != "alpha-beta")
        nearest_cells = np.full((combinations.shape[1],) * 2, np.inf)
        np.minimum.at(nearest_cells, (cells[:, None], cells[None, :]), apart)
        if not by_rounds:
            nearest_cells[:] = nearest.min()
        return cls(
            pattern,
            host_us,
            latency_us,
            cells,
            nearest_cells,
            members[limited],
            gbps[limited] * BYTES_PER_US,
            by_rounds,
        )

    @property
    def least_us(self) -> float:
        """Return what all phases take where no group has a limit."""
        return float(self.pattern.repeat @ (self.host_us + self.latency_us))

    def crossing(self, inside: Sets) -> Vector:
        """Return the bytes that each phase sends out of sets of blocks, shape (M, N), and into them: (2, M, P)."""
        pattern = self.pattern
        shape = len(pattern.share), len(pattern.repeat)
        of_phase = csr_array((pattern.share, (np.arange(len(pattern.share)), pattern.round)), shape=shape)
        source, target = inside[:, pattern.source], inside[:, pattern.target]
        return np.array([(source & ~target) @ of_phase, (target & ~source) @ of_phase])

    def cost_us(self, labels: Labels) -> Vector:
        """Return the least cost of orders by which cell each block is in; ``labels``, shape (M, N)."""
        pattern = self.pattern
        hops = self.apart_us[labels[:, pattern.source], labels[:, pattern.target]]
        longest = np.maximum.reduceat(hops, pattern.starts, axis=1)
        return np.asarray((self.busy_us(labels) + np.maximum(longest, self.latency_us)) @ pattern.repeat)

    def busy_us(self, labels: Labels) -> Vector:
        """Return what each phase takes without latency, shape (M, P); ``labels``, shape (M, N), as for the cost."""
        loads = [self.crossing(members[labels]) / rates[:, None, None] for members, rates in self._of_links()]
        busy = np.broadcast_to(self.host_us, (len(labels), len(self.host_us)))
        if loads:
            shared = np.concatenate(loads)
            late = latest(shared.reshape(len(shared), -1).T).reshape(busy.shape)
            busy = np.maximum(busy, late if self.by_rounds else shared.max(axis=0))
        return busy

    def leaving(self) -> Iterator[tuple[Vector, Vector]]:
        """Yield weights of phases, shape (P,), and the least that sets of k blocks send with these weights, shape
        (N + 1,): for all subsets of a few phases, else each alone, all, and all but one."""
        n, pattern = len(self.cells), self.pattern
        number = len(pattern.repeat)
        alone = np.eye(number, dtype=bool)
        subsets = np.concatenate([alone, ~alone, np.ones((1, number), dtype=bool)])
        if number <= _ALL_SUBSETS_PHASES:
            subsets = np.array(list(itertools.product((False, True), repeat=number)))
        for weight in np.unique(subsets[subsets.any(axis=1)], axis=0) * pattern.repeat:
            sent = np.zeros((n, n))
            np.add.at(sent, (pattern.source, pattern.target), weight[pattern.round] * pattern.share)
            yield weight, least_of_clusters(sent)

    def _of_links(self) -> Iterator[tuple[Sets, Vector]]:
        return zip(self.links, self.rates, strict=True)


def _operations(mesh: Mesh, blocks: int) -> Pattern:
    """Return the pattern of a mesh with all rounds of an operation as one."""
    whole = mesh_pattern(mesh, blocks)
    parts = [(weight_of(each), traffic_pattern(mesh, each, blocks)) for each in mesh.traffic]
    lengths = [len(part.repeat) for _, part in parts]
    used = np.flatnonzero(lengths)
    repeat = np.array([parts[k][0] for k in used])
    operation = np.repeat(np.arange(len(used)), [lengths[k] for k in used])
    times = np.concatenate([part.repeat for _, part in parts])[whole.round]
    return replace(whole, round=operation[whole.round], share=whole.share * times, repeat=repeat, reduce_repeat=repeat)


def cut_bound(problem: OrderingProblem) -> float:
    """Return the cut bound of the time of every order, microseconds: for each group the cheapest set of its size.

    Sets are tried where they are few. Else any phases may be taken to be as long as their crossing bytes need, and the
    others as a busiest host's bytes do: the bytes of all of them together that leave a set are bounded by clusters.
    """
    phases = MeshPhases.of(problem)
    n, least = len(phases.cells), phases.least_us
    sizes = phases.links[:, phases.cells].sum(axis=1)
    if max((math.comb(n, int(size)) for size in sizes), default=0) <= _MAX_SETS:
        return max([least, *(_cheapest_set(phases, link, int(size)) for link, size in enumerate(sizes))])
    if n > _MAX_BLOCKS:
        return least
    for weight, leaving in phases.leaving():
        crossing_us = np.maximum(leaving[sizes] / phases.rates[:, 0], leaving[n - sizes] / phases.rates[:, 1])
        least = max(least, phases.least_us + float((crossing_us - weight @ phases.host_us).max(initial=0.0)))
    return least


def _cheapest_set(phases: MeshPhases, link: int, size: int) -> float:
    """Return the least that all phases take with any set of so many blocks in a group."""
    n, pattern = len(phases.cells), phases.pattern
    group = phases.links[link]
    apart_us = float(phases.apart_us[group][:, ~group].min())
    members = np.array(list(itertools.combinations(range(n), size)), dtype=np.intp)
    best, at_once = np.inf, max(1, _AT_ONCE // max(1, len(pattern.share)))
    for begin in range(0, len(members), at_once):
        part = members[begin : begin + at_once]
        sets = np.zeros((len(part), n), dtype=bool)
        np.put_along_axis(sets, part, True, axis=1)
        busy_us = (phases.crossing(sets) / phases.rates[link][:, None, None]).max(axis=0)
        waits_us = np.maximum(phases.latency_us, np.where((busy_us > 0) & phases.by_rounds, apart_us, 0.0))
        cost_us = (np.maximum(phases.host_us, busy_us) + waits_us) @ pattern.repeat
        best = min(best, float(cost_us.min()))
    return best


def assignment_bound(
    problem: OrderingProblem, known_us: float, time_limit_s: float | None, keep_going: Callable[[], bool]
) -> float:
    """Return the assignment bound of the time of every order, microseconds: the least of any blocks in any groups.

    All assignments are tried where they are few, else HiGHS solves them as an integer programme, whose own bound counts
    when the time is up; 0 where that is before it has any.

    :param known_us: what a known order takes. :param time_limit_s: None: a fixed amount of work.
    """
    phases = MeshPhases.of(problem)
    sizes, hops = np.bincount(phases.cells), len(phases.pattern.share)
    number = math.factorial(len(phases.cells)) // math.prod(math.factorial(size) for size in sizes.tolist())
    if not len(phases.links):
        return phases.least_us
    if number > _MAX_ASSIGNMENTS:
        is_small = hops * len(phases.links) <= _MAX_SIDES
        return _solved_by_highs(phases, known_us, time_limit_s, keep_going) if is_small else 0.0
    assignments, least = _assignments(sizes.tolist(), len(phases.cells)), np.inf
    while part := list(itertools.islice(assignments, max(1, _AT_ONCE // max(1, hops)))):
        if not keep_going():
            return 0.0
        least = min(least, float(phases.cost_us(np.array(part, dtype=np.intp)).min()))
    return least


def _assignments(sizes: Sequence[int], blocks: int) -> Iterator[list[int]]:
    """Yield the cell of each block, for all ways to fill cells of these sizes."""

    def fill(cell: int, labels: list[int], free: tuple[int, ...]) -> Iterator[list[int]]:
        if cell == len(sizes) - 1:
            for block in free:
                labels[block] = cell
            yield labels.copy()
            return
        for chosen in itertools.combinations(free, sizes[cell]):
            for block in chosen:
                labels[block] = cell
            yield from fill(cell + 1, labels, tuple(block for block in free if block not in chosen))

    return fill(0, [0] * blocks, tuple(range(blocks)))


def _solved_by_highs(
    phases: MeshPhases, known_us: float, time_limit_s: float | None, keep_going: Callable[[], bool]
) -> float:
    """Return the bound of an integer programme, in units of what a known order takes.

    Variables: whether each block is in each cell; whether the two ends of an exchange are on different sides of each
    group's links; what each phase takes on links. A phase is at least as long as all tangents of :func:`latest` say:
    first where links are equally busy, then at each solution, until none is violated.
    """
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    programme = _Programme.of(phases, known_us)
    n, latency_us = len(phases.cells), float(phases.pattern.repeat @ phases.latency_us)
    bound, least_us = 0.0, known_us
    for _ in range(_MAX_PROGRAMMES):
        left_s = np.inf if deadline is None else deadline - time.monotonic()
        if bound >= least_us * (1 - _CONVERGED) or left_s <= 0 or not keep_going():
            break
        limit = {"node_limit": _NODES} if deadline is None else {"time_limit": left_s}
        options = {"mip_rel_gap": _CONVERGED, **limit}
        answer = unless_stopped(partial(programme.solve, phases.cells, options), keep_going)
        if answer is None:
            break
        if answer.mip_dual_bound is not None and np.isfinite(answer.mip_dual_bound):
            bound = max(bound, latency_us + float(answer.mip_dual_bound) * known_us * (1 - _CONVERGED))
        if answer.status != 0:
            break
        labels = answer.x[: n * len(phases.apart_us)].reshape(n, -1).argmax(axis=1)
        # What the programme would say of this assignment with all tangents: no better one, and the bound is that.
        least_us = min(least_us, latency_us + float(phases.busy_us(labels[None, :])[0] @ phases.pattern.repeat))
        programme = programme.with_tangents(phases, labels)
    return min(bound, least_us)


@dataclass(frozen=True)
class _Programme:
    """Integer programme of V variables: ``objective``, ``least``, shape (V,). ``loads``: rows of what each phase takes
    on each group's link out, and in, shape (P G, V) each; ``times``, shape (P, V), of what each phase takes. ``rows``:
    what is 0 or more, ``cuts`` what is 1 or more."""

    objective: Vector
    least: Vector
    loads: tuple[csr_array, csr_array]
    times: csr_array
    rows: csr_array
    cuts: csr_array

    @classmethod
    def of(cls, phases: MeshPhases, known_us: float) -> "_Programme":
        """Return the programme with the tangents where links are equally busy, and the cuts of :func:`cut_bound`."""
        pattern, n, (groups, cells) = phases.pattern, len(phases.cells), phases.links.shape
        number = len(pattern.repeat)
        low, high = np.minimum(pattern.source, pattern.target), np.maximum(pattern.source, pattern.target)
        pairs, pair_of = np.unique(low * n + high, return_inverse=True)
        count = len(pairs)
        sent = csr_array((pattern.share, (pattern.round, pair_of)), shape=(number, count))
        ends = np.concatenate([pattern.source, pattern.target])
        signed = np.concatenate([pattern.share, -pattern.share])
        net = csr_array((signed, (np.tile(pattern.round, 2), ends)), shape=(number, n))
        k = np.arange(count)
        incidence = csr_array((np.ones(count), (k, pairs // n)), shape=(count, n))
        incidence = incidence - csr_array((np.ones(count), (k, pairs % n)), shape=(count, n))
        # What leaves a set is half of what crosses its boundary and of what its members send more than they receive.
        crossing, surplus = kron(sent, eye_array(groups)) / 2, kron(net, phases.links) / 2
        loads = []
        for way, rates in ((1, phases.rates[:, 0]), (-1, phases.rates[:, 1])):
            scale = diags_array(np.tile(1 / (rates * known_us), number))
            loads.append(hstack([scale @ (way * surplus), scale @ crossing, csr_array((number * groups, number))]))
        sides = kron(incidence, phases.links)
        apart = eye_array(count * groups)
        nothing = csr_array((count * groups, number))
        times = hstack([csr_array((number, n * cells + count * groups)), eye_array(number)])
        of_groups, out_and_in = kron(eye_array(number), np.ones((1, groups))), loads[0] + loads[1]
        each = kron(eye_array(number), np.ones((groups, 1))) @ times
        rows = [hstack([sides, apart, nothing]), hstack([-sides, apart, nothing]), *(each - load for load in loads)]
        if phases.by_rounds:
            rows.append(each - out_and_in * 2 ** (1 / _NORM - 1))
            rows.append(times - of_groups @ out_and_in * (2 * groups) ** (1 / _NORM - 1))
        sizes = phases.links[:, phases.cells].sum(axis=1)
        cuts = [csr_array((0, times.shape[1]))]
        for weight, leaving in phases.leaving():
            for load, least in zip(loads, (leaving[sizes], leaving[n - sizes]), strict=True):
                needed_us = least / phases.rates[:, 0 if load is loads[0] else 1]
                used = needed_us > 0
                scale = diags_array(known_us / needed_us[used])
                cuts.append(scale @ (kron(csr_array(weight[None, :]), eye_array(groups)) @ load).tocsr()[used])
        columns = sides.shape[1] + count * groups
        return cls(
            np.concatenate([np.zeros(columns), pattern.repeat]),
            np.concatenate([np.zeros(columns), phases.host_us / known_us]),
            (loads[0].tocsr(), loads[1].tocsr()),
            times.tocsr(),
            vstack(rows).tocsr(),
            vstack(cuts).tocsr(),
        )

    def with_tangents(self, phases: MeshPhases, labels: Labels) -> "_Programme":
        """Return the programme with the tangents of :func:`latest` at an assignment, one for each phase."""
        members = phases.links[:, labels]
        shared = phases.crossing(members).transpose(2, 1, 0) / phases.rates  # (P, G, 2)
        most = np.maximum(shared.max(axis=(1, 2), keepdims=True), 1e-300)
        powers = (shared / most) ** _NORM
        total = powers.sum(axis=(1, 2), keepdims=True)
        slope = np.divide(powers, shared / most, out=np.zeros_like(powers), where=shared > 0) * np.maximum(
            total, 1e-300
        ) ** (1 / _NORM - 1)
        late = sum(block_diag(list(slope[:, None, :, way])) @ self.loads[way] for way in (0, 1))
        return replace(self, rows=vstack([self.rows, self.times - late]).tocsr())

    def solve(self, cells: Labels, options: dict[str, float]) -> OptimizeResult:
        """Return HiGHS's solution; ``cells``, shape (N,): of each host."""
        counts = np.bincount(cells)
        n, number = len(cells), len(counts)
        which, columns = np.arange(n * number), len(self.objective)
        places = np.concatenate([which // number, n + which % number]), np.tile(which, 2)
        assigned = csr_array((np.ones(2 * len(which)), places), shape=(n + number, columns))
        filled = np.concatenate([np.ones(n), counts])
        times = self.objective > 0
        return milp(
            self.objective,
            constraints=[
                LinearConstraint(assigned, filled, filled),
                LinearConstraint(self.rows, 0, np.inf),
                LinearConstraint(self.cuts, 1, np.inf),
            ],
            integrality=np.arange(columns) < n * number,
            bounds=Bounds(self.least, np.where(times, np.inf, 1.0)),
            options=options,
        )
