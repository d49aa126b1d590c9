"""Lower bounds of every order of a mesh of ranks: by what must cross the links of groups of hosts.

The hosts of a group hold some set of as many blocks of ranks. What that set sends to all others, and receives from
them, crosses the group's links, traffic after traffic. :func:`cut_bound` takes the set that is cheapest, for one group
at a time; :func:`assignment_bound` gives each block to a group, of all tiers at once. Both search depth first (Land and
Doig, Econometrica 1960), and hold whatever host of its group a block is on: a busiest host needs its bytes over its
rate, and a latency is that of the nearest hosts which the assignment allows. Constraints of the orders are left out.

A phase is what is over before the next one begins. By rounds (``contention``) it is a round: it ends when the latest
of the shared links is done (:func:`solvers.costs.evaluator.latest`), and half the longest hop later. As ranks play it
(``simulated``) it is one operation of a traffic: rounds overlap, links keep to the sum of their bytes, and of all
latencies only the one of the last message is certain not to be hidden.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plink.model.mesh import Mesh
from solvers.costs.by_name import SIMULATED
from solvers.costs.fabric import BYTES_PER_US, Vector
from solvers.costs.mesh_patterns import mesh_pattern, traffic_pattern, weight_of
from solvers.costs.patterns import Pattern
from solvers.ordering.cell_kernels import AssignedBlocks, Cells, Exchanges, Phases, search_cells
from solvers.ordering.crossing import least_of_clusters, rates_of_hosts
from solvers.ordering.problem import OrderingProblem

ASSIGNMENT = "assignment"
_MAX_BLOCKS = 256  # beyond which sets are not bounded; seconds
_MAX_CUT_STEPS = 10_000_000  # of all searches for sets; about a second
_SLICE_STEPS, _MAX_SLICES = 1_000_000, 30  # of a search for assignments; without a time limit
_ALL_SUBSETS_PHASES = 4


@dataclass(frozen=True)
class MeshPhases:
    """What P phases of a mesh need of N hosts with a block of ranks each.

    ``pattern``: hops in bytes, a round for each phase. ``taken``: what phases take at least for the bytes of a busiest
    host, and for latency. ``cells``, shape (N,): hosts with the same number are in the same groups of all tiers, of
    which ``groups`` with limits have links.
    """

    pattern: Pattern
    taken: Phases
    cells: npt.NDArray[np.intp]
    groups: Cells

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
        taken = Phases(host_us, latency_us, pattern.repeat, by_rounds)
        return cls(pattern, taken, cells, Cells(members[limited], gbps[limited] * BYTES_PER_US, nearest_cells))

    @property
    def least_us(self) -> float:
        """Return what all phases take where no group has a limit."""
        return float(self.pattern.repeat @ (self.taken.host_us + self.taken.latency_us))

    def exchanges(self) -> Exchanges:
        """Return what each block exchanges with earlier ones."""
        pattern, n, phases = self.pattern, len(self.cells), len(self.pattern.repeat)
        later, earlier = np.maximum(pattern.source, pattern.target), np.minimum(pattern.source, pattern.target)
        keys, exchange = np.unique((later * phases + pattern.round) * n + earlier, return_inverse=True)
        is_sent = pattern.source == later
        sent: Vector = np.bincount(exchange, np.where(is_sent, pattern.share, 0.0)).astype(float)
        received: Vector = np.bincount(exchange, np.where(is_sent, 0.0, pattern.share)).astype(float)
        begin = np.searchsorted(keys, np.arange(n + 1) * phases * n)
        return Exchanges(begin, keys // n % phases, keys % n, sent, received)

    def unassigned(self, cells: Cells, sizes: npt.NDArray[np.intp], known_us: float) -> AssignedBlocks:
        """Return the state of a search in which nothing is assigned; ``sizes``: hosts of each cell."""
        n, phases = len(self.cells), len(self.pattern.repeat)
        return AssignedBlocks(
            np.zeros(1, np.int64), np.full(n, -1), sizes.astype(np.int64),
            np.zeros((n + 1, phases, 2 * len(cells.links))), np.zeros((n + 1, phases)), np.array([known_us]),
        )  # fmt: skip

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

    Sets are searched for by branch and bound. Where that is not over soon, any phases may be taken to be as long as
    their crossing bytes need, and the others as a busiest host's bytes do: the bytes of all of them together that leave
    a set are bounded by clusters.
    """
    phases = MeshPhases.of(problem)
    groups, n, least, steps = phases.groups, len(phases.cells), phases.least_us, _MAX_CUT_STEPS
    if n > _MAX_BLOCKS:
        return least
    sizes, exchanges = groups.links[:, phases.cells].sum(axis=1), phases.exchanges()
    for link in np.lexsort((groups.rates.min(axis=1), np.minimum(sizes, n - sizes))).tolist():
        inside = groups.links[link]
        apart_us = groups.apart_us[inside][:, ~inside].min()
        sides = Cells(np.array([[True, False]]), groups.rates[[link]], np.array([[0.0, apart_us], [apart_us, 0.0]]))
        state = phases.unassigned(sides, np.array([sizes[link], n - sizes[link]]), np.inf)
        steps = search_cells(exchanges, sides, phases.taken, state, least, steps)
        least = max(least, float(state.least_us[0])) if steps else least
    if not steps:
        for weight, leaving in phases.leaving():
            crossing_us = np.maximum(leaving[sizes] / groups.rates[:, 0], leaving[n - sizes] / groups.rates[:, 1])
            least = max(least, phases.least_us + float((crossing_us - weight @ phases.taken.host_us).max(initial=0.0)))
    return least


def assignment_bound(
    problem: OrderingProblem, known_us: float, time_limit_s: float | None, keep_going: Callable[[], bool]
) -> float:
    """Return the assignment bound of the time of every order, microseconds: the least of any blocks in any groups.

    It is found by branch and bound; 0 where that is not over in time.

    :param known_us: what a known order takes. :param time_limit_s: None: a fixed amount of work.
    """
    phases = MeshPhases.of(problem)
    if not len(phases.groups.links):
        return phases.least_us
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    exchanges, state = phases.exchanges(), phases.unassigned(phases.groups, np.bincount(phases.cells), known_us)
    for _ in itertools.count() if deadline is not None else range(_MAX_SLICES):
        if not keep_going() or (deadline is not None and time.monotonic() > deadline):
            break
        if search_cells(exchanges, phases.groups, phases.taken, state, 0.0, _SLICE_STEPS):
            return float(state.least_us[0])
    return 0.0
