"""The end of a job, at once and for whatever reason came first."""

from dataclasses import replace

from solvers.elastic import progress, traffic
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
