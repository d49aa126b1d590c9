"""What an order is fitted on and what it is judged on: measured round trips, and what stands in for the rest."""

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from plink.api.algorithms import fabric_from
from plink.errors import NoAnswer
from plink.model.network import Matrix, Network
from plink.model.topology import Topology, paths_for
from solvers.costs.by_name import parts_of, pattern_for, pricing_for
from solvers.costs.fabric import Fabric
from solvers.ordering.cross_validation import split_halves
from solvers.ordering.problem import Order, OrderingProblem, OrderingResult
from solvers.ordering.ring import longest_hop
from solvers.ordering.search import median_of_random
from solvers.prediction.topology import filled, levels_apart

if TYPE_CHECKING:
    from plink.api.denoising import Denoised

_log = logging.getLogger("plink.reorder")
_UNMEASURED = 10.0  # times the longest known round trip: what a search pays for a pair that nobody knows


@dataclass(frozen=True)
class Fitting:
    """``fabric``: complete; ``held_out_us``, shape (N, N): round trips that were not looked at yet, None where there
    are none; ``unknown``, shape (N, N): pairs that nobody knows, which are dear in the fabric; None: all are known;
    ``denoised``: where its round trips are fitted ones, how."""

    fabric: Fabric
    held_out_us: Matrix | None
    unknown: npt.NDArray[np.bool_] | None
    denoised: "Denoised | None" = None


def fitting_of(network: Network, prior: Topology | None, denoise: bool = False) -> Fitting:
    """Half of the samples to fit on, where a file has halves; what was not measured by prediction, then by the prior.

    ``denoise``: round trips as an embedding has them, one of that half alone, so that the other can judge it too.

    :raises InputError: for a file whose halves are no matrices, or a prior that knows none of the hosts.
    :raises NoAnswer: when nothing is known of any pair.
    """
    half = _halves(network, network.rtt_us) if denoise else None
    clean = _denoised(network, half) if denoise else None
    fabric = fabric_from(network if clean is None else clean.network)
    n = len(network.hosts)
    missing = int(np.isnan(network.rtt_us).sum()) // 2
    if missing and clean is None and "predicted_us" in network.details:
        _log.info(f"{missing} of {n * (n - 1) // 2} pairs were not measured; what they are predicted to take is used")
    rtt = fabric.rtt_us if prior is None else _with_prior(network, fabric.rtt_us, prior)
    unknown = np.isnan(rtt)
    if np.array_equal(unknown, ~np.eye(n, dtype=bool)):
        raise NoAnswer(f"{network.where}: no pair was measured; measure them: plink probe, or give --prior FILE")
    if unknown.any():
        rtt = np.where(unknown, _UNMEASURED * max(1.0, float(np.nanmax(rtt))), rtt)
    parts = _halves(network, rtt)
    fit, held_out = (rtt, None) if parts is None else parts
    if clean is not None:
        fit = rtt  # fitted to what may be looked at
    return Fitting(replace(fabric, rtt_us=fit), held_out, unknown if unknown.any() else None, clean)


def _denoised(network: Network, half: tuple[Matrix, Matrix] | None) -> "Denoised":
    """Fitted to one half of the samples, where there are halves: the other judges the order."""
    from plink.api.denoising import denoised  # brings PyTorch, a second that others need not wait for

    return denoised(network) if half is None else denoised(replace(network, latency_us=half[0]), whole=False)


def at_the_farthest(fabric: Fabric, unknown: npt.NDArray[np.bool_]) -> Fabric:
    """Pairs that nobody knows as far as the farthest one that is."""
    rtt = np.where(unknown, np.max(fabric.rtt_us, initial=0.0, where=~unknown), fabric.rtt_us)
    return replace(fabric, rtt_us=rtt)


def without_guesses(
    task: OrderingProblem, found: OrderingResult, unknown: npt.NDArray[np.bool_], seed: int
) -> tuple[OrderingResult, str]:
    """Costs in which a pair that nobody knows is as far as the farthest one that is, and what to say of these pairs."""
    fabric = at_the_farthest(task.fabric, unknown)
    plain = pricing_for(task.algo, len(task.baseline), task.options, fabric, task.size_bytes, task.model)
    price = plain if found.objective != "bottleneck" else lambda order: longest_hop(fabric.rtt_us, order)
    median = median_of_random(task, price, seed)
    found = replace(found, baseline_cost=price(task.baseline), cost=price(found.order), random_median=median)
    used = unknown_pairs(task, found.order, unknown)
    if not used:
        return found, f"{int(unknown.sum()) // 2} pairs were not measured; the order needs none of them"
    named = ", ".join(f"{a} - {b}" for a, b in used[:4]) + (", ..." if len(used) > 4 else "")
    return replace(found, lower_bound=None, bound_by=None, metrics={}), (
        f"no order was found without pairs that were not measured: {named}; they are taken to be as far as the "
        "farthest; `plink probe HOSTS --resume` measures them"
    )


def unknown_pairs(task: OrderingProblem, order: Order, unknown: npt.NDArray[np.bool_]) -> list[tuple[str, str]]:
    """Pairs that an order uses and nobody knows."""
    used: set[tuple[int, int]] = set()
    for _, name in parts_of(task.algo, task.size_bytes):
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
    strange = [name for name, path in zip(network.hosts.names, paths, strict=True) if path is None]
    if strange:
        names = ", ".join(strange[:4]) + (", ..." if len(strange) > 4 else "")
        _log.info(f"{prior.where} says nothing about {len(strange)} of the hosts: {names}")
    if not np.isnan(rtt_us).any():
        _log.info(f"nothing is left to fill; {prior.where} is not needed")
        return rtt_us
    result = filled(rtt_us, levels_apart(paths))
    number = int((np.isnan(rtt_us) & ~np.isnan(result)).sum()) // 2
    _log.info(f"{number} pairs that were not measured are taken to be as far as others that {prior.where} has as near")
    return result
