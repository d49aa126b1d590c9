"""The end of a job: at once, for whatever reason comes first, or when all workers have done their last clock.

Then the program writes its result.
"""

from dataclasses import replace

from plink.model.elastic.reports import Answer, WorkerFinished
from plink.model.elastic.requests import Result, WriteResult
from solvers.elastic import checkpointing, progress, rebalancing, traffic
from solvers.elastic.commands import EndJob
from solvers.elastic.context import Context


def end(ctx: Context, code: int, reason: str) -> None:
    """End the job."""
    if not ctx.state.ending.over:
        ctx.state.ending = replace(ctx.state.ending, over=True)
        progress.ended(ctx)
        traffic.log_changes(ctx)
        ctx.command(EndJob(code, reason))


def fail(ctx: Context, reason: str) -> None:
    """End the job: it cannot go on."""
    end(ctx, 1, reason)


def worker_finished(ctx: Context, report: WorkerFinished) -> None:
    """Handle the end of a worker: released, done with a takeover, or because nothing is left to do."""
    if report.takeover or report.released:
        rebalancing.worker_ended(ctx, report.worker)
    else:  # begun anew at a later one it ends there
        ending = ctx.state.ending
        finished = {report.worker: report.clock, **ending.finished}
        ctx.state.ending = replace(ending, finished=finished, reason=ending.reason or report.reason)
        ctx.state.rebalancing = replace(ctx.state.rebalancing, frozen=True)


def advance(ctx: Context) -> None:
    """Write the result once all have finished and what they did is safe."""
    current, ending = ctx.state.rebalancing, ctx.state.ending
    if not ending.finished or current.barrier.under_way or current.pending:
        return
    last = min(ending.finished.values())
    done = all(number in ending.finished for number, worker in current.workers.items() if worker.first <= last)
    if done and checkpointing.finished(ctx, last - 1):
        _write_result(ctx, last)


def _write_result(ctx: Context, clock: int) -> None:
    """Have the program write its result, then end."""
    if ctx.state.ending.over or ctx.state.ending.writing:
        return
    ctx.state.ending = replace(ctx.state.ending, writing=True)
    checkpointing.say_what_is_missing(ctx, clock - 1)
    generation = ctx.state.cluster.generation
    host = min(ctx.state.cluster.reliable, key=lambda host: host.number).number
    ctx.request(host, WriteResult(clock, generation), result_written, host, generation)


def _reason(ctx: Context) -> str:
    """Return why the job ends; and that it has trained nothing, if so."""
    reason = ctx.state.ending.reason
    if reason and ctx.state.goes_on_from_another_job and not any(ctx.state.progress.took.values()):
        return f"{reason} in the checkpoint already; nothing was trained"
    return reason


def result_written(ctx: Context, host: int, generation: int, answer: Answer, result: Result | None) -> None:
    """End the job, or have another host write the result."""
    if answer.error is None:
        end(ctx, 0, _reason(ctx))
    elif host in ctx.state.members and generation == ctx.state.cluster.generation:
        fail(ctx, f"{ctx.state.members[host].name}: {answer.error}")
    else:
        ctx.state.ending = replace(ctx.state.ending, writing=False)  # another host will do it
