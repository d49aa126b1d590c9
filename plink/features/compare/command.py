"""``plink compare``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from plink.errors import PlinkError, UsageError
from plink.features.compare.mesh import METRIC, ByTraffic, mesh_job
from plink.features.compare.metric import metric_from
from plink.features.compare.request import PANEL, CompareRequest
from plink.features.compare.run import NOTHING_TO_COMPARE, OrderRuns
from plink.features.compare.show import show_comparison
from plink.features.launch.request import KEEP_HOSTS_ORDER, Arguments, JobRequest
from plink.features.launch.run import LaunchRequest
from plink.features.launch.session import JobSetup, report_failure, run
from plink.features.launch.setup import new_job
from plink.model.hosts import Hosts, read_hosts
from plink.model.network import read_network
from plink.model.run import OrderComparison
from plink.records import workspace
from plink.terminal.options import takes
from plink.terminal.screen import print_result, say
from runners.job.monitor import Sink
from runners.job.placement import RunResult

_MAX_SINGLE_RING = 3  # hosts


@takes(
    JobRequest,
    CompareRequest,
    only="hosts_file order algo runner launcher_args env python workdir sync interface timeout_s settings "
    "accept_new_host_keys log_dir tail as_json",
)
def compare(
    options: JobRequest,
    request: CompareRequest,
    program: Annotated[str | None, typer.Argument(metavar="PROGRAM", help="A .py file or a command.")] = None,
    args: Arguments = None,
    mesh_file: Annotated[
        Path | None,
        typer.Option(
            help="Instead of a program: the traffic of a mesh, plink.mesh/1, that `plink reorder` ordered ranks for.",
            metavar="FILE",
            rich_help_panel=PANEL,
        ),
    ] = None,
) -> None:
    """Run a program in the given order and in plink's, alternately, and report the speed-up (an A/B test).

    The gain has a 95 % interval. Runs are recorded like those of `plink
    launch`, and the result is written to .plink/compare.json.

    Example: plink compare --hosts hosts.txt --pairs 5 --metric step_s train.py
    """
    if options.order == KEEP_HOSTS_ORDER:
        raise UsageError(f"--order {KEEP_HOSTS_ORDER}: both orders are run; omit the option")
    if mesh_file is not None:
        if program is not None:
            raise UsageError(f"--mesh-file runs the mesh's traffic; omit {program}")
        if request.metric is not None:
            raise UsageError("--mesh-file runs traffic that plink times; omit --metric")
        with mesh_job(options, mesh_file) as (setup, by_traffic):
            _compare(setup, replace(request, metric=METRIC), by_traffic)
        return
    if not program:
        raise UsageError("name the program to run, or give --mesh-file")
    if request.metric is not None:
        metric_from(request.metric)  # refused before hosts are probed, which takes long
    if (ring := _only_ring(options)) is not None:
        say(ring)
        return
    _compare(new_job(program, args or [], options, options.runner or "ssh"), request)


def _compare(setup: JobSetup, request: CompareRequest, by_traffic: ByTraffic | None = None) -> None:
    """Run both orders, and write and print the result; of the complete pairs where a run fails."""

    def start(hosts: Hosts, launch_request: LaunchRequest, on_line: Sink) -> RunResult:
        result = run(replace(setup, hosts=hosts, request=launch_request), on_line)
        report_failure(result)
        return result

    if setup.baseline.names == setup.hosts.names:
        say(NOTHING_TO_COMPARE)
        return
    comparison = OrderRuns(request, setup.baseline, setup.hosts)
    try:
        comparison.run(setup.request, start)
    except (KeyboardInterrupt, PlinkError):
        runs, pairs = len(comparison.runs), comparison.complete_pairs
        outcome = f"the result is that of {pairs} of {request.pairs} pairs" if pairs else "there is no result yet"
        say(f"stopped after {runs} runs: {outcome}; `plink runs` lists the runs; the same command starts anew")
        if pairs:
            _keep(comparison.document(), setup.options.as_json)
        raise
    document = comparison.document()
    if by_traffic is not None:
        document = structs.replace(document, traffic=tuple(by_traffic(comparison.printed)))
    _keep(document, setup.options.as_json)


def _keep(document: OrderComparison, as_json: bool) -> None:
    try:  # what took long is shown, even where the disk is full
        print_result(document, as_json, lambda: show_comparison(document))
    finally:
        workspace.prepare()
        document.write(workspace.FOLDER / "compare.json")


def _only_ring(options: JobRequest) -> str | None:
    """Return why there is nothing to compare: few hosts form one ring, whatever their order."""
    if options.order is not None or options.algo not in (None, "ring"):
        return None
    if options.hosts_file is not None:
        hosts = read_hosts(options.hosts_file).ranked()
    elif workspace.NETWORK.is_file():
        hosts = read_network(workspace.NETWORK).hosts
    else:
        return None
    if len(hosts) > _MAX_SINGLE_RING:
        return None
    return f"{len(hosts)} host{'s' * (len(hosts) > 1)} form one ring: every order costs the same, nothing to compare"
