"""Prepare a network's data for the search of an order: training and held-out round trips, filled gaps."""

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.features.order.algorithms import fabric_from, predictions_note
from plink.model.network import Matrix, Network
from plink.model.topology import Topology, paths_for
from plink.model.units import numbered
from solvers.costs.by_name import cost_function_for, parts_of, pattern_for
from solvers.costs.closed_forms import CostFunction
from solvers.costs.fabric import BlockedPairs, Fabric, no_way_between
from solvers.ordering.cross_validation import split_halves
from solvers.ordering.problem import Order, OrderingProblem, OrderingResult, affordable_orders, expand_slots
from solvers.ordering.ring import longest_hop
from solvers.ordering.search import median_of_random
from solvers.prediction.topology import filled, levels_apart

if TYPE_CHECKING:
    from plink.features.order.smoothing import SmoothedLatencies

_log = logging.getLogger("plink.reorder")
_BLOCKED_FACTOR = 4.0  # times what it pays for an unknown pair; searches by 16 bits have room for no more
_UNKNOWN_PENALTY_FACTOR = 10.0  # times the longest known round trip: what a search pays for a pair that nobody knows
_COSTLY_ORDERS = 20  # random ones: any order with such a pair costs more than these


@dataclass(frozen=True)
class SearchData:
    """Data for a search.

    ``fabric``: complete, by half of the samples. ``all_us``, shape (N, N): round trips by all samples, which costs are
    stated by. ``held_out_us``, same shape: those for validation, None without. ``unknown``, same shape: pairs without
    any data, which are expensive in the fabric, None without. ``has_predictions``: whether some
    round trips are predicted, not measured. ``smoothing``: how round trips were smoothed, if they were.
    """

    fabric: Fabric
    all_us: Matrix
    held_out_us: Matrix | None
    unknown: npt.NDArray[np.bool_] | None
    has_predictions: bool = False
    smoothing: "SmoothedLatencies | None" = None


def prepare_search_data(
    network: Network, prior: Topology | None, smooth_latencies: bool = False, has_mesh: bool = False
) -> SearchData:
    """Return data for a search: half of the samples to fit on, gaps filled by prediction, then by the prior.

    ``smooth_latencies``: round trips of an embedding of that half alone, so that the other half can validate it.
    ``has_mesh``: hosts need not all reach each other.

    :raises InputError: for a file whose halves are no matrices, or a prior that knows none of the hosts.
    :raises NoAnswer: when nothing is known of any pair, or nothing gets through between two parts of the hosts.
    """
    training_half = _halves(network, network.rtt_us) if smooth_latencies else None
    smoothed = _smoothed(network, training_half) if smooth_latencies else None
    fabric = fabric_from(network if smoothed is None else smoothed.network)
    n = len(network.hosts)
    missing = int(np.isnan(network.rtt_us).sum()) // 2
    if note := predictions_note(network, smooth_latencies):
        _log.info("%s", note)
    rtt = fabric.rtt_us if prior is None else _with_prior(network, fabric.rtt_us, prior)
    if fabric.blocked is not None:
        rtt = np.where(fabric.blocked.pairs, np.nan, rtt)  # whatever a prior says
    unknown = np.isnan(rtt)
    if fabric.blocked is not None and not has_mesh and (pair := fabric.blocked.first_between_parts()):
        raise no_way_between(fabric.names, *pair, fabric.blocked)
    if np.array_equal(unknown, ~np.eye(n, dtype=bool)):
        raise NoAnswer(f"{network.location}: no pair was measured; measure them: plink probe, or give --prior FILE")
    if unknown.any():
        rtt = _penalised(rtt, unknown, fabric.blocked, _UNKNOWN_PENALTY_FACTOR * max(1.0, float(np.nanmax(rtt))))
    halves = _halves(network, rtt)
    fit_us, held_out = rtt, None
    if halves is not None:  # blocked pairs have samples, too
        fit_us, held_out = np.where(unknown, rtt, halves[0]), np.where(unknown, np.nan, halves[1])
    if smoothed is not None:
        fit_us = rtt  # fitted to what may be looked at
        if halves is not None and not unknown.any():
            rtt = fabric_from(network, smooth_latencies=True).rtt_us
    has_predictions = bool(missing > int((unknown & np.isnan(network.rtt_us)).sum()) // 2)
    return SearchData(
        replace(fabric, rtt_us=fit_us), rtt, held_out, unknown if unknown.any() else None, has_predictions, smoothed
    )


def _smoothed(network: Network, half: tuple[Matrix, Matrix] | None) -> "SmoothedLatencies":
    """Smooth one half of the samples, so that the other can validate the order."""
    from plink.features.order.smoothing import smooth  # brings PyTorch, a second that others need not wait for

    return smooth(network) if half is None else smooth(replace(network, latency_us=half[0]), all_samples=False)


def avoiding_unknown_pairs(task: OrderingProblem, data: SearchData, seed: int) -> tuple[OrderingProblem, SearchData]:
    """Return the task with unknown pairs so far apart that an order which needs none of them is always cheaper.

    Under ``alpha-beta`` pairs whose bandwidth alone is missing are unknown, too. ``latency`` has what it needs.
    """
    unknown, rates = data.unknown, task.fabric.pair_gbps
    if task.model == "alpha-beta" and rates is not None:
        missing = np.isnan(rates) & ~np.eye(len(rates), dtype=bool)
        unknown = missing | missing.T | (False if unknown is None else unknown)
    if task.model == "latency" or unknown is None or not unknown.any():
        return task, data
    fabric = task.fabric.with_farthest_for_unknown(unknown)
    cost_of = cost_function_for(task.algo, len(task.baseline), task.options, fabric, task.size_bytes, task.model)
    slots, rng = np.bincount(task.baseline, minlength=len(fabric.names)), np.random.default_rng(seed)
    orders = [
        task.baseline,
        *(
            expand_slots(rng.permutation(task.hosts), slots)
            for _ in range(affordable_orders(_COSTLY_ORDERS, task.hops))
        ),
    ]
    # A hop counts by half of its round trip at least, in rings as in rounds.
    rtt = _penalised(fabric.rtt_us, unknown, fabric.blocked, 2 * max(cost_of(order) for order in orders))
    return replace(task, fabric=replace(fabric, rtt_us=rtt)), replace(data, unknown=unknown)


def _penalised(
    rtt_us: Matrix, unknown: npt.NDArray[np.bool_], blocked: BlockedPairs | None, penalty_us: float
) -> Matrix:
    """Return round trips in which unknown pairs have this one, and those that nothing gets between several of it."""
    rtt = np.where(unknown, penalty_us, rtt_us)
    return rtt if blocked is None else np.where(blocked.pairs, _BLOCKED_FACTOR * penalty_us, rtt)


def with_costs_of(
    task: OrderingProblem, result: OrderingResult, seed: int, model_cost: CostFunction | None = None
) -> OrderingResult:
    """Return the result with costs on this task's fabric. ``model_cost``: those of its model, None: by rounds."""
    fabric = task.fabric
    if model_cost is None:
        model_cost = cost_function_for(task.algo, len(task.baseline), task.options, fabric, task.size_bytes, task.model)
    cost_of = model_cost if result.objective != "bottleneck" else lambda order: longest_hop(fabric.rtt_us, order)
    median = median_of_random(task, cost_of, seed)
    return replace(result, baseline_cost=cost_of(task.baseline), cost=cost_of(result.order), random_median=median)


def without_unmeasured_bound(
    task: OrderingProblem, result: OrderingResult, taken: Order, unknown: npt.NDArray[np.bool_]
) -> tuple[OrderingResult, str]:
    """Return the result, without a bound where the order that is taken needs unknown pairs, and a note about them.

    :raises NoAnswer: when it needs a pair that nothing gets through between.
    """
    unknown_used = unknown_pairs(task, taken, unknown)
    if not unknown_used:
        dead = 0 if task.fabric.blocked is None else int((unknown & task.fabric.blocked.pairs).sum()) // 2
        unmeasured = int(unknown.sum()) // 2 - dead
        what = [f"{numbered(unmeasured, 'pair was', 'pairs were')} not measured"] if unmeasured else []
        what += [f"nothing gets through between {numbered(dead, 'pair')} of hosts"] if dead else []
        return result, f"{' and '.join(what)}; the order needs none of them"
    index = {name: host for host, name in enumerate(task.fabric.names)}
    for a, b in ((index[a], index[b]) for a, b in unknown_used):
        if task.fabric.blocked is not None and task.fabric.blocked.pairs[a, b]:
            raise no_way_between(task.fabric.names, a, b, task.fabric.blocked)
    option = " --bandwidth" if task.model == "alpha-beta" and task.fabric.pair_gbps is not None else ""
    named = ", ".join(f"{a} - {b}" for a, b in unknown_used[:4]) + (", ..." if len(unknown_used) > 4 else "")
    return replace(result, lower_bound=None, bound_by=None, metrics={}), (
        f"no order was found without pairs that were not measured: {named}; they are taken to be as far as the "
        f"farthest; `plink probe HOSTS --resume{option}` measures them"
    )


def unknown_pairs(task: OrderingProblem, order: Order, unknown: npt.NDArray[np.bool_]) -> list[tuple[str, str]]:
    """Return the unknown pairs that an order uses."""
    used: set[tuple[int, int]] = set()
    for _, name in parts_of(task.algo, task.size_bytes, task.fabric):
        pattern = pattern_for(name, len(task.baseline), task.options)
        ends = np.stack([pattern.source, pattern.target])
        if pattern.all_to_all_share:
            ends = np.stack(np.nonzero(~np.eye(len(task.baseline), dtype=bool)))
        pairs = np.sort(order[ends], axis=0)
        used |= set(map(tuple, pairs[:, unknown[pairs[0], pairs[1]]].T.tolist()))
    return [(task.fabric.names[i], task.fabric.names[j]) for i, j in sorted(used)]


def _halves(network: Network, rtt_us: Matrix) -> tuple[Matrix, Matrix] | None:
    return split_halves(network.half_rtts_us, rtt_us) if network.half_rtts_us else None


def _with_prior(network: Network, rtt_us: Matrix, prior: Topology) -> Matrix:
    paths = paths_for(prior, network.hosts)
    if not np.isnan(rtt_us).any():
        _log.info(f"every pair has a round trip; {prior.location} is not needed")
        return rtt_us
    result = filled(rtt_us, levels_apart(paths))
    number = int((np.isnan(rtt_us) & ~np.isnan(result)).sum()) // 2
    pairs = numbered(number, "pair that was not measured is", "pairs that were not measured are")
    _log.info(f"{pairs} taken to be as far as others that {prior.location} has as near")
    return result
