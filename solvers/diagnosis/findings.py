"""Diagnosis of a network: one finding for each problem, with its evidence and advice."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Network
from solvers.costs.host_flows import flows_of
from solvers.diagnosis.bandwidth import slow_rates, slow_shared_links
from solvers.diagnosis.host_rates import half_duplex, slow_by_flows
from solvers.diagnosis.latency import DiagnosisThresholds, Suspect, asymmetric_pairs, slow_hosts, slow_links

_MAX_LOSS = 0.001  # of the probes: more slows TCP
_MAX_NAMED_HOSTS = 8

_SLOW_HOST_ADVICE = "exchange it, or look at its NIC and the limits of its instance"

Remeasured = dict[tuple[int, int], float]


@dataclass(frozen=True)
class Finding:
    """One problem: its kind, hosts, evidence and advice."""

    kind: str
    hosts: list[str]
    evidence: str
    advice: str


def diagnose(network: Network, groups: npt.NDArray[np.intp], remeasured: Remeasured) -> list[Finding]:
    """Return the findings of the measurements.

    :param groups: the group of every host, shape (N,).
    :param remeasured: round trips of suspect pairs (i < j) measured a second time, microseconds; a suspicion that they
        do not confirm is dropped.
    """
    names, latency = network.hosts.names, network.latency_us
    cost, limits = network.rtt_us, DiagnosisThresholds()
    hosts, offsets = slow_hosts(cost, groups, limits)
    slow = {suspect.hosts[0] for suspect in hosts}
    findings = []
    for suspect in hosts:
        second_values = [value for pair, value in remeasured.items() if suspect.hosts[0] in pair]
        if not _is_confirmed(suspect, second_values, limits):
            continue
        evidence = f"{suspect.excess_us:.1f} us more than the usual {suspect.usual_us:.1f} us to everybody"
        advice = "exchange it, or look at its load and its NIC"
        findings.append(
            Finding("slow host", [names[suspect.hosts[0]]], evidence + _remeasured_text(second_values), advice)
        )
    for suspect in slow_links(cost, groups, offsets, limits):
        i, j = suspect.hosts
        second_values = [remeasured[i, j]] if (i, j) in remeasured else []
        if slow & {i, j} or not _is_confirmed(suspect, second_values, limits):
            continue
        evidence = f"{suspect.excess_us:.1f} us more than the usual {suspect.usual_us:.1f} us"
        advice = "an order from `plink reorder` keeps them apart"
        findings.append(Finding("slow link", [names[i], names[j]], evidence + _remeasured_text(second_values), advice))
    for i, j in asymmetric_pairs(latency, limits):
        if not slow & {i, j}:
            evidence = f"{latency[i, j]:.1f} us from {names[i]}, {latency[j, i]:.1f} us from {names[j]}"
            advice = "probe again; if it stays, the two paths differ"
            findings.append(Finding("asymmetric", [names[i], names[j]], evidence, advice))
    return findings + _rates(network, groups) + _losses(network) + _tainted(network) + _missing(network)


def _is_confirmed(suspect: Suspect, second_values: list[float], limits: DiagnosisThresholds) -> bool:
    return not second_values or min(second_values) >= suspect.usual_us * (1 + limits.share)


def _remeasured_text(second_values: list[float]) -> str:
    return f"; {min(second_values):.1f} us when measured again" if second_values else ""


def rate_findings(network: Network) -> list[Finding]:
    """Return hosts whose flows carry far less than the others', or as much one way as both ways together."""
    names, flows = network.hosts.names, flows_of(network)
    findings = []
    for slow in slow_by_flows(flows, len(names)):
        verbs = {"out": "sends", "in": "receives"}
        rates = [f"{verbs[way]} at most {_gbps(most)}" for way, (most, _) in slow.rates.items()]
        usual = next(iter(slow.rates.values()))[1]
        evidence = f"{' and '.join(rates)} with any partner, other hosts {_gbps(usual)} (median)"
        findings.append(Finding("slow host (bandwidth)", [names[slow.host]], evidence, _SLOW_HOST_ADVICE))
    slow_hosts = {finding.hosts[0] for finding in findings}
    for host in half_duplex(flows, len(names)):
        if names[host] not in slow_hosts:
            evidence = "sends and receives at once, together, only what it does one way"
            advice = "set full duplex: ethtool IFACE, ethtool -s IFACE duplex full"
            findings.append(Finding("half duplex", [names[host]], evidence, advice))
    return findings


def _rates(network: Network, groups: npt.NDArray[np.intp]) -> list[Finding]:
    """Return hosts and links that carry far less than others, for networks with bandwidths or shared links."""
    names, findings = network.hosts.names, []
    for slow in [] if network.bandwidth_gbps is None else slow_rates(network.bandwidth_gbps, groups):
        verbs = {"out": "sends", "in": "receives"}
        rates = [f"{verbs[way]} at most {_gbps(most)}" for way, (most, _) in slow.rates.items()]
        usual = next(iter(slow.rates.values()))[1]
        evidence = f"{' and '.join(rates)} with anybody, other pairs {_gbps(usual)} (median)"
        findings.append(Finding("slow host (bandwidth)", [names[slow.host]], evidence, _SLOW_HOST_ADVICE))
    named = {finding.hosts[0] for finding in findings}
    findings += [finding for finding in rate_findings(network) if finding.hosts[0] not in named]
    for link in slow_shared_links(network.shared_links, names):
        evidence = f"together they get {_gbps(link.gbps)} {link.way}, other groups {_gbps(link.usual_gbps)} (median)"
        advice = "look at the link that they share; `plink advise` says which algorithm suffers least"
        findings.append(Finding("slow shared link", [names[host] for host in link.members], evidence, advice))
    return findings


def _gbps(rate: float) -> str:
    return f"{rate:.3g} Gbit/s" if rate >= 1 else f"{1000 * rate:.3g} Mbit/s"


def _losses(network: Network) -> list[Finding]:
    names = network.hosts.names
    findings = []
    for key, way in (("loss_forward", "to"), ("loss_back", "back from")):
        loss = network.detail(key)
        if loss is None:
            continue
        for i, j in np.argwhere(np.nan_to_num(loss) > _MAX_LOSS):
            evidence = f"{100 * loss[i, j]:.2f} % of the probes are lost on the way {way} {names[j]}"
            findings.append(Finding("loss", [names[i], names[j]], evidence, "look for a full queue or a bad cable"))
    return findings


def _tainted(network: Network) -> list[Finding]:
    """Return hosts whose clock was stepped while they measured, which gives negative round trips."""
    names, clock_steps = network.hosts.names, network.detail("clock_steps")
    if clock_steps is None:
        return []
    steps = np.nan_to_num(clock_steps).sum(axis=1)
    advice = "its figures of these rounds are doubtful: let its clock slew (chrony), then probe again"
    return [
        Finding("tainted", [names[i]], f"{int(steps[i])} of its round trips came out negative: a clock step", advice)
        for i in np.flatnonzero(steps).tolist()
    ]


def _missing(network: Network) -> list[Finding]:
    names = network.hosts.names
    unmeasured = np.isnan(network.latency_us)
    errors = {(row["from"], row["to"]): row["why"] for row in network.errors}
    if network.details.get("plan") == "adaptive":  # most pairs are unmeasured by design
        index = {name: i for i, name in enumerate(names)}
        failed = [(index[a], index[b]) for a, b in errors if a in index and b in index]
        reported = np.zeros_like(unmeasured)
        reported[[i for i, _ in failed], [j for _, j in failed]] = True
        unmeasured &= reported
    absent = np.argwhere(unmeasured)
    if not len(absent):
        return []
    i, j = (int(k) for k in absent[0])
    reason = errors.get((names[i], names[j]), "never tried")
    by_host = np.isnan(network.latency_us).sum(axis=1) + np.isnan(network.latency_us).sum(axis=0)
    worst = [names[int(host)] for host in np.argsort(-by_host, kind="stable")[:_MAX_NAMED_HOSTS] if by_host[host]]
    evidence = f"{len(absent)} round trips were not measured, first {names[i]} -> {names[j]}: {reason}"
    return [Finding("unmeasured", worst, evidence, "`plink probe --resume` measures them")]
