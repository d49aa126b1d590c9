"""Report on a network: groups and tiers, route, map, missing and suspect pairs, as data and as a page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plink.errors import InputError, NoAnswer, UsageError
from plink.features.order.algorithms import predictions_note
from plink.features.order.interfaces import interface_topology, most_hosts_relay
from plink.features.report.blocks import Indices
from plink.features.report.data import Gap, ReportData, TieredGroups, TierStatistics, TimedOrder
from plink.features.report.page import page
from plink.features.report.request import ReportRequest
from plink.features.report.routes import bandwidths_of, probe_summary_of, route_of, work_of
from plink.model.diagnosis import Finding
from plink.model.network import Matrix, Network
from plink.model.units import count
from solvers.costs.by_name import prediction_interval
from solvers.costs.fabric import fabric_of
from solvers.grouping.cluster import measured_hosts
from solvers.hierarchy.tiers import completed_by_detours, tiers
from solvers.ordering.interfaces import BCube

_MAX_LISTED_PAIRS = 6  # pairs of one reason that are named
_MAX_REASONS = 12


def check_drawable(network: Network) -> None:
    """Refuse a network without anything to draw.

    :raises UsageError: for a single host. :raises NoAnswer: when no round trip was measured.
    """
    n = len(network.hosts)
    if n < 2:
        raise UsageError(f"one host ({network.hosts.names[0]}) has no network to draw; measure at least two")
    if np.isfinite(network.latency_us).sum() == n:
        raise NoAnswer(
            f"{network.location}: no round trip was measured, so there is nothing to draw; `plink probe` first"
        )


def report_data_of(network: Network, request: ReportRequest) -> ReportData:
    """Return all that a report shows of a network but the map.

    :raises UsageError: for a single host. :raises NoAnswer: when no round trip was measured.
    :raises InputError: when the order or the groups are not of these hosts.
    """
    check_drawable(network)
    order, groups = request.order, request.groups
    work = None if order is None else work_of(network, order, request.order_source)
    route = None if order is None else route_of(network, order, work, request.order_source)
    tiered_groups = groups_of(network, groups, request.groups_source)
    names, fabric = network.hosts.names, fabric_of(network)
    return ReportData(
        tuple(names),
        network.latency_us,
        tiered_groups,
        route,
        "" if route is not None else request.no_order,
        remarks=remarks_of(network),
        gaps=gaps_of(network),
        left_out=tuple(names[host] for host in left_out(network)),
        runs=tuple(
            TimedOrder(
                f"{series.algo}, {trial.order}" if len(request.results) > 1 else trial.order,
                trial.predicted_us,
                trial.achieved_s,
                None
                if trial.predicted_us is None or series.model is None
                else prediction_interval(
                    trial.predicted_us, series.algo or "", series.size_bytes or 0.0, series.model, fabric
                ),
                series.model,
            )
            for series in request.results
            for trial in series.runs
        ),
        sources=(
            str(network.location),
            *([] if order is None else [request.order_source]),
            *([] if groups is None else [request.groups_source]),
        ),
        bandwidths=bandwidths_of(network, work),
        probes=probe_summary_of(network),
        predictions=predictions_note(network) or "",
        interfaces="" if (topology := interface_topology(network)) is None else topology.text,
    )


def groups_of(network: Network, groups: Sequence[Sequence[str]] | None, location: str = "groups") -> TieredGroups:
    """Return the named groups, else those of the latencies, with their tiers. Hosts of a BCube form no groups (one of
    all), and their tiers are by how many digits differ.

    :raises InputError: when the groups are not of these hosts.
    """
    if groups is not None:
        levels, source = [_listed(network, groups, location)], f"as {location} lists them"
    elif most_hosts_relay(network.interfaces):
        all_hosts = np.zeros(len(network.hosts), dtype=np.intp)
        topology = interface_topology(network)
        shape = None if topology is None else topology.shape
        levels = [*shape.digits.T.astype(np.intp)] if isinstance(shape, BCube) else [all_hosts]
        titles = ["all pairs", *(f"{count(k, 'digit')} apart" for k in range(1, len(levels) + 1))]
        return TieredGroups(all_hosts, _tiers(network.rtt_us, levels, titles), "none, for hosts pass packets on")
    else:
        levels, source = _nested(network, network.completed_us), "the tiers of the round trips"
    return TieredGroups(levels[0], _tiers(network.rtt_us, levels, _titles(levels)), source)


def _listed(network: Network, groups: Sequence[Sequence[str]], location: str) -> Indices:
    index = {name: i for i, name in enumerate(network.hosts.names)}
    labels = np.full(len(index), -1, dtype=np.intp)
    for number, group in enumerate(groups):
        for name in group:
            if name not in index:
                raise InputError(location, f"{name} is none of the hosts in {network.location}")
            if labels[index[name]] >= 0:
                raise InputError(location, f"{name} is in two groups")
            labels[index[name]] = number
    missing = [network.hosts.names[i] for i in np.flatnonzero(labels < 0)]
    if missing:
        more = ", ..." if len(missing) > _MAX_LISTED_PAIRS else ""
        raise InputError(location, f"leaves out {', '.join(missing[:_MAX_LISTED_PAIRS])}{more}")
    return np.unique(labels, return_inverse=True)[1].astype(np.intp)


def _nested(network: Network, cost: Matrix) -> list[Indices]:
    """Return the groups of every tier, innermost first, each shape (N,); one group of all without tiers."""
    n = len(cost)
    hosts = measured_hosts(cost)
    isolated = np.setdiff1d(np.arange(n), hosts)  # nobody reached them, they say nothing of tiers: groups by themselves
    among = np.ix_(hosts, hosts)
    completed = completed_by_detours(cost[among])
    halves = [half[among] for half in network.half_rtts_us]
    hierarchy = tiers(completed, [np.where(np.isnan(half), completed, half) for half in halves])
    levels = []
    for part in [tier.label for tier in hierarchy] or [np.zeros(len(hosts), dtype=np.intp)]:
        level = np.empty(n, dtype=np.intp)
        level[hosts] = part
        level[isolated] = part.max() + 1 + np.arange(len(isolated))
        levels.append(level)
    # Numbered so that groups which are near each other follow each other: that is how hosts are shown without an order.
    first = np.unique(levels[0], return_index=True)[1]
    ranked = first[np.lexsort([level[first] for level in levels])]
    number = np.empty(len(first), dtype=np.intp)
    number[levels[0][ranked]] = np.arange(len(first))
    return [number[levels[0]], *levels[1:]]


def _titles(levels: list[Indices]) -> list[str]:
    """Return what pairs are called that none, one, two, ... of these nested levels separate."""
    names = {1: ["inside groups", "between groups"], 2: ["inside groups", "between near groups", "between far groups"]}
    titles = names.get(
        len(levels), ["inside groups", *(f"{k} level{'s' * (k > 1)} apart" for k in range(1, len(levels) + 1))]
    )
    if levels[0].max() == 0:
        titles = ["all pairs", ""]
    return titles


def _tiers(cost: Matrix, levels: list[Indices], titles: list[str]) -> tuple[TierStatistics, ...]:
    """Count and summarise pairs by how many of the levels separate them."""
    apart = sum((labels[:, None] != labels[None, :]).astype(np.intp) for labels in levels)
    statistics = []
    for number, name in enumerate(titles):
        pairs = np.triu(np.asarray(apart) == number, 1)
        values = cost[pairs & np.isfinite(cost)]
        if pairs.any():
            percentiles = np.percentile(values, [10, 50, 90]).tolist() if len(values) else [np.nan] * 3
            statistics.append(TierStatistics(name, int(pairs.sum()), len(values), *percentiles))
    return tuple(statistics)


def remarks_of(network: Network) -> tuple[Finding, ...]:
    """Return the findings of the doctor."""
    from plink.features.diagnose.run import diagnose  # brings probing

    return tuple(diagnose(network))


def left_out(network: Network) -> list[int]:
    """Return hosts without any measured round trip."""
    measured_counts = np.isfinite(network.latency_us).sum(axis=0) + np.isfinite(network.latency_us).sum(axis=1)
    return np.flatnonzero(measured_counts == 2).tolist()


def gaps_of(network: Network) -> tuple[Gap, ...]:
    """Return what was not measured: a row for each host without any, then one for each reason."""
    names, isolated = network.hosts.names, set(left_out(network))
    reason_of = {(row.source, row.target): row.reason for row in network.errors}
    default_reason = "left to prediction" if network.details.plan == "adaptive" else "never tried"
    reasons = [default_reason, *sorted(set(reason_of.values()) - {default_reason})]
    number, index = {reason: k for k, reason in enumerate(reasons)}, {name: i for i, name in enumerate(names)}
    code = np.where(np.isnan(network.latency_us), 0, -1)  # of the reason, -1 where there is none to look for
    for (source, target), reason in reason_of.items():
        if source in index and target in index and code[index[source], index[target]] >= 0:
            code[index[source], index[target]] = number[reason]
    gaps = []
    for host in sorted(isolated):
        codes = np.concatenate([code[host], code[:, host]])
        codes = codes[codes >= 0]
        gaps.append(
            Gap(names[host], len(codes), _commonest_reason([reasons[k] for k in codes.tolist()], default_reason))
        )
    among = code.copy()
    among[sorted(isolated)] = among[:, sorted(isolated)] = -1
    pairs_of = np.bincount(among[among >= 0].ravel(), minlength=len(reasons))
    ranked = [k for k in np.argsort(-pairs_of, kind="stable").tolist() if pairs_of[k]]
    for k in ranked[:_MAX_REASONS]:
        shown = [f"{names[i]} → {names[j]}" for i, j in np.argwhere(among == k)[:_MAX_LISTED_PAIRS].tolist()]
        more = f" and {pairs_of[k] - _MAX_LISTED_PAIRS} more" if pairs_of[k] > _MAX_LISTED_PAIRS else ""
        gaps.append(Gap(", ".join(shown) + more, int(pairs_of[k]), reasons[k]))
    rest = int(pairs_of[ranked[_MAX_REASONS:]].sum())
    return (*gaps, Gap("others", rest, f"{len(ranked) - _MAX_REASONS} further reasons")) if rest else tuple(gaps)


def _commonest_reason(reasons: Iterable[str], default_reason: str) -> str:
    """Return the most frequent reason; the default one only without any other."""
    counted: Any = Counter(reason for reason in reasons if reason != default_reason)
    return str(counted.most_common(1)[0][0]) if counted else default_reason


def render_report(network: Network, request: ReportRequest | None = None) -> str:
    """Render the network as a page: HTML that needs no other file.

    :raises UsageError: for a single host. :raises NoAnswer: when no round trip was measured.
    :raises InputError: when the order, the groups or the embedding are not of these hosts.
    """
    request = request or ReportRequest()
    if request.embedding is not None and request.embedding.network != network.fingerprint():
        raise InputError("embedding", "was made of other hosts")
    return page(with_map(network, report_data_of(network, request), request))


def with_map(network: Network, data: ReportData, request: ReportRequest, location: str = "embedding") -> ReportData:
    """Return the data with a map of the hosts by the request's embedding, else by a new one, or the reason why there is
    none.

    :param location: names the embedding in errors. :raises InputError: when it cannot be read.
    """
    from plink.features.report.projection import fitted_map, map_of  # brings PyTorch

    if request.embedding is not None:
        return replace(data, map=map_of(network, data.groups.of, request.embedding, location))
    try:
        return replace(data, map=fitted_map(network, data, request.seed))
    except NoAnswer as error:
        return replace(data, no_map=f"The hosts could not be placed: {error}.")
