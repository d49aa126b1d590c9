"""Route of a collective over an order: which hosts send to each other, and what takes most of the time."""

from dataclasses import dataclass

import numpy as np

from plink.errors import NoAnswer, PlinkError
from plink.features.order.algorithms import fabric_from, groups_in, options_in, options_of
from plink.features.report.blocks import Indices
from plink.features.report.data import Route, RouteBottleneck
from plink.model.document import UNSET
from plink.model.network import Network
from plink.model.order import RankOrder
from solvers.costs.by_name import NAMES, model_for, parts_of, pattern_for
from solvers.costs.evaluator import MODELS
from solvers.costs.loads import bottleneck_of
from solvers.costs.patterns import Pattern

_MAX_HOPS_PER_HOST = 4  # for each host: beyond that a drawing is a blot
_MAX_DRAWN_RANKS = 4096  # whose schedule is made only to be drawn
_MAX_ALL_TO_ALL_RANKS = 1024  # whose transfers, every rank to every other one, are worked out
_DEFAULT_SIZE_BYTES = 100e6
_LISTED_ORDER = "given"  # as plink.model.order calls a list of names
_NO_HOPS = np.empty((0, 2), dtype=np.intp)


@dataclass(frozen=True)
class CollectiveWork:
    """What an order is for: ``patterns`` of its algorithm with their weights, ``ranks``, shape (N,): the host at each
    rank, and the bytes that are reduced."""

    patterns: tuple[tuple[float, Pattern], ...]
    ranks: Indices
    size_bytes: float


def work_of(network: Network, order: RankOrder, location: str = "order") -> CollectiveWork | None:
    """Return what hosts send each other under an order; None where its algorithm is unknown or the ranks too many.

    :raises InputError: when what the order's file says of its hosts, groups or options cannot be read.
    """
    index = {name: i for i, name in enumerate(network.hosts.names)}
    arranged = order.arrange(network.hosts, location)
    ranks = np.array([index[host.name] for host in arranged for _ in range(host.slots)], dtype=np.intp)
    algo = algorithm_of(order)
    if algo not in NAMES or (len(ranks) > _MAX_DRAWN_RANKS and "ring" not in algo) or len(ranks) < 2:
        return None
    size_bytes = order.size_bytes or _DEFAULT_SIZE_BYTES
    options = options_of(options_in(order, location, algo), [algo], groups_in(order, location, len(ranks)))
    try:
        patterns = [(weight, pattern_for(name, len(ranks), options)) for weight, name in parts_of(algo, size_bytes)]
    except PlinkError:  # it was found with options that the file, an older one, does not tell
        return None
    if any(pattern.all_to_all_share for _, pattern in patterns) and len(ranks) > _MAX_ALL_TO_ALL_RANKS:
        return None
    return CollectiveWork(tuple(patterns), ranks, size_bytes)


def algorithm_of(order: RankOrder) -> str:
    """Return the algorithm that an order is for; a list of names is for a ring."""
    return "ring" if order.algo == _LISTED_ORDER else order.algo


def route_of(network: Network, order: RankOrder, work: CollectiveWork | None, location: str = "order") -> Route:
    """Return the route of an order of these hosts; ``location`` names the order in errors.

    :raises InputError: when the order is not of these hosts.
    """
    index = {name: i for i, name in enumerate(network.hosts.names)}
    hosts = np.array([index[host.name] for host in order.arrange(network.hosts, location)], dtype=np.intp)
    hops = _NO_HOPS if work is None else _hops(work)
    return Route(
        algorithm_of(order),
        hosts,
        hops if len(hops) <= _MAX_HOPS_PER_HOST * len(hosts) else _NO_HOPS,
        None if work is None else _bottleneck(network, order, work, hops),
        order.cost,
        order.baseline.get("given"),
        order.validation or None,
        order.kept_baseline is not UNSET,
    )


def _hops(work: CollectiveWork) -> Indices:
    """Return pairs of hosts that send to each other, each once, shape (H, 2)."""
    _, pattern = max(work.patterns, key=lambda part: part[0])
    if pattern.all_to_all_share:
        source, target = np.triu_indices(len(work.ranks), 1)
    else:
        source, target = pattern.source, pattern.target
    ends = np.sort(np.stack([work.ranks[source], work.ranks[target]], axis=1), axis=1)
    return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)


def _bottleneck(network: Network, order: RankOrder, work: CollectiveWork, hops: Indices) -> RouteBottleneck | None:
    """Return what the cost model blames: the one that the order was found by, else the best that the network allows.

    The latencies' model adds up hops, so that it blames none; only an order for the shortest longest hop has one.
    """
    if order.objective == "bottleneck":
        return _longest_hop(network, hops)
    fabric = fabric_from(network)
    named = order.model or None
    model = named if named in MODELS else model_for("auto", fabric, timed=True, algo=algorithm_of(order))
    if model == "latency":
        return None
    try:
        result = bottleneck_of(work.patterns, fabric, work.ranks, work.size_bytes, model)
    except NoAnswer:  # a pair of the route was not measured
        return None
    if result is None:
        return None
    links = result.links if fabric.measured else ()  # inferred groups are not in the tree of shared links
    # Counted round by round; its share is that of the order's cost, which is simulated.
    cost_us = order.cost or result.cost_us
    time_us = cost_us * result.time_us / result.cost_us
    return RouteBottleneck(result.kind, result.resources, result.hosts, time_us, cost_us, result.hops, links)


def _longest_hop(network: Network, hops: Indices) -> RouteBottleneck | None:
    length = network.rtt_us[hops[:, 0], hops[:, 1]]
    if not np.isfinite(length).any():
        return None
    longest = int(np.nanargmax(length))
    i, j = hops[longest].tolist()
    time_us = float(length[longest])
    return RouteBottleneck("hop", (), (i, j), time_us, time_us, hops[longest : longest + 1])
