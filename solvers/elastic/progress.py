"""Progress of a job: clocks and iterations, as the worker that leads reports them.

An iteration's time is what its clocks took the worker that has shard 0, with its waits for the others; clocks that were
reported to another controller count as the mean of the others. Its objective is known an iteration later, with
staleness more, and its line in the log waits for that.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from plink.model.elastic.reports import ClockDone
from solvers.elastic.context import Context
from solvers.elastic.state import IterationEnd, TrainingProgress

_KEPT_ITERATIONS = 64  # whose clocks are known one by one, should a roll-back lead into the midst of one


def clock_done(ctx: Context, report: ClockDone, workers: int) -> None:
    """Handle a clock that a worker has done."""
    clock, iteration = report.clock, report.iteration
    now = replace(
        ctx.state.progress, batches=report.batches, clock_done=max(ctx.state.progress.clock_done, clock),
        workers=workers,
    )  # fmt: skip
    ctx.state.progress = now
    if not report.is_leader or clock == 0:  # which is before the first
        return
    took = now.took.get(iteration, {})
    if clock in took:
        return  # who stands in for another does again what that one had done
    now = replace(now, took={**now.took, iteration: {**took, clock: report.seconds}})
    if clock == (iteration + 1) * report.batches:
        end = IterationEnd(clock, now.stage, workers, ctx.now - ctx.state.settings.began)
        now = replace(now, over={**now.over, iteration: end})
    if report.evaluated_iteration is not None:
        now = replace(
            now, evaluated=max(now.evaluated, report.evaluated_iteration),
            objectives={**now.objectives, report.evaluated_iteration: report.objective},
            objective=now.objective if report.objective is None else report.objective,
        )  # fmt: skip
    ctx.state.progress = now
    for over in sorted(number for number in now.over if number <= now.evaluated):
        _log_iteration(ctx, over)
    now, oldest = ctx.state.progress, iteration - _KEPT_ITERATIONS
    if any(number <= oldest for number in now.took):
        dropped = {number for number in now.took if number <= oldest}
        ctx.state.progress = replace(
            now, took=_without(now.took, dropped), over=_without(now.over, dropped),
            objectives=_without(now.objectives, dropped),
        )  # fmt: skip


def rolled_back(ctx: Context, clock: int) -> None:
    """Reset after a roll-back: what came after a clock is done again."""
    for iteration in sorted(number for number, over in ctx.state.progress.over.items() if over.clock > clock):
        _log_iteration(ctx, iteration)
    now = ctx.state.progress
    evaluated = min(now.evaluated, clock // now.batches - 1)  # of those whose last clock is still done
    ctx.state.progress = replace(
        now,
        took={
            number: {done: seconds for done, seconds in took.items() if done <= clock}
            for number, took in now.took.items()
        },
        evaluated=evaluated,
        objectives={number: value for number, value in now.objectives.items() if number <= evaluated},
        clock_done=min(now.clock_done, clock),
    )


def ended(ctx: Context) -> None:
    """Log what is known; an iteration that has not come to its end is none."""
    for iteration in sorted(ctx.state.progress.over):
        _log_iteration(ctx, iteration)


def status(progress: TrainingProgress) -> dict[str, Any]:
    """Return the progress for a person."""
    return {
        "iteration": progress.iteration, "iteration_s": progress.seconds, "objective": progress.objective,
        "workers": progress.workers, "begun": progress.clock_done + 1,
    }  # fmt: skip


def _log_iteration(ctx: Context, iteration: int) -> None:
    now = ctx.state.progress
    over, seconds = now.over[iteration], fmean(now.took[iteration].values()) * now.batches
    ctx.state.progress = replace(
        now, iteration=iteration, seconds=seconds, over=_without(now.over, {iteration}),
        objectives=_without(now.objectives, {iteration}),
    )  # fmt: skip
    ctx.log(
        at=round(over.at, 3), what="iteration", iteration=iteration, seconds=round(seconds, 6),
        objective=now.objectives.get(iteration), stage=over.stage or now.stage, workers=over.workers, clock=over.clock,
    )  # fmt: skip


def _without(numbers: Mapping[int, Any], dropped: set[int]) -> dict[int, Any]:
    return {number: value for number, value in numbers.items() if number not in dropped}
