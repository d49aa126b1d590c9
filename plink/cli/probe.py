"""``plink probe``."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.cli.screen import progress, say
from plink.errors import PartlyDone, UsageError
from plink.records import workspace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from plink.model.hosts import Hosts
    from plink.model.network import Matrix
    from probes.measurements import Measurements
    from probes.plan import Plan
    from probes.survey import Survey

    Labels = npt.NDArray[np.intp]

_METHODS = ("stamp", "icmp", "tcp", "iperf3", "auto")
_PAIRS = ("all", "adaptive")
_ADAPTIVE_ABOVE = 256
_BUDGET = 0.10  # of all pairs, for adaptive probing
_WRITE_EVERY_S = 5.0
_UNTRIED = "not tried: the budget was spent"


_HOW, _RATES, _LIMITS = "How round trips are measured", "Bandwidth", "When it ends"


def probe(
    hosts_file: Annotated[Path, typer.Argument(metavar="HOSTS", help="Hosts file; - is standard input.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the network; default .plink/network.json.")
    ] = None,
    method: Annotated[
        str, typer.Option(help=f"How: {', '.join(_METHODS)} (what gets through).", rich_help_panel=_HOW)
    ] = "stamp",
    count: Annotated[
        int,
        typer.Option(min=20, max=1_000_000, help="Probes a pair, half in each direction.", rich_help_panel=_HOW),
    ] = 10_000,
    source_ports: Annotated[
        int, typer.Option(min=1, max=64, help="UDP source ports (ECMP paths) a host.", rich_help_panel=_HOW)
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
        int, typer.Option(min=1, max=128, help="TCP streams of a bandwidth test.", rich_help_panel=_RATES)
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
    from plink.model.hosts import read_hosts
    from plink.model.units import parse_bytes, parse_duration, parse_limit

    if method not in _METHODS:
        raise UsageError(f"--method {method}: there are {', '.join(_METHODS)}")
    if pairs not in (None, *_PAIRS):
        raise UsageError(f"--pairs {pairs}: there are {', '.join(_PAIRS)}")
    target = output or workspace.NETWORK
    if resume and str(target) == "-":
        raise UsageError("--resume needs a file to go on with, not standard output")
    workspace.check_output(output, workspace.NETWORK, (hosts_file,))
    limit_s = parse_duration(budget) if budget else None
    hosts = read_hosts(hosts_file)
    if len(hosts) < 2:
        raise UsageError(f"there is nothing to measure with one host ({hosts.names[0]}); give at least two")
    from probes.methods import Settings

    settings = Settings(
        count=count,
        timeout_s=parse_limit(timeout),
        source_ports=source_ports,
        seed=seed,
        streams=streams,
        bandwidth_s=parse_limit(bandwidth_time),
        bandwidth_bytes=parse_bytes(bandwidth_bytes) if bandwidth_bytes else None,
        handshakes=method in ("tcp", "auto"),
    )
    adaptive = method != "iperf3" and (pairs == "adaptive" or (pairs is None and len(hosts) > _ADAPTIVE_ABOVE))
    if dry_run:
        from plink.cli.probe_rehearsal import rehearsal

        for line in rehearsal(hosts, method, settings, adaptive, bandwidth, shared_links):
            print(line)
        return
    from plink.cli.inputs import connector_for
    from probes.measurements import Measurements
    from probes.survey import Survey, Watcher

    found = _begun(hosts, target) if resume else Measurements(hosts)
    connector = connector_for(hosts, accept_new_host_keys)
    if output is None:
        workspace.prepare()
    found.details |= {"method": method, "count": count, "seed": seed, "plan": "adaptive" if adaptive else "all"}
    began = time.monotonic()
    deadline = None if limit_s is None else began + limit_s
    keeper = _Keeper(found, target)
    with (
        progress("connecting", "measuring", "bandwidth", "shared links") as bars,
        Survey(found, connector, settings, time.monotonic) as survey,
    ):
        survey.start(Watcher(bars["connecting"]))
        try:
            in_time = _run(survey, method, adaptive, seed, bars["measuring"], keeper.round_done, deadline)
            if bandwidth and in_time:
                in_time = _run(survey, "iperf3", False, seed, bars["bandwidth"], keeper.round_done, deadline)
            if shared_links and in_time and method != "iperf3":
                _shared_links(survey, seed, bars["shared links"], deadline)
        finally:
            keeper.write()
    _report(found, target, time.monotonic() - began, adaptive, in_time)


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
        if not self._found.any() and self._target.exists():
            return
        began = time.monotonic()
        self._found.network().write(self._target)
        # A slow write (thousands of hosts) makes the next one wait longer.
        self._written = time.monotonic() + 10 * (time.monotonic() - began)


def _begun(hosts: "Hosts", target: Path) -> "Measurements":
    """What the file holds already, for exactly these hosts."""
    from plink.model.network import read_network
    from probes.measurements import resumed

    network = read_network(target)
    if network.hosts.names != hosts.names:
        raise UsageError(f"--resume: {target} is about other hosts (or in another order) than the hosts file")
    found = resumed(network, str(target))
    found.hosts = hosts
    say(f"{target}: {len(found.missing())} pairs are missing in it")
    return found


def _run(
    survey: "Survey",
    method: str,
    adaptive: bool,
    seed: int,
    advance: Callable[[int, int], None],
    round_done: Callable[[], None],
    deadline: float | None,
) -> bool:
    """All rounds of one method; False when the budget was spent before."""
    plan = _plan(survey.found, adaptive, seed)
    how: str | Callable[[int, int], str] = method
    if method == "auto":
        from probes.preflight import reachable_by

        how = reachable_by(survey)
        say(f"--method auto: {how.summary}")
    done, total = 0, plan.most_pairs

    def on_done() -> None:
        nonlocal done
        done += 1
        advance(done, total)

    try:
        while (pairs := plan.next_round(_known(survey.found, method))) is not None:
            if deadline is not None and time.monotonic() >= deadline:
                if not adaptive:
                    _note_untried(survey.found, method)
                return False
            survey.measure(pairs, how, on_done)
            round_done()
        return True
    finally:
        _predict(survey.found, plan)  # also of what there is when it is stopped


def _note_untried(found: "Measurements", method: str) -> None:
    """The budget is spent: pairs that it left out are null for that reason."""
    import numpy as np

    errors = found.bandwidth_errors if method == "iperf3" else found.errors
    for i, j in np.argwhere(np.isnan(_known(found, method))).tolist():
        if i != j:
            errors.setdefault((i, j), _UNTRIED)


def _known(found: "Measurements", method: str) -> "Matrix":
    """What the method has measured so far, NaN where it has not."""
    if method != "iperf3":
        return found.latency
    return found.bandwidth_or_nothing()


def _shared_links(survey: "Survey", seed: int, advance: Callable[[int, int], None], deadline: float | None) -> None:
    """Find the groups in the latencies and measure what each shares; noted among the details."""
    from probes.shared_links import Settings, shared_links

    groups = find_groups(survey.found.latency, survey.found.details.get("plan") == "adaptive")
    if len(groups) < 2:
        say("no groups stand out in the latencies: no shared links to measure")
        return

    def keep_going() -> bool:
        return deadline is None or time.monotonic() < deadline

    rows = shared_links(survey, groups, Settings(seed=seed), advance, keep_going)
    survey.found.details["shared_links"] = rows


def find_groups(latency_us: "Matrix", sparse: bool = False) -> list[list[int]]:
    """Hosts that are near each other; one that nothing was heard of is in none."""
    import numpy as np

    labels = label_groups(latency_us, sparse)
    heard = np.isfinite(latency_us).sum(axis=1) > 1
    groups = [[int(i) for i in np.flatnonzero((labels == label) & heard)] for label in range(labels.max() + 1)]
    return [group for group in groups if group]


def label_groups(latency_us: "Matrix", sparse: bool = False) -> "Labels":
    """The group of every host, shape (N,), by the latencies; unmeasured pairs count as far, or are predicted where most
    are unmeasured (``sparse``)."""
    import numpy as np

    from plink.model.network import symmetrised
    from solvers.hierarchy.tiers import nearest_tier

    if sparse:
        from solvers.prediction.tiered import predict_tiered

        return predict_tiered(latency_us).groups
    cost = symmetrised(latency_us)
    return nearest_tier(np.where(np.isnan(cost), np.nanmax(cost), cost))


def _plan(found: "Measurements", adaptive: bool, seed: int) -> "Plan":
    from probes.adaptive import Adaptive, AdaptiveSettings
    from probes.plan import AllPairs
    from solvers.prediction.tiered import predict_tiered

    n = len(found.hosts)
    if not adaptive:
        return AllPairs(n, seed)
    # A tenth of few pairs says nothing: every host meets sixteen others at least.
    return Adaptive(n, seed, predict_tiered, AdaptiveSettings(budget=min(1.0, max(_BUDGET, 16 / n))))


def _predict(found: "Measurements", plan: "Plan") -> None:
    """Say how far predictions can be trusted, and note what unmeasured pairs are expected to take."""
    import numpy as np

    from plink.model.network import to_rows
    from probes.adaptive import Adaptive
    from solvers.prediction.tiered import predict_tiered

    if not isinstance(plan, Adaptive) or not found.any():
        return
    n = len(found.hosts)
    error = plan.held_out_error
    found.details["predicted_us"] = to_rows(predict_tiered(found.latency).rtt_us(np.arange(n)), digits=1)
    found.details["held_out_error"] = None if error != error else round(error, 4)
    pairs = n * (n - 1) // 2
    share = 1 - len(found.missing()) / pairs
    why = "the groups no longer change" if plan.settled else "its share of pairs is spent"
    say(f"{share:.1%} of the pairs measured ({why}); others are predicted, {error:.1%} off on held-out pairs (median)")


def _report(found: "Measurements", target: Path, seconds: float, adaptive: bool, in_time: bool) -> None:
    import numpy as np

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
    if errors and set(errors.values()) == {_UNTRIED}:
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
