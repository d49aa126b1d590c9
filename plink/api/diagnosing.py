"""Diagnose hosts and the network between them: findings with evidence and advice."""

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from plink.api.connecting import Progress, connector_for
from plink.api.host_rates import measure_host_rates
from plink.api.probing import label_groups
from plink.errors import UsageError
from plink.model.hosts import Hosts
from plink.model.network import Network
from probes.host_flows import FlowSettings
from probes.inspection import inspect_all
from probes.measurements import Measurements
from probes.method_selection import ORDER, reachable_hosts
from probes.methods import ProbeSettings
from probes.plan import AllPairs
from probes.remeasuring import remeasure
from probes.session import ProbeProgress, ProbeSession
from solvers.diagnosis.findings import Finding
from solvers.diagnosis.findings import diagnose as findings_of
from solvers.diagnosis.latency import DiagnosisThresholds, known_good, slow_hosts, slow_links

_COUNT = 1000
_RETEST_COUNT = 4000
_PROTOCOLS = {"stamp": "UDP", "icmp": "ICMP", "tcp": "TCP"}
_log = logging.getLogger("plink.doctor")


@dataclass(frozen=True)
class Examination:
    """Result of an examination. ``facts``: what each host reports, by name; ``findings``: what is wrong."""

    facts: dict[str, dict[str, Any]]
    findings: list[Finding]


def diagnose(network: Network) -> list[Finding]:
    """Return what is wrong by a network's measurements alone."""
    labels = label_groups(network.latency_us, network.details.get("plan") == "adaptive")
    return findings_of(network, labels, {})


def examine(
    hosts: Hosts, accept_new_host_keys: bool = False, progress: Progress = lambda what, done, total: None
) -> Examination:
    """Check hosts (SSH, Python, clocks, MTU, tools) and measure between them. Suspects are measured again, each
    against a healthy host.

    :raises UsageError: for one host. :raises PlinkError: when fewer than two hosts can be measured.
    """
    if len(hosts) < 2:
        raise UsageError(f"one host ({hosts.names[0]}) has no network to diagnose; give at least two")
    connector = connector_for(hosts, accept_new_host_keys)
    measurements = Measurements(hosts)
    names = hosts.names
    with ProbeSession(measurements, connector, ProbeSettings(count=_COUNT, handshakes=True), time.monotonic) as session:
        session.start(ProbeProgress(lambda done, total: progress("connecting", done, total)))
        facts = inspect_all(session)
        for method in ORDER:
            through = reachable_hosts(session, method, set())
            for host in session.agents.keys() - session.scheduler.lost_hosts.keys():
                facts.setdefault(names[host], {}).setdefault("reached_by", {})[method] = host in through
        plan = AllPairs(len(hosts), seed=0)
        done = 0
        while (pairs := plan.next_round(measurements.latency)) is not None:
            session.measure(pairs, "stamp", lambda: None)
            done += len(pairs)
            progress("measuring", done, plan.max_pairs)
        measure_host_rates(session, FlowSettings(), lambda done, total: progress("host rates", done, total))
        after = inspect_all(session)
        findings = _findings_from_facts(facts, after)
        network = measurements.network()
        measured = _pairs_measured(network)
        _log.info("%d hosts reached, %d of %d pairs measured", len(session.agents), measured, plan.max_pairs)
        findings += findings_of(network, label_groups(network.latency_us), _retest_suspects(session, network))
    unreachable = [
        Finding("unreachable", [names[host]], reason, f"try `ssh {names[host]}`, then plink doctor again")
        for host, reason in sorted(session.scheduler.lost_hosts.items())
    ]
    return Examination(facts, unreachable + findings)


def _pairs_measured(network: Network) -> int:
    """Count the pairs measured in one direction at least."""
    rows, columns = np.triu_indices(len(network.hosts), k=1)
    return int(np.isfinite(network.rtt_us[rows, columns]).sum())


def _findings_from_facts(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[Finding]:
    """Return what is wrong by the hosts' own reports."""
    findings = []
    mtus = {name: fact["mtu"] for name, fact in before.items() if fact.get("mtu")}
    common_mtu = max(set(mtus.values()), key=list(mtus.values()).count, default=None)
    deviating = [name for name, mtu in mtus.items() if mtu != common_mtu]
    if deviating:
        evidence = f"MTU {', '.join(str(mtus[name]) for name in deviating[:5])}, the others have {common_mtu}"
        findings.append(Finding("MTU mismatch", deviating, evidence, f"set it: ip link set dev IFACE mtu {common_mtu}"))
    for name, fact in before.items():
        closed = [_PROTOCOLS[method] for method, through in fact.get("reached_by", {}).items() if not through]
        if closed:
            advice = "open it between the hosts (security group), or `plink probe --method auto`"
            findings.append(Finding("closed", [name], f"{', '.join(closed)} does not get through to it", advice))
        if not fact.get("stamps", True):
            findings.append(
                Finding(
                    "no kernel timestamps", [name], "its kernel stamps no packets", "latencies there are less exact"
                )
            )
        if fact.get("clocksource") not in (None, "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"):
            advice = "a slow clock: see /sys/devices/system/clocksource/clocksource0/available_clocksource"
            findings.append(Finding("clock source", [name], f"uses {fact['clocksource']}", advice))
        if fact.get("governor") in ("powersave", "ondemand", "conservative"):
            advice = "cpupower frequency-set -g performance"
            findings.append(Finding("governor", [name], f"its CPUs are governed by {fact['governor']}", advice))
        increases = {
            key: after[name]["counters"][key] - value
            for key, value in fact.get("counters", {}).items()
            if name in after and after[name]["counters"].get(key, value) > value
        }
        if increases:
            evidence = ", ".join(f"{key} rose by {value}" for key, value in increases.items())
            findings.append(
                Finding("tainted", [name], evidence, "the instance's allowance is used up: probe again later")
            )
    return findings


def _retest_suspects(session: ProbeSession, network: Network) -> dict[tuple[int, int], float]:
    """Measure suspect hosts against healthy ones, and suspect links, again with more probes."""
    cost, groups, limits = network.rtt_us, label_groups(network.latency_us), DiagnosisThresholds()
    hosts, offsets = slow_hosts(cost, groups, limits)
    links = slow_links(cost, groups, offsets, limits)
    suspects = {host for suspect in (*hosts, *links) for host in suspect.hosts}
    pairs = [(min(link.hosts), max(link.hosts)) for link in links[:16]]
    for suspect in hosts[:16]:
        (host,) = suspect.hosts
        healthy = known_good(cost, offsets, suspects, host)
        if healthy is not None:
            pairs.append((min(host, healthy), max(host, healthy)))
    return remeasure(session, pairs, _RETEST_COUNT)
