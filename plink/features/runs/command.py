"""``plink runs``."""

from typing import Annotated

import typer

from plink.errors import InputError, PlinkError
from plink.features.launch.request import JobRequest
from plink.features.launch.session import start
from plink.features.runs.rerun import recorded_job
from plink.features.runs.run import log_of
from plink.features.runs.run import replay as replay_log
from plink.features.runs.show import print_replay, run_lines
from plink.model.run import RecordedRuns
from plink.records import workspace
from plink.records.runs import run_named, runs_in
from plink.terminal.options import Json, takes
from plink.terminal.screen import print_json, print_lines, print_result, say_error

app = typer.Typer(
    no_args_is_help=False, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
RunId = Annotated[str, typer.Argument(metavar="ID", help="The run, the beginning of its id, or `last`.")]


@app.callback()
def runs(context: typer.Context, as_json: Json = False) -> None:
    """List the jobs that `plink launch` ran here, the latest first.

    Example: plink runs
    """
    if context.invoked_subcommand is not None:
        return
    all_runs = list(runs_in(workspace.RUNS))
    recorded = [run for run in all_runs if not isinstance(run.content, InputError)]
    for run in all_runs:
        if isinstance(run.content, InputError):
            say_error(f"the run {run.id} is damaged: {run.content}")
    if as_json:
        print_json(RecordedRuns(runs=[run.document for run in recorded]).to_json())
    elif not all_runs:
        print("no jobs were run here yet; `plink launch` records them")
    elif recorded:
        from plink.features.runs.show import print_runs

        print_runs(recorded)


@app.command()
def show(name: RunId, as_json: Json = False) -> None:
    """Show one job: what ran where, its verified placement, its result, and the folder of its logs.

    Example: plink runs show last
    """
    run = run_named(workspace.RUNS, name)
    if as_json:
        print_json(run.document)
    else:
        print_lines(*(line.expandtabs() for line in run_lines(run)))


@app.command()
@takes(
    JobRequest,
    only="runner launcher_args backend autotune env sync interface timeout_s settings accept_new_host_keys log_dir "
    "tail dry_run as_json",
)
def rerun(options: JobRequest, name: RunId) -> None:
    """Run a job again: same program, hosts, order, folder, environment, limits and runner; typed options win.

    Example: plink runs rerun last
    """
    if code := start(recorded_job(name, options)):
        raise typer.Exit(code)


@app.command()
def replay(
    log: Annotated[str, typer.Argument(metavar="LOG", help="autotune.jsonl of a run, the run's id, or `last`.")],
    change: Annotated[
        float | None,
        typer.Option(min=0.01, max=1, help="Replay with another threshold: the share by which throughput changes."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(min=1, max=100, help="Replay with another epsilon of Finetune.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay the decisions of `plink launch --autotune` from their measurements: exit code 1 where they differ.

    Observations depend on the masters that were installed then. So with other
    settings only the first decision that differs is sure.

    Example: plink runs replay last
    """
    result, difference = replay_log(log_of(log), change, epsilon)
    print_result(result, as_json, lambda: print_replay(result))
    if difference is not None:
        raise PlinkError(difference)
