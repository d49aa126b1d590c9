"""``plink autotune replay``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.errors import PlinkError, UsageError
from plink.records import workspace
from plink.terminal.screen import print_json

if TYPE_CHECKING:
    from solvers.autotune.trajectory import TuningDecision

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def autotune() -> None:
    """Show what `plink launch --autotune` measured and decided.

    Example: plink autotune replay last
    """


@app.command("replay")
def replay(
    log: Annotated[str, typer.Argument(metavar="LOG", help="autotune.jsonl of a run, the run's id, or `last`.")],
    change: Annotated[
        float | None,
        typer.Option(min=0.01, max=1, help="Replay with another threshold: the share by which throughput changes."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(min=1, max=100, help="Replay with another epsilon of Finetune.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Replay the decisions of a log from its measurements: exit code 1 where they differ.

    Observations depend on the masters that were installed then. So with other
    settings only the first decision that differs is sure.

    Example: plink autotune replay last
    """
    from dataclasses import replace

    from runners.autotune.log import read_log
    from solvers.autotune.trajectory import WAIT, TuningTrajectory, decide, imbalance

    path = _path(log)
    assignment, settings, lines = read_log(path)
    settings = replace(settings, change=settings.change if change is None else change)
    if epsilon is not None:
        settings = replace(settings, finetune=replace(settings.finetune, epsilon=epsilon))
    trajectory, rows = TuningTrajectory(assignment), []
    assignment_by_epoch = {0: assignment}  # by epoch
    for line, stretch in lines:
        trajectory, decision = decide(trajectory, stretch, settings)
        assignment_by_epoch[trajectory.epoch] = trajectory.assignment
        matches = _matches_log(line, decision)
        rows.append(
            {
                "at_s": line.get("at_s"),
                "epoch": stretch.epoch,
                "bytes_per_s": round(stretch.throughput),
                "imbalance": round(imbalance(assignment_by_epoch[stretch.epoch]), 3)
                if stretch.epoch in assignment_by_epoch
                else None,
                "action": decision.action,
                "reason": decision.reason,
                "as_logged": matches,
            }
        )
        if not matches and decision.action != WAIT:
            break  # what follows was seen under other masters
    differs = bool(rows) and not rows[-1]["as_logged"]
    if as_json:
        print_json({"schema": "plink.autotune-replay/1", "stretches": rows, "as_logged": not differs})
    elif rows:
        _show(rows)
    else:
        print("the ranks reported nothing: Gloo ran every all-reduce, or the job ended before the tenth")
    if differs:
        raise PlinkError(f"{path}: line {len(rows) + 1}: {line.get('action')} was decided then, {decision.action} now")


def _path(log: str) -> Path:
    if Path(log).is_file():
        return Path(log)
    from plink.records.runs import run_named
    from runners.autotune.log import NAME

    path = run_named(workspace.RUNS, log).folder / NAME
    if not path.is_file():
        raise UsageError(f"the run {path.parent.name} was not tuned (`plink launch --autotune`)")
    return path


def _matches_log(line: dict[str, Any], decision: "TuningDecision") -> bool:
    """Return whether the decision is the logged one."""
    if line.get("action") != decision.action:
        return False
    if decision.assignment is None:
        return "local_masters" not in line
    return bool(
        line.get("local_masters") == decision.assignment.local_masters.tolist()
        and line.get("global_group") == decision.assignment.global_group.tolist()
    )


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name, justify in (("at", "right"), ("MB/s", "right"), ("load max/min", "right"), ("", "left"), ("why", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(
            "" if row["at_s"] is None else f"{row['at_s']:.1f} s",
            f"{row['bytes_per_s'] / 1e6:.3g}",
            "" if row["imbalance"] is None else f"{row['imbalance']:.2f}",
            row["action"],
            row["reason"],
        )
    Console().print(table)
