"""Hosts that a job loses: what becomes of it then, and when it ends because its program ends one host after another."""

from dataclasses import dataclass

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import ReplicateUpTo
from plink.model.elastic.results import Result
from solvers.elastic import crash_loop, dispatch, draining, joining, resuming
from solvers.elastic.advance import advance
from solvers.elastic.commands import DropHost
from solvers.elastic.context import Context
from solvers.elastic.ending import fail
from solvers.elastic.events import HostsGone, HostsLost, HostUnfit
from solvers.elastic.member import Member
from solvers.elastic.state import GONE, omit

_HANDOVER_S = 60.0  # within which a host that cannot load its data hands over what it serves


@dataclass(frozen=True)
class LivenessProbe:
    """A host that answers was not lost together with the one before."""


@dispatch.on_answer(LivenessProbe)
def _probed(ctx: Context, purpose: LivenessProbe, answer: Answer, result: Result | None) -> None:
    """Do nothing: crash loop detection notes every answer."""


def unfit(ctx: Context, event: HostUnfit) -> None:
    """Give up a member that cannot do its part, at once, unless it serves what would be lost with it."""
    if ctx.state.rebalancing.begun >= 0 and _holds_state(ctx, event.host):
        draining.warn(ctx, {event.host: _HANDOVER_S}, f"it is not fit for this: {event.reason}")
    else:
        lost(ctx, HostsLost((event.host,), event.reason))


def lost(ctx: Context, event: HostsLost) -> None:
    """Go on without hosts.

    Those lost at once, as a rack is, are decided on as one: nothing is to be moved from one of them to another.
    """
    leaving, failed = list[int](), list[int]()
    for number in event.hosts:
        member = ctx.state.members.get(number)
        if member is None:
            if joining.expected_no_longer(ctx, number):
                ctx.command(DropHost(number, event.reason))
            _answer_all(ctx, number)
            continue
        warned = number in ctx.state.draining.deadlines
        (leaving if draining.was_leaving(ctx, number) else failed).append(number)
        ctx.log(**member.line("left" if number in leaving else "failed", event.reason))
        ctx.state.members = omit(ctx.state.members, number)
        ctx.command(DropHost(number, event.reason))  # it may come to again
        if number in failed and not warned and _ends_the_job(ctx, member, event.reason):
            return
    removed = [*leaving, *failed]
    unbegun = ctx.state.rebalancing.begun < 0  # then there is nothing that could be lost
    anew = ctx.state.migration.opening or (unbegun and any(_holds_state(ctx, host) for host in removed))
    if removed and ctx.state.placement is not None and anew:
        resuming.start_anew(ctx, ctx.state.checkpointing.last)  # its replicas may not have anything yet
    elif removed:
        if leaving:
            ctx.decide(HostsGone(tuple(leaving), released=True))
        if failed:
            ctx.decide(HostsGone(tuple(failed)))
        advance(ctx)
    for number in removed:
        _answer_all(ctx, number)  # whoever waited for its answer finds things as they are without it


def _answer_all(ctx: Context, host: int) -> None:
    """Answer all requests to a lost host with an error."""
    for number, pending in ctx.state.requests.items():
        if pending.host == host and number in ctx.state.requests:
            dispatch.answered(ctx, host, Answer(id=number, error="the host is gone", kind=GONE))


def _holds_state(ctx: Context, host: int) -> bool:
    placement = ctx.state.placement
    if placement is None:
        return False
    return any(host in (partition.primary, partition.replica) for partition in placement.partitions)


def _ends_the_job(ctx: Context, member: Member, reason: str) -> bool:
    """Return whether the job ends because its program ends one host after another."""
    state, clock = ctx.state, -1
    if state.placement is not None:
        # The slowest are behind by that at most, and partitions are reported later than clocks.
        behind = 1 + state.settings.apart
        clock = max(state.clock, state.progress.clock_done - behind)
    state.crash_loop, counts = crash_loop.died(
        state.crash_loop, (member.number, member.name), reason, clock, state.latest_request
    )
    if counts:
        for other in state.members:  # a request that changes nothing: who answers has not died at the same time
            ctx.request(other, ReplicateUpTo(state.replication.watermark), LivenessProbe())
    if blame := crash_loop.blame(state.crash_loop):
        fail(ctx, blame)
    return blame is not None
