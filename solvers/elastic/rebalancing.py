"""Rebalancing: shards change hands at a barrier (Harlap thesis, 4.2.3).

The barrier is a clock that no worker has begun, everywhere the same one.

It has three steps. Workers are paused before a clock C in the near future, which none of them may have begun; every
server is told who takes part in its partitions from C on; and workers are told what they work on from C on, and go on.
If C is far enough ahead no worker notices being paused. A lost worker leaves its clocks before C pending: another host
does them in its name. After a roll-back to a clock K the barrier is at K + 1, and no worker needs to be paused: in the
new generation workers begin nothing before they were told what.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from plink.model.elastic import requests as r
from plink.model.elastic.reports import Answer
from solvers.elastic.context import Context
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.data import worked_on
from solvers.elastic.state import (
    Barrier,
    PendingClocks,
    Rebalancing,
    ShardNumbers,
    State,
    WorkerAssignment,
    omit,
)

_AHEAD = 2  # clocks
_RETRY_S = 0.05


def advance(ctx: Context) -> None:
    """Begin a barrier if one is due and nothing is in its way."""
    _assign_pending(ctx)
    current = ctx.state.rebalancing
    if current.barrier.under_way or not _possible(ctx.state):
        return
    if current.start_at is not None:
        ctx.state.rebalancing = replace(current, barrier=_next(current.barrier, current.start_at, 0))
        _set_participants(ctx)
    elif _lost(ctx.state) or (not current.frozen and _next_assignment(ctx.state) != _assignments(current)):
        _pause(ctx, max(current.begun, ctx.state.clock + 1) + _AHEAD, _AHEAD)


def rolled_back(ctx: Context, clock: int) -> None:
    """Reset after a roll-back: whatever was under way is off, and assignments are made anew."""
    _abandon(ctx)
    current, members = ctx.state.rebalancing, ctx.state.members
    ctx.state.rebalancing = Rebalancing(
        target=current.target,
        workers={number: worker for number, worker in current.workers.items() if worker.host in members},
        begun=clock,
        next_worker=current.next_worker,
        start_at=clock + 1,
        barrier=current.barrier,
    )


def worker_ended(ctx: Context, worker: int) -> None:
    """Note that a worker that was released, or that took over for a lost one, has done what was left to do."""
    current = ctx.state.rebalancing
    ctx.state.rebalancing = replace(
        current, pending=omit(current.pending, worker), leaving=omit(current.leaving, worker)
    )


def clock_begun(ctx: Context, clock: int) -> None:
    """Note that a worker is about to begin a clock."""
    if clock > ctx.state.rebalancing.begun:
        ctx.state.rebalancing = replace(ctx.state.rebalancing, begun=clock)


def _next(barrier: Barrier, clock: int, ahead: int, waiting: Iterable[int] = ()) -> Barrier:
    return Barrier(True, barrier.number + 1, clock, ahead, frozenset(waiting))


def _possible(state: State) -> bool:
    """Return whether every shard has a host that has it in memory, and every partition a server."""
    covered = sum(len(shards) for shards in state.rebalancing.target.values())
    return covered == state.settings.shards and not state.migration.opening and not state.cluster.halted


def _lost(state: State) -> bool:
    return any(worker.host not in state.members for worker in state.rebalancing.workers.values())


def _assignments(current: Rebalancing) -> dict[int, tuple[int, ShardNumbers]]:
    return {number: (worker.host, worker.shards) for number, worker in current.workers.items()}


def _next_assignment(state: State) -> dict[int, tuple[int, ShardNumbers]]:
    """Return who is to do what, host and shards by worker, of workers that there are and new ones."""
    current, hosts = state.rebalancing, state.cluster.members
    at_host: dict[int, list[int]] = {}
    for number, worker in sorted(current.workers.items()):
        at_host.setdefault(worker.host, []).append(number)
    first_assignment: dict[int, tuple[int, ShardNumbers]] = {}
    new = itertools.count(current.next_worker)
    for host, shards in sorted(current.target.items()):
        slots = max(1, min(hosts[host].slots, len(shards)))
        there = at_host.get(host, [])
        for slot in range(slots):
            number = there[slot] if slot < len(there) else next(new)
            first_assignment[number] = host, shards[slot::slots]
    return first_assignment


def _pause(ctx: Context, clock: int, ahead: int) -> None:
    """Pause workers before a barrier.

    :param ahead: how many clocks ``clock`` is off; twice as many each time that a worker was faster.
    """
    current, members = ctx.state.rebalancing, ctx.state.members
    hosts = sorted({worker.host for worker in current.workers.values() if worker.host in members})
    barrier = _next(current.barrier, clock, ahead, hosts)
    ctx.state.rebalancing = replace(current, barrier=barrier)
    for host in hosts:
        ctx.request(host, r.Pause(clock), paused, barrier.number, host)
    if not hosts:
        _set_participants(ctx)


def paused(ctx: Context, number: int, host: int, answer: Answer, result: r.Result | None) -> None:
    """Handle a host's workers, paused before the barrier of this number, or an error."""
    current = ctx.state.rebalancing
    barrier = current.barrier
    if number != barrier.number:
        return
    begun = max(barrier.begun, result.begun) if isinstance(result, r.Paused) else barrier.begun
    barrier = replace(barrier, waiting=barrier.waiting - {host}, begun=begun)
    ctx.state.rebalancing = replace(current, barrier=barrier)
    if barrier.waiting:
        return
    if not _possible(ctx.state):  # a host was lost meanwhile
        _abandon(ctx)
    elif begun >= barrier.clock:
        _resume_workers(ctx)
        _pause(ctx, begun + 2 * barrier.ahead, 2 * barrier.ahead)
    else:
        _set_participants(ctx)


def _resume_workers(ctx: Context) -> None:
    workers = ctx.state.rebalancing.workers.values()
    for host in {worker.host for worker in workers if worker.host in ctx.state.members}:
        ctx.send(host, r.Resume())


def _abandon(ctx: Context) -> None:
    current = ctx.state.rebalancing
    if current.barrier.under_way:
        ctx.state.rebalancing = replace(current, barrier=Barrier(number=current.barrier.number + 1), next_workers={})
        _resume_workers(ctx)


def _set_participants(ctx: Context) -> None:
    current = ctx.state.rebalancing
    clock = current.barrier.clock
    next_workers = {
        number: WorkerAssignment(
            host, shards, min(current.workers[number].first, clock) if number in current.workers else clock
        )
        for number, (host, shards) in _next_assignment(ctx.state).items()
    }
    partitions = range(len(ctx.state.cluster.partitions))
    ctx.state.rebalancing = replace(
        current,
        next_workers=next_workers,
        next_worker=max(current.next_worker, *(number + 1 for number in next_workers)),
        barrier=replace(current.barrier, waiting=frozenset(partitions)),
    )
    _tell_servers(ctx, partitions)


def _tell_servers(ctx: Context, partitions: Iterable[int]) -> None:
    current, by_primary = ctx.state.rebalancing, dict[int, list[int]]()
    for partition in sorted(partitions):
        by_primary.setdefault(ctx.state.cluster.partitions[partition].primary, []).append(partition)
    for primary, served in by_primary.items():
        request = r.SetParticipants(tuple(served), tuple(sorted(current.next_workers)), current.barrier.clock)
        ctx.request(primary, request, participants_set, current.barrier.number, tuple(served))


def participants_set(
    ctx: Context, number: int, partitions: tuple[int, ...], answer: Answer, result: r.Result | None
) -> None:
    """Handle a server's new participants from the barrier of this number on, but for partitions it does not serve."""
    current = ctx.state.rebalancing
    if number != current.barrier.number:
        return
    elsewhere = set(partitions)
    if isinstance(result, r.ParticipantsSet):
        elsewhere = {partition for partition, _ in result.elsewhere}
    waiting = current.barrier.waiting - (set(partitions) - elsewhere)
    ctx.state.rebalancing = replace(current, barrier=replace(current.barrier, waiting=waiting))
    if elsewhere:
        ctx.later(_RETRY_S, retry_participants, number, tuple(sorted(elsewhere)))
    elif not waiting:
        _assign(ctx)


def retry_participants(ctx: Context, number: int, partitions: tuple[int, ...]) -> None:
    """Ask the primaries once more, who may be others by now."""
    if number == ctx.state.rebalancing.barrier.number:
        _tell_servers(ctx, partitions)


def _assign(ctx: Context) -> None:
    before, members = ctx.state.rebalancing, ctx.state.members
    workers, clock = before.next_workers, before.barrier.clock
    leaving = {  # one that was lost meanwhile takes part: the next barrier says up to where it is pending
        number: PendingClocks(worker.shards, worker.first, clock, worker.host)
        for number, worker in before.workers.items()
        if before.assigned and number not in workers
    }
    history = {number: (*before.history.get(number, ()), (clock, worker.shards)) for number, worker in workers.items()}
    current = ctx.state.rebalancing = replace(
        before,
        workers=workers,
        next_workers={},
        barrier=Barrier(number=before.barrier.number),
        start_at=None,
        begun=max(before.begun, clock - 1),
        leaving={**before.leaving, **leaving},
        history={**before.history, **history},
    )
    everywhere = {number: (worker.host, worker.shards, worker.first) for number, worker in workers.items()}
    left = tuple((each.host, each.until) for each in (*current.leaving.values(), *current.pending.values()))
    working = {worker.host for worker in workers.values() if ctx.state.settings.rebalance}
    addresses = {host: ctx.state.address(host) for host in sorted(working) if host in members}
    for host in members:
        own = {number: worker.shards for number, worker in workers.items() if worker.host == host}
        ctx.send(host, r.AssignShards(clock, ctx.state.cluster.generation, own, everywhere, left, addresses))
    ctx.state.progress = replace(ctx.state.progress, workers=len(workers))
    _tell_sizes(ctx, clock)


def sizes_of(workers: Mapping[int, WorkerAssignment]) -> tuple[int, int]:
    """Return the number of workers, and of hosts that have some."""
    return len(workers), len({worker.host for worker in workers.values()})


def _tell_sizes(ctx: Context, clock: int) -> None:
    """Tell the user when the number of workers has changed, from this clock on; the steps stay the same.

    What takes several barriers is one change: it is told when the last of them is over.
    """
    state = ctx.state
    before, workers = state.sizes, state.rebalancing.workers
    if before is not None and not _is_stable(workers, state.cluster):
        return
    now = state.sizes = sizes_of(workers)
    if before is None or before == now:
        return
    who = f"{now[0]} worker{'s' * (now[0] != 1)} on {now[1]} host{'s' * (now[1] != 1)}"
    do, shards = "does" if now[0] == 1 else "do", len(state.cluster.shards)
    ctx.say(
        f"from clock {clock} on {who} {do} the work, before {before[0]} on {before[1]}; the global batch stays the "
        f"same: one mini-batch of each of the {shards} shards (strong scaling)"
    )


def _is_stable(workers: Mapping[int, WorkerAssignment], cluster: Cluster) -> bool:
    """Return whether no other barrier is due, but for hosts that are still loading."""
    have: dict[int, ShardNumbers] = {}
    for worker in workers.values():
        have[worker.host] = tuple(sorted((*have.get(worker.host, ()), *worker.shards)))
    due = any(shard.next_owner is not None and shard.next_owner not in cluster.joining for shard in cluster.shards)
    return not due and have == worked_on(cluster.shards)


def _assign_pending(ctx: Context) -> None:
    """Assign what lost workers left pending to other hosts.

    Each clock goes to the host that has most of their shards in memory, and least to do.
    """
    members, current = ctx.state.members, ctx.state.rebalancing
    for worker, left in current.leaving.items():
        if left.host not in members:
            current = replace(
                current,
                leaving=omit(current.leaving, worker),
                pending={**current.pending, worker: replace(left, host=-1)},
            )
    for worker, left in current.pending.items():
        if left.host >= 0 and left.host in members:
            continue
        hosts = sorted({worker.host for worker in current.workers.values() if worker.host in members})
        if not hosts:
            continue
        busy, shards = [other.host for other in current.pending.values()], set(left.shards)
        loaded = {host: _loaded(ctx.state, host) for host in hosts}
        host = min(hosts, key=lambda host: (-len(shards & loaded[host]), busy.count(host), host))
        current = replace(current, pending={**current.pending, worker: replace(left, host=host)})
        first = max(left.first, ctx.state.clock + 1)
        ctx.send(host, r.TakeOver(worker, current.history[worker], first, left.until, ctx.state.cluster.generation))
    ctx.state.rebalancing = current


def _loaded(state: State, host: int) -> frozenset[int]:
    """Return shards that a host has in memory."""
    return frozenset(index for index, shard in enumerate(state.cluster.shards) if host in shard.loaded)
