"""What an order does on a network: its route, what takes most of the time, and the loads of links and hosts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plink.errors import InputError, NoAnswer, PlinkError
from plink.features.order.algorithms import fabric_from, groups_in, links_of, options_in, options_of
from plink.features.order.interfaces import fabric_of_algorithm
from plink.features.report.blocks import Indices
from plink.features.report.data import Bandwidths, LinkDirection, ProbeSummary, Route, SharedLink
from plink.model.document import UNSET
from plink.model.mesh import make_mesh
from plink.model.network import Network
from plink.model.network_file import SharedLinkEntry
from plink.model.order import RankOrder
from plink.pictures import Floats
from solvers.costs.by_name import NAMES, model_for, parts_of, pattern_for, priced_options
from solvers.costs.evaluator import MODELS
from solvers.costs.fabric import BYTES_PER_US, Fabric, fabric_of
from solvers.costs.host_flows import best_rates, flows_of
from solvers.costs.loads import Bottleneck, bottleneck_of, link_bytes
from solvers.costs.mesh_patterns import mesh_pattern
from solvers.costs.patterns import Pattern
from solvers.costs.shared_rows import shared_rows

_MAX_HOPS_PER_HOST = 4  # for each host: beyond that a drawing is a blot
_MAX_DRAWN_RANKS = 4096  # whose schedule is made only to be drawn
_MAX_ALL_TO_ALL_RANKS = 1024  # whose transfers, every rank to every other one, are worked out
_DEFAULT_SIZE_BYTES = 100e6
_LISTED_ORDER = "given"  # as plink.model.order calls a list of names
_NO_HOPS = np.empty((0, 2), dtype=np.intp)
Rows = list[tuple[list[int], SharedLinkEntry]]  # the groups of a tier, as (indices, row)
_METHOD_NAMES = {"stamp": "STAMP", "icmp": "ICMP", "tcp": "TCP"}


@dataclass(frozen=True)
class CollectiveWork:
    """What an order is for: ``patterns`` of its algorithm with their weights, ``ranks``, shape (N,): the host at each
    rank, or block of a mesh's ranks, and the bytes that are reduced."""

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
    if order.mesh:
        try:
            mesh = make_mesh(order.mesh.mesh, order.mesh.traffic)
        except PlinkError as error:
            raise InputError(f"{location}: mesh", str(error).removeprefix("--")) from None
        if mesh.ranks != len(ranks):
            return None
        pattern = mesh_pattern(mesh, len(arranged))
        return CollectiveWork(((1.0, pattern),), ranks[:: len(ranks) // len(arranged)], 1.0)
    algo = algorithm_of(order)
    if algo not in NAMES or (len(ranks) > _MAX_DRAWN_RANKS and "ring" not in algo) or len(ranks) < 2:
        return None
    size_bytes = order.size_bytes or _DEFAULT_SIZE_BYTES
    groups, fabric = groups_in(order, location, len(ranks)), fabric_from(network)
    values = options_in(order, location, algo)
    try:
        tree = links_of(algo, fabric_of_algorithm(network, fabric, algo), ranks)
        options = options_of(values, [algo], groups, tree, ranks)
        named = order.model or None
        model = named if named in MODELS else model_for("auto", fabric, timed=True, algo=algo)
        options, parts = priced_options(options, algo, size_bytes, model), parts_of(algo, size_bytes, fabric)
        patterns = [(weight, pattern_for(name, len(ranks), options)) for weight, name in parts]
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
        order.model == "latency",
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


def _bottleneck(network: Network, order: RankOrder, work: CollectiveWork, hops: Indices) -> Bottleneck | None:
    """Return what the cost model blames: the one that the order was found by, else the best that the network allows.

    The latencies' model adds up hops, so that it blames none; only an order for the shortest longest hop has one.
    """
    if order.objective == "bottleneck":
        return _longest_hop(network, hops)
    algo, named = algorithm_of(order), order.model or None
    fabric = fabric_of_algorithm(network, fabric_from(network), algo)
    model = named if named in MODELS else model_for("auto", fabric, timed=True, algo=algo)
    if model == "latency":
        return None
    try:
        result = bottleneck_of(work.patterns, fabric, work.ranks, work.size_bytes, model)
    except NoAnswer:  # a pair of the route was not measured
        return None
    if result is None:
        return None
    links = result.links if fabric.measured else ()  # inferred groups are not in the tree of shared links
    cost_us = order.cost or result.cost_us  # the order's is simulated: rounds overlap
    time_us = min(result.time_us, cost_us)
    return replace(result, links=links, time_us=time_us, cost_us=cost_us)


def _longest_hop(network: Network, hops: Indices) -> Bottleneck | None:
    length = network.rtt_us[hops[:, 0], hops[:, 1]]
    if not np.isfinite(length).any():
        return None
    longest = int(np.nanargmax(length))
    i, j = hops[longest].tolist()
    time_us = float(length[longest])
    return Bottleneck("hop", (), (i, j), (), hops[longest : longest + 1], time_us, time_us)


def bandwidths_of(network: Network, work: CollectiveWork | None) -> Bandwidths:
    """Return the measured bandwidths, with the load of ``work`` on shared links.

    :raises InputError: when the file's ``shared_links`` or ``host_flows`` cannot be read.
    """
    names = network.hosts.names
    tiers = [shared_rows(tier.groups, names) for tier in network.shared_links]
    fabric = fabric_of(network) if any(tiers) else None
    out_gbps, in_gbps = _host_rates(network)
    pair = network.bandwidth_gbps
    cached = pair is not None and bool(np.isfinite(pair[~np.eye(len(names), dtype=bool)]).any())
    return Bandwidths(
        tuple(_tier(tiers, number, fabric, work) for number in range(len(tiers))) if fabric else (),
        "" if any(tiers) else _no_tiers(network),
        None if work is None else work.size_bytes,
        pair if cached else None,
        out_gbps,
        in_gbps,
        tuple(None if tier.confidence is UNSET else tier.confidence for tier in network.shared_links) if fabric else (),
    )


def _no_tiers(network: Network) -> str:
    if len(network.hosts) < 4:
        return f"{len(network.hosts)} hosts are too few to share a link that others do not use."
    return "No shared links were measured: no groups stood out, or `plink probe` ran with `--no-shared-links`."


def _tier(tiers: Sequence[Rows], number: int, fabric: Fabric, work: CollectiveWork | None) -> tuple[SharedLink, ...]:
    rows, n = tiers[number], len(fabric.names)
    loads: tuple[Floats, Floats] | None = None
    capacities = _model_capacities(fabric, number, len(rows))
    if work is not None:
        group_of = len(rows) + np.arange(n)  # hosts in no group share nothing
        for group, (members, _) in enumerate(rows):
            group_of[members] = group
        loads = link_bytes(work.patterns, work.ranks, work.size_bytes, group_of, len(rows) + n)
    return tuple(
        SharedLink(
            tuple(members),
            _parent(tiers, number, members),
            _direction(row, "out", float(capacities[0][group]), None if loads is None else float(loads[0][group])),
            _direction(row, "in", float(capacities[1][group]), None if loads is None else float(loads[1][group])),
            row.reason or "",
            None if row.confidence is UNSET else row.confidence,
        )
        for group, (members, row) in enumerate(rows)
    )


def _parent(tiers: Sequence[Rows], number: int, members: Sequence[int]) -> tuple[int, int] | None:
    """Return the tier and the number of the nearest group above that holds these hosts of a group of a tier."""
    for tier in range(number + 1, len(tiers)):
        for group, (hosts, _) in enumerate(tiers[tier]):
            if set(hosts).issuperset(members):
                return tier, group
    return None


def _model_capacities(fabric: Fabric, tier: int, groups: int) -> tuple[Floats, Floats]:
    """Return what the cost model takes as the capacity of each group's link, out and in, two of shape (G,), Gbit/s;
    infinite where it takes none."""
    if not fabric.measured:  # its groups are others then, those of the latencies
        return np.full(groups, np.inf), np.full(groups, np.inf)
    links = fabric.tiers[tier]
    return links.out_gbps[:groups], links.in_gbps[:groups]


def _direction(row: SharedLinkEntry, way: str, capacity_gbps: float, load_bytes: float | None) -> LinkDirection:
    gbps = row.gbps(way)
    low, high = row.range_gbps(way) or (None, None)
    limited_by = row.limited_by(way) or ""
    assumed = capacity_gbps if gbps is None and np.isfinite(capacity_gbps) else None
    busy_us = load_bytes / (capacity_gbps * BYTES_PER_US) if load_bytes is not None else None
    return LinkDirection(
        gbps, low, high, limited_by, assumed, load_bytes, busy_us if np.isfinite(capacity_gbps) else None
    )


def _host_rates(network: Network) -> tuple[Floats | None, Floats | None]:
    """Return the best rate of each host in a flow or with a pair, sending and receiving."""
    rates = list(best_rates(flows_of(network), len(network.hosts)))
    if network.bandwidth_gbps is not None:
        pair = network.bandwidth_gbps.copy()
        np.fill_diagonal(pair, np.nan)
        best = [np.where(np.isnan(pair), -np.inf, pair).max(axis=axis) for axis in (1, 0)]
        rates = [
            np.fmax(rate, np.where(np.isfinite(other), other, np.nan)) for rate, other in zip(rates, best, strict=True)
        ]
    if not np.isfinite(rates).any():
        return None, None
    return rates[0], rates[1]


def probe_summary_of(network: Network) -> ProbeSummary:
    """Return when and how the round trips of a file were measured, as far as it says so.

    :raises InputError: when its ``samples`` or ``method_used`` are no such matrices.
    """
    details = network.details
    measured = np.isfinite(network.latency_us) & ~np.eye(len(network.hosts), dtype=bool)
    samples = network.detail("samples")
    probes, answers = None, 0
    if samples is not None:
        counts = samples[measured & (np.nan_to_num(samples) > 0)]
        if len(counts):
            probes, answers = (int(counts.min()), int(np.median(counts)), int(counts.max())), int(counts.sum())
    if probes is None and details.count:
        probes = (details.count,) * 3
    return ProbeSummary(
        details.measured_at or "",
        _methods(network, measured),
        probes,
        answers,
        details.plan or "",
        details.assumed_from or "",
    )


def _methods(network: Network, measured: npt.NDArray[np.bool_]) -> tuple[tuple[str, int], ...]:
    """Return the methods, the most used first."""
    named, used = network.details.methods, network.detail("method_used")
    if named and used is not None:
        indices = used[measured & np.isfinite(used)].astype(np.intp)
        counts = np.bincount(indices[indices < len(named)], minlength=len(named))
        ranked = np.argsort(-counts, kind="stable").tolist()
        return tuple((_METHOD_NAMES.get(named[k], str(named[k])), int(counts[k])) for k in ranked if counts[k])
    method = network.details.method
    return ((_METHOD_NAMES.get(method, str(method)), int(measured.sum())),) if method else ()
