"""``plink runs``, ``plink runs show`` and ``plink runs rerun``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.errors import printable
from plink.features.launch.request import JobRequest
from plink.records import workspace
from plink.terminal.options import takes
from plink.terminal.screen import print_json, print_lines

if TYPE_CHECKING:
    from plink.records.runs import Run

app = typer.Typer(
    no_args_is_help=False, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
_LAST_LINES = 10
_MAX_SHOWN_SECONDS = 1e15


@app.callback()
def runs(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List the jobs that `plink launch` ran here, the latest first.

    Example: plink runs
    """
    if context.invoked_subcommand is not None:
        return
    from plink.records.runs import runs_in

    recorded = list(runs_in(workspace.RUNS))
    if as_json:
        print_json({"schema": "plink.runs/1", "runs": [run.document for run in recorded]})
    elif not recorded:
        print("no jobs were run here yet; `plink launch` records them")
    else:
        _table(recorded)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="The run, the beginning of its id, or `last`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show one job: what ran where, its verified placement, its result, and the folder of its logs.

    Example: plink runs show last
    """
    from plink.records.runs import run_named

    run = run_named(workspace.RUNS, name)
    if as_json:
        print_json(run.document)
        return
    # Files may be anybody's, and what ranks printed is: the terminal obeys none of it.
    print_lines(*(line.expandtabs() for line in _lines(run)))


@app.command("rerun")
@takes(
    JobRequest,
    only="runner launcher_args backend autotune env sync interface timeout_s settings accept_new_host_keys log_dir "
    "tail dry_run as_json",
)
def rerun(
    options: JobRequest,
    name: Annotated[str, typer.Argument(metavar="ID", help="The run, the beginning of its id, or `last`.")],
) -> None:
    """Run a job again: same program, hosts, order, folder, environment, limits and runner; typed options win.

    Example: plink runs rerun last
    """
    from plink.cli.launching import start
    from plink.cli.rerun import recorded_job

    if code := start(recorded_job(name, options)):
        raise typer.Exit(code)


def _lines(run: "Run") -> Iterator[str]:
    """Yield the lines that describe a run."""
    yield f"{run.id}, {run.started}: {_command(run)}"
    yield _end(run)
    for rank in _rows(run.document.get("proof"), "ranks"):
        wrong = f"  <- {rank['wrong']}" if rank.get("wrong") else ""
        yield f"  rank {rank.get('rank')}: {rank.get('host')}, found on {rank.get('hostname')}{wrong}"
    failure = run.document.get("failure")
    if isinstance(failure, dict):
        yield f"rank {failure.get('rank')} on {failure.get('host')} was the first to fail; its last lines:"
        for line in _list_or_empty(failure.get("last_lines"))[-_LAST_LINES:]:
            yield f"  {line}"
    yield f"logs: {run.document.get('logs')}"


def _list_or_empty(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one: the file may be anybody's."""
    return value if isinstance(value, list) else []


def _rows(value: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects of the list under a key."""
    return [row for row in _list_or_empty(value.get(key)) if isinstance(row, dict)] if isinstance(value, dict) else []


def _seconds(run: "Run") -> float | None:
    value = run.document.get("seconds")
    return float(value) if isinstance(value, int | float) and abs(value) < _MAX_SHOWN_SECONDS else None


def _command(run: "Run") -> str:
    import shlex

    from plink.runtime.pipeline import MODULE

    words = [str(word) for word in (run.document.get("program", "?"), *_list_or_empty(run.document.get("args")))]
    return shlex.join(words[3:] if words[1:3] == ["-m", MODULE] else words)


def _end(run: "Run") -> str:
    code, seconds = run.document.get("exit_code"), _seconds(run)
    hosts = len(_list_or_empty(run.document.get("hosts")))
    if code is None:
        return f"{hosts} hosts; still running, or plink was killed"
    error = run.document.get("error")  # of a job that never began
    return (
        f"{hosts} hosts; exit code {code}"
        + ("" if seconds is None else f" after {seconds:.1f} s")
        + (f": {error}" if isinstance(error, str) else "")
    )


def _table(recorded: "list[Run]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("id", "started (UTC)", "hosts", "order", "backend", "s", "exit", "program")
    for run in recorded:
        code, seconds = run.document.get("exit_code"), _seconds(run)
        table.add_row(
            *(escape(printable(text)) for text in (run.id, run.started[:19])),
            str(len(_list_or_empty(run.document.get("hosts")))),
            *(escape(printable(str(run.document.get(key) or ""))) for key in ("order", "backend")),
            "" if seconds is None else f"{seconds:.1f}", "-" if code is None else escape(printable(str(code))),
            escape(printable(_command(run))),
        )  # fmt: skip
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
