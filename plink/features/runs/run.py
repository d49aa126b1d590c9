"""Make the decisions of an Autotune log again from its measurements."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from plink.errors import UsageError
from plink.model.run import AutotuneReplay, ReplayedInterval
from plink.records import workspace
from plink.records.runs import run_named
from runners.autotune.daemon import NAME, read_log
from solvers.autotune.trajectory import WAIT, TuningDecision, TuningTrajectory, decide, imbalance


def log_of(name: str) -> Path:
    """Return the log of that name, or that of the run whose id begins so, or of the ``last`` one.

    :raises UsageError: where there is none.
    """
    if Path(name).is_file():
        return Path(name)
    path = run_named(workspace.RUNS, name).folder / NAME
    if not path.is_file():
        raise UsageError(f"the run {path.parent.name} was not tuned (`plink launch --autotune`)")
    return path


def replay(path: Path, change: float | None, epsilon: float | None) -> tuple[AutotuneReplay, str | None]:
    """Return the decisions made again, and how the first that differs does; None: all are as in the log.

    :param change: the share by which throughput changes, and ``epsilon``: of Finetune; None: as in the job.
    :raises InputError: for a log that cannot be read.
    """
    assignment, settings, lines = read_log(path)
    finetune = settings.finetune if epsilon is None else replace(settings.finetune, epsilon=epsilon)
    settings = replace(settings, change=settings.change if change is None else change, finetune=finetune)
    trajectory, stretches, difference = TuningTrajectory(assignment), [], None
    assignments = {0: assignment}  # by epoch
    for number, (line, stretch) in enumerate(lines, 2):
        trajectory, decision = decide(trajectory, stretch, settings)
        assignments[trajectory.epoch] = trajectory.assignment
        then = assignments.get(stretch.epoch)
        matches = _matches_log(line, decision)
        difference = None
        if not matches:
            difference = f"{path}:{number}: {line.get('action')} was decided then, {decision.action} now"
        stretches.append(
            ReplayedInterval(
                at_s=line.get("at_s"),
                epoch=stretch.epoch,
                bytes_per_s=round(stretch.throughput),
                imbalance=None if then is None else round(imbalance(then), 3),
                action=decision.action,
                reason=decision.reason,
                as_logged=matches,
            )
        )
        if not matches and decision.action != WAIT:
            break  # what follows was seen under other masters
    return AutotuneReplay(stretches=tuple(stretches), as_logged=difference is None), difference


def _matches_log(line: dict[str, Any], decision: TuningDecision) -> bool:
    """Return whether the decision is the logged one."""
    if line.get("action") != decision.action:
        return False
    if decision.assignment is None:
        return "local_masters" not in line
    return bool(
        line.get("local_masters") == decision.assignment.local_masters.tolist()
        and line.get("global_group") == decision.assignment.global_group.tolist()
    )
