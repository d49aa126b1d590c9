"""The way a collective takes over an order: who sends to whom, and the longest of these hops."""

import numpy as np

from plink.api.algorithms import groups_in, options_in, options_of
from plink.errors import PlinkError
from plink.model.network import Network
from plink.model.order import RankOrder
from plink.report.facts import Indices, Judged, Route
from solvers.costs.by_name import NAMES, parts_of, pattern_for

_MOST_HOPS = 4  # for each host: beyond that a drawing is a blot
_MOST_RANKS = 4096  # whose schedule is made only to be drawn
_USUAL_BYTES = 100e6
_ONE_AFTER_THE_OTHER = "given"  # as plink.model.order calls a list of names


def route_of(network: Network, order: RankOrder, where: str = "order") -> Route:
    """An order of these hosts as it is drawn; ``where`` names it in errors.

    :raises InputError: when what the order's file says of its gain, groups or options cannot be read.
    """
    index = {name: i for i, name in enumerate(network.hosts.names)}
    arranged = order.arrange(network.hosts, where)
    hosts = np.array([index[host.name] for host in arranged], dtype=np.intp)
    ranks = np.array([index[host.name] for host in arranged for _ in range(host.slots)], dtype=np.intp)
    hops = _hops(order, ranks, where)
    cost = network.rtt_us
    bottleneck = None
    if len(hops) and np.isfinite(cost[hops[:, 0], hops[:, 1]]).any():
        i, j = hops[int(np.nanargmax(cost[hops[:, 0], hops[:, 1]]))].tolist()
        bottleneck = (i, j)
    return Route(
        "ring" if order.algo == _ONE_AFTER_THE_OTHER else order.algo,
        hosts,
        hops if len(hops) <= _MOST_HOPS * len(hosts) else np.empty((0, 2), dtype=np.intp),
        bottleneck,
        order.cost,
        order.baseline.get("given"),
        _judged(order),
        "kept_given" in order.details,
    )


def _hops(order: RankOrder, ranks: Indices, where: str) -> Indices:
    """Pairs of hosts that send to each other, each once, shape (H, 2)."""
    algo = "ring" if order.algo == _ONE_AFTER_THE_OTHER else order.algo
    nothing = np.empty((0, 2), dtype=np.intp)
    if algo not in NAMES or (len(ranks) > _MOST_RANKS and "ring" not in algo) or len(ranks) < 2:
        return nothing
    size_bytes = order.details.get("size_bytes") or _USUAL_BYTES
    options = options_of(options_in(order, where, algo), [algo], groups_in(order, where, len(ranks)))
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


def _judged(order: RankOrder) -> Judged | None:
    judged = order.details.get("judged")
    return None if judged is None else Judged(*(judged[key] for key in ("gain", "low", "high", "confidence")))
