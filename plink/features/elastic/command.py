"""``plink elastic``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from plink.errors import PlinkError, UsageError, no_choice
from plink.features.elastic.control import add_hosts, evict_hosts, status_of, write_checkpoint
from plink.features.elastic.picture import iterations
from plink.features.elastic.request import ElasticRequest
from plink.features.elastic.show import show_summary, status_lines
from plink.features.elastic.summary import recorded_end, summary_of
from plink.features.launch.request import PROGRAM_FIRST, Arguments, JobRequest
from plink.features.spot.rented import rented_or_unknown, show_rented
from plink.features.spot.request import RENTAL_PANEL, SpotDriveRequest
from plink.model.elastic.status import CurrentCost
from plink.model.elastic.summary import TotalCost
from plink.model.hosts import TIERS
from plink.model.request import Choices, typed_words
from plink.model.storage import STANDARD, check_writable
from plink.model.units import parse_duration
from plink.pictures import PAPER, write_picture
from plink.records import workspace
from plink.terminal.elastic_runs import RunId, history_from, log_path
from plink.terminal.options import Json, takes
from plink.terminal.screen import print_json, print_lines, print_result, say

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
RunOrLog = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, the beginning of it, `last`, or a log.")]
Names = Annotated[list[str], typer.Argument(metavar="HOST...", help="Names of hosts.")]
_OVER = ("iterations", "seconds")


@app.callback()
def elastic() -> None:
    """Train on machines that may be taken away (AgileML): run a job, see and steer it, draw and sum up what it did.

    Example: plink elastic status last
    """


@app.command("run", context_settings=PROGRAM_FIRST)
@takes(
    JobRequest,
    ElasticRequest,
    SpotDriveRequest,
    only="hosts_file slots env python workdir sync interface timeout_s settings accept_new_host_keys log_dir dry_run "
    "as_json",
)
def run(
    options: JobRequest,
    request: ElasticRequest,
    rental: SpotDriveRequest,
    program: Annotated[str, typer.Argument(metavar="APP", help="A .py file that defines make(arguments).")],
    args: Arguments = None,
    spot: Annotated[
        Path | None,
        typer.Option(
            help="Market file: rent transient instances beside the job, as `plink spot drive` does, and release them "
            "at its end.",
            metavar="MARKET",
            rich_help_panel=RENTAL_PANEL,
        ),
    ] = None,
) -> None:
    """Train on reliable and transient hosts, of which the transient ones may come and go while the job runs.

    Parameters are on servers that move with the hosts; none is lost with a
    transient one. The hosts file says tier=reliable or tier=transient. The
    reliable hosts share the folder of --checkpoint.
    With --spot more transient hosts are rented while it runs, and released at
    its end, however that comes.

    Example: plink elastic run --hosts hosts.txt --checkpoint /shared/run1 app.py
    """
    from plink.features.elastic.session import run_job

    if spot is None and (words := typed_words(rental)):
        raise UsageError(f"{words[0]} goes with --spot MARKET")
    drive = None if spot is None else replace(rental, market=str(spot))
    if code := run_job(program, args or [], options, request, drive):
        raise typer.Exit(code)


@app.command("status")
def status(name: RunId, as_json: Json = False) -> None:
    """Show how an elastic job that runs stands: stage, hosts by what they do, iterations, bytes.

    Of a job with rented instances: what is held and why, and what it costs, as `plink spot status` shows it.

    Example: plink elastic status last
    """
    current = status_of(name)
    if (rented := rented_or_unknown(workspace.RUNS / current.run)) is not None:
        rented_cost = CurrentCost(total=rented.cost.total, per_iteration=rented.cost.per_iteration, without_price=())
        current = structs.replace(current, cost=rented_cost, spot=rented)
    if as_json:
        print_json(current.to_json())
        return
    print_lines(*status_lines(current))
    if rented is not None:
        show_rented(rented)


@app.command("add")
def add(
    name: RunId,
    names: Annotated[list[str] | None, typer.Argument(metavar="HOST...", help="Names of hosts.")] = None,
    hosts_file: Annotated[
        Path | None, typer.Option("--hosts", help="Where they stand; default: the hosts that the job began with.")
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(help="Of all of them; default: as in the file.", metavar=Choices(TIERS), show_default=False),
    ] = None,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Each works when it is ready, not all of them when the last one is.")
    ] = False,
) -> None:
    """Add hosts to an elastic job that runs: they load their data, then take over their share.

    It waits until they work or are refused, for a minute at most once their
    programs have started.

    Example: plink elastic add last --hosts more.txt
    """
    if tier is not None and tier not in TIERS:
        raise no_choice("--tier", tier, TIERS)
    if code := add_hosts(name, names or [], hosts_file, tier, one_by_one):
        raise typer.Exit(code)


@app.command("evict")
def evict(
    name: RunId,
    names: Names,
    within: Annotated[
        str, typer.Option("--in", metavar="TIME", help="How long they have (30s, 2m); 0s: none.")
    ] = "30s",
) -> None:
    """Warn hosts of an elastic job that they will be taken away: what they have moves on while there is time.

    Example: plink elastic evict last h3 h7 --in 2m
    """
    evict_hosts(name, names, parse_duration(within) if within not in ("0", "0s") else 0.0)


@app.command("checkpoint")
def checkpoint(name: RunId, as_json: Json = False) -> None:
    """Have an elastic job that runs write a checkpoint now, and wait until it is on disk: its clock and its folder.

    Example: plink elastic checkpoint last
    """
    written = write_checkpoint(name)
    print_result(written, as_json, lambda: print_lines(f"clock {written.clock}: {written.folder}"))


@app.command("plot")
def plot(
    run: RunOrLog,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The picture, .svg or .png; - is SVG on standard output.")
    ] = Path("elastic.svg"),
    over: Annotated[str, typer.Option(help="What lies to the right.", metavar=Choices(_OVER))] = "iterations",
) -> None:
    """Draw how long each iteration of an elastic run took, with its stages and what happened to its hosts.

    Iterations that a roll-back undid, and those done again, have marks of their own. Works on a run under way.

    Example: plink elastic plot last -o run.png
    """
    if over not in _OVER:
        raise no_choice("--over", over, _OVER)
    kind = ".svg" if str(output) == STANDARD else output.suffix.lower()
    if kind not in (".svg", ".png"):
        raise UsageError(f"-o {output}: a picture's name ends in .svg or .png")
    check_writable(output)
    history = history_from(run)
    if not history.steps:
        raise PlinkError(f"{run}: no iteration was done yet, so there is nothing to draw")
    write_picture(iterations(history, PAPER, over == "seconds"), output)
    if str(output) != STANDARD:
        say(f"{len(history.completed)} iterations -> {output}")


@app.command("summary")
def summary(run: RunOrLog, as_json: Json = False) -> None:
    """What an elastic run did and cost: iterations, their time by stage, bytes by host, what happened.

    The cost goes by the prices in the hosts file (price=X, money per hour) and by how long each host took part. Of a
    job with rented instances it is what these and the reliable machines cost, as `plink spot status` shows it.

    Example: plink elastic summary last
    """
    document, log = summary_of(history_from(run)), log_path(run)
    if document.end is None:
        document = structs.replace(document, end=recorded_end(log))
    if (rented := rented_or_unknown(log.parent)) is not None:
        rented_cost = TotalCost(total=rented.cost.total, per_iteration=rented.cost.per_iteration, without_price=())
        document = structs.replace(document, cost=rented_cost, spot=rented)
    print_result(document, as_json, lambda: show_summary(document))
