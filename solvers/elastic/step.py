"""The state machine of an elastic job: a state and an event give the next state, and what the shell has to do.

Pure: nothing here has a clock, a thread, a file or a socket, and the same events at the same times give the same
commands again. The state that :func:`step` is given is not changed. A controller that was started again rebuilds its
state from hosts' reports (:class:`~solvers.elastic.events.ControllerRestarted`).
"""

from dataclasses import dataclass, replace
from typing import Any

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
from solvers.elastic import (
    checkpointing,
    crash_loop,
    dispatch,
    draining,
    ending,
    events,
    extensions,
    failure_detector,
    host_work,
    joining,
    losses,
    progress,
    rebalancing,
    replication,
    resuming,
    speeds,
    stragglers,
)  # fmt: skip
from solvers.elastic.advance import advance, time_passed
from solvers.elastic.commands import Command, LogEntry, StatusAnswer
from solvers.elastic.context import Context
from solvers.elastic.ending import fail
from solvers.elastic.state import State
from solvers.elastic.status import status

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
        ctx.state.detector = failure_detector.pass_time(ctx.state.detector, now)
        _handle_all(ctx, event)
        if not _is_heartbeat(event):  # of which a thousand hosts send three thousand a second
            advance(ctx)
    first = ctx.state.timers[0].at_s - now if ctx.state.timers else _MAX_PAUSE_S
    return Outcome(ctx.state, tuple(ctx.commands), tuple(ctx.entries), max(0.0, first))


def _tick(ctx: Context) -> None:
    while dispatch.run_next_timer(ctx):
        _handle_emitted(ctx)
        advance(ctx)
    if not ctx.state.ending.over:
        hosts = [*ctx.state.members, *ctx.state.joining.starting]
        timeout_s = ctx.state.settings.silence_s
        if silent := failure_detector.silent(ctx.state.detector, hosts, timeout_s):
            _handle_all(ctx, events.HostsLost(tuple(silent), f"no heartbeat for {timeout_s:g} s"))
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
            losses.lost(ctx, event)
        case events.HostUnfit():
            losses.unfit(ctx, event)
        case events.EvictionNotice():
            draining.warn(ctx, dict.fromkeys(event.hosts, event.seconds), event.reason)
        case events.StatusRequested():
            ctx.command(StatusAnswer(event.request_id, status(ctx.state, ctx.now)))
        case events.CheckpointRequested():
            checkpointing.request(ctx, event.request_id)
        case _:
            if not extensions.handle(ctx, event):
                raise TypeError(f"no module handles {type(event).__name__}")


def _host_message(ctx: Context, host: int, message: NodeMessage) -> None:
    """Handle what a host sent, unless it was given up."""
    state = ctx.state
    member = state.members.get(host) or state.joining.starting.get(host)
    if member is None:
        return
    state.detector = failure_detector.message_received(state.detector, host)
    match message:
        case Answer():
            state.crash_loop = crash_loop.answered(state.crash_loop, host, message.id)
            dispatch.answered(ctx, host, message)
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
