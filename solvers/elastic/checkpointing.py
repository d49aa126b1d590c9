"""Checkpoints of the reliable hosts, in the background (Harlap thesis, 4.2.4).

One is written when it is due, at the clock that all replicas have. Replicas may be ahead, and write the state of that
clock. So no worker is held up, and nothing before it is released meanwhile.
"""

from dataclasses import replace
from pathlib import PurePosixPath

from plink.model.checkpoint_names import name_of
from plink.model.elastic import requests as r
from plink.model.elastic.fields import SavedCheckpoint
from plink.model.elastic.reports import Answer
from solvers.elastic.commands import CheckpointAnswer
from solvers.elastic.context import Context
from solvers.elastic.events import StateLost
from solvers.elastic.state import GONE, REFUSED, Checkpoint, CheckpointAttempt, Checkpointing, State

_DUE_SHARE = 0.25  # of the time that is left, after which the next is due where the last reliable host is warned
_MIN_INTERVAL_S = 0.2
_MAX_WAIT_AT_END_S = 30.0  # until one can be begun


def note_saved(ctx: Context, saved: SavedCheckpoint | None, folder: str) -> Checkpoint | None:
    """Take note of one that a host has found, and return the latest."""
    last = ctx.state.checkpointing.last
    first_own = folder == ctx.state.settings.checkpoints and _own(ctx.state) is None
    if saved is not None and (last is None or saved.clock > last.clock or (first_own and saved.clock == last.clock)):
        last = Checkpoint(f"{folder}/{saved.folder}", saved.clock)
        ctx.state.checkpointing = replace(ctx.state.checkpointing, last=last)
    return last


def request(ctx: Context, request_id: int) -> None:
    """Request a checkpoint of the clock that all replicas have, or of a later one, whatever the time."""
    current, last = ctx.state.checkpointing, _own(ctx.state)
    least = 0 if last is None else last.clock + 1  # where it is not known yet which clock that is
    requested = current.clock if current.clock >= 0 else least
    ctx.state.checkpointing = replace(current, requests=(*current.requests, (requested, request_id)))
    _answer_requests(ctx)


def urge(ctx: Context, reason: str) -> None:
    """Write one as soon as possible, and tell the user why."""
    ctx.state.checkpointing = replace(ctx.state.checkpointing, urgent=True)
    ctx.say(reason)


def consistent(ctx: Context, clock: int) -> None:
    """Note the clock that all replicas have.

    Undo records before it are not needed any more, unless a checkpoint is being written.
    """
    if ctx.state.checkpointing.attempt is None:
        ctx.send_all(r.Truncate(clock))
    ctx.state.checkpointing = replace(ctx.state.checkpointing, clock=clock)


def rolled_back(current: Checkpointing, clock: int) -> Checkpointing:
    """Reset after a roll-back: an attempt under way may be of a state that no host has any more."""
    return replace(
        current,
        clock=clock,
        ending=None,
        attempt=None if current.attempt is None else replace(current.attempt, abandoned=True),
        requests=tuple((min(requested, max(0, clock)), request_id) for requested, request_id in current.requests),
    )


def finished(ctx: Context, clock: int) -> bool:
    """Return whether a finished job may end.

    Its last clock is on disk, so that another job can go on from there, or cannot be.
    """
    current = ctx.state.checkpointing
    if not ctx.state.settings.checkpoints or (current.last is not None and current.last.clock >= clock):
        return True
    since, failures = current.ending or (ctx.now, current.failures)
    current = ctx.state.checkpointing = replace(current, ending=(since, failures))
    if current.failures > failures:
        return True
    if current.attempt is not None:
        return False
    if current.clock >= clock:
        ctx.state.checkpointing = replace(current, urgent=True)
        advance(ctx)
    return ctx.state.checkpointing.attempt is None and ctx.now - since > _MAX_WAIT_AT_END_S


def say_what_is_missing(ctx: Context, clock: int) -> None:
    """Say so where a job that ends has no checkpoint of its last clock."""
    last = ctx.state.checkpointing.last
    if ctx.state.settings.checkpoints and (last is None or last.clock < clock):
        at = "there is none to go on from" if last is None else f"--restore goes on from clock {last.clock}"
        ctx.say(f"the last clock, {clock}, is in no checkpoint; {at}")


def due(ctx: Context, left_s: float | None = None) -> bool:
    """Return whether one is due, and none is being written. ``left_s``: see :func:`advance`."""
    current, next_s = ctx.state.checkpointing, ctx.state.checkpointing.next_s
    if left_s is not None:
        next_s = min(next_s, current.over_s + max(_MIN_INTERVAL_S, _DUE_SHARE * left_s))
    requested = (current.urgent or bool(current.requests)) and ctx.now >= current.retry_s
    return bool(ctx.state.settings.checkpoints) and current.attempt is None and (requested or ctx.now >= next_s)


def advance(ctx: Context, left_s: float | None = None) -> None:
    """Begin one, if it is due and everything is where it belongs.

    :param left_s: for how long a reliable host will still be there; None: the last one is not warned. What is done
        after the last checkpoint is lost with it: they follow each other the faster the less is left.
    """
    current, settings, cluster = ctx.state.checkpointing, ctx.state.settings, ctx.state.cluster
    if not due(ctx, left_s) or current.clock < 0 or cluster.halted:
        return
    may = ctx.now >= current.retry_s
    requested, urgent = bool(current.requests) and may, current.urgent and may
    last = _own(ctx.state) if requested else current.last
    newer = last is None or current.clock > last.clock
    members = ctx.state.members
    safe = (
        partition.safe and not partition.waiting and partition.replica in members for partition in cluster.partitions
    )
    if not newer or not all(safe):
        return
    by_host: dict[int, list[int]] = {}
    for index, partition in enumerate(cluster.partitions):
        by_host.setdefault(partition.replica, []).append(index)
    checkpoint = Checkpoint(f"{settings.checkpoints}/{name_of(current.clock, settings.job)}", current.clock)
    attempt = CheckpointAttempt(checkpoint, urgent, frozenset(by_host))
    ctx.state.checkpointing = replace(current, urgent=False, attempt=attempt)
    for host, partitions in by_host.items():
        request = r.WriteCheckpoint(checkpoint.folder, tuple(partitions), checkpoint.clock, settings.job)
        ctx.request(host, request, part_written, host)


def last_reliable_s(ctx: Context) -> float | None:
    """Return for how many seconds a reliable host will still be there, where all of them are warned."""
    hosts = [host.number for host in ctx.state.cluster.hosts if host.reliable]
    deadlines = ctx.state.draining.deadlines
    if not hosts or any(host not in deadlines for host in hosts):
        return None
    return max(deadlines[host] for host in hosts) - ctx.now


def part_written(ctx: Context, host: int, answer: Answer, result: r.Result | None) -> None:
    """Handle a written part, or an error.

    The attempt ends, whole or removed, when all hosts have answered: a file that is still being written must not fall
    into the next attempt's folder.
    """
    attempt = ctx.state.checkpointing.attempt
    if attempt is None or host not in attempt.waiting:
        return
    attempt = replace(attempt, waiting=attempt.waiting - {host})
    if isinstance(result, r.CheckpointWritten):
        attempt = replace(attempt, seconds=max(attempt.seconds, result.seconds), bytes=attempt.bytes + result.bytes)
    elif attempt.error is None:
        attempt = _with_error(ctx, attempt, host, answer)
    ctx.state.checkpointing = replace(ctx.state.checkpointing, attempt=attempt)
    if not attempt.waiting:
        if attempt.error is not None or attempt.abandoned:
            _discard(ctx, attempt)
        else:
            _announce(ctx, attempt, host)


def _announce(ctx: Context, attempt: CheckpointAttempt, host: int) -> None:
    """Name a checkpoint whose files are all written, by a host that sees them all."""
    settings, folder = ctx.state.settings, PurePosixPath(attempt.checkpoint.folder).name
    saved = SavedCheckpoint(attempt.checkpoint.clock, settings.partitions, folder)
    ctx.state.checkpointing = replace(ctx.state.checkpointing, attempt=replace(attempt, named=True))
    ctx.request(host, r.KeepCheckpoint(settings.checkpoints, saved, settings.job), announced, host)


def _with_error(ctx: Context, attempt: CheckpointAttempt, host: int, answer: Answer) -> CheckpointAttempt:
    name = ctx.state.members[host].name if host in ctx.state.members else "a lost host"
    return replace(attempt, error=f"{name}: {answer.error}", kind=answer.kind)


def announced(ctx: Context, host: int, answer: Answer, result: r.Result | None) -> None:
    """Complete a checkpoint that was named, or discard it."""
    attempt = ctx.state.checkpointing.attempt
    if attempt is None:
        return
    if answer.error is not None:
        attempt = _with_error(ctx, attempt, host, answer)
        ctx.state.checkpointing = replace(ctx.state.checkpointing, attempt=attempt)
        ctx.state.resuming = replace(ctx.state.resuming, searched=False)
        _discard(ctx, attempt)
        return
    ctx.state.checkpointing = replace(ctx.state.checkpointing, last=attempt.checkpoint)
    _over(ctx)


def _discard(ctx: Context, attempt: CheckpointAttempt) -> None:
    """Remove the files of a failed checkpoint, which would fill the disk for nothing.

    It may count all the same, where the answer to its naming was lost: hosts say which is the latest.
    """
    waiting = frozenset(member.number for member in ctx.state.ready if member.reliable)
    ctx.state.checkpointing = replace(ctx.state.checkpointing, attempt=replace(attempt, waiting=waiting))
    request = r.DiscardCheckpoint(attempt.checkpoint.folder, ctx.state.settings.job)
    for host in waiting:
        ctx.request(host, request, discarded, host)
    if not waiting:
        _failed(ctx)


def discarded(ctx: Context, host: int, answer: Answer, result: r.Result | None) -> None:
    """Note that a host has removed its part, as far as it can, and which checkpoint is the latest."""
    attempt = ctx.state.checkpointing.attempt
    if attempt is None or host not in attempt.waiting:
        return
    if isinstance(result, r.CheckpointDiscarded):
        note_saved(ctx, result.latest, ctx.state.settings.checkpoints)
    if answer.kind != GONE:
        ctx.state.resuming = replace(ctx.state.resuming, searched=True)
    counts = attempt.checkpoint == ctx.state.checkpointing.last  # what else hosts say changes nothing
    attempt = replace(attempt, waiting=frozenset() if counts and attempt.lost else attempt.waiting - {host})
    ctx.state.checkpointing = replace(ctx.state.checkpointing, attempt=attempt)
    if not attempt.waiting:
        _failed(ctx)


def _failed(ctx: Context) -> None:
    attempt = ctx.state.checkpointing.attempt
    assert attempt is not None
    if attempt.lost and not ctx.state.resuming.searched and ctx.state.any_reliable:  # it came while others were asked
        _discard(ctx, attempt)
        return
    _over(ctx)
    current = ctx.state.checkpointing
    if attempt.abandoned or attempt.error is None or attempt.kind == GONE:
        return
    if attempt.checkpoint == current.last:
        ctx.say(f"the checkpoint of clock {current.last.clock} is the latest, but {attempt.error}")
        return
    if attempt.kind == REFUSED:  # a partition has moved meanwhile
        urgent = current.urgent or attempt.urgent
        ctx.state.checkpointing = replace(current, retry_s=ctx.now + _MIN_INTERVAL_S, urgent=urgent)
    else:
        text = f"no checkpoint could be written in {ctx.state.settings.checkpoints}: {attempt.error}"
        ctx.state.checkpointing = replace(current, failures=current.failures + 1, requests=())
        ctx.say(text)
        for _, request_id in current.requests:
            ctx.command(CheckpointAnswer(request_id, {"error": text}))


def _own(state: State) -> Checkpoint | None:
    """Return the latest checkpoint in the folder of this job's own; it may have begun with one from elsewhere."""
    last = state.checkpointing.last
    own = last is not None and PurePosixPath(last.folder).parent == PurePosixPath(state.settings.checkpoints)
    return last if own else None


def _answer_requests(ctx: Context) -> None:
    """Answer the requests that what is on disk fulfils."""
    current, last = ctx.state.checkpointing, _own(ctx.state)
    if last is None:
        return
    pending = tuple(request for request in current.requests if request[0] > last.clock)
    ctx.state.checkpointing = replace(current, requests=pending)
    for requested, request_id in current.requests:
        if requested <= last.clock:
            ctx.command(CheckpointAnswer(request_id, {"clock": last.clock, "folder": last.folder}))


def _over(ctx: Context) -> None:
    current, attempt = ctx.state.checkpointing, ctx.state.checkpointing.attempt
    if attempt is not None and attempt.checkpoint == current.last:
        ctx.log(what="checkpoint", clock=attempt.checkpoint.clock, seconds=attempt.seconds, bytes=attempt.bytes)
    next_s = ctx.now + ctx.state.settings.checkpoint_every_s
    ctx.state.checkpointing = replace(current, attempt=None, over_s=ctx.now, next_s=next_s)
    ctx.send_all(r.Truncate(current.clock))
    _answer_requests(ctx)
    if attempt is not None and attempt.lost:
        ctx.emit(StateLost(attempt.lost))
