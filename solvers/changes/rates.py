"""Differences of two networks in rates: of pairs, of hosts themselves, of interfaces, and of what groups share."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import structs

from plink.model.comparison import NetworkChange
from plink.model.document import UNSET
from plink.model.network import Matrix, Network
from plink.model.network_file import SharedLinkEntry
from solvers.changes.differences import (
    BETTER,
    UNITS,
    WORSE,
    ChangeThresholds,
    PairChanges,
    describe,
    severity_of,
)
from solvers.changes.noise import Aligned, Labels, Mask, Side, chance, noise, own_noise
from solvers.costs.host_flows import (
    Flow,
    best_rates,
    class_gap,
    flow_noise,
    flows_of,
    ports_without_flows,
    rate_evidence,
)

_MAX_RATE_DRIFT_LOG = 0.2  # natural logarithm of the ratio between two probes: the precision of a few seconds of TCP
WAYS = ("out", "in")
_MIN_RATE_SHARE = 1e-3  # a rate of 0 counts as this share of the other one


def pair_rates(
    aligned: Aligned, groupings: Sequence[Labels], limits: ChangeThresholds
) -> tuple[list[NetworkChange], int, int]:
    """Return changes of pairs' rates, how many pairs were compared, and how many were measured in the old file only.

    A pair's rate is that of its slower direction; a direction counts where both files have it.
    """
    was, now = (_rates(side) for side in (aligned.old, aligned.new))
    if was is None:
        return [], 0, 0
    before, after = (np.zeros_like(was, dtype=bool) if rates is None else np.isfinite(rates) for rates in (was, now))
    lost = int(np.triu((before | before.T) & ~(after | after.T), 1).sum())
    if now is None:
        return [], 0, lost
    there = before & after
    np.fill_diagonal(there, False)
    old, new = (np.where(there, rate, np.inf) for rate in (was, now))
    old, new = (np.minimum(rate, rate.T) for rate in (old, new))
    measured = (there | there.T) & (np.maximum(old, new) > 0)
    old, new = (np.where(measured, rate, 1.0) for rate in (old, new))
    by = np.where(
        measured, np.log(np.maximum(old, _MIN_RATE_SHARE * new) / np.maximum(new, _MIN_RATE_SHARE * old)), 0.0
    )
    drift = noise(by, measured, own_noise(measured, old, ()), _MAX_RATE_DRIFT_LOG)
    change = PairChanges(by, measured, measured, float(np.log1p(limits.share)), drift)
    findings = [
        describe(cause, aligned.names, "rate", verdict, (old, new, by))
        for sign, verdict in ((1, WORSE), (-1, BETTER))
        for cause in change.causes(groupings, sign)
    ]
    return findings, int(np.triu(measured, 1).sum()), lost


def host_rates(
    aligned: Aligned, groupings: Sequence[Labels], limits: ChangeThresholds
) -> tuple[list[NetworkChange], int, int]:
    """Return changes of hosts' own rates, how many rates were compared, each way by itself, and how many only the old
    file has.

    Flows of a host with hosts of its innermost group count: others share links with whoever crosses these at the same
    time. A host changed where it, and not its partner, was the limit of the slower flow, by more than flows that were
    repeated differ. Where all hosts changed alike that is one change of the network.

    :param groupings: of the old file's round trips, from the innermost out.
    """
    near = _near(aligned, groupings)
    sides = [_evidence(side, aligned.names, near) for side in (aligned.old, aligned.new)]
    (old, old_shown, old_gap), (new, new_shown, new_gap) = sides
    both = np.isfinite(old) & np.isfinite(new) & (np.maximum(old, new) > 0)
    lost = int((np.isfinite(old) & ~np.isfinite(new)).sum())
    least = max(1 + limits.share, old_gap, new_gap)
    findings: list[NetworkChange] = []
    for verdict, slower, faster, shown in ((WORSE, new, old, new_shown), (BETTER, old, new, old_shown)):
        changed = both & (faster > least * slower)
        if changed[both].all() and changed.any():
            was, now = (float(np.median(rates[both])) for rates in (old, new))
            findings.append(_rate_change("network", aligned.names, "", verdict, was, now))
            continue
        changed &= shown
        for host in np.flatnonzero(changed.any(axis=0)).tolist():
            ways = np.flatnonzero(changed[:, host])
            way = min(ways.tolist(), key=lambda way, host=host: slower[way, host] / faster[way, host])  # type: ignore[misc]
            only_way = WAYS[way] if len(ways) == 1 else ""
            was, now = float(old[way, host]), float(new[way, host])
            findings.append(_rate_change("host", (aligned.names[host],), only_way, verdict, was, now))
    return findings, int(both.sum()), lost


def interface_rates(aligned: Aligned, limits: ChangeThresholds) -> tuple[list[NetworkChange], int, int]:
    """Return changes of what interfaces carry, how many rates were compared, each way by itself, and how many only the
    old file has.

    One through which flows came and no longer do carries 0 now. One that its host no longer uses is no longer measured,
    where the host uses no new ones instead and reached hosts by it that are still there. A change must exceed the
    noise of flows that were repeated; where all rates changed alike that is one change of the network.
    """
    networks = aligned.old.network, aligned.new.network
    old, new = map(_ports, networks)
    rates, unmeasured, lost = list[tuple[str, str, str, float, float]](), list[NetworkChange](), 0
    for host in aligned.names:
        was, now = old.get(host, {}), new.get(host, {})
        for name, (values, _) in was.items():
            others = now.get(name, ((None, None), ()))[0]
            lost += sum(before is not None and after is None for before, after in zip(values, others, strict=True))
            rates += [
                (host, name, way, before, after)
                for way, before, after in zip(WAYS, values, others, strict=True)
                if before is not None and after is not None and max(before, after)
            ]
        renamed = was.keys() - now.keys() and now.keys() - was.keys()  # another machine, maybe
        unmatched = [*_unmatched(was, now, new), *_unmatched(now, was, old)]
        for name in () if renamed else unmatched:
            change = _rate_change("interface", (host,), "", WORSE if name in was else BETTER, None, None)
            unmeasured.append(structs.replace(change, what="unmeasured", unit=None, interface=name))
    noises = [flow_noise(flows_of(network)) for network in networks]
    least = max(1 + limits.share, *map(class_gap, noises), math.exp(chance(len(rates)) * math.hypot(*noises)))
    findings = [
        structs.replace(
            _rate_change("interface", (host,), way, WORSE if after < before else BETTER, before, after), interface=name
        )
        for host, name, way, before, after in rates
        if max(before, after) > least * min(before, after)
    ]
    if 1 < len(rates) == len(findings) and len(verdicts := {finding.verdict for finding in findings}) == 1:
        before, after = np.median([(before, after) for *_, before, after in rates], axis=0).tolist()
        findings = [_rate_change("network", aligned.names, "", verdicts.pop(), before, after)]
    return findings + unmeasured, len(rates), lost


_Ports = dict[str, tuple[tuple[float | None, ...], set[str]]]  # by name: rates out and in, hosts on the same switch


def _unmatched(ports: _Ports, other: _Ports, of_all: dict[str, _Ports]) -> list[str]:
    """Return the interfaces of a host that it lacks in the ``other`` file, but those that carried nothing, and those
    whose partners on their switch are not there either (``of_all``: the other file's hosts)."""
    return [
        name
        for name, (rates, others) in ports.items()
        if other and name not in other and any(rate != 0 for rate in rates) and any(of_all.get(at) for at in others)
    ]


def _ports(network: Network) -> dict[str, _Ports]:
    """Return what each interface on a switch, or with a rate, sends and receives, Gbit/s, by host: 0 where flows were
    tried in vain, None where that was not measured or says nothing. Hosts that were lost are left out."""
    entry = network.interfaces
    if entry is None:
        return {}
    names, dead, lost = network.hosts.names, ports_without_flows(network), network.lost_hosts
    on_switch = {(host, k): {names[other] for other, _ in ports} for ports in entry.switches for host, k in ports}
    tables = tuple(zip(WAYS, ((entry.out_gbps or None), (entry.in_gbps or None)), strict=True))

    def rates(host: int, k: int) -> tuple[float | None, ...]:
        return tuple(
            0.0 if way in dead.get((host, k), ()) else None if rows is None else rows[host][k] for way, rows in tables
        )

    return {
        name: {
            interface: (rates(host, k), on_switch.get((host, k), set()) - {name})
            for k, interface in enumerate(entry.names[host])
            if (host, k) in on_switch or any(rates(host, k))
        }
        for host, name in enumerate(names)
        if name not in lost
    }


def _near(aligned: Aligned, groupings: Sequence[Labels]) -> Mask:
    """Return which hosts are in one innermost group by round trips, and by either file's shared links, shape (N, N)."""
    labels = list(groupings[:1])
    for side in (aligned.old, aligned.new):
        for tier in side.network.shared_links[:1]:
            group_of = {name: k for k, row in enumerate(tier.groups) for name in row.members}
            labels.append(np.array([group_of.get(name, -1) for name in aligned.names], dtype=np.intp))
    near = np.ones((len(aligned.names),) * 2, dtype=bool)
    for label in labels:
        near &= label[:, None] == label
    return near


def _evidence(side: Side, names: Sequence[str], near: Mask) -> tuple[Matrix, Mask, float]:
    """Return what hosts send and receive at best near by, and whether they were the limit there, shape (2, N) each, and
    the ratio above which rates differ: the other end was faster with another host."""
    index = {name: k for k, name in enumerate(names)}
    flows = [
        Flow(index[row.source], index[row.target], row.gbps, row.both_ways)
        for row in side.network.host_flows
        if row.source in index and row.target in index
    ]
    of_all = rate_evidence(flows, len(names))
    near_flows = [flow for flow in flows if near[flow.source, flow.target]]
    best = np.array(best_rates(near_flows, len(names)))
    shown = np.zeros_like(best, dtype=bool)
    for flow in near_flows:
        reach = flow.gbps * of_all.gap
        for way, host, other in ((0, flow.source, flow.target), (1, flow.target, flow.source)):
            shown[way, host] |= bool(best[way, host] <= reach < of_all.best_gbps[1 - way, other])
    return best, shown, of_all.gap


def _rate_change(
    where: str, hosts: tuple[str, ...], way: str, verdict: str, old: float | None, new: float | None
) -> NetworkChange:
    return NetworkChange(
        what="rate",
        severity=severity_of("rate", verdict, old, new),
        verdict=verdict,
        where=where,
        hosts=hosts,
        others=(),
        old=None if old is None else round(old, 6),
        new=None if new is None else round(new, 6),
        unit=UNITS["rate"],
        pairs=1,
        way=way or UNSET,
    )


def capacities(aligned: Aligned, limits: ChangeThresholds) -> tuple[list[NetworkChange], int, int, int]:
    """Return changes of shared capacities, of groups that have the same hosts in both files, with three counts.

    The counts: capacities that were compared, groups of the old file that have other hosts in the new one, and
    capacities of other groups that only the old file has. A change is reported where the ranges of both files' runs do
    not overlap. Where no link by itself got slower, but a group carries less to all others and its link or theirs may
    be why, that is a change between them.
    """
    before, after = _groups(aligned.old), _groups(aligned.new)
    others = {name for members in after.keys() - before.keys() for name in members}
    regrouped = {members for members in before.keys() - after.keys() if others.intersection(members)}
    findings: list[NetworkChange] = []
    between: list[NetworkChange] = []
    count, lost = 0, 0

    def change(
        verdict: str, old: float, new: float, members: tuple[str, ...], far: tuple[str, ...], way: str
    ) -> NetworkChange:
        return NetworkChange(
            what="capacity",
            severity=severity_of("capacity", verdict, old, new),
            verdict=verdict,
            where="link" if far else "uplink",
            hosts=members,
            others=far,
            old=round(old, 6),
            new=round(new, 6),
            unit=UNITS["capacity"],
            pairs=1,
            way=way,
        )

    for members, row in before.items():
        for way in WAYS:
            was, now = _figure(row, way), _figure(after.get(members), way)
            if was is None or now is None:
                lost += was is not None and members not in regrouped
                continue
            count += 1
            (old, old_low, old_high), (new, new_low, new_high) = was, now
            fell = old > new * (1 + limits.share) and new_low < old_low
            rose = new > old * (1 + limits.share) and new_low > old_high
            if rose or (fell and new_high < old_low):
                findings.append(change(WORSE if fell else BETTER, old, new, members, (), way))
            elif fell and new < old_low and new_high == np.inf and way == "out":
                far = tuple(name for name in aligned.names if name not in members)
                between.append(change(WORSE, old, new, members, far, way))
    if not any(finding.verdict == WORSE for finding in findings):
        findings += between
    return findings, count, len(regrouped), lost


def _rates(side: Side) -> Matrix | None:
    rates = side.network.bandwidth_gbps
    return None if rates is None else side.cut(rates)


def _groups(side: Side) -> dict[tuple[str, ...], SharedLinkEntry]:
    return {tuple(sorted(row.members)): row for tier in side.network.shared_links for row in tier.groups}


def _figure(row: SharedLinkEntry | None, way: str) -> tuple[float, float, float] | None:
    """Return a capacity and the range of its runs, Gbit/s; 0 is a measured value, None a missing one.

    Where the links of others were the limit the capacity is at least so much: the range has no end.
    """
    value = None if row is None else row.gbps(way)
    if row is None or value is None:
        return None
    low, high = row.range_gbps(way) or (value, value)
    return value, low, np.inf if row.limited_by(way) == "others" else high
