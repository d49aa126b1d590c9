"""Hosts on their way into a job.

Their servers start, they join a running job in their order, and to a restarted controller they report what they have.
"""

from collections.abc import Iterable
from dataclasses import replace

from plink.model.elastic.fields import TrafficCounters
from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import Begun, CheckFolder, HostReport, MarkFolder, Report, Result
from solvers.elastic import failures
from solvers.elastic.commands import DropHost
from solvers.elastic.context import Context
from solvers.elastic.ending import fail
from solvers.elastic.events import BeginJob, ReportsComplete
from solvers.elastic.member import Member
from solvers.elastic.state import GONE, StartGroup, omit


def begin(ctx: Context, members: Iterable[Member], then: BeginJob) -> None:
    """Start servers on these hosts; ``then`` follows when all of them listen, or are lost."""
    _start(ctx, StartGroup(tuple(members), then))


def arrive(ctx: Context, members: tuple[Member, ...], bulk: bool, *, first: bool = False) -> None:
    """Start hosts that join a running job. ``first``: before others.

    :func:`take_ready` returns them when they may join.
    """
    number = _start(ctx, StartGroup(members, bulk=bulk))
    queue = ctx.state.joining.arrivals
    ctx.state.joining = replace(ctx.state.joining, arrivals=(number, *queue) if first else (*queue, number))


def _start(ctx: Context, group: StartGroup) -> int:
    number = ctx.state.joining.next_group
    ctx.state.joining = replace(ctx.state.joining, next_group=number + 1)
    _set_group(ctx, number, replace(group, waiting=frozenset(member.number for member in group.members)))
    for member in group.members:
        _expect(ctx, member)
        ctx.request(member.number, ctx.state.settings.of(member), server_started, member.number, number)
    if not group.members:
        _started(ctx, number)
    return number


def server_started(ctx: Context, host: int, group_number: int, answer: Answer, result: Result | None) -> None:
    """Handle a started server of a group, or an error."""
    joining, group = ctx.state.joining, ctx.state.joining.groups[group_number]
    group = replace(group, waiting=group.waiting - {host})
    member = next(member for member in group.members if member.number == host)
    _set_group(ctx, group_number, group)
    if isinstance(result, Begun):
        _admit(ctx, member, result)
        if result.unwritable:
            option = f"--checkpoint {ctx.state.settings.checkpoints}"
            _refuse_job(ctx, group, f"{option}: it cannot be written on {member.name}: {result.unwritable}")
        if result.unsaved:
            _refuse_job(ctx, group, f"{member.name}: what is learnt could not be kept: {result.unsaved}")
    elif member.number in joining.starting:
        error = str(answer.error)
        joining = ctx.state.joining
        ctx.state.joining = replace(joining, refused=(*joining.refused, f"{member.name}: {error}"))
        _reject(ctx, member, error)
    expected_no_longer(ctx, member.number)
    if not group.waiting:
        _check_folder(ctx, group_number, just_marked=False)


def _refuse_job(ctx: Context, group: StartGroup, text: str) -> None:
    if group.then is None:
        ctx.say(text)
    else:
        fail(ctx, text)


def _reject(ctx: Context, member: Member, error: str) -> None:
    """Reject a host that had not joined yet; the others do without it."""
    ctx.log(**member.line("failed", error))
    ctx.command(DropHost(member.number, error))


def _check_folder(ctx: Context, group_number: int, *, just_marked: bool) -> None:
    """Check that reliable newcomers see the same folder for checkpoints as the others.

    An earlier member marks it, or else the first newcomer.
    """
    group, members = ctx.state.joining.groups[group_number], ctx.state.members
    reliable_members = {host for host, member in members.items() if member.reliable}
    reliable = [number for number in group.unmarked if number in reliable_members]
    if not ctx.state.settings.checkpoints or not reliable:
        _started(ctx, group_number)
        return
    there = reliable_members - set(reliable)
    if not ctx.state.joining.folder_marked or (there and not just_marked):  # who marked it first may have left
        first = min(there or reliable)
        ctx.request(first, MarkFolder(), folder_marked, first, group_number)
        return
    _set_group(ctx, group_number, replace(group, waiting=frozenset(reliable)))
    for host in reliable:
        ctx.request(host, CheckFolder(), folder_checked, host, group_number)


def folder_marked(ctx: Context, host: int, group_number: int, answer: Answer, result: Result | None) -> None:
    """Go on after a host has marked the folder, or could not."""
    marked, joining = answer.error is None, ctx.state.joining
    group = joining.groups[group_number]
    ctx.state.joining = replace(joining, folder_marked=joining.folder_marked or marked)
    if not marked and answer.kind != GONE:
        member = group.unmarked.get(host)
        if member is None:  # its disk fails: that comes out at the next checkpoint
            _started(ctx, group_number)
            return
        _refuse_folder(ctx, group, member, str(answer.error))
    _set_group(ctx, group_number, replace(group, marked=group.marked | {host}))
    _check_folder(ctx, group_number, just_marked=marked)


def folder_checked(ctx: Context, host: int, group_number: int, answer: Answer, result: Result | None) -> None:
    """Go on after a host has found the mark, or not."""
    group = ctx.state.joining.groups[group_number]
    group = replace(group, waiting=group.waiting - {host})
    _set_group(ctx, group_number, group)
    if answer.error is not None and answer.kind != GONE:
        _refuse_folder(ctx, group, group.unmarked[host], answer.error)
    if not group.waiting:
        _started(ctx, group_number)


def _refuse_folder(ctx: Context, group: StartGroup, member: Member, error: str) -> None:
    _refuse_job(ctx, group, f"--checkpoint {ctx.state.settings.checkpoints}: {member.name}: {error}")
    if group.then is None:
        ctx.state.members = omit(ctx.state.members, member.number)
        _reject(ctx, member, error)


def _started(ctx: Context, number: int) -> None:
    group = ctx.state.joining.groups[number]
    if group.then is None:
        _set_group(ctx, number, replace(group, ready=True))
    else:
        ctx.state.joining = replace(ctx.state.joining, groups=omit(ctx.state.joining.groups, number))
        ctx.emit(group.then)


def take_ready(ctx: Context) -> tuple[list[Member], bool] | None:
    """Return hosts that may join now, in the order in which they came, whoever was faster; and whether as one."""
    joining, members = ctx.state.joining, ctx.state.members
    if not joining.arrivals or not joining.groups[joining.arrivals[0]].ready:
        return None
    first, *rest = joining.arrivals
    group = joining.groups[first]
    ctx.state.joining = replace(joining, arrivals=tuple(rest), groups=omit(joining.groups, first))
    return [members[member.number] for member in group.members if member.number in members], group.bulk


def welcome(ctx: Context, number: int, reason: str) -> None:
    """Log that a host is a member from now on. It may be gone by now."""
    if number in ctx.state.members.keys() - ctx.state.welcomed:
        ctx.state.welcomed |= {number}
        ctx.log(**ctx.state.members[number].line("joined", reason))


def gather_reports(ctx: Context, members: tuple[Member, ...]) -> None:
    """Have hosts report that another controller began."""
    ctx.state.joining = replace(ctx.state.joining, reporting=frozenset(member.number for member in members))
    if not members:
        ctx.emit(ReportsComplete())
    for member in members:
        _expect(ctx, member)
        ctx.request(member.number, Report(), reported, member.number)


def reported(ctx: Context, host: int, answer: Answer, result: Result | None) -> None:
    """Take a host's report, or note that it had not begun."""
    member = ctx.state.joining.starting.get(host)
    ctx.state.joining = replace(ctx.state.joining, reporting=ctx.state.joining.reporting - {host})
    if isinstance(result, HostReport) and member is not None:
        ctx.state.joining = replace(ctx.state.joining, reports={**ctx.state.joining.reports, host: result})
        counters = {**ctx.state.traffic.counters, host: result.traffic}
        ctx.state.traffic = replace(ctx.state.traffic, counters=counters)
        _admit(ctx, member, result)
    elif member is not None:
        ctx.state.joining = replace(ctx.state.joining, unbegun=(*ctx.state.joining.unbegun, member))
    expected_no_longer(ctx, host)
    if not ctx.state.joining.reporting:
        ctx.emit(ReportsComplete())


def lost_early(ctx: Context, host: int, reason: str) -> None:
    """Do without a host that is lost on its way in, and remember a reliable one, should the job not begin without."""
    joining = ctx.state.joining
    member = ctx.state.members.get(host) or joining.starting.get(host)
    if member is None:
        return
    if member.reliable and ctx.state.rebalancing.begun < 0:
        ctx.state.joining = replace(joining, refused=(*joining.refused, f"{member.name}: {reason}"))
    if expected_no_longer(ctx, host):
        if host in joining.reporting:  # it may have been released before: the supervisor knows how its end is logged
            ctx.command(DropHost(host, reason))
        else:
            _reject(ctx, member, reason)


def expected_no_longer(ctx: Context, host: int) -> bool:
    """Return whether a host was one of those that have not answered yet, and forget it."""
    starting = ctx.state.joining.starting
    if host not in starting:
        return False
    ctx.state.joining = replace(ctx.state.joining, starting=omit(starting, host))
    return True


def _expect(ctx: Context, member: Member) -> None:
    joining = ctx.state.joining
    ctx.state.joining = replace(joining, starting={**joining.starting, member.number: member})
    ctx.state.detector = failures.message_received(ctx.state.detector, member.number)


def _admit(ctx: Context, member: Member, result: Begun | HostReport) -> None:
    joining = ctx.state.joining
    checkpoints = [saved for saved in (joining.own, result.own) if saved is not None]
    own = max(checkpoints, key=lambda saved: saved.clock, default=None)
    ctx.state.joining = replace(joining, saved=joining.saved or result.saved, own=own)
    ctx.state.members = {**ctx.state.members, member.number: replace(member, address=result.address)}
    counters = {member.number: TrafficCounters(), **ctx.state.traffic.counters}
    ctx.state.traffic = replace(ctx.state.traffic, counters=counters)
    ctx.state.detector = failures.message_received(ctx.state.detector, member.number)


def _set_group(ctx: Context, number: int, group: StartGroup) -> None:
    ctx.state.joining = replace(ctx.state.joining, groups={**ctx.state.joining.groups, number: group})
