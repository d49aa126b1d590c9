"""Costs by the name of an algorithm: the catalogue's, and those that a library combines of several.

A library's measured time is likely to be in an interval of two independent parts: rates as another probe might measure
them, and the model's own error, as calibrated where libraries ran on labs
(benchmarks/records/prediction-intervals.json).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plink.errors import no_choice
from plink.model.segmentation import HUB_PARTS, segmentation_for_rate
from solvers.costs.closed_forms import CostFunction, Order, closed_form
from solvers.costs.evaluator import MODELS, NO_MESSAGES, Messages
from solvers.costs.fabric import Fabric
from solvers.costs.mesh_patterns import mesh_pattern
from solvers.costs.patterns import (
    Pattern,
    all_to_all_pattern,
    chunked_ring_pattern,
    in_slices,
    multi_ring_pattern,
    pattern_of,
    ring_pattern,
    servers_pattern,
    two_level_pattern,
)
from solvers.costs.shared_rows import MIN_RATE_SIGMA
from solvers.schedules.bcube import base_of
from solvers.schedules.catalogue import ALGORITHMS, HUB_ALGORITHMS, RING_SEGMENTS, Options, schedule_for
from solvers.schedules.ring import check_segments
from solvers.schedules.segmentation import options_at
from solvers.spanning.tier_tree import TierTree

# NCCL's tuner takes the tree for small vectors and the ring for large ones, by tables of its own; where it changes over
# depends on the machine. Where nobody timed that, one order has to serve both: between these sizes costs are blended.
_TREE_UP_TO, _RING_FROM = 1e6, 16e6
MIXED = {"nccl": ("nccl-tree", "nccl-ring")}
NAMES = (*ALGORITHMS, *MIXED)
MESH = "mesh"  # the traffic of options.mesh
TREES = ("tree", "double-binary-tree", "nccl-tree")
_CONTENDING = (
    "halving-doubling",
    "recursive-doubling",
    "bcube",
    "2lha",
    "openmpi-recursive-doubling",
    "openmpi-rabenseifner",
    "mesh",
    *TREES,
)
CONTENTION, SIMULATED = "contention", "simulated"  # both by solvers.simulation.cost; only the first has a closed form
CONFIDENCE = 0.9
_QUANTILE = 1.645  # of a normal variable, for that confidence


def parts_of(algo: str, size_bytes: float, fabric: Fabric) -> list[tuple[float, str]]:
    """Return the components of an algorithm's cost: (weight, name in the catalogue), with weights that add up to one.

    ``nccl``: its tree up to the size that was timed, and above it its ring. Not timed: its tree up to 1 MB, its ring
    from 16 MB, both in between, by the logarithm of the size.

    :raises UsageError: for an unknown name.
    """
    if algo not in (*NAMES, MESH):
        raise no_choice("--algo", algo, NAMES)
    if algo not in MIXED:
        return [(1.0, algo)]
    low, high = np.log([_TREE_UP_TO, _RING_FROM])
    if (tree_up_to := fabric.nccl_tree_up_to_bytes) is not None:
        ring = float(size_bytes > tree_up_to)
    else:
        ring = float(np.clip((np.log(size_bytes) - low) / (high - low), 0.0, 1.0)) if size_bytes > 0 else 0.0
    return [(weight, name) for weight, name in zip((1 - ring, ring), MIXED[algo], strict=True) if weight > 0]


def pattern_for(algo: str, ranks: int, options: Options) -> Pattern:
    """The pattern of an algorithm of the catalogue; without its schedule where that is large and the pattern is not.

    :raises UsageError: as :func:`solvers.schedules.catalogue.schedule_for`.
    """
    if algo == MESH and options.mesh is not None:
        return mesh_pattern(options.mesh, ranks)
    if ranks >= 2:
        if algo in ("ring", "nccl-ring", "openmpi-ring", "gloo"):
            return ring_pattern(ranks, -1 if algo == "gloo" else 1)
        if algo == "ring-chunked":
            segments = options.segments_or(RING_SEGMENTS)
            check_segments(segments)
            return chunked_ring_pattern(ranks, segments)
        if algo == "multi-ring":
            base = options.base if options.levels is None else base_of(algo, ranks, options.levels)
            return multi_ring_pattern(ranks, base)
        if algo == "flat" or (algo == "ps" and options.sharded and options.colocated and options.servers is None):
            return all_to_all_pattern(ranks)
        if algo == "2lha" and options.groups is not None:
            pattern = _two_level(ranks, options.groups, options.tree)
            if pattern is not None:
                return pattern
        if algo == "ps" and options.sharded and not options.colocated:
            number = options.servers if options.servers is not None else max(1, ranks // 2)
            if 1 <= number < ranks:
                return servers_pattern(np.arange(ranks - number), np.arange(ranks - number, ranks), ranks)
    return pattern_of(schedule_for(algo, ranks, options))


def _two_level(ranks: int, groups: Sequence[Sequence[int]], tree: TierTree | None) -> Pattern | None:
    """Return the pattern of 2LHA; None when the groups are wrong, which its generator reports."""
    if sorted(rank for group in groups for rank in group) != list(range(ranks)) or not all(groups):
        return None
    return two_level_pattern(groups, tree)


def cost_function_for(
    algo: str, ranks: int, options: Options, fabric: Fabric, size_bytes: float, model: str
) -> CostFunction:
    """Return the cost function of an algorithm, as :func:`solvers.costs.closed_forms.closed_form`.

    Trees have the segments of :func:`priced_options`; hubs, which gain by them, AggEngine's slices.

    :raises UsageError: for unknown names and what does not fit.
    """
    options = priced_options(options, algo, size_bytes, model)
    slices = engine_slices(algo, options, fabric, size_bytes) if model != "latency" and algo in HUB_ALGORITHMS else 1
    cost_functions = [
        (weight, closed_form_in_slices(pattern_for(name, ranks, options), slices, fabric, size_bytes, model))
        for weight, name in parts_of(algo, size_bytes, fabric)
    ]
    if len(cost_functions) == 1:
        return cost_functions[0][1]

    def blended(order: Order) -> float:
        return sum(weight * cost_of(order) for weight, cost_of in cost_functions)

    return blended


def priced_options(options: Options, algo: str, size_bytes: float, model: str) -> Options:
    """Return the options by which a model prices an algorithm: in the segments of its library, which change no path of
    round trips, so that ``latency`` leaves them out; see :func:`solvers.schedules.segmentation.options_at`."""
    if algo == "2lha" and model not in (CONTENTION, SIMULATED):
        options = replace(options, tree=None)  # masters by links gain where hosts' links are shared
    return options if model == "latency" else options_at(options, algo, size_bytes)


def engine_slices(algo: str, options: Options, fabric: Fabric, size_bytes: float) -> int:
    """Return into how many slices AggEngine cuts a vector of this size, which its schedule does not list.

    1 for what only libraries run, and for segments that are set.
    """
    source = ALGORITHMS[algo].source if algo in ALGORITHMS else "the traffic of a mesh"
    if source is not None or options.segments is not None:
        return 1
    segmentation = segmentation_for_rate(fabric.rate_gbps)
    return (segmentation.finer(HUB_PARTS) if algo in HUB_ALGORITHMS else segmentation).segments_at(int(size_bytes))


def time_in_slices(
    whole_us: float, busiest_us: float, latency_us: float, slices: int, messages_us: Messages = NO_MESSAGES
) -> float:
    """Return the time of a collective in slices that follow each other through its rounds.

    The first slice takes its part of the time of the vector whole, and then each ends as long after the one before as
    the busiest resource works on it. So its work does not get less, nor does latency, but what else the vector whole
    waits for is divided by the slices. A slice has as many messages as the vector whole: the first waits for those of
    all rounds, and each that follows for those of the rank with the most. docs/results/simulation.md compares prices
    with simulations of all slices.

    :param whole_us: in one slice. :param busiest_us: what the busiest resource works. :param latency_us: of all rounds.
    :param messages_us: what a slice's messages take (:meth:`solvers.costs.evaluator.Messages.us`).
    """
    latency_us, rounds_us = min(latency_us, whole_us), min(messages_us.rounds, whole_us)  # ranks are in several rounds
    hosts_us = rounds_us + slices * messages_us.busiest
    return whole_us / slices + (1 - 1 / slices) * max(busiest_us, latency_us, hosts_us)


def closed_form_in_slices(pattern: Pattern, slices: int, fabric: Fabric, size_bytes: float, model: str) -> CostFunction:
    """Return the cost function by rounds in slices, as :func:`solvers.costs.closed_forms.closed_form`: that of
    :func:`solvers.costs.patterns.in_slices`, and no less than what messages take (:func:`time_in_slices`)."""
    if slices == 1:
        return closed_form(pattern, fabric, size_bytes, model)
    links = replace(fabric, overhead_us=0.0)
    cost_of = closed_form(in_slices(pattern, slices), links, size_bytes, model)
    if not fabric.overhead_us:
        return cost_of
    whole, messages_us = closed_form(pattern, links, size_bytes, model), pattern.messages.us(fabric.overhead_us)

    def cost_with_messages(order: Order) -> float:
        whole_us, by_links_us = whole(order) + messages_us.rounds, cost_of(order) + messages_us.rounds / slices
        return max(by_links_us, time_in_slices(whole_us, 0.0, 0.0, slices, messages_us))

    return cost_with_messages


def model_for(name: str, fabric: Fabric, timed: bool = False, algo: str = "") -> str:
    """Return the model of that name; ``auto`` is the most accurate that the network allows.

    That is ``contention`` when shared links were measured, else ``alpha-beta`` when bandwidths were, else ``latency``.
    Algorithms with all flows of a round on few links at once need ``contention`` in any case, by inferred capacities:
    orders by round trips alone are up to 1.3 times slower (32 hosts in racks under pods, simulated).

    :param timed: a time is wanted, not a ranking of orders: rates of hosts are enough for ``contention``.
    :param algo: the algorithm whose orders are ranked.
    :returns: one of the closed forms, or ``simulated``.
    :raises UsageError: for an unknown name.
    """
    if name == "auto":
        if fabric.measured or (timed and fabric.has_host_rates):
            return "contention"
        if fabric.pair_gbps is not None:
            return "alpha-beta"
        has_groups = bool(np.isfinite(fabric.group_out_gbps).any())
        return "contention" if algo in _CONTENDING and has_groups else "latency"
    if name not in (*MODELS, SIMULATED):
        raise no_choice("--model", name, ("auto", *MODELS, SIMULATED))
    return name


def misranking_warning(algo: str, model: str) -> str | None:
    """Return a warning where a model ranks the orders of an algorithm, or hubs among others, wrongly, else None.

    Round trips alone put the near ends of a tree's longest chain together, whatever its flows share. Simulated at 1 MB
    and more, orders of a single tree rank backwards (docs/results/simulation.md).
    """
    if model == "alpha-beta" and algo in HUB_ALGORITHMS:
        return (
            "alpha-beta has a hub serve one worker after the other, so gbps= counts for nothing; try --model contention"
        )
    if model != "latency" or algo not in TREES:
        return None
    how = "backwards" if algo == "tree" else "poorly"
    return f"--model latency ranks orders of {algo} {how} from about 1 MB on: it ignores shared links; omit --model"


def search_model_for(model: str, fabric: Fabric) -> str:
    """Return the model that a search goes by: a closed form, for ``simulated`` that which sees shared links, or where
    only rates of pairs were measured, of all of them, that which sees these."""
    if model != SIMULATED:
        return model
    apart = ~np.eye(len(fabric.names), dtype=bool)
    has_pairs = fabric.pair_gbps is not None and not np.isnan(fabric.pair_gbps[apart]).any()
    return "alpha-beta" if has_pairs and not fabric.measured else CONTENTION


class ModelError(NamedTuple):
    """Error of the model on labs: on the worst of four, 5 % of the measured times were below ``low`` times the
    predicted one, and 5 % above ``high`` times it and ``host_us``, what hosts take for their messages, which the models
    omit (16 of them on two cores)."""

    low: float
    high: float
    host_us: float


RINGS, OTHERS = ModelError(0.91, 1.32, 48e3), ModelError(0.68, 2.07, 20e3)


def model_error(algo: str) -> ModelError:
    """Return the error for an algorithm: rings stream equal blocks, as is modelled; in others libraries do more."""
    return RINGS if "ring" in algo or algo == "gloo" else OTHERS


def prediction_interval(
    cost_us: float, algo: str, size_bytes: float, model: str, fabric: Fabric
) -> tuple[float, float] | None:
    """Return the interval, microseconds, that has a library's time with a probability of :data:`CONFIDENCE`.

    None for a model without shared links, where their capacities were not measured, and for times so short that the
    hosts' own work may be the greater part: it is another one on every machine.
    """
    names = [name for _, name in parts_of(algo, size_bytes, fabric)] if algo in MIXED else [algo]
    error = model_error(names[0] if len(names) == 1 else algo)
    if model not in (CONTENTION, SIMULATED) or not fabric.measured or cost_us < error.host_us:
        return None
    return calibrated_interval(cost_us, error, fabric.rate_sigma)


def calibrated_interval(cost_us: float, error: ModelError, rate_sigma: float = MIN_RATE_SIGMA) -> tuple[float, float]:
    """Return the interval for rates with this relative standard deviation; the labs' own is in the calibration."""
    low, high, host_us = error
    variance = _QUANTILE**2 * max(0.0, rate_sigma**2 - MIN_RATE_SIGMA**2)
    below, above = (math.hypot(math.log(ratio), math.sqrt(variance)) for ratio in (low, high))
    return round(cost_us * math.exp(-below), 3), round(cost_us * math.exp(above) + host_us, 3)
