"""``plink check``."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from msgspec import structs

import plink
from plink.errors import NoAnswer, PlinkError, UsageError
from plink.features.check.request import CheckRequest
from plink.model.dry_run import DryRun, PlannedOrder
from plink.model.network_file import HostCostsEntry, LibraryCostsEntry
from plink.model.storage import STANDARD, check_apart
from plink.model.units import format_us
from plink.records import workspace
from plink.terminal.inputs import network_from
from plink.terminal.junit import Case, write_junit
from plink.terminal.options import Json, NetworkFile, takes
from plink.terminal.screen import print_json, print_lines, progress, say

if TYPE_CHECKING:
    from plink.features.check.run import CheckReport
    from plink.model.check import CalibratedHosts, CalibratedLibrary
    from plink.model.network import Network

_RESULTS = "Results"
_MAX_LISTED = 32  # hosts of an order
Entry = TypeVar("Entry", HostCostsEntry, LibraryCostsEntry)


@takes(CheckRequest)
def check(
    request: CheckRequest,
    network_file: NetworkFile = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the orders and their costs, run nothing.", rich_help_panel=_RESULTS),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            rich_help_panel=_RESULTS,
            help="File for the result of --measure, - for standard output; default .plink/check.json.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Also write it as JUnit XML, for CI.", rich_help_panel=_RESULTS)
    ] = None,
    as_json: Json = False,
) -> None:
    """Validate the cost model against measured times, and measured distances against true locations.

    --measure runs one collective in orders from the cheapest to the costliest,
    each algorithm's job for 30 minutes at most, and compares: Spearman's rank
    correlation, predicted against measured times, what the best order gains.
    --truth compares measured distances with where hosts are (PAIA: of
    triplets a, b; c the share in which the nearer of a and b was measured to
    be nearer; 0.5 is chance). docs/ci.md has workflows for GitHub and GitLab.

    Example: plink check cloud.json --measure --algo gloo --min-spearman 0.9 --junit check.xml
    """
    from plink.features.check.benchmark import PHASES
    from plink.features.check.run import CheckReport

    target = output or workspace.FOLDER / "check.json"
    _check_files(request, network_file, output, dry_run, junit)
    needs_network = network_file is not None or request.measure or request.truth is not None
    source = network_file or workspace.NETWORK if needs_network else None
    read = (source, request.results, request.truth, request.max_regression)
    workspace.check_output(junit, None, read)
    if request.measure:
        check_apart(junit, (), target)
        workspace.check_output(output, target, read)
        if output is None and not dry_run:
            workspace.prepare()
    report = CheckReport()
    try:
        network = network_from(network_file) if needs_network else None
        if dry_run and network is not None:
            _show_orders(network, request, as_json)
            return
        with progress(*PHASES) as bars:
            result = plink.check(
                network,
                request,
                recompute=network_file is not None,
                report=report,
                progress=lambda phase, done, total: bars[phase](done, total),
            )
        if (report.host_costs or report.library_costs) and network is not None and source is not None:
            _write_costs(network, source, report)
    except (PlinkError, KeyboardInterrupt) as error:
        error_text = str(error) or "it was interrupted"
        with ExitStack() as stack:
            if junit is not None:
                stack.callback(write_junit, junit, [*report.cases, Case("check", "check", None, error_text)])
            if request.measure and report.checks:  # what was run before took time, too
                report.document(error_text).write(target)
                if str(target) != STANDARD:
                    say(f"what was run -> {target}")
        raise
    to_file = request.measure and str(target) != STANDARD
    with ExitStack() as stack:  # a full disk loses nothing that was measured
        if junit is not None:
            stack.callback(write_junit, junit, report.cases)
        if as_json or (request.measure and not to_file):
            stack.callback(print_json, result.to_json())
        else:
            from plink.features.check.show import print_report

            stack.callback(print_report, report)
        if to_file:
            result.write(target)
            say(f"check -> {target}")
    if request.calibrate:
        parts = ["host costs" if report.host_costs else "", "NCCL's costs" if report.library_costs else ""]
        say(f"{' and '.join(filter(None, parts))} -> {source}")
    if not result.ok:
        falls_short = any(case.ok is False for case in report.cases)
        raise (PlinkError if falls_short else NoAnswer)("; ".join(result.failures or ()))


def _some(hosts: Sequence[str]) -> str:
    more = len(hosts) - _MAX_LISTED
    return " ".join(hosts[:_MAX_LISTED]) + (f" ... and {more} more hosts" if more > 0 else "")


def _check_files(
    request: CheckRequest, network_file: Path | None, output: Path | None, dry_run: bool, junit: Path | None
) -> None:
    """Refuse files that would have no use, or be lost.

    :raises UsageError: for one of them.
    """
    if output is not None and not request.measure:
        raise UsageError("-o goes with --measure; --json prints what was found")
    if request.calibrate and str(network_file) == STANDARD:
        raise UsageError("--calibrate writes into the network file, and standard input is none; name a file")
    limits = {
        "--truth": request.truth,
        "--min-spearman": request.min_spearman,
        "--max-regression": request.max_regression,
        "--junit": junit,
        "-o": output,
    }
    useless = [name for name, value in limits.items() if value is not None]
    if dry_run and not request.measure:
        raise UsageError("--dry-run goes with --measure: nothing is run here")
    if dry_run and useless:
        raise UsageError(f"{', '.join(useless)}: --dry-run measures nothing; omit one of the two")


def _show_orders(network: "Network", request: CheckRequest, as_json: bool) -> None:
    """Show the orders that would be run, with their costs."""
    from plink.features.check.run import plan_check

    plans, unranked = plan_check(network, request)
    for case in unranked:
        say(f"{case.text}; it is not run")
    for planned in plans:
        say(planned.text)
    orders = tuple(
        PlannedOrder(planned.algo, round(cost, 3), planned.hosts_of(order))
        for planned in plans
        if not planned.for_costs
        for order, cost in planned.orders
    )
    if as_json:
        print_json(DryRun("check", orders=orders).to_json())
    else:
        print_lines(*(f"{row.algo}, {format_us(row.predicted_us)}: {_some(row.hosts)}" for row in orders))


def _write_costs(network: "Network", path: Path, report: "CheckReport") -> None:
    """Write the costs of hosts, and of NCCL's algorithms that were timed, into the network file.

    :raises PlinkError: when it has changed since it was read.
    """
    present = plink.read_network(path)
    if present.fingerprint() != network.fingerprint():
        raise PlinkError(f"{path} has changed since this began: the costs are not written; run it again")
    details = present.details
    if report.host_costs:
        details = structs.replace(details, host_costs=_without_timings(report.host_costs, HostCostsEntry))
    if report.library_costs:
        entries = {entry.algo: entry for entry in present.library_costs}
        entries |= {costs.algo: _without_timings(costs, LibraryCostsEntry) for costs in report.library_costs}
        details = structs.replace(details, library_costs=list(entries.values()))
    replace(present, details=details).write(path)


def _without_timings(costs: "CalibratedHosts | CalibratedLibrary", kind: type[Entry]) -> Entry:
    return kind(**{key: getattr(costs, key) for key in kind.__struct_fields__})
