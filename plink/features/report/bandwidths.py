"""Collect what a report shows of bandwidths: shared links as a tree, their load under an order, rates of hosts."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from plink.features.report.data import Bandwidths, LinkDirection, ProbeSummary, SharedLink
from plink.features.report.routes import CollectiveWork
from plink.model.network import Network
from plink.model.network_file import SharedLinkEntry
from plink.pictures import Floats
from solvers.costs.fabric import BYTES_PER_US, Fabric, fabric_of, shared_rows
from solvers.costs.host_flows import best_rates, flows_of
from solvers.costs.loads import link_bytes

Rows = list[tuple[list[int], SharedLinkEntry]]  # the groups of a tier, as (indices, row)
_METHOD_NAMES = {"stamp": "STAMP", "icmp": "ICMP", "tcp": "TCP"}


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
        tuple(tier.confidence or None for tier in network.shared_links) if fabric else (),
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
            row.confidence or None,
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
    gbps = row.gbps(way) or None
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
        rates = [np.fmax(rate, np.where(other > 0, other, np.nan)) for rate, other in zip(rates, best, strict=True)]
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
