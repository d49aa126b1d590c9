"""What groups of hosts share: tiers of groups by the latencies, and the capacity of each group's link."""

import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import structs

from plink.features.measure.host_rates import TCP_BLOCKED, unreached_by_flows
from plink.features.order.interfaces import most_hosts_relay
from plink.model.hostlist import fold_hostlist
from plink.model.hosts import Hosts
from plink.model.network import Matrix, symmetrised
from plink.model.network_file import SharedLinkEntry, SharedTierEntry
from plink.model.topology import Topology, paths_for
from probes.boundary_pairs import TierGroups
from probes.measurements import Measurements
from probes.plan import LinkLimit
from probes.session import ProbeSession
from probes.shared_links import SharedLinkSettings, shared_links
from solvers.hierarchy.shared_tiers import (
    HostGroups,
    TierConfidence,
    candidate_tiers,
    confirmed_rows,
    limited_from_above,
    tier_confidences,
)
from solvers.hierarchy.tiers import completed_by_detours, nearest_tier, of_one_method
from solvers.prediction.tiered import predict_tiered
from solvers.prediction.topology import levels_apart, tiers_of

Labels = npt.NDArray[np.intp]
_FLOW_TOLERANCE = 0.15  # of a flow: 1.9 flows fit two
_log = logging.getLogger("plink.probe")


def measure_shared_links(
    session: ProbeSession,
    settings: SharedLinkSettings,
    advance: Callable[[int, int], None] = lambda done, total: None,
    keep_going: Callable[[], bool] = lambda: True,
    given_tiers: Sequence[HostGroups] | None = None,
) -> None:
    """Measure the capacity that each group of each tier shares, and add it to the measurements' details: from the
    innermost tier out, those above only where groups have a bottleneck of their own. Hosts of a BCube form no groups.

    :param given_tiers: as of :func:`tiers_by_topology`; None: found by the latencies.
    """
    measurements = session.measurements
    if given_tiers is None and most_hosts_relay(measurements.details.interfaces or None):
        return
    tiers = find_tiers(measurements) if given_tiers is None else given_tiers
    if not tiers or len(tiers[0]) < 2:
        source = "the latencies" if given_tiers is None else "the topology file"
        _log.info("no groups stand out in %s: no shared links to measure", source)
        return
    names = measurements.hosts.names
    if given_tiers is None and (others := _of_other_methods(measurements)):
        _log.info("%s: measured by another method than most hosts, and so left out of shared links", others)
    measured, below = list[SharedTierEntry](), list[SharedLinkEntry]()
    unreached = frozenset(unreached_by_flows(measurements))
    part_of = dict[int, int]()
    confidences = _confidences(measurements, tiers) if given_tiers is None else []
    ends = np.cumsum([0, *map(len, tiers)]).tolist()
    for number, (groups, outer, first) in enumerate(zip(tiers, [*tiers[1:], None], ends[:-1], strict=True)):
        tier = TierGroups(groups, None if outer is None else _families(groups, outer), part_of)
        if part_of:  # the link of a group of one part is that of the part
            several = [group for group in groups if len(set(map(tier.part, group))) > 1]
            below_gbps = {
                (group[0], way): row.gbps(way) or 0.0
                for group in groups
                if group not in several
                for row in below
                if names[group[0]] in row.members
                for way in ("out", "in")
            }
            tier = dataclasses.replace(tier, measured=frozenset(itertools.chain(*several)), known_gbps=below_gbps)
        on_done = functools.partial(_advance_from, advance, first, ends[-1])
        with session.scheduler.excluding(unreached, TCP_BLOCKED):
            rows = shared_links(session, tier, settings, on_done, keep_going)
        on_done(len(groups), len(groups))
        several_parts = [group for group in groups if tier.measured is None or not tier.measured.isdisjoint(group)]
        if len(rows) < len(several_parts) and not keep_going():
            size = f" of {len(several_parts[0])} hosts" if len({*map(len, several_parts)}) == 1 else ""
            unknown = len(several_parts) - len(rows)
            _log.info(f"what {unknown} groups{size} share is not known: the budget was spent")
        if below:
            rows = confirmed_rows(rows, below)
        else:
            rows = [_with_unreached(row, groups, names, unreached) for row in rows]
        if rows:
            measured = [structs.replace(entry, groups=limited_from_above(entry.groups, rows)) for entry in measured]
            measured.append(_tier_entry(rows, groups, names, confidences[number] if confidences else None))
            measurements.add(shared_links=measured)
            inside = {name for row in rows for name in row.members}
            below = rows + [row for row in below if not inside.issuperset(row.members)]
            part_of = {host: part for part, group in enumerate(groups) for host in group}


def _confidences(measurements: Measurements, tiers: Sequence[HostGroups]) -> list[TierConfidence]:
    """Return how sure each tier is; empty where that is not known."""
    sparse = measurements.details.plan == "adaptive"
    label = functools.partial(label_groups, sparse=True) if sparse else None
    return tier_confidences(measurements.latency, measurements.halves, tiers, label)


def _tier_entry(
    rows: Sequence[SharedLinkEntry], groups: HostGroups, names: Sequence[str], confidence: TierConfidence | None
) -> SharedTierEntry:
    """Return a tier as the file has it, with the confidence of the tier and of each group where they are known."""
    if confidence is None:
        return SharedTierEntry(groups=[*rows])
    of_host = {names[host]: share for group, share in zip(groups, confidence.groups, strict=True) for host in group}
    certain = [structs.replace(row, confidence=round(of_host[row.members[0]], 3)) for row in rows]
    return SharedTierEntry(confidence=round(confidence.tier, 3), groups=certain)


def _with_unreached(
    row: SharedLinkEntry, groups: HostGroups, names: Sequence[str], unreached: frozenset[int]
) -> SharedLinkEntry:
    """Return the row of a group with its hosts that took no part in flows, for they are behind the same link."""
    group = next(group for group in groups if names.index(row.members[0]) in group)
    return structs.replace(row, members=[*row.members, *(names[host] for host in group if host in unreached)])


def _advance_from(advance: Callable[[int, int], None], first: int, total: int, done: int, _: int) -> None:
    advance(first + done, total)


def _families(groups: HostGroups, outer: HostGroups) -> list[int]:
    """Return the outer group of each group."""
    outer_of = {host: number for number, group in enumerate(outer) for host in group}
    return [outer_of[group[0]] for group in groups]


def tiers_by_topology(topology: Topology, hosts: Hosts) -> list[HostGroups]:
    """Return the groups of hosts that a topology file names, as :func:`find_tiers` those by latencies; empty where it
    tells none apart.

    :raises InputError: when it has none of the hosts.
    """
    return tiers_of(levels_apart(paths_for(topology, hosts)))


def find_tiers(measurements: Measurements) -> list[HostGroups]:
    """Return groups of hosts near each other, then those of candidates for tiers above them, without hosts that have
    no measurement, or by another method than most.

    The groups are those of the nearest tier, or finer ones, if both halves of the samples have them too.
    """
    latency = _comparable(measurements)
    sparse = measurements.details.plan == "adaptive"
    labels = label_groups(latency, sparse)
    halves = () if sparse else measurements.network().half_rtts_us
    if halves and len(labels) > 2:
        rtt = completed_by_detours(symmetrised(latency))
        finer = nearest_tier(rtt, halves=[np.where(np.isnan(half), rtt, half) for half in halves])
        if len(np.unique(np.stack([labels, finer]), axis=1).T) == finer.max() + 1:
            labels = finer
    responding = np.isfinite(latency).sum(axis=1) > 1
    groups = [np.flatnonzero((labels == label) & responding).tolist() for label in range(labels.max() + 1)]
    groups = [group for group in groups if group]
    return [groups, *candidate_tiers(symmetrised(latency), groups)]


def _of_other_methods(measurements: Measurements) -> str:
    """Return the hosts whose round trips are not comparable with those of most, empty without any."""
    latency, comparable = (
        np.isfinite(matrix).sum(axis=1) > 1 for matrix in (measurements.latency, _comparable(measurements))
    )
    return fold_hostlist([measurements.hosts.names[k] for k in np.flatnonzero(latency & ~comparable)], ", ")


def _comparable(measurements: Measurements) -> Matrix:
    return of_one_method(measurements.latency, measurements.method)


def label_groups(latency_us: Matrix, sparse: bool = False) -> Labels:
    """Return each host's group by the latencies, shape (N,); unmeasured pairs count as far, or are predicted where
    most are unmeasured (``sparse``)."""
    if sparse:
        return predict_tiered(latency_us).groups
    cost = symmetrised(latency_us)
    return nearest_tier(np.where(np.isnan(cost), np.nanmax(cost), cost))


def link_limits(names: Sequence[str], tiers: Sequence[SharedTierEntry]) -> list[LinkLimit]:
    """Return how many flows the links that groups share carry at a time, each at the rate that it has alone.

    A link that was not the limit itself carries all of them; one that could not be measured is taken to carry one flow.
    """
    limits = []
    for row in (row for tier in tiers for row in tier.groups):
        flows = [
            (1.0 if (gbps := row.gbps(direction)) is None else gbps) / (row.one_flow_gbps(direction) or np.inf)
            for direction in ("out", "in")
            if row.limited_by(direction) not in ("hosts", "groups")
        ]
        if flows:
            limits.append(LinkLimit(np.isin(names, row.members), max(1, int(min(flows) + _FLOW_TOLERANCE))))
    return limits
