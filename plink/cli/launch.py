"""``plink launch``."""

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.cli.screen import print_json, progress, say
from plink.errors import UsageError

if TYPE_CHECKING:
    from runners.job.proof import Finding


def launch(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="A .py file or a command.")],
    args: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Its arguments.")] = None,
    hosts_file: Annotated[
        Path | None, typer.Option("--hosts", help="Hosts file; default: the hosts of .plink/network.json.")
    ] = None,
    order_file: Annotated[
        Path | None, typer.Option("--order", help="An order, or names one a line; default .plink/order.json.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Added to every rank's environment.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="Interpreter for .py files; default: this one's path, else python3.")
    ] = None,
    accept_new_host_keys: Annotated[
        bool, typer.Option("--accept-new-host-keys", help="Note unknown SSH host keys instead of refusing them.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the run as JSON; the ranks' output goes to stderr.")
    ] = False,
) -> None:
    """Run a program as the ranks of a job, in plink's order, and prove that every rank is where it should be.

    Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
    MASTER_ADDR and MASTER_PORT as under torchrun, and GLOO_SOCKET_IFNAME and
    NCCL_SOCKET_IFNAME. The first rank that fails ends the others.

    Example: plink launch --hosts hosts.txt train.py --epochs 3
    """
    import os
    import time

    from plink.cli.inputs import connector_for, job_hosts

    settings = {}
    for setting in env or []:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise UsageError(f"--env {setting}: write NAME=VALUE")
        settings[name] = value
    hosts, machines = job_hosts(hosts_file, order_file)
    connector = connector_for(hosts, accept_new_host_keys)
    from runners.job.launcher import Job, OrderNotKept
    from runners.job.launcher import launch as run

    job = Job(
        program=program,
        args=tuple(args or ()),
        workdirs=(os.getcwd(), "~"),
        pythons=(python,) if python else (sys.executable, "python3"),
        env=settings,
    )
    width = len(str(sum(host.slots for host in hosts) - 1))
    out = sys.stderr if as_json else sys.stdout

    def sink(rank: int, stream: str, line: str) -> None:
        file = out if stream == "out" else sys.stderr
        file.buffer.write(f"[{rank:>{width}}] {line}\n".encode("utf-8", "surrogateescape"))
        file.flush()

    bars = contextlib.ExitStack()

    def on_proof(findings: "list[Finding]") -> None:
        bars.close()
        say(f"all {len(findings)} ranks are where they were asked to be")

    try:
        with bars:
            connected = bars.enter_context(progress("connecting"))["connecting"]
            result = run(hosts, job, connector, machines, sink, on_proof, time.monotonic, connected)
    except OrderNotKept as error:
        for finding in error.findings:
            mark = f"  <- {finding.wrong}" if finding.wrong else ""
            say(f"rank {finding.rank:>{width}}: asked for {finding.host}, found {finding.hostname}{mark}")
        if as_json:
            print_json(error.result.to_json())
        raise
    if as_json:
        print_json(result.to_json())
    if result.failure is not None:
        failure = result.failure
        for line in failure.last_lines[-10:]:
            say(f"[{failure.rank}] {line}")
        say(f"error: rank {failure.rank} on {failure.host} was the first to fail, with exit code {failure.code}")
    if result.exit_code:
        raise typer.Exit(result.exit_code)
