"""``plink probe``."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.api.probe_request import COUNT, METHODS, SOURCE_PORTS, STREAMS, ProbeRequest
from plink.cli.screen import progress, say
from plink.errors import PartlyDone, UsageError
from plink.records import workspace

if TYPE_CHECKING:
    from plink.model.hosts import Hosts
    from probes.measurements import Measurements

_WRITE_EVERY_S = 5.0


_HOW, _RATES, _LIMITS = "How round trips are measured", "Bandwidth", "When it ends"


def probe(
    hosts_file: Annotated[Path, typer.Argument(metavar="HOSTS", help="Hosts file; - is standard input.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the network; default .plink/network.json.")
    ] = None,
    method: Annotated[
        str, typer.Option(help=f"How: {', '.join(METHODS)} (what gets through).", rich_help_panel=_HOW)
    ] = "stamp",
    count: Annotated[
        int,
        typer.Option(min=COUNT[0], max=COUNT[1], help="Probes a pair, half in each direction.", rich_help_panel=_HOW),
    ] = 10_000,
    source_ports: Annotated[
        int,
        typer.Option(
            min=SOURCE_PORTS[0], max=SOURCE_PORTS[1], help="UDP source ports (ECMP paths) a host.",
            rich_help_panel=_HOW,
        ),
    ] = 4,
    pairs: Annotated[
        str | None,
        typer.Option(help="all or adaptive; default: all up to 256 hosts, adaptive above.", rich_help_panel=_HOW),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Begin no round after so long (90s, 5m); the file is whole then; default: no limit.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what the output file lacks.", rich_help_panel=_LIMITS)
    ] = False,
    bandwidth: Annotated[
        bool, typer.Option("--bandwidth", help="Measure every pair's bandwidth too (iperf3).", rich_help_panel=_RATES)
    ] = False,
    streams: Annotated[
        int,
        typer.Option(
            min=STREAMS[0], max=STREAMS[1], help="TCP streams of a bandwidth test.", rich_help_panel=_RATES
        ),
    ] = 1,
    bandwidth_time: Annotated[
        str, typer.Option(help="How long a bandwidth test takes (500ms, 5s).", rich_help_panel=_RATES)
    ] = "2s",
    bandwidth_bytes: Annotated[
        str | None, typer.Option(help="What a bandwidth test moves (50MB), instead of a time.", rich_help_panel=_RATES)
    ] = None,
    shared_links: Annotated[
        bool,
        typer.Option(
            "--shared-links/--no-shared-links", help="Measure what groups of hosts share.", rich_help_panel=_RATES
        ),
    ] = True,
    timeout: Annotated[
        str, typer.Option(help="A probe not answered by then (100ms, 1s) is lost.", rich_help_panel=_HOW)
    ] = "250ms",
    seed: Annotated[int, typer.Option(help="Shuffles the rounds.", rich_help_panel=_HOW)] = 0,
    accept_new_host_keys: Annotated[
        bool, typer.Option("--accept-new-host-keys", help="Note unknown SSH host keys instead of refusing them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
) -> None:  # fmt: skip
    """Measure the network between the hosts: round trips, loss, hops, and the capacity of what groups of hosts share.

    Every finished round is on disk; Ctrl-C, a dead host or a spent --budget loses nothing, and --resume goes on.

    Example: plink probe hosts.txt -o cloud.json
    """
    from plink.api.probing import check_hosts
    from plink.model.hosts import read_hosts
    from plink.model.units import parse_bytes, parse_duration, parse_limit

    request = ProbeRequest(
        method, count, source_ports, pairs, parse_duration(budget) if budget else None, bandwidth, streams,
        parse_limit(bandwidth_time), parse_bytes(bandwidth_bytes) if bandwidth_bytes else None, shared_links,
        parse_limit(timeout), seed, accept_new_host_keys,
    )  # fmt: skip
    request.check()
    target = output or workspace.NETWORK
    if resume and str(target) == "-":
        raise UsageError("--resume needs a file to go on with, not standard output")
    workspace.check_output(output, workspace.NETWORK, (hosts_file,))
    hosts = read_hosts(hosts_file)
    check_hosts(hosts)
    if dry_run:
        from plink.cli.probe_rehearsal import rehearsal

        for line in rehearsal(hosts, request):
            print(line)
        return
    from probes.measurements import Measurements

    found = _begun(hosts, target) if resume else Measurements(hosts)
    measure_into(target, found, request)


def measure_into(target: Path, found: "Measurements", request: ProbeRequest) -> None:
    """Measure what is missing, shown on a terminal; what was found is in the file after every round, and told of.

    :raises PartlyDone: when some of it could not be measured. :raises PlinkError: when nothing could.
    """
    from plink.api.probing import measure

    began = time.monotonic()
    keeper = _Keeper(found, target)
    with progress("connecting", "measuring", "bandwidth", "shared links") as bars:
        try:
            in_time = measure(found, request, lambda what, done, total: bars[what](done, total), keeper.round_done)
        finally:
            keeper.write()
    _report(found, target, time.monotonic() - began, in_time)


class _Keeper:
    """Writes what has been found after a round, now and then when rounds are short, and at the end."""

    def __init__(self, found: "Measurements", target: Path) -> None:
        self._found, self._target = found, target
        self._written = time.monotonic() - _WRITE_EVERY_S

    def round_done(self) -> None:
        """A round has ended; a file of thousands of hosts is not written every second."""
        if str(self._target) != "-" and time.monotonic() - self._written >= _WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the file, whole; one that is there is not replaced by nothing."""
        begun = any(machine is not None for machine in self._found.machines)
        if not self._found.any() and (self._target.exists() or not begun):
            return
        began = time.monotonic()
        if self._target == workspace.NETWORK:
            workspace.prepare()
        self._found.network().write(self._target)
        # A slow write (thousands of hosts) makes the next one wait longer.
        self._written = time.monotonic() + 10 * (time.monotonic() - began)


def _begun(hosts: "Hosts", target: Path) -> "Measurements":
    """What the file holds already, for exactly these hosts."""
    from plink.model.network import read_network
    from probes.measurements import measurements_from

    network = read_network(target)
    if network.hosts.names != hosts.names:
        raise UsageError(f"--resume: {target} is about other hosts (or in another order) than the hosts file")
    found = measurements_from(network)
    found.hosts = hosts
    say(f"{target}: {len(found.missing())} pairs are missing in it")
    return found


def _report(found: "Measurements", target: Path, seconds: float, in_time: bool) -> None:
    import numpy as np

    from plink.api.probing import UNTRIED

    n = len(found.hosts)
    measured = int(np.isfinite(found.latency).sum()) - n
    say(f"{measured} of {n * (n - 1)} round trips between {n} hosts in {seconds:.0f} s -> {target}")
    for row in found.details.get("shared_links", []):
        say(
            f"{len(row['members'])} hosts with {row['members'][0]} share {_rate(row, 'out')} out, {_rate(row, 'in')} in"
        )
    unknown = [row for row in found.details.get("shared_links", []) if row.get("why")]
    errors = found.errors or found.bandwidth_errors
    what = "round trips" if found.errors else "bandwidths"
    if errors and set(errors.values()) == {UNTRIED}:
        raise PartlyDone(f"the budget is spent, {len(errors)} {what} are missing; `plink probe ... --resume` goes on")
    if errors:
        (i, j), why = next(iter(sorted(errors.items())))
        names = found.hosts.names
        raise PartlyDone(
            f"{len(errors)} {what} are missing, first {names[i]} -> {names[j]}: {why}; "
            f"`plink probe ... --resume` measures what is missing"
        )
    if unknown:
        raise PartlyDone(f"what {len(unknown)} groups share could not be measured: {unknown[0]['why']}")
    if not in_time:
        raise PartlyDone("the budget is spent; `plink probe ... --resume` goes on")


def _rate(row: dict[str, object], direction: str) -> str:
    value = row[f"{direction}_gbps"]
    if not isinstance(value, float):
        return "an unknown rate"
    return f"{'at least ' if row[f'{direction}_limited_by'] == 'hosts' else ''}{1000 * value:.0f} Mbit/s"
