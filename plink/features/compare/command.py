"""``plink compare``."""

from typing import Annotated

import typer

from plink.errors import UsageError
from plink.features.compare.mesh import compare_mesh
from plink.features.compare.request import CompareRequest
from plink.features.compare.run import compare_orders, metric_from
from plink.features.launch.request import KEEP_HOSTS_ORDER, Arguments, JobRequest
from plink.features.launch.setup import new_job
from plink.model.hosts import read_hosts
from plink.model.network import read_network
from plink.records import workspace
from plink.terminal.options import takes
from plink.terminal.screen import say

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
) -> None:
    """Run a program in the given order and in plink's, alternately, and report the speed-up (an A/B test).

    The gain has a 95 % interval. Runs are recorded like those of `plink
    launch`, and the result is written to .plink/compare.json.

    Example: plink compare --hosts hosts.txt --pairs 5 --metric step_s train.py
    """
    if options.order == KEEP_HOSTS_ORDER:
        raise UsageError(f"--order {KEEP_HOSTS_ORDER}: both orders are run; omit the option")
    if request.mesh_file is not None:
        if program is not None:
            raise UsageError(f"--mesh-file runs the mesh's traffic; omit {program}")
        if request.metric is not None:
            raise UsageError("--mesh-file runs traffic that plink times; omit --metric")
        compare_mesh(options, request, request.mesh_file)
        return
    if program is None:
        raise UsageError("name the program to run, or give --mesh-file")
    if request.metric is not None:
        metric_from(request.metric)  # refused before hosts are probed, which takes long
    if (ring := _only_ring(options)) is not None:
        say(ring)
        return
    setup = new_job(program, args or [], options, options.runner or "ssh")
    compare_orders(setup, request)


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
