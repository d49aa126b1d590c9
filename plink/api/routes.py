"""Route of a collective over an order: which hosts send to each other, and the longest hop."""

import numpy as np

from plink.api.algorithms import groups_in, options_in, options_of
from plink.errors import PlinkError
from plink.model.network import Network
from plink.model.order import RankOrder
from plink.report.report_data import GainEstimate, Indices, Route
from solvers.costs.by_name import NAMES, parts_of, pattern_for

_MAX_HOPS_PER_HOST = 4  # for each host: beyond that a drawing is a blot
_MAX_DRAWN_RANKS = 4096  # whose schedule is made only to be drawn
_DEFAULT_SIZE_BYTES = 100e6
_LISTED_ORDER = "given"  # as plink.model.order calls a list of names


def route_of(network: Network, order: RankOrder, location: str = "order") -> Route:
    """Return the route of an order of these hosts; ``location`` names the order in errors.

    :raises InputError: when what the order's file says of its gain, groups or options cannot be read.
    """
    index = {name: i for i, name in enumerate(network.hosts.names)}
    arranged = order.arrange(network.hosts, location)
    hosts = np.array([index[host.name] for host in arranged], dtype=np.intp)
    ranks = np.array([index[host.name] for host in arranged for _ in range(host.slots)], dtype=np.intp)
    hops = _hops(order, ranks, location)
    cost = network.rtt_us
    bottleneck = None
    if len(hops) and np.isfinite(cost[hops[:, 0], hops[:, 1]]).any():
        i, j = hops[int(np.nanargmax(cost[hops[:, 0], hops[:, 1]]))].tolist()
        bottleneck = (i, j)
    return Route(
        "ring" if order.algo == _LISTED_ORDER else order.algo,
        hosts,
        hops if len(hops) <= _MAX_HOPS_PER_HOST * len(hosts) else np.empty((0, 2), dtype=np.intp),
        bottleneck,
        order.cost,
        order.baseline.get("given"),
        _gain_estimate(order),
        "kept_baseline" in order.details,
    )


def _hops(order: RankOrder, ranks: Indices, location: str) -> Indices:
    """Return pairs of hosts that send to each other, each once, shape (H, 2)."""
    algo = "ring" if order.algo == _LISTED_ORDER else order.algo
    nothing = np.empty((0, 2), dtype=np.intp)
    if algo not in NAMES or (len(ranks) > _MAX_DRAWN_RANKS and "ring" not in algo) or len(ranks) < 2:
        return nothing
    size_bytes = order.details.get("size_bytes") or _DEFAULT_SIZE_BYTES
    options = options_of(options_in(order, location, algo), [algo], groups_in(order, location, len(ranks)))
    _, name = max(parts_of(algo, size_bytes))
    try:
        pattern = pattern_for(name, len(ranks), options)
    except PlinkError:  # it was found with options that the file, an older one, does not tell
        return nothing
    if pattern.all_to_all_share:
        source, target = np.triu_indices(len(ranks), 1)
    else:
        source, target = pattern.source, pattern.target
    ends = np.sort(np.stack([ranks[source], ranks[target]], axis=1), axis=1)
    return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)


def _gain_estimate(order: RankOrder) -> GainEstimate | None:
    values = order.details.get("judged")
    return None if values is None else GainEstimate(*(values[key] for key in ("gain", "low", "high", "confidence")))
