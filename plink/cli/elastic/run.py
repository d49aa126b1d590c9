"""``plink elastic run``."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from plink.cli.elastic.options import ElasticOptions
from plink.cli.job_options import RUN_PANEL, Arguments, JobOptions, option, takes
from plink.errors import UsageError
from plink.features.spot.request import RENTAL_PANEL, SpotDriveRequest
from plink.model.request import typed_words


class ElasticRunner(StrEnum):
    """How the hosts of an elastic job are reached."""

    SSH = "ssh"
    LOCAL = "local"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


@takes(
    "hosts_file", "slots", "env", "python", "workdir", "sync", "interface", "timeout", "settings",
    "accept_new_host_keys", "log_dir", "dry_run", "as_json",
)  # fmt: skip
def run(
    program: Annotated[str, typer.Argument(metavar="APP", help="A .py file that defines make(arguments).")],
    options: JobOptions,
    elastic: ElasticOptions,
    rental: SpotDriveRequest,
    args: Arguments = None,
    spot: Annotated[
        Path | None,
        option(
            RENTAL_PANEL,
            "Market file: rent transient instances beside the job, as `plink spot drive` does, and release them at its "
            "end.",
            metavar="MARKET",
        ),
    ] = None,
    runner: Annotated[ElasticRunner, option(RUN_PANEL, "How its hosts are reached.")] = ElasticRunner.SSH,
) -> None:
    """Train on reliable and transient hosts, of which the transient ones may come and go while the job runs.

    Parameters are on servers that move with the hosts; none is lost with a
    transient one. The hosts file says tier=reliable or tier=transient. The
    reliable hosts share the folder of --checkpoint.
    With --spot more transient hosts are rented while it runs, and released at
    its end, however that comes.

    Example: plink elastic run --hosts hosts.txt --checkpoint /shared/run1 app.py
    """
    from plink.cli.elastic.job import run_job

    if spot is None and (words := typed_words(rental)):
        raise UsageError(f"{words[0]} goes with --spot MARKET")
    request = None if spot is None else replace(rental, market=str(spot))
    if code := run_job(program, args or [], runner.value, options, elastic, request):
        raise typer.Exit(code)
