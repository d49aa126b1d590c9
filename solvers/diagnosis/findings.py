"""Diagnosis of a network: one finding for each cause, with its evidence and advice."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from plink.model.diagnosis import Finding, Severity
from plink.model.hostlist import shortened_hostlist
from plink.model.network import Matrix, Network
from plink.model.units import format_gbps, format_us, numbered
from solvers.changes.causes import explain
from solvers.changes.failures import is_by_chance, log_choices, scattered
from solvers.changes.noise import pooled_variance
from solvers.costs.fabric import fabric_of
from solvers.costs.host_flows import failed_flows_of, flows_of, unreached_hosts
from solvers.costs.shared_rows import is_uncertain
from solvers.diagnosis.bandwidth import SlowHost, half_duplex, slow_by_flows, slow_rates, slow_shared_links
from solvers.diagnosis.latency import (
    DiagnosisThresholds,
    Suspect,
    asymmetric_pairs,
    slow_hosts,
    slow_links,
)
from solvers.hierarchy.tiers import of_one_method

_MIN_LOSS = 0.001  # of the probes: more slows TCP
_MIN_LOST_PROBES = 3  # fewer may be one burst
_MAX_PARTITIONS = 8  # more of them are single pairs that failed, and no cut
_CLASSES, _CLASS_PAIRS = 8, 50  # of pairs by their round trips, and how many are in one at least
_TYPICAL = 0.95  # quantile of a class up to which noise counts for like pairs
_NOISE_SIGMAS = 4.0  # of a pair's own samples, at least
_MAX_BY_CHANCE = 0.05  # findings in a network that noise alone would make
_PROTOCOLS = {"stamp": ("UDP", Severity.WARNING), "icmp": ("ICMP", Severity.INFO), "tcp": ("TCP", Severity.ERROR)}
_SLOW_HOST_ADVICE = "exchange it, or look at its NIC and the limits of its instance"

Groups = npt.NDArray[np.intp]
Pair = tuple[int, int]
# Round trips i -> j of suspects, measured a second time, microseconds.
Remeasured = dict[Pair, float]


def diagnose(
    network: Network, groups: Groups, remeasured: Remeasured, limits: DiagnosisThresholds | None = None
) -> list[Finding]:
    """Return the findings of the measurements; those of several hosts with one cause may be :func:`merged`.

    :param groups: the group of every host, shape (N,).
    :param remeasured: a suspicion that these do not confirm is dropped.
    """
    limits = limits or DiagnosisThresholds()
    alike = alike_pairs(network, groups)
    groups = groups if alike is groups else np.zeros_like(groups)
    comparable = of_one_method(network.latency_us, network.detail("method_used"))
    comparable = np.where((comparable == 0) & ~np.eye(len(comparable), dtype=bool), np.nan, comparable)
    findings = [
        *_latencies(dataclasses.replace(network, latency_us=comparable), groups, alike, remeasured, limits),
        *lost_hosts(network),
        *_rates(network, groups),
        *_losses(network, groups),
        *uncertain_groups(network),
        *_clock_steps(network),
        *_zeros(network),
    ]
    partitions, cut = _partitions(network, groups)
    findings += [*partitions, *_unmeasured(network, cut)] if alike.ndim == 1 else _unmeasured(network, cut & False)
    return findings


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings that differ in nothing but their hosts as one, but each of a single pair, the most severe
    first."""
    by_cause: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        pair = finding.hosts if finding.is_of_pair else ()
        key = (finding.kind, finding.severity, finding.evidence, finding.advice, *pair)
        first = by_cause.get(key)
        hosts = finding.hosts if first is None else list(dict.fromkeys([*first.hosts, *finding.hosts]))
        by_cause[key] = finding if first is None else replace(first, hosts=hosts, pairs=first.pairs + finding.pairs)
    order = list(Severity)
    return sorted(by_cause.values(), key=lambda finding: order.index(finding.severity))


def closed(names: list[str], method: str, pairs: int = 0) -> Finding:
    """Return that the protocol of a probing method does not reach these hosts."""
    protocol, severity = _PROTOCOLS[method]
    besides = ": jobs and bandwidths need it" if method == "tcp" else ", or `plink probe --method auto`"
    advice = f"open it between the hosts (security group){besides}"
    return Finding("closed", severity, names, f"{protocol} is blocked", advice, pairs)


def unreachable(name: str, reason: str) -> Finding:
    """Return that a host's agent was lost, or could not be started."""
    return Finding("unreachable", Severity.ERROR, [name], reason, "try `ssh HOST`, then measure again")


def lost_hosts(network: Network) -> list[Finding]:
    """Return hosts of which something was measured, and whose agents were lost then."""
    responding = dict(zip(network.hosts.names, np.isfinite(network.rtt_us).sum(axis=1) > 1, strict=True))
    return [unreachable(name, reason) for name, reason in network.lost_hosts.items() if responding.get(name)]


def alike_pairs(network: Network, groups: Groups) -> Groups:
    """Return what says which pairs usually have the same round trip: the groups, or, where hosts pass on what others
    send (a BCube), the number of hops of each pair, shape (N, N)."""
    paths = None if network.interfaces is None else fabric_of(network).paths
    return groups if paths is None or not paths.has_relays else (paths.out >= 0).sum(axis=0)


def _latencies(
    network: Network, groups: Groups, alike: Groups, remeasured: Remeasured, limits: DiagnosisThresholds
) -> Iterator[Finding]:
    names, cost = network.hosts.names, network.rtt_us
    hosts, offsets = slow_hosts(cost, alike, limits)
    slow = {suspect.hosts[0] for suspect in hosts}
    for suspect in hosts:
        second = [
            max(value, remeasured.get((j, i), 0.0))
            for (i, j), value in remeasured.items()
            if suspect.hosts[0] in (i, j)
        ]
        if second and not _is_slow(min(second), suspect, limits):
            continue
        evidence = f"{format_us(suspect.excess_us)} more than the usual {format_us(suspect.usual_us)} to all others"
        severity = Severity.of_ratio(1 + suspect.excess_us / suspect.usual_us)
        advice = "exchange it, or look at its load and its NIC"
        measured = int(np.isfinite(cost[suspect.hosts[0]]).sum()) - 1
        evidence += f"; {format_us(min(second))} when measured again" if second else ""
        yield Finding("slow host", severity, [names[suspect.hosts[0]]], evidence, advice, measured)
    suspects = slow_links(cost, alike, offsets, limits)
    noise, slow_pairs = _noise_us(network.half_rtts_us if suspects else (), cost), {}
    for suspect in suspects:
        i, j = suspect.hosts
        second = [remeasured[pair] for pair in ((i, j), (j, i)) if pair in remeasured]
        # A second measurement, of far more probes, decides; else the noise of the first.
        is_certain = _is_slow(max(second), suspect, limits) if second else suspect.excess_us > noise[i, j]
        if not slow & {i, j} and is_certain:
            slow_pairs[i, j] = suspect
    for location, pairs in _causes(list(slow_pairs), np.isfinite(cost), groups):
        middle = sorted((slow_pairs[pair] for pair in pairs), key=lambda suspect: suspect.excess_us)[len(pairs) // 2]
        excess = f"{format_us(middle.excess_us)} more than the usual {format_us(middle.usual_us)}"
        again = [remeasured[pair] for pair in (middle.hosts, middle.hosts[::-1]) if pair in remeasured]
        excess += f"; {format_us(max(again))} when measured again" if again else ""
        yield Finding(
            "slow link",
            Severity.WARNING,
            _named(location, names),
            _of_pairs(excess, pairs),
            "an order from `plink reorder` keeps them apart",
            len(pairs),
        )
    yield from _asymmetries(network, groups, alike, remeasured, limits)


def _is_slow(second_us: float, suspect: Suspect, limits: DiagnosisThresholds) -> bool:
    """Return whether a second measurement confirms a suspicion."""
    return second_us >= suspect.usual_us * (1 + limits.share)


def _noise_us(halves: Sequence[Matrix], latency_us: Matrix) -> Matrix:
    """Return how much of a round trip may be noise, shape (N, N), 0 without halves: its standard error by the two
    halves of the samples and by those of pairs with like round trips, so many times that hardly any of all pairs
    exceeds it by chance, where noise is normal."""
    noise = np.zeros_like(latency_us)
    pairs = np.isfinite(latency_us) & ~np.eye(len(latency_us), dtype=bool)
    if halves and pairs.any():
        own, level = np.nan_to_num((halves[0] - halves[1])[pairs] / 2) ** 2, latency_us[pairs]
        typical = own.copy()  # a few pairs far noisier than others say nothing of those
        for part in np.array_split(np.argsort(level, kind="stable"), max(1, min(_CLASSES, len(own) // _CLASS_PAIRS))):
            typical[part] = np.minimum(own[part], np.quantile(own[part], _TYPICAL))
        pooled = pooled_variance(level, typical)  # two halves may agree by chance
        noise[pairs] = np.sqrt(np.maximum(pooled, (pooled + own) / 2))
    return noise * max(_NOISE_SIGMAS, -NormalDist().inv_cdf(_MAX_BY_CHANCE / max(1, pairs.sum())))


def _asymmetries(
    network: Network, groups: Groups, alike: Groups, remeasured: Remeasured, limits: DiagnosisThresholds
) -> Iterator[Finding]:
    names, latency = network.hosts.names, network.latency_us
    slow = {suspect.hosts[0] for suspect in slow_hosts(network.rtt_us, alike, limits)[0]}
    suspects, directions, certain = asymmetric_pairs(latency, limits), {}, np.isfinite(network.rtt_us)
    noise = _noise_us((network.halves() or ()) if suspects else (), latency)
    noise = np.hypot(noise, noise.T)  # of the difference
    for i, j in sorted(suspects, key=lambda pair: latency[pair[::-1]] - latency[pair]):
        again = [remeasured[pair] for pair in ((i, j), (j, i)) if pair in remeasured]
        is_confirmed = len(again) == 2 and again[0] - again[1] > limits.asymmetry * again[1]
        if slow & {i, j} or (len(again) == 2 and not is_confirmed):
            continue
        if is_confirmed or latency[i, j] - latency[j, i] > noise[i, j]:
            directions[min(i, j), max(i, j)] = (i, j)
        else:
            certain[i, j] = certain[j, i] = False
    for location, pairs in _causes(list(directions), certain, groups):
        i, j = directions[pairs[len(pairs) // 2]]
        evidence = f"{format_us(latency[i, j])} from {names[i]}, {format_us(latency[j, i])} from {names[j]}"
        hosts = [names[i], names[j]] if len(pairs) == 1 else _named(location, names)
        advice = "probe again; if it stays, the two paths differ"
        yield Finding("asymmetric", Severity.WARNING, hosts, _of_pairs(evidence, pairs), advice, len(pairs))


def _causes(pairs: Sequence[Pair], measured: Matrix, groups: Groups) -> Iterator[tuple[tuple[int, ...], list[Pair]]]:
    """Yield hosts to blame with the pairs they explain: a host, two groups, a group, all hosts, or the two of a pair,
    in the order of ``pairs`` (i < j).

    :param measured: which pairs were measured, shape (N, N).
    """
    affected = np.zeros(measured.shape, dtype=bool)
    for i, j in pairs:
        affected[i, j] = affected[j, i] = True
    comparable = measured.astype(bool) & ~np.eye(len(measured), dtype=bool)
    causes, unexplained = explain(comparable, affected, [groups], lambda pairs: True)
    for cause in causes:
        members = [(i, j) for i, j in zip(*(part.tolist() for part in cause.pairs), strict=True) if affected[i, j]]
        if members:
            yield (*cause.near, *cause.far), members
    yield from ((pair, [pair]) for pair in pairs if unexplained[pair])


def _named(hosts: Sequence[int], names: Sequence[str]) -> list[str]:
    return [names[host] for host in hosts]


def _of_pairs(evidence: str, pairs: Sequence[object]) -> str:
    """Return the evidence of a cause that explains several pairs, by the median one."""
    return evidence if len(pairs) == 1 else f"{evidence} (median of {len(pairs)} pairs)"


def rate_findings(network: Network) -> list[Finding]:
    """Return hosts whose flows carry far less than the others', or as much one way as both ways together."""
    names, flows = network.hosts.names, flows_of(network)
    findings = [_slow_host(slow, names, "other hosts") for slow in slow_by_flows(flows, len(names))]
    named = {finding.hosts[0] for finding in findings}
    for host in half_duplex(flows, len(names)):
        if names[host] not in named:
            evidence = "sends and receives at once, together, only what it does one way"
            advice = "set full duplex: ethtool IFACE, ethtool -s IFACE duplex full"
            findings.append(Finding("half duplex", Severity.ERROR, [names[host]], evidence, advice))
    return findings + _blocked(network)


def _blocked(network: Network) -> list[Finding]:
    """Return one finding of all hosts that no flow reached or left, though their round trips were measured. Flows with
    hosts that were lost say nothing."""
    responding = np.isfinite(network.rtt_us).sum(axis=1) > 1
    lost_names = network.lost_hosts
    lost = {k for k, name in enumerate(network.hosts.names) if name in lost_names}
    failed = [pair for pair in failed_flows_of(network) if lost.isdisjoint(pair)]
    unreached = unreached_hosts(flows_of(network), failed)
    names = [network.hosts.names[host] for host in unreached if responding[host]]
    return [closed(names, "tcp")] if names else []


def _slow_host(slow: SlowHost, names: Sequence[str], others: str) -> Finding:
    verbs = {"out": "sends", "in": "receives"}
    rates = [f"{verbs[way]} at most {format_gbps(most)}" for way, (most, _) in slow.rates.items()]
    usual = next(iter(slow.rates.values()))[1]
    evidence = f"{' and '.join(rates)} with any partner, {others} {format_gbps(usual)} (median)"
    return Finding("slow host (bandwidth)", Severity.ERROR, [names[slow.host]], evidence, _SLOW_HOST_ADVICE)


def _rates(network: Network, groups: Groups) -> list[Finding]:
    """Return hosts and links that carry far less than others, for networks with bandwidths or shared links."""
    names, bandwidth = network.hosts.names, network.bandwidth_gbps
    findings = [
        _slow_host(slow, names, "other pairs") for slow in ([] if bandwidth is None else slow_rates(bandwidth, groups))
    ]
    named = {finding.hosts[0] for finding in findings}
    findings += [finding for finding in rate_findings(network) if finding.hosts[0] not in named]
    findings += _dead_links(network, groups, named)
    for link in itertools.chain(*(slow_shared_links(tier.groups, names) for tier in network.shared_links)):
        usual = format_gbps(link.usual_gbps)
        evidence = f"together they get {format_gbps(link.gbps)} {link.way}, other groups {usual} (median)"
        advice = "look at the link that they share; `plink advise` says which algorithm suffers least"
        hosts = _named(link.members, names)
        findings.append(Finding("slow shared link", Severity.ERROR, hosts, evidence, advice))
    return findings


def _dead_links(network: Network, groups: Groups, slow: Container[str]) -> Iterator[Finding]:
    """Yield groups that 0 Gbit/s were measured of, and other pairs of hosts, but those of hosts that are ``slow``."""
    names, verbs = network.hosts.names, {"out": "nothing gets out", "in": "nothing gets in"}
    advice = "look at the cable and the switch between them, then probe again; no job gets through"
    of_pairs = "look at the firewall and the switch between them, then probe again; orders avoid the pair"
    rates = np.full((len(names),) * 2, np.nan) if network.bandwidth_gbps is None else network.bandwidth_gbps
    dead = np.triu((rates == 0) | (rates.T == 0), 1)
    for row in (row for tier in network.shared_links for row in tier.groups):
        ways = [verb for way, verb in verbs.items() if row.gbps(way) == 0]
        if ways and len(row.members) < len(names) and not is_uncertain(row):
            inside = np.isin(names, row.members)
            dead &= inside[:, None] == inside  # it explains the pairs that cross it
            evidence = f"{' and '.join(ways)} over the link to the other groups: 0 Gbit/s"
            yield Finding("dead link", Severity.ERROR, list(row.members), evidence, advice)
    pairs = [(i, j) for i, j in np.argwhere(dead).tolist() if names[i] not in slow and names[j] not in slow]
    for location, members in _causes(pairs, np.isfinite(rates), groups):
        i, j = members[0]
        evidence = f"nothing gets through between {names[i]} and {names[j]}: 0 Gbit/s"
        if len(members) > 1:
            evidence += f", as between {len(members)} pairs in all"
        yield Finding("dead link", Severity.ERROR, _named(location, names), evidence, of_pairs, len(members))


def uncertain_groups(network: Network) -> list[Finding]:
    """Return groups with shared links that are found in few resamples of the round trips."""
    shares = {
        tuple(row.members): row.confidence or 0.0
        for tier in network.shared_links
        for row in tier.groups
        if is_uncertain(row) and len(row.members) > 1
    }
    if not shares:
        return []
    low, high = f"{min(shares.values()):.0%}", f"{max(shares.values()):.0%}"
    span = low if low == high else f"{low} to {high}"
    groups = "a group" if len(shares) == 1 else f"{len(shares)} groups"
    evidence = f"{groups} with shared links, found in {span} of the resamples of the round trips, so orders do not use "
    evidence += "them: hosts were busy while they were measured, or flows of others disturbed them"
    advice = "probe again when the hosts are idle, with a larger --count, or say who shares links: --topology FILE"
    hosts = list(dict.fromkeys(name for members in shares for name in members))
    return [Finding("uncertain group", Severity.INFO, hosts, evidence, advice)]


def _losses(network: Network, groups: Groups) -> Iterator[Finding]:
    names = network.hosts.names
    samples = network.detail("samples")
    by_way = {key: network.detail(key) for key in ("loss_forward", "loss_back")}
    losses: dict[Pair, float] = {}
    for key, loss in by_way.items():
        if loss is None:
            continue
        share = np.nan_to_num(loss)
        lost = np.full_like(share, np.inf) if samples is None else np.nan_to_num(samples) * share / (1 - share + 1e-9)
        for i, j in np.argwhere((share > _MIN_LOSS) & ((lost > _MIN_LOST_PROBES - 0.5) | (share > 0.5))).tolist():
            # What is lost on the way from i to j is one path, whoever measured it.
            path = (i, j) if key == "loss_forward" else (j, i)
            losses[path] = max(float(share[i, j]), losses.get(path, 0.0))
    pairs = list({(min(path), max(path)) for path in losses})
    worst_first = sorted(pairs, key=lambda pair: (-max(losses.get(pair, 0.0), losses.get(pair[::-1], 0.0)), pair))
    for location, members in _causes(worst_first, np.isfinite(network.rtt_us), groups):
        paths = [path for a, b in members for path in ((a, b), (b, a)) if path in losses]
        worst = max(paths, key=lambda path: losses[path])
        evidence = f"{100 * losses[worst]:.2f} % of the probes are lost from {names[worst[0]]} to {names[worst[1]]}"
        if len(members) > 1:
            evidence = f"up to {evidence}, on {len(members)} pairs"
        yield Finding(
            "loss",
            Severity.of_loss(losses[worst]),
            _named(location, names),
            evidence,
            "look for a full queue or a bad cable",
            len(members),
        )


def _clock_steps(network: Network) -> Iterator[Finding]:
    """Yield hosts whose clock was stepped while they measured, which gives negative round trips."""
    names, clock_steps = network.hosts.names, network.detail("clock_steps")
    if clock_steps is None:
        return
    steps = np.nan_to_num(clock_steps).sum(axis=1)
    advice = "its figures of these rounds are doubtful: let its clock slew (chrony), then probe again"
    for host in np.flatnonzero(steps).tolist():
        evidence = f"{int(steps[host])} of its round trips came out negative: a clock step"
        yield Finding("tainted", Severity.WARNING, [names[host]], evidence, advice)


def _zeros(network: Network) -> Iterator[Finding]:
    """Yield hosts between which a round trip of 0 is recorded, which no two hosts have."""
    names = network.hosts.names
    pairs = np.argwhere(np.triu((network.latency_us == 0) | (network.latency_us.T == 0), 1)).tolist()
    if pairs:
        i, j = pairs[0]
        hosts = list(dict.fromkeys(names[host] for pair in pairs for host in pair))
        evidence = f"the file has round trips of 0 us between different hosts, first {names[i]} and {names[j]}"
        advice = "write null for a pair that was not measured; leave one name of each host"
        yield Finding("zero", Severity.WARNING, hosts, _of_pairs(evidence, pairs), advice, len(pairs))


def _partitions(network: Network, groups: Groups) -> tuple[list[Finding], npt.NDArray[np.bool_]]:
    """Return a finding for each two sets of hosts that cannot reach each other, and their pairs, shape (N, N).

    A pair that was not tried, or of a host without an agent, says nothing. Where a TCP flow came through, only probes
    are blocked: a host that none reach is a finding, too. Two sets are cut where no pair between them was measured, and
    more failed than do by chance.
    """
    names = network.hosts.names
    index = {name: i for i, name in enumerate(names)}
    measured, failed = np.isfinite(network.latency_us), np.zeros((len(names),) * 2, dtype=bool)
    reasons = {}
    lost = network.lost_hosts.keys()
    for row in network.errors:
        ends = index.get(row.source, -1), index.get(row.target, -1)
        if min(ends) >= 0 and lost.isdisjoint((row.source, row.target)) and row.was_tried:
            failed[ends] = failed[ends[::-1]] = True
            reasons[min(ends), max(ends)] = row.reason
    measured |= measured.T
    np.fill_diagonal(measured, False)
    failed &= ~measured
    tried = measured | failed
    _, unexplained = explain(tried, failed, [groups], lambda pairs: bool(failed[pairs].all()))
    chance = scattered(failed & unexplained, tried)
    # One after the other: among many failures the second set of pairs has cycles by chance.
    parts = failed & ~unexplained, failed & unexplained & ~chance
    cut, findings, connected = np.zeros_like(failed), list[Finding](), np.zeros_like(failed)
    for flow in flows_of(network):
        connected[flow.source, flow.target] = connected[flow.target, flow.source] = True
    candidates = ((part, *sets) for part in parts for sets in itertools.combinations(_cut_sets(measured, part), 2))
    for part, near, far in candidates:
        pairs = [(min(a, b), max(a, b)) for a in near for b in far if part[a, b]]
        # One pair alone is no cut between groups.
        if len(pairs) < 2 or not measured.any() or (measured | connected)[np.ix_(near, far)].any():
            continue
        # There are fewer than N * N causes by hosts and groups.
        n = len(names)
        choices = 2 * math.log(n) if part is parts[0] else log_choices(n, len(near), len(far))
        if not is_by_chance(len(pairs), choices, int(chance.sum()) // 2, int(tried.sum()) // 2):
            cut[np.ix_(near, far)] = cut[np.ix_(far, near)] = True
            here, there = (shortened_hostlist(_named(hosts, names)) for hosts in (near, far))
            evidence = f"{here} and {there} cannot reach each other ({len(pairs)} pairs: {reasons[pairs[0]]})"
            advice = "look at the link, the routes and the security groups between the two"
            hosts = _named([*near, *far], names)
            findings.append(Finding("partition", Severity.ERROR, hosts, evidence, advice, len(pairs)))
    if len(findings) > _MAX_PARTITIONS:
        findings, cut = [], np.zeros_like(cut)
    counts, method = failed.sum(axis=1), network.details.method
    if method in ("stamp", "icmp") and measured.any():
        for host in np.flatnonzero((counts > 1) & ~measured.any(axis=1) & connected.any(axis=1)).tolist():
            cut[host] |= failed[host]
            cut[:, host] |= failed[host]
            # Its round trips are missing, whatever else the protocol is good for.
            finding = closed([names[host]], method, int(counts[host]))
            findings.append(replace(finding, severity=Severity.WARNING))
    return findings, cut


def _cut_sets(measured: npt.NDArray[np.bool_], failed: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Return hosts with failed pairs as sets, in each of which nobody reaches a host that another one tried in vain.

    :param measured, failed: symmetric, shape (N, N). A host joins the set with which it shares most failed targets.
    """
    sets: list[tuple[list[int], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]] = []
    for host in sorted(np.flatnonzero(failed.any(axis=1)).tolist(), key=lambda host: -failed[host].sum()):
        alike = [
            (members, reached, missed)
            for members, reached, missed in sets
            if not missed[host] and not ((failed[host] & reached) | (measured[host] & missed)).any()
        ]
        if alike:
            members, reached, missed = max(alike, key=lambda each: (failed[host] & each[2]).sum())
            members.append(host)
            reached |= measured[host]
            missed |= failed[host]
        else:
            sets.append(([host], measured[host].copy(), failed[host].copy()))
    return [sorted(members) for members, _, _ in sets]


def _unmeasured(network: Network, explained: npt.NDArray[np.bool_]) -> Iterator[Finding]:
    """Yield hosts of which nothing was measured, an error where others tried, and the other pairs without a round trip,
    but those that are ``explained``, shape (N, N)."""
    names = network.hosts.names
    unmeasured = np.isnan(network.latency_us) & ~explained
    errors = {(row.source, row.target): row.reason for row in network.errors}
    index, tried = {name: i for i, name in enumerate(names)}, np.zeros_like(unmeasured)
    for row in network.errors:
        if row.was_tried and row.source in index and row.target in index:
            tried[index[row.source], index[row.target]] = True
    if network.details.plan == "adaptive":  # most pairs are unmeasured by design
        failed = [(index[a], index[b]) for a, b in errors if a in index and b in index]
        reported = np.zeros_like(unmeasured)
        reported[[i for i, _ in failed], [j for _, j in failed]] = True
        unmeasured &= reported
    responding = np.isfinite(network.rtt_us).sum(axis=1) > 1  # its distance to itself is one
    tried &= unmeasured
    silent = ~responding & unmeasured.any(axis=1) & responding.any()
    in_vain = silent & ((tried | tried.T) & responding).any(axis=1)
    for hosts, severity in ((in_vain, Severity.ERROR), (silent & ~in_vain, Severity.WARNING)):
        absent = np.argwhere(unmeasured & (hosts[:, None] | hosts)).tolist()
        if not absent:
            continue
        i, j = next((pair for pair in absent if tried[*pair]), absent[0])
        pairs = len({(min(pair), max(pair)) for pair in absent})
        them, it_answers = ("it", "it answers") if hosts.sum() == 1 else ("them", "they answer")
        reason = errors.get((names[i], names[j]), "never tried")
        evidence = (
            f"nothing was measured of {them} ({numbered(pairs, 'pair')}), first {names[i]} -> {names[j]}: {reason}"
        )
        advice = f"leave {them} out, or make sure that {it_answers} and run `plink probe --resume`"
        yield Finding("unmeasured", severity, _named(np.flatnonzero(hosts).tolist(), names), evidence, advice, pairs)
        unmeasured[hosts] = unmeasured[:, hosts] = False
    absent = np.argwhere(unmeasured).tolist()
    if not absent:
        return
    i, j = absent[0]
    reason = errors.get((names[i], names[j]), "never tried")
    lost, shared = network.lost_hosts, set.intersection(*map(set, absent))
    by_host = Counter(host for pair in absent for host in ([k for k in pair if names[k] in lost] or pair))
    blamed = shared if len(shared) == 1 else sorted(by_host, key=lambda host: (-by_host[host], host))
    hosts = _named([*blamed], names)
    pairs = len({(min(pair), max(pair)) for pair in absent})
    number = f"{numbered(pairs, 'pair was', 'pairs were')} not measured"
    if len(absent) < 2 * pairs:
        number += " in one direction" if len(absent) == pairs else ", some in one direction"
    evidence = f"{number}, first {names[i]} -> {names[j]}: {reason}"
    yield Finding("unmeasured", Severity.WARNING, hosts, evidence, "`plink probe --resume` measures them", pairs)
