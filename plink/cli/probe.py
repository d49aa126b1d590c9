"""``plink probe``."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.api.probe_request import COUNT, SOURCE_PORTS, STREAMS, ProbeRequest
from plink.cli.compilation_notice import compiling_meanwhile
from plink.errors import PartlyDone, PlinkError, UsageError
from plink.model.units import format_gbps
from plink.records import workspace
from plink.terminal.inputs import hosts_file_from
from plink.terminal.screen import progress, say

if TYPE_CHECKING:
    from plink.model.hosts import Hosts
    from plink.model.network import Network
    from probes.measurements import Measurements

_WRITE_INTERVAL_S = 5.0


_METHOD_PANEL, _BANDWIDTH_PANEL, _LIMITS_PANEL = "Round trips", "Bandwidth", "Limits"


def probe(
    hosts_file: Annotated[
        Path | None, typer.Argument(metavar="[HOSTS]", help="Hosts file; default: ./hosts.txt. - is standard input.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the network; default .plink/network.json.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="Probe method; auto: what gets through.", rich_help_panel=_METHOD_PANEL)
    ] = "stamp",
    count: Annotated[
        int | None,
        typer.Option(
            min=COUNT[0], max=COUNT[1], rich_help_panel=_METHOD_PANEL,
            help="Probes per pair, half in each direction; default: 500 to 10000, until the round trip is precise.",
        ),
    ] = None,
    source_ports: Annotated[
        int,
        typer.Option(
            min=SOURCE_PORTS[0], max=SOURCE_PORTS[1], help="UDP source ports (ECMP paths) per host.",
            rich_help_panel=_METHOD_PANEL,
        ),
    ] = 4,
    pairs: Annotated[
        str | None,
        typer.Option(
            help="Pairs to measure; default: all up to 256 hosts, adaptive above.", rich_help_panel=_METHOD_PANEL
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Start no round after this time (90s, 5m); the file is complete up to then; default: no limit.",
            rich_help_panel=_LIMITS_PANEL,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure only what the output file lacks.", rich_help_panel=_LIMITS_PANEL)
    ] = False,
    bandwidth: Annotated[
        bool,
        typer.Option(
            "--bandwidth", help="Measure every pair's bandwidth too (TCP flows).", rich_help_panel=_BANDWIDTH_PANEL
        ),
    ] = False,
    streams: Annotated[
        int,
        typer.Option(
            min=STREAMS[0], max=STREAMS[1], help="TCP streams of a bandwidth test; several: by iperf3.",
            rich_help_panel=_BANDWIDTH_PANEL,
        ),
    ] = 1,
    bandwidth_time: Annotated[
        str, typer.Option(help="Duration of a bandwidth test (500ms, 5s).", rich_help_panel=_BANDWIDTH_PANEL)
    ] = "500ms",
    bandwidth_bytes: Annotated[
        str | None,
        typer.Option(help="Bytes of a bandwidth test (50MB), instead of its time.", rich_help_panel=_BANDWIDTH_PANEL),
    ] = None,
    host_rates: Annotated[
        bool,
        typer.Option(
            "--host-rates/--no-host-rates",
            help="Measure what every host sends and receives.",
            rich_help_panel=_BANDWIDTH_PANEL,
        ),
    ] = True,
    shared_links: Annotated[
        bool,
        typer.Option(
            "--shared-links/--no-shared-links", help="Measure the capacity that groups of hosts share.",
            rich_help_panel=_BANDWIDTH_PANEL,
        ),
    ] = True,
    topology: Annotated[
        list[Path] | None,
        typer.Option(
            help="A topology file that says which hosts share links, instead of the round trips; docs/topology.md.",
            rich_help_panel=_BANDWIDTH_PANEL,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,...", help="Labels of Kubernetes' nodes that are the levels, outermost first.",
            rich_help_panel=_BANDWIDTH_PANEL,
        ),
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(help="A probe without an answer by then (100ms, 1s) is lost.", rich_help_panel=_METHOD_PANEL),
    ] = "250ms",
    seed: Annotated[int, typer.Option(help="Shuffles the rounds.", rich_help_panel=_METHOD_PANEL)] = 0,
    accept_new_host_keys: Annotated[
        bool, typer.Option("--accept-new-host-keys", help="Note unknown SSH host keys instead of refusing them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
) -> None:  # fmt: skip
    """Measure the network between the hosts: round trips, loss, hops, and the capacity of what groups of hosts share.

    Every finished round is written at once: Ctrl-C, a dead host or a spent
    --budget loses nothing; --resume continues.

    Example: plink probe hosts.txt -o cloud.json
    """
    from plink.api.probing import check_hosts
    from plink.cli.placement_options import parse_labels
    from plink.model.hosts import read_hosts
    from plink.model.topology import read_topology
    from plink.model.units import parse_bytes, parse_duration, parse_limit

    if labels is not None and not topology:
        raise UsageError("--labels goes with --topology, whose Kubernetes nodes have them")
    request = ProbeRequest(
        method, count, source_ports, pairs, parse_duration(budget) if budget else None, bandwidth, streams,
        parse_limit(bandwidth_time), parse_bytes(bandwidth_bytes) if bandwidth_bytes else None, host_rates,
        shared_links, parse_limit(timeout), seed, accept_new_host_keys,
    )  # fmt: skip
    request.check()
    hosts_file = hosts_file_from(hosts_file)
    target = output or workspace.NETWORK
    if resume and str(target) == "-":
        raise UsageError("--resume needs a file to continue, not standard output")
    workspace.check_output(output, workspace.NETWORK, (hosts_file, *(topology or ())))
    hosts = read_hosts(hosts_file)
    if topology:
        request = replace(request, topology=read_topology(*topology, hosts=hosts, labels=parse_labels(labels)))
        request.check()
    check_hosts(hosts)
    if dry_run:
        from plink.cli.probe_dry_run import dry_run_lines

        for line in dry_run_lines(hosts, request, _earlier(hosts, target)):
            print(line)
        return
    from probes.measurements import Measurements

    measurements = _resumed(hosts, target) if resume else Measurements(hosts)
    measure_into(target, measurements, request)


def _earlier(hosts: "Hosts", target: Path) -> "Network | None":
    """Return what the file has of these hosts, if it has shared links."""
    from plink.model.network import read_network

    if str(target) == "-" or not target.exists():
        return None
    try:
        network = read_network(target)
    except PlinkError:
        return None  # it will be replaced
    return network if network.shared_links and set(network.hosts.names) == set(hosts.names) else None


def measure_into(target: Path, measurements: "Measurements", request: ProbeRequest) -> None:
    """Measure what is missing and show progress; every finished round is written to the file.

    :raises PartlyDone: when some of it could not be measured. :raises PlinkError: when nothing could.
    """
    from plink.api.probing import measure

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

    def __init__(self, measurements: "Measurements", target: Path) -> None:
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


def _resumed(hosts: "Hosts", target: Path) -> "Measurements":
    """Return the measurements that the file has for exactly these hosts."""
    from plink.model.network import read_network
    from probes.measurements import measurements_from

    network = read_network(target)
    if network.hosts.names != hosts.names:
        raise UsageError(f"--resume: {target} is about other hosts (or in another order) than the hosts file")
    measurements = measurements_from(network)
    measurements.hosts = hosts
    say(f"{target}: {len(measurements.missing())} pairs are missing in it")
    return measurements


def _summary(measurements: "Measurements", target: Path, seconds: float) -> str:
    import numpy as np

    n = len(measurements.hosts)
    measured = int(np.isfinite(measurements.latency).sum()) - n
    return f"{measured} of {n * (n - 1)} round trips between {n} hosts in {seconds:.0f} s -> {target}"


def _report_results(measurements: "Measurements", in_time: bool) -> None:
    from plink.api.interfaces import interface_topology
    from plink.cli.finding_lines import interface_warnings
    from plink.model.hostlist import fold_hostlist
    from probes.measurements import NOT_TRIED
    from solvers.costs.fabric import is_uncertain
    from solvers.diagnosis.findings import rate_findings, uncertain_groups

    network = measurements.network()
    topology = interface_topology(network)
    if topology and not topology.faulty:  # else a warning says so
        say(topology.text)
    tiers = measurements.details.get("shared_links", [])
    for number, tier in enumerate(tiers, 1):
        for row in tier["groups"]:
            if len(row["members"]) < 2 or is_uncertain(row):
                continue  # of one host it is its own link; of uncertain groups a finding follows
            hosts = f"{'' if number == 1 else f'tier {number}: '}{len(row['members'])} hosts with {row['members'][0]}"
            say(f"{hosts} share {_rate(row, 'out')} out, {_rate(row, 'in')} in")
    findings = rate_findings(network)
    for finding in (*findings, *uncertain_groups(network)):
        say(finding.line)
    for warning in interface_warnings(network):
        say(warning)
    closed = [host for finding in findings if finding.kind == "closed" for host in finding.hosts]
    unmeasured_groups = [row for tier in tiers for row in tier["groups"] if row.get("why")]
    errors = measurements.errors or measurements.bandwidth_errors
    kind = "round trips" if measurements.errors else "bandwidths"
    if errors and set(errors.values()) == {NOT_TRIED}:
        raise PartlyDone(f"the budget is spent, {len(errors)} {kind} are missing; `plink probe ... --resume` continues")
    if errors:
        (i, j), reason = next(iter(sorted(errors.items())))
        names = measurements.hosts.names
        raise PartlyDone(
            f"{len(errors)} {kind} are missing, first {names[i]} -> {names[j]}: {reason}; "
            f"`plink probe ... --resume` measures what is missing"
        )
    if unmeasured_groups:
        raise PartlyDone(
            f"what {len(unmeasured_groups)} groups share could not be measured: {unmeasured_groups[0]['why']}"
        )
    if closed:
        raise PartlyDone(f"host rates are missing of {fold_hostlist(closed, ', ')}; --no-host-rates leaves them out")
    if not in_time:
        raise PartlyDone("the budget is spent; `plink probe ... --resume` continues")


def _rate(row: dict[str, object], direction: str) -> str:
    value = row[f"{direction}_gbps"]
    if not isinstance(value, float):
        return "an unknown rate"
    return f"{'' if row[f'{direction}_limited_by'] == 'link' else 'at least '}{format_gbps(value)}"
