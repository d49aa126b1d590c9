"""Progress of a job: clocks and iterations, as the worker that leads reports them.

An iteration's time is what its clocks took the worker that has shard 0, with its waits for the others; clocks that were
reported to another controller count as the mean of the others. Its line in the log waits for what all its workers
report. Its objective is known an iteration later, for which the line waits, too; where workers may be apart it is known
later still, and is a line of its own.
"""

from dataclasses import replace
from statistics import fmean
from typing import Any

from plink.model.elastic.reports import ClockDone
from solvers.elastic import host_work
from solvers.elastic.context import Context
from solvers.elastic.observations import IterationEnd, TrainingProgress
from solvers.elastic.placement.stages import Stage
from solvers.elastic.state import omit

_HISTORY_ITERATIONS = 64  # whose clocks are known one by one, should a roll-back lead into the midst of one
_LATE_ITERATIONS = 48  # after which no report is waited for: workers are less far apart


def clock_done(ctx: Context, report: ClockDone, workers: int) -> None:
    """Handle a clock that a worker has done."""
    clock, iteration = report.clock, report.iteration
    current = replace(
        ctx.state.progress,
        batches=report.batches,
        clock_done=max(ctx.state.progress.clock_done, clock),
        workers=workers,
    )
    ctx.state.progress = current
    if report.is_leader and clock and report.steps:  # not before the first, nor one that only ends the job
        _leader_done(ctx, report)
    if ctx.state.progress.over:
        _log_reported(ctx, iteration - _LATE_ITERATIONS, wait_for_objective=ctx.state.settings.apart == 0)


def _leader_done(ctx: Context, report: ClockDone) -> None:
    """Note the time of a clock, and what is known of iterations by it."""
    clock, iteration, current = report.clock, report.iteration, ctx.state.progress
    took = current.took.get(iteration, {})
    if clock in took:
        return  # who stands in for another does again what that one had done
    current = replace(current, took={**current.took, iteration: {**took, clock: report.seconds}})
    if clock == (iteration + 1) * report.batches:
        workers, at = ctx.state.rebalancing.count(clock), ctx.now - ctx.state.settings.began
        end = IterationEnd(clock, current.stage, workers, at)
        current = replace(current, over={**current.over, iteration: end})
    evaluated, objective = report.evaluated_iteration, report.objective
    if evaluated is not None:
        if evaluated in current.over:
            current = replace(current, objectives={**current.objectives, evaluated: objective})
        elif evaluated > current.evaluated and objective is not None:
            ctx.log(what="objective", iteration=evaluated, objective=objective)
        current = replace(
            current,
            evaluated=max(current.evaluated, evaluated),
            objective=current.objective if objective is None else objective,
        )
    oldest = iteration - _HISTORY_ITERATIONS
    ctx.state.progress = current
    if any(number <= oldest for number in current.took):
        dropped = {number for number in current.took if number <= oldest}
        ctx.state.progress = replace(
            current,
            took=omit(current.took, *dropped),
            over=omit(current.over, *dropped),
            objectives=omit(current.objectives, *dropped),
        )


def log_done(ctx: Context) -> None:
    """Log iterations that all workers have done; objectives that are not known yet are missing."""
    _log_reported(ctx, -1, wait_for_objective=False)


def _log_reported(ctx: Context, late: int, *, wait_for_objective: bool) -> None:
    """Log iterations that all workers have reported, or that are ``late``, in order."""
    current, reached = ctx.state.progress, ctx.state.work.reached
    for number in sorted(current.over):
        if wait_for_objective and number > current.evaluated:
            return
        if number > late and ctx.state.rebalancing.late(current.over[number].clock, reached):
            return
        _log_iteration(ctx, number)


def change_stage(ctx: Context, stage: Stage, reason: str) -> None:
    """Log the stage to which a decision leads."""
    ctx.state.progress = replace(ctx.state.progress, stage=stage.value)
    ctx.log(what="stage", stage=stage.value, why=reason)


def rolled_back(ctx: Context, clock: int) -> None:
    """Reset after a roll-back: what came after a clock is done again."""
    for iteration in sorted(number for number, over in ctx.state.progress.over.items() if over.clock > clock):
        _log_iteration(ctx, iteration)
    current = ctx.state.progress
    evaluated = min(current.evaluated, clock // current.batches - 1)  # of those whose last clock is still done
    ctx.state.progress = replace(
        current,
        took={
            number: {done: seconds for done, seconds in took.items() if done <= clock}
            for number, took in current.took.items()
        },
        evaluated=evaluated,
        objectives={number: value for number, value in current.objectives.items() if number <= evaluated},
        clock_done=min(current.clock_done, clock),
    )


def ended(ctx: Context) -> None:
    """Log what is known; an iteration that has not come to its end is none."""
    for iteration in sorted(ctx.state.progress.over):
        _log_iteration(ctx, iteration)


def status(progress: TrainingProgress) -> dict[str, Any]:
    """Return the progress for a person."""
    return {
        "iteration": progress.iteration,
        "iteration_s": progress.seconds,
        "objective": progress.objective,
        "workers": progress.workers,
        "iteration_workers": progress.iteration_workers,
        "begun": progress.clock_done + 1,
        "work": dict(progress.work),
        "moved": progress.moved,
        "help": {host: dict(helpers) for host, helpers in progress.help.items()},
    }


def _log_iteration(ctx: Context, iteration: int) -> None:
    current = ctx.state.progress
    over, seconds = current.over[iteration], fmean(current.took[iteration].values()) * current.batches
    work = host_work.of_iteration(ctx.state, iteration)
    moved, helped = host_work.help_of_iteration(ctx.state, iteration)
    ctx.state.progress = replace(
        current,
        iteration=iteration,
        seconds=seconds,
        iteration_workers=over.workers,
        over=omit(current.over, iteration),
        objectives=omit(current.objectives, iteration),
        work=work,
        moved=moved,
        help=helped,
    )
    ctx.log(
        at=round(over.at, 3),
        what="iteration",
        iteration=iteration,
        seconds=round(seconds, 6),
        objective=current.objectives.get(iteration),
        stage=over.stage or current.stage,
        workers=over.workers,
        clock=over.clock,
        work=work,
        moved=moved,
        help=helped,
    )
