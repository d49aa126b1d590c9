"""Diagnose hosts and the network between them: findings with evidence and advice."""

import contextlib
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from plink.errors import UsageError
from plink.features.diagnose.request import DiffRequest, DoctorRequest
from plink.features.measure.host_rates import measure_host_rates, unreached_by_flows
from plink.features.measure.shared_links import label_groups, measure_shared_links
from plink.features.order.interfaces import interface_findings
from plink.model.codec import convert
from plink.model.comparison import NetworkComparison
from plink.model.diagnosis import Examination, Finding, HostFacts, Severity
from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.transport.fleet import Progress
from probes.host_flows import FlowSettings
from probes.inspection import inspect_all
from probes.interface_flows import measure_interfaces
from probes.interfaces import find_interfaces
from probes.measurements import Measurements
from probes.method_selection import reachable_hosts, remeasure
from probes.methods import ProbeSettings
from probes.plan import AllPairs
from probes.session import ProbeSession
from probes.shared_links import SharedLinkSettings
from runners.choice import connector_for
from solvers.changes.compare import compare
from solvers.changes.differences import ChangeThresholds
from solvers.diagnosis.findings import Remeasured, alike_pairs, closed, merged, unreachable
from solvers.diagnosis.findings import diagnose as findings_of
from solvers.diagnosis.latency import DiagnosisThresholds, asymmetric_pairs, known_good, slow_hosts, slow_links

_COUNT = 1000
_RETEST_COUNT = 4000
_MAX_SUSPECTS = 16  # of a kind are measured again
# Up to 16 hosts; more take longer in proportion.
_CONNECT_S = 15.0  # hosts that do not answer by then are given up
_FAULTY_S = 45.0  # where something does not answer, nothing more is tried after so long
_RETEST_S = 5.0
_CHECK_S = 10.0  # for what the hosts report, and for each protocol
_LIMITS_UP_TO = 16  # hosts
_HELLO_S = 1.5  # shorter than a probe's: pairs that cannot reach each other cost that much each
_MAX_CLOCK_OFFSET_S = 1.0  # beyond it, logs of hosts and certificates do not match
_GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
# Jobs need TCP; probes can do without UDP or ICMP.
_log = logging.getLogger("plink.doctor")


def diff(old: Network, new: Network, request: DiffRequest | None = None) -> NetworkComparison:
    """Compare two measurements of the same hosts, by name: ``findings`` got worse or better, beyond noise.

    :raises NoAnswer: when they share fewer than two hosts or no measured pair.
    :raises InputError: when a matrix of a file is malformed.
    """
    request = request or DiffRequest()
    return compare(old, new, ChangeThresholds(share=request.threshold, floor_us=request.floor_us))


def diagnose(network: Network, request: DoctorRequest | None = None) -> list[Finding]:
    """Return the findings of a network's measurements, the most severe first; of a part of one those of the whole that
    concern its hosts."""
    request = request or DoctorRequest()
    names, whole = set(network.hosts.names), network.whole or network
    labels = label_groups(whole.latency_us, whole.details.plan == "adaptive")
    findings = findings_of(whole, labels, {}, DiagnosisThresholds(floor_us=request.floor_us))
    findings += interface_findings(whole)
    return merged([finding for finding in findings if network is whole or finding.concerns(names)])


def examine(
    hosts: Hosts, request: DoctorRequest | None = None, *, progress: Progress = lambda what, done, total: None
) -> Examination:
    """Check hosts (SSH, Python, clocks, MTU, tools) and measure between them. Suspects are measured again, each
    against a healthy host.

    :param progress: is told of ``connecting``, ``measuring``, ``host rates``, ``interfaces`` and ``shared links``.
    :raises UsageError: for one host. :raises PlinkError: when fewer than two hosts can be measured.
    :raises InputError: when a host reports something else than facts.
    """
    request = request or DoctorRequest()
    if len(hosts) < 2:
        raise UsageError(f"one host ({hosts.names[0]}) has no network to diagnose; give at least two")
    connector = connector_for(hosts, request.accept_new_host_keys)
    measurements = Measurements(hosts)
    measurements.add(method="stamp")
    names = hosts.names
    settings = ProbeSettings(count=_COUNT, hello_s=_HELLO_S)
    with ProbeSession(measurements, connector, settings, time.monotonic) as session:
        lost, limit = session.scheduler.lost_hosts, _TimeLimit(session)
        session.start(progress, _CONNECT_S * limit.scale)
        with limit.of_check():
            facts = _facts_by_name(session)
        for host in session.agents.keys() - lost.keys():
            if names[host] not in facts:
                session.scheduler.mark_lost(host, "its agent stopped answering")
        if interfaces := find_interfaces(session):
            measurements.add(interfaces=interfaces)
        plan = AllPairs(len(hosts), seed=0)
        done = 0
        while (pairs := plan.next_round(measurements.latency)) is not None:
            session.measure(pairs, "stamp", lambda: None)
            done += len(pairs)
            progress("measuring", done, plan.max_pairs)
        reached = set(np.flatnonzero(np.isfinite(measurements.latency).any(axis=1)).tolist())
        cut = {pair for pair in measurements.missing() if reached.issuperset(pair)}
        reached_by: dict[str, dict[str, bool]] = {name: {} for name in facts}

        def check(method: str) -> None:
            with limit.of_check() as is_over:
                through = reached if method == "stamp" else reachable_hosts(session, method, set(), cut)
                hosts_tried = through if is_over() else session.agents.keys() - lost.keys()
            limit.faulty |= not through.issuperset(session.agents.keys() - lost.keys())
            for host in hosts_tried:
                reached_by[names[host]][method] = host in through

        check("stamp")
        in_time, flow_settings = limit.in_time, FlowSettings(accept_s=_HELLO_S)
        measure_host_rates(session, flow_settings, lambda *done: progress("host rates", *done), in_time)
        if in_time():
            unreached = unreached_by_flows(measurements)
            for host in session.agents.keys() - lost.keys():
                reached_by[names[host]]["tcp"] = host not in unreached
        measure_interfaces(session, flow_settings, lambda *done: progress("interfaces", *done), in_time)
        measure_shared_links(session, SharedLinkSettings(), lambda *done: progress("shared links", *done), in_time)
        session.check_agents()
        network, limits = measurements.network(), DiagnosisThresholds(floor_us=request.floor_us)
        groups = label_groups(network.latency_us)
        remeasured = _retest_suspects(session, network, groups, limits)
        check("icmp")  # last, for it matters least
        for name, ways in reached_by.items():
            facts[name] = replace(facts[name], reached_by=ways or UNSET)
        findings = list(_findings_from_facts(facts, _facts_by_name(session)))
        findings += interface_findings(network)
        measured = _pairs_measured(network)
        _log.info("%d hosts reached, %d of %d pairs measured", len(session.agents), measured, plan.max_pairs)
        findings += findings_of(network, groups, remeasured, limits)
    lost_hosts = [unreachable(names[host], reason) for host, reason in sorted(lost.items())]
    return Examination.of(facts, merged(lost_hosts + findings))


class _TimeLimit:
    """Moment at which an examination tries nothing more: none as long as all answer. ``faulty``: something did not."""

    def __init__(self, session: ProbeSession) -> None:
        self.faulty, self._session, self._check_ends = False, session, math.inf
        self.scale = max(1.0, len(session.measurements.hosts) / _LIMITS_UP_TO)
        self._latest = time.monotonic() + _FAULTY_S * self.scale
        session.scheduler.stop_at = self._stop_at

    def _stop_at(self) -> float:
        measurements = self._session.measurements
        answered = not measurements.errors and not measurements.details.host_flow_errors
        is_faulty = self.faulty or self._session.scheduler.lost_hosts or not answered
        return min(self._check_ends, self._latest if is_faulty else math.inf)

    def in_time(self) -> bool:
        """Return whether something may still be tried, with time left to measure suspects again."""
        return time.monotonic() < self._stop_at() - _RETEST_S

    @contextlib.contextmanager
    def of_check(self) -> Iterator[Callable[[], bool]]:
        """Limit a check of all hosts; yields whether it was cut short."""
        self._check_ends = time.monotonic() + _CHECK_S * self.scale
        try:
            yield lambda: time.monotonic() >= self._stop_at()
        finally:
            self._check_ends = math.inf


def _pairs_measured(network: Network) -> int:
    """Count the pairs measured in one direction at least."""
    rows, columns = np.triu_indices(len(network.hosts), k=1)
    return int(np.isfinite(network.rtt_us[rows, columns]).sum())


def _facts_by_name(session: ProbeSession) -> dict[str, HostFacts]:
    """Return the facts of each host that answers, by its name."""
    return {name: convert(HostFacts, answer, name) for name, answer in inspect_all(session).items()}


def _findings_from_facts(before: dict[str, HostFacts], after: dict[str, HostFacts]) -> Iterator[Finding]:
    """Yield what is wrong by the hosts' own reports before and after the measurements."""
    mtus = {name: fact.mtu for name, fact in before.items() if fact.mtu}
    common_mtu = max(set(mtus.values()), key=list(mtus.values()).count, default=None)
    advice = f"set it: ip link set dev IFACE mtu {common_mtu}"
    for name, mtu in mtus.items():
        if mtu != common_mtu:
            evidence = f"MTU {mtu}, the others have {common_mtu}"
            yield Finding("MTU mismatch", Severity.ERROR, [name], evidence, advice)
    for name, fact in before.items():
        reached_by = fact.reached_by or {}
        for method, through in reached_by.items() if any(reached_by.values()) else ():  # else the whole host is cut off
            if not through:
                yield closed([name], method)
        if fact.stamps is False:
            evidence, advice = "the kernel stamps no packets", "latencies there are less exact"
            yield Finding("no kernel timestamps", Severity.INFO, [name], evidence, advice)
        if fact.clocksource and fact.clocksource not in _GOOD_CLOCKS:
            advice = "a slow clock: see /sys/devices/system/clocksource/clocksource0/available_clocksource"
            yield Finding("clock source", Severity.INFO, [name], f"{fact.clocksource} is in use", advice)
        if fact.governor in ("powersave", "ondemand", "conservative"):
            evidence, advice = f"CPU frequency governor {fact.governor}", "cpupower frequency-set -g performance"
            yield Finding("governor", Severity.INFO, [name], evidence, advice)
        now = after.get(name, fact).counters or {}
        increases = {
            key: now[key] - value for key, value in (fact.counters or {}).items() if now.get(key, value) > value
        }
        if increases:
            evidence = ", ".join(f"{key} rose by {value}" for key, value in increases.items())
            advice = "the instance's allowance is used up: probe again later"
            yield Finding("tainted", Severity.WARNING, [name], evidence, advice)
    yield from _clock_offsets(before, after)


def _clock_offsets(before: dict[str, HostFacts], after: dict[str, HostFacts]) -> Iterator[Finding]:
    """Yield hosts whose clock is far from the others' (of two hosts: from this machine's)."""
    offsets = {}
    for name, fact in before.items():
        # An answer that waited makes a clock look slow, so the larger of two offsets is the nearer.
        both = [each.clock_offset_s for each in (fact, after.get(name, fact))]
        clock_offsets = [offset_s for offset_s in both if offset_s is not UNSET]
        if clock_offsets:
            offsets[name] = max(clock_offsets)
    usual = statistics.median(offsets.values()) if len(offsets) > 2 else 0.0
    for name, offset in offsets.items():
        if abs(offset - usual) > _MAX_CLOCK_OFFSET_S:
            direction = "ahead of" if offset > usual else "behind"
            evidence = f"its clock is {abs(offset - usual):.1f} s {direction} the others'"
            yield Finding("clock offset", Severity.WARNING, [name], evidence, "synchronise it: chronyc makestep")


def _retest_suspects(
    session: ProbeSession, network: Network, groups: npt.NDArray[np.intp], limits: DiagnosisThresholds
) -> Remeasured:
    """Measure suspect hosts against healthy ones, and suspect pairs, again with more probes."""
    cost, groups = network.rtt_us, alike_pairs(network, groups)
    hosts, offsets = slow_hosts(cost, groups, limits)
    links = slow_links(cost, groups, offsets, limits)
    suspects = {host for suspect in (*hosts, *links) for host in suspect.hosts}
    pairs = [(link.hosts[0], link.hosts[1]) for link in links[:_MAX_SUSPECTS]]
    pairs += asymmetric_pairs(network.latency_us, limits)[:_MAX_SUSPECTS]
    for suspect in hosts[:_MAX_SUSPECTS]:
        (host,) = suspect.hosts
        healthy = known_good(cost, offsets, suspects, host)
        if healthy is not None:
            pairs.append((host, healthy))
    return remeasure(session, sorted({(min(pair), max(pair)) for pair in pairs}), _RETEST_COUNT)
