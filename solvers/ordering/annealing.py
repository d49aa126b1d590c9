"""Simulated annealing over rank orders, for every objective that a pattern has (PLink thesis, 5.2.3).

Moves swap two hosts or two blocks of ranks (2 to 8 hosts, or a group), or reverse or shift a few consecutive hosts. A
run is a number of moves between two temperatures. Runs follow each other from the best order so far, each twice as
long, so that any time limit is put to use.

Start orders: the baseline, by group, by the hierarchy of the latencies, and by spectral seriation.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from plink.model.network import Matrix
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.grouping.even import leaves as leaves_of
from solvers.ordering.constraints import Moves
from solvers.ordering.objectives import CoolingSchedule, CoolingSchedules, chain_of, hops_of, loads_of
from solvers.ordering.problem import SearchBudget, SearchProgress, affordable_orders

Order = npt.NDArray[np.intp]
_SPECTRAL_MAX_HOSTS = 1024  # the eigenvectors take time in the cube of the number of hosts
_FIRST_RUN_MOVES, _FIRST_RUN_MOVES_PER_RANK = 20_000, 500  # of loads: of both, the fewer
_SLICE_HOPS = 20_000_000  # evaluated between two calls of keep_going, about a quarter of a second
_EPSILON = 1e-9
_NEAR_BOUND = 1e-3  # relative: where nobody asked for more, orders by loads this near their bound are good enough
_IDLE_FACTOR = 3  # not exhaustive: end after so many times the moves that led to the best order
_MIN_MOVES, _MIN_MOVES_PER_RANK = 300_000, 4_000  # before such an end; of loads: of both, the fewer
_LEAST_GAIN = {"loads": 1e-4, "hops": 1e-12, "chain": 1e-12}  # relative, that keeps a search from ending
_SAMPLE_SWAPS = 200
_PARALLEL_RUNS = 2  # whatever the number of cores, so that a seed gives the same order everywhere


def initial_orders(fabric: Fabric, baseline: Order) -> list[Order]:
    """Return different orders of the ranks in ``baseline`` (the host at each rank), which is the first of them.

    The leaves of the hierarchy (:mod:`solvers.grouping.even`), once as they are and once with large groups first, so
    that the blocks of halving-doubling begin where subtrees do. And the hosts along the second eigenvector of their
    similarity's Laplacian (spectral seriation: Atkins, Boman and Hendrickson 1998).
    """
    orders = [baseline, sorted_by_group(fabric, baseline)]
    hosts = np.unique(baseline)
    if len(hosts) > 2:
        position = np.full(len(fabric.names), -1, dtype=np.intp)
        leaves = hosts[leaves_of(fabric.rtt_us[np.ix_(hosts, hosts)])]
        position[leaves] = np.arange(len(leaves))
        orders.append(baseline[np.argsort(position[baseline], kind="stable")])
        if len(hosts) <= _SPECTRAL_MAX_HOSTS:
            seriated = hosts[_seriated(fabric.rtt_us[np.ix_(hosts, hosts)])]
            position[seriated] = np.arange(len(seriated))
            orders.append(baseline[np.argsort(position[baseline], kind="stable")])
            position[leaves] = np.arange(len(leaves))
        # Groups as they follow each other in the hierarchy, the large ones first: fewer of them straddle a boundary.
        size = np.bincount(fabric.group_of[baseline], minlength=int(fabric.group_of.max()) + 1)
        first_position = np.full(len(size), len(leaves))
        np.minimum.at(first_position, fabric.group_of[leaves], position[leaves])
        orders.append(
            baseline[
                np.lexsort(
                    (position[baseline], first_position[fabric.group_of[baseline]], -size[fabric.group_of[baseline]])
                )
            ]
        )
    different: dict[bytes, Order] = {}
    for order in orders:
        different.setdefault(order.tobytes(), order)
    return list(different.values())


def sorted_by_group(fabric: Fabric, baseline: Order) -> Order:
    """Return the ranks of each group after each other, groups of outer tiers together, as lists sorted by rack have
    them."""
    return baseline[np.lexsort([tier.group_of[baseline] for tier in fabric.tiers])]


def _seriated(rtt_us: Matrix) -> Order:
    """Return the hosts in an order that puts near hosts near each other, shape (N,)."""
    from scipy.linalg import eigh

    median_rtt = float(np.median(rtt_us)) or 1.0
    similarity = np.exp(-rtt_us / median_rtt)
    np.fill_diagonal(similarity, 0.0)
    with threadpool_limits(1):  # threads that wait for each other by spinning take seconds where a core is busy
        _, vectors = eigh(np.diag(similarity.sum(axis=1)) - similarity, subset_by_index=(1, 1))
    eigenvector = vectors[:, 0]
    # A vector and its negative are both solutions; which one the library returns may vary.
    eigenvector = eigenvector if eigenvector[int(np.argmax(np.abs(eigenvector)))] > 0 else -eigenvector
    return np.argsort(np.round(eigenvector, 9), kind="stable")


@dataclass(frozen=True)
class AnnealingResult:
    """Result of annealing: the best order, shape (N,), its cost by the closed form, and the number of moves tried."""

    order: Order
    cost: float
    moves: int


class Annealer:
    """Simulated annealing of one pattern on one fabric.

    :param pattern: no all-to-all, where all orders cost the same.
    :param fabric: complete: with the round trip of every pair.
    """

    def __init__(self, pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> None:
        assert not pattern.all_to_all_share
        self.cost_of = closed_form(pattern, fabric, size_bytes, model)
        self._rtt, self._hops = fabric.rtt_us, len(pattern.source)
        chain = model == "latency" and pattern.timing == "chain"
        self._kind = "loads" if model != "latency" else "chain" if chain else "hops"
        self._arrays = (
            loads_of(pattern, fabric, size_bytes, model)
            if self._kind == "loads"
            else (chain_of if chain else hops_of)(pattern, fabric.rtt_us)
        )
        self._slice_moves = max(100, int(_SLICE_HOPS / _hops_per_move(pattern, fabric, self._kind)))

    def run(
        self, order: Order, moves: Moves, count: int, schedule: CoolingSchedule, seed: int
    ) -> tuple[Order, float, Order]:
        """Anneal for ``count`` moves; return the best order, its cost and the last order.

        :param schedule: its smoothing is for ``latency`` only; chains are always smoothed.
        """
        last = np.array(order, dtype=np.int64)
        kernel: Any  # compiled, and imported, only when it is used
        if self._kind == "loads":
            from solvers.ordering.load_kernels import anneal_loads as kernel
        elif self._kind == "chain":
            from solvers.ordering.latency_kernels import anneal_chain as kernel
        else:
            from solvers.ordering.latency_kernels import anneal_hops as kernel
        best, cost = kernel(last, moves, count, schedule, np.uint64(seed), self._arrays)
        return best.astype(np.intp), float(cost), last.astype(np.intp)

    def search(
        self,
        starts: Sequence[Order],
        moves: Moves | None,
        seed: int,
        budget: SearchBudget,
        lower_bound: float | None = None,
    ) -> AnnealingResult:
        """Anneal from each of the starts, then from the best order so far, two runs at a time.

        Ends with the budget, or when the lower bound is met; nearly met, where the budget is not exhaustive. The same
        seed and number of moves give the same order, however long they take. Never worse than the best start.

        :param moves: None: nothing can be exchanged.
        """
        rng = np.random.default_rng(seed)
        costs = [self.cost_of(start) for start in starts]
        best, cost = starts[int(np.argmin(costs))], min(costs)
        near = _NEAR_BOUND if self._kind == "loads" and not budget.exhaustive else _EPSILON
        target = -np.inf if lower_bound is None else lower_bound * (1 + near)
        typical_change = 0.0 if moves is None else self._typical_change(starts, moves, rng)
        if moves is None or typical_change <= 0:
            return AnnealingResult(best, cost, 0)
        cooling = CoolingSchedules(self._kind, typical_change, self._rtt, len(best))
        moves_done, moves_at_best, run, keep_going = 0, 0, 0, budget.keep_going
        # Orders by round trips need the same effort for few ranks as for many; loads have few different values.
        of_ranks = len(best) if self._kind == "loads" else _MIN_MOVES
        run_moves = min(_FIRST_RUN_MOVES, _FIRST_RUN_MOVES_PER_RANK * of_ranks)
        min_moves = min(_MIN_MOVES, _MIN_MOVES_PER_RANK * of_ranks)
        pending = [start for _, start in sorted(zip(costs, starts, strict=True), key=lambda pair: pair[0])]
        with ThreadPoolExecutor(_PARALLEL_RUNS) as pool:
            while (
                moves_done < budget.max_moves
                and cost > target
                and keep_going(SearchProgress(cost, lower_bound, moves_done))
            ):
                if (
                    not budget.exhaustive
                    and not pending
                    and moves_done > max(min_moves, (1 + _IDLE_FACTOR) * moves_at_best)
                ):
                    break
                parallel = min(_PARALLEL_RUNS, budget.max_moves - moves_done)
                remaining = (budget.max_moves - moves_done) // parallel
                moves_each = min(run_moves, remaining)
                schedules = cooling.schedules(run, parallel, moves_each)
                run += 1
                orders = [pending.pop(0) if pending else best] * parallel
                # Long runs in slices, each with its part of the schedule, so that keep_going is called in time.
                slices = max(1, -(-moves_each // self._slice_moves))
                for k in range(slices):
                    slice_moves = moves_each // slices + (k < moves_each % slices)
                    calls = [
                        pool.submit(self.run, order, moves, slice_moves, schedule.part(k, slices), int(run_seed))
                        for order, schedule, run_seed in zip(
                            orders, schedules, rng.integers(1 << 63, size=parallel), strict=True
                        )
                    ]
                    results = [call.result() for call in calls]
                    orders = [last for _, _, last in results]
                    moves_done += slice_moves * parallel
                    slice_best, slice_cost, _ = min(results, key=lambda result: result[1])
                    if slice_cost < cost * (1 - _LEAST_GAIN[self._kind]):
                        moves_at_best = moves_done
                    if slice_cost < cost * (1 - 1e-12):
                        best, cost = slice_best, slice_cost
                    if cost <= target or not keep_going(SearchProgress(cost, lower_bound, moves_done)):
                        break
                if not pending:
                    run_moves *= 2
        return AnnealingResult(best, self.cost_of(best), moves_done)

    def _typical_change(self, starts: Sequence[Order], moves: Moves, rng: np.random.Generator) -> float:
        """Return the median change of the cost by a swap.

        Where no swap changes it (many hops are as long as the longest), return the range of the round trips.
        """
        deltas, classes = [], moves.classes
        for start in starts:
            swapped, cost = np.array(start), self.cost_of(start)
            for _ in range(affordable_orders(_SAMPLE_SWAPS, self._hops) // len(starts) + 1):
                c = int(rng.choice(classes.wheel))
                first_a, first_b = rng.choice(classes.first[classes.ptr[c] : classes.ptr[c + 1]], 2, replace=False)
                ranks = np.concatenate(
                    [first + np.arange(classes.length[c]) for first in (first_a, first_b, first_b, first_a)]
                )
                to, source = np.split(ranks, 2)
                swapped[to] = swapped[source]
                deltas.append(abs(self.cost_of(swapped) - cost))
                swapped[to] = swapped[source]
        changes = [delta for delta in deltas if delta > 0]
        hosts = np.unique(starts[0])
        return float(np.median(changes)) if changes else float(np.ptp(self._rtt[np.ix_(hosts, hosts)]))


def _hops_per_move(pattern: Pattern, fabric: Fabric, kind: str) -> float:
    """Estimate how many numbers a move evaluates.

    The hops of two hosts; in chains also the hops after them, with loads all of their rounds; several times as many
    where blocks are moved.
    """
    hosts, rounds = len(fabric.resources[0]), len(pattern.repeat)
    hops = max(1.0, len(pattern.source) / len(fabric.names))
    if kind == "loads":
        changed_rounds = min(float(rounds), 2 * hops)
        groups = sum(len(tier.out_gbps) for tier in fabric.tiers)
        return 8 * hops + changed_rounds * (16 * groups + 2 * hosts + len(pattern.source) / rounds)
    return 8 * hops * (8 if kind == "chain" else 1)
