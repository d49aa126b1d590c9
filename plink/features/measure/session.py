"""A measurement from the command line: progress, the file as it grows, what is said of the results."""

import time
from pathlib import Path

from plink.errors import PartlyDone
from plink.features.measure.request import ProbeRequest
from plink.features.order.interfaces import interface_topology, interface_warnings
from plink.model.hostlist import fold_hostlist
from plink.model.network_file import SharedLinkEntry
from plink.model.units import format_gbps, numbered
from plink.records import workspace
from plink.terminal.compilation_notice import compiling_meanwhile
from plink.terminal.screen import progress, say
from probes.measurements import NO_ANSWER, NOT_TRIED, Measurements
from solvers.costs.shared_rows import is_uncertain
from solvers.diagnosis.findings import rate_findings, uncertain_groups

_WRITE_INTERVAL_S = 5.0


def measure_into(target: Path, measurements: Measurements, request: ProbeRequest) -> None:
    """Measure what is missing and show progress; every finished round is written to the file.

    :raises PartlyDone: when some of it could not be measured. :raises PlinkError: when nothing could.
    """
    from plink.features.measure.run import measure

    started = time.monotonic()
    writer = _NetworkWriter(measurements, target)
    bars_of = progress("connecting", "measuring", "bandwidth", "host rates", "interfaces", "shared links")
    try:
        with compiling_meanwhile(), bars_of as bars:
            try:
                in_time = measure(
                    measurements, request, lambda what, done, total: bars[what](done, total), writer.round_done
                )
            finally:
                writer.write()
    except KeyboardInterrupt:
        if measurements.any():
            resume = "" if str(target) == "-" else "; `plink probe ... --resume` continues"
            say(f"interrupted: {_summary(measurements, target, time.monotonic() - started)}{resume}")
        else:
            say("interrupted before the first round was over: nothing was measured")
        raise
    say(_summary(measurements, target, time.monotonic() - started))
    _report_results(measurements, in_time)


class _NetworkWriter:
    """Writer of the network file: after a round, at intervals where rounds are short, and at the end."""

    def __init__(self, measurements: Measurements, target: Path) -> None:
        self._measurements, self._target = measurements, target
        self._written = time.monotonic() - _WRITE_INTERVAL_S

    def round_done(self) -> None:
        """Write after a round, unless the file was written a moment ago."""
        if str(self._target) != "-" and time.monotonic() - self._written >= _WRITE_INTERVAL_S:
            self.write()

    def write(self) -> None:
        """Write the whole file; an existing one is not replaced by an empty one."""
        connected = any(machine is not None for machine in self._measurements.machines)
        if not self._measurements.any() and (self._target.exists() or not connected):
            return
        started = time.monotonic()
        if self._target == workspace.NETWORK:
            workspace.prepare()
        self._measurements.network().write(self._target)
        # A slow write (thousands of hosts) makes the next one wait longer.
        self._written = time.monotonic() + 10 * (time.monotonic() - started)


def _summary(measurements: Measurements, target: Path, seconds: float) -> str:
    import numpy as np

    n = len(measurements.hosts)
    measured = int(np.isfinite(measurements.latency).sum()) - n
    return f"{measured} of {n * (n - 1)} round trips between {n} hosts in {seconds:.0f} s -> {target}"


def _report_results(measurements: Measurements, in_time: bool) -> None:
    network = measurements.network()
    topology = interface_topology(network)
    if topology and not topology.faulty:  # else a warning says so
        say(topology.text)
    tiers = measurements.details.shared_links or []
    for number, tier in enumerate(tiers, 1):
        for row in tier.groups:
            if len(row.members) < 2 or is_uncertain(row):
                continue  # of one host it is its own link; of uncertain groups a finding follows
            hosts = f"{'' if number == 1 else f'tier {number}: '}{len(row.members)} hosts with {row.members[0]}"
            say(f"{hosts} share {_rate(row, 'out')} out, {_rate(row, 'in')} in")
    findings = rate_findings(network)
    for finding in (*findings, *uncertain_groups(network)):
        say(finding.line)
    for warning in interface_warnings(network):
        say(warning)
    closed = [host for finding in findings if finding.kind == "closed" for host in finding.hosts]
    entry = measurements.details.interfaces
    dead = (
        [
            f"{host}/{name}"
            for host, names, reasons in zip(network.hosts.names, entry.names, entry.errors, strict=True)
            for name, reason in zip(names, reasons, strict=True)
            if reason
        ]
        if entry and entry.errors
        else []
    )
    unmeasured_groups = [row for tier in tiers for row in tier.groups if row.reason]
    errors = measurements.errors or measurements.bandwidth_errors
    kind = "round trip" if measurements.errors else "bandwidth"
    how_many = numbered(len(errors), f"{kind} is", f"{kind}s are")
    answered = {name for name, machine in zip(network.hosts.names, measurements.machines, strict=True) if machine}
    if lost := {name: reason for name, reason in network.lost_hosts.items() if name in answered}:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in lost.items())
        raise PartlyDone(f"{reasons}; `plink probe ... --resume` measures what is missing")
    if errors and set(errors.values()) == {NOT_TRIED}:
        raise PartlyDone(f"the budget is spent, {how_many} missing; `plink probe ... --resume` continues")
    if errors:
        (i, j), reason = next(iter(sorted(errors.items())))
        names = measurements.hosts.names
        by_others = reason == NO_ANSWER and measurements.details.method in ("stamp", "icmp")
        again = "--resume --method auto` tries other methods" if by_others else "--resume` measures what is missing"
        raise PartlyDone(f"{how_many} missing, first {names[i]} -> {names[j]}: {reason}; `plink probe ... {again}")
    if unmeasured_groups:
        raise PartlyDone(
            f"what {len(unmeasured_groups)} groups share could not be measured: {unmeasured_groups[0].reason}"
        )
    if closed:
        raise PartlyDone(f"host rates are missing of {fold_hostlist(closed, ', ')}; --no-host-rates leaves them out")
    if dead:
        raise PartlyDone(f"rates are missing of {', '.join(dead)}; `plink probe ... --resume` measures them again")
    if not in_time:
        raise PartlyDone("the budget is spent; `plink probe ... --resume` continues")


def _rate(row: SharedLinkEntry, direction: str) -> str:
    gbps = row.gbps(direction)
    if gbps is None:
        return "an unknown rate"
    return f"{'' if row.limited_by(direction) == 'link' else 'at least '}{format_gbps(gbps)}"
