"""The state machine of an elastic job: a state and an event give the next state, and what the shell has to do.

Pure: nothing here has a clock, a thread, a file or a socket, and the same events at the same times give the same
commands again. The state that :func:`step` is given is not changed. A controller that was started again rebuilds its
state from hosts' reports (:class:`~solvers.elastic.events.ControllerRestarted`).
"""

from dataclasses import dataclass, replace
from typing import Any

from msgspec import ValidationError

from plink.model.elastic.fields import UpdateCounts
from plink.model.elastic.reports import (
    Alive,
    Answer,
    ClockDone,
    Failed,
    NodeMessage,
    Notice,
    PartitionsChanged,
    WorkerFinished,
)
from plink.model.elastic.requests import ReplicateUpTo, Result, method_of_type, result_of
from solvers.elastic import (
    checkpointing,
    decisions,
    draining,
    ending,
    events,
    failures,
    host_work,
    joining,
    migration,
    progress,
    rebalancing,
    replication,
    resuming,
    speeds,
    stragglers,
    traffic,
)
from solvers.elastic.commands import Command, DropHost, LogEntry, StatusAnswer
from solvers.elastic.context import Context
from solvers.elastic.ending import fail
from solvers.elastic.events import HostsGone, HostsJoined, HostsLost, HostUnfit
from solvers.elastic.member import Member
from solvers.elastic.state import GONE, State, omit


def status(state: State, now: float) -> dict[str, Any]:
    """Return what the job does, and each host."""
    if state.placement is None:
        return {"stage": None, "hosts": [], "clock": -1}
    last, wait = state.checkpointing.last, stragglers.waits(state, now)
    waits = wait and {"clock": wait.clock, "hosts": stragglers.names_of(state, wait), "seconds": round(wait.seconds, 1)}
    return {
        "stage": state.cluster.stage.value,
        "hosts": _hosts(state),
        "clock": state.clock,
        "consistent": state.cluster.consistent,
        "generation": state.cluster.generation,
        "controller": state.term,
        "checkpoint": None if last is None else last.clock,
        "waits": waits,
        "replication": replication.status(state),
        **progress.status(state.progress),
        "updates": sum((each.updates for each in state.traffic.counters.values()), UpdateCounts()).summary(),
    }


def _hosts(state: State) -> list[dict[str, Any]]:
    """Return what each host is and does, in the order in which they joined."""
    cluster, workers = state.cluster, state.rebalancing.workers.values()
    hosts = []
    for number, member in sorted(state.members.items()):
        counters = state.traffic.counters[number]
        phase = "leaving" if number in cluster.leaving else "joining" if number in cluster.joining else "there"
        replicas = [
            index
            for index, partition in enumerate(cluster.partitions)
            if partition.replica == number != partition.primary
        ]
        hosts.append(
            {
                "name": member.name,
                "number": number,
                "tier": member.tier,
                "state": phase,
                "serves": [index for index, partition in enumerate(cluster.partitions) if partition.primary == number],
                "replicas": replicas,
                "shards": sum(len(worker.shards) for worker in workers if worker.host == number),
                "sent": counters.sent,
                "received": counters.received,
                "price": member.price,
            }
        )
    return hosts


def advance(ctx: Context) -> None:
    """Decide on what has happened, then do what has become possible."""
    while ctx.state.undecided and ctx.state.placement is not None and not ctx.state.ending.over:
        if (reason := decisions.decide(ctx)) is not None:
            resuming.halted(ctx, reason)
    if ctx.state.placement is not None and not ctx.state.ending.over:
        replication.advance(ctx)
        _advance_modules(ctx)


def time_passed(ctx: Context) -> None:
    """Do what follows from nothing but time."""
    if ctx.state.placement is None:
        resuming.advance(ctx)
    if not ctx.state.ending.over and ctx.state.placement is not None:
        draining.release_overdue(ctx)
        stragglers.note(ctx)
        _advance_modules(ctx)
        advance(ctx)


def _advance_modules(ctx: Context) -> None:
    while (arrival := joining.take_ready(ctx)) is not None:
        _join(ctx, *arrival)
    draining.apply_early_warnings(ctx)
    if ctx.state.cluster.halted:
        return
    rebalancing.advance(ctx)
    draining.release_free(ctx)
    checkpointing.advance(ctx, checkpointing.last_reliable_s(ctx))
    traffic.advance(ctx)
    ending.advance(ctx)


def _join(ctx: Context, members: list[Member], bulk: bool) -> None:
    cluster = ctx.state.cluster
    new = [member for member in members if member.number not in cluster.members]
    if cluster.halted:
        resuming.restart(ctx)
        return
    for member in new:
        if member.number <= cluster.newest:  # it fell between two controllers
            draining.release(ctx, member.number, "it came while the controller changed; add it again")
        ctx.send(member.number, ReplicateUpTo(ctx.state.replication.watermark))
    migration.send_primaries(ctx)
    ctx.decide(HostsJoined(tuple(new), bulk))


_HANDOVER_S = 60.0  # within which a host that cannot load its data hands over what it serves


def _probed(ctx: Context, answer: Answer, result: Result | None) -> None:
    """Do nothing: a host that answers was not lost with the one before, and crash loop detection notes every answer."""


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
        joining.lost_early(ctx, number, event.reason)
        member = ctx.state.members.get(number)
        if member is None:
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


def answered(ctx: Context, host: int, answer: Answer) -> None:
    """Handle an answer; one that no request waits for changes nothing. A host whose result is invalid is lost."""
    request = ctx.state.requests.get(answer.id)
    if request is None or request.host != host:
        return
    result: Result | None = None
    if answer.error is None:
        try:
            result = result_of(request.method, answer.result)
        except ValidationError as error:
            text = f"invalid answer to {method_of_type(request.method)}: {error}"
            ctx.emit(HostsLost((host,), text))
            return
    ctx.state.requests = omit(ctx.state.requests, answer.id)
    request.handler(ctx, *request.arguments, answer, result)


def run_next_timer(ctx: Context) -> bool:
    """Handle the timer that is due first; False if none is due."""
    timers = ctx.state.timers
    if not timers or timers[0].at_s > ctx.now:
        return False
    ctx.state.timers = timers[1:]
    timers[0].handler(ctx, *timers[0].arguments)
    return True


def _answer_all(ctx: Context, host: int) -> None:
    """Answer all requests to a lost host with an error."""
    for number, pending in ctx.state.requests.items():
        if pending.host == host and number in ctx.state.requests:
            answered(ctx, host, Answer(id=number, error="the host is gone", kind=GONE))


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
    state.crash_loop, counts = failures.died(
        state.crash_loop, (member.number, member.name), reason, clock, state.latest_request
    )
    if counts:
        for other in state.members:  # a request that changes nothing: who answers has not died at the same time
            ctx.request(other, ReplicateUpTo(state.replication.watermark), _probed)
    if blame := failures.blame(state.crash_loop):
        fail(ctx, blame)
    return blame is not None


_MAX_PAUSE_S = 1.0


@dataclass(frozen=True)
class Outcome:
    """Outcome of a step.

    ``entries`` are to be logged before the ``commands`` are carried out; ``wait_s``: after which a tick is due.
    """

    state: State
    commands: tuple[Command, ...]
    entries: tuple[LogEntry, ...]
    wait_s: float


def step(state: State, event: Any, now: float) -> Outcome:
    """Return what follows from an event (:mod:`solvers.elastic.events`) at a time, in seconds, monotonic."""
    ctx = Context(state, now)
    if isinstance(event, events.Tick):
        _tick(ctx)
    else:
        ctx.state.detector = failures.pass_time(ctx.state.detector, now)
        _handle_all(ctx, event)
        if not _is_heartbeat(event):  # of which a thousand hosts send three thousand a second
            advance(ctx)
    first = ctx.state.timers[0].at_s - now if ctx.state.timers else _MAX_PAUSE_S
    return Outcome(ctx.state, tuple(ctx.commands), tuple(ctx.entries), max(0.0, first))


def _tick(ctx: Context) -> None:
    while run_next_timer(ctx):
        _handle_emitted(ctx)
        advance(ctx)
    if not ctx.state.ending.over:
        hosts = [*ctx.state.members, *ctx.state.joining.starting]
        if silent := failures.silent(ctx.state.detector, hosts, ctx.state.settings.silence_s):
            _handle_all(ctx, events.HostsLost(tuple(silent), failures.silence_reason(silent, len(hosts))))
            advance(ctx)
    time_passed(ctx)


def _is_heartbeat(event: Any) -> bool:
    return isinstance(event, events.HostMessage) and isinstance(event.message, Alive)


def _handle_all(ctx: Context, event: Any) -> None:
    _handle(ctx, event)
    _handle_emitted(ctx)


def _handle_emitted(ctx: Context) -> None:
    while ctx.emitted:
        _handle(ctx, ctx.emitted.popleft())


def _handle(ctx: Context, event: Any) -> None:
    match event:
        case events.HostMessage():
            _host_message(ctx, event.host, event.message)
        case events.SupervisorAlive():
            pass  # hosts that are silent now are: the supervisor would have passed their messages on
        case events.JobStarted():
            joining.begin(ctx, event.hosts, events.BeginJob())
        case events.ControllerRestarted():
            joining.gather_reports(ctx, event.hosts)
        case events.ReportsComplete():
            resuming.go_on(ctx)
        case events.StateLost():
            resuming.halted(ctx, event.reason)
        case events.BeginJob(number):
            resuming.start(ctx, number)
        case events.HostsJoined():
            joining.arrive(ctx, event.hosts, event.bulk)
        case events.HostsLost():
            lost(ctx, event)
        case events.HostUnfit():
            unfit(ctx, event)
        case events.EvictionNotice():
            draining.warn(ctx, dict.fromkeys(event.hosts, event.seconds), event.reason)
        case events.StatusRequested():
            ctx.command(StatusAnswer(event.request_id, status(ctx.state, ctx.now)))
        case events.CheckpointRequested():
            checkpointing.request(ctx, event.request_id)
        case events.LogRequested():
            progress.log_done(ctx)
            traffic.log_changes(ctx)
        case _:
            raise TypeError(f"no module handles {type(event).__name__}")


def _host_message(ctx: Context, host: int, message: NodeMessage) -> None:
    """Handle what a host sent, unless it was given up."""
    state = ctx.state
    member = state.members.get(host) or state.joining.starting.get(host)
    if member is None:
        return
    state.detector = failures.message_received(state.detector, host)
    match message:
        case Answer():
            state.crash_loop = failures.answered(state.crash_loop, host, message.id)
            answered(ctx, host, message)
        case Alive():
            counters = {**state.traffic.counters, host: message.traffic}
            state.traffic = replace(state.traffic, counters=counters)
        case Notice():
            draining.warn(ctx, {host: message.seconds}, message.reason)
        case Failed():
            fail(ctx, f"{member.name}: {message.error}")
        case PartitionsChanged() if state.placement is not None:
            replication.reported(ctx, host, message)
        case ClockDone() if state.placement is None:
            resuming.clock_done_early(ctx, host, message)
        case ClockDone() if message.generation == state.cluster.generation:
            rebalancing.clock_begun(ctx, message.clock + 1)
            host_work.clock_done(ctx, host, message)
            progress.clock_done(ctx, message, len(state.rebalancing.workers))
            state.stragglers = stragglers.clock_done(state.stragglers, host, message.clock, ctx.now)
            speeds.clock_done(ctx, host, message)
        case WorkerFinished():
            ending.worker_finished(ctx, message)
        case _:
            pass  # of another generation, or of a job that has not begun here
