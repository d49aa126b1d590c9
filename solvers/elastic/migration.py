"""Migration: partitions move from server to server, and get other replicas.

Each action of the placement becomes a request, and its answer becomes an event for the placement.
"""

from dataclasses import dataclass, replace

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import (
    AddReplica,
    Cancel,
    Commit,
    Drop,
    Prepare,
    Promote,
    Request,
    RestoreTo,
    SetReplica,
    StopReplicating,
)  # fmt: skip
from plink.model.elastic.results import Result
from solvers.elastic.context import Context
from solvers.elastic.dispatch import on_answer, on_timer
from solvers.elastic.events import HostsLost
from solvers.elastic.pending import GONE, REFUSED
from solvers.elastic.placement import actions as act
from solvers.elastic.placement.events import Moved, Unserved
from solvers.elastic.placement.eviction import WAIT_SHARE
from solvers.elastic.placement.state import Cluster
from solvers.elastic.state import CLOCK_SHIFT, Migration, State

_RETRY_S = 0.3
_MAX_COMMIT_ATTEMPTS = 100  # whose source is alive
_MAX_RESTORE_ATTEMPTS = 100  # between two hosts that are alive
_MAX_REFUSALS = 30  # of a replica that is to serve, or to be sent to whoever is
_WAIT_S = 0.1
_MAX_WAIT_S = 10.0  # until it is a partition's turn to move, where no host leaves
_REST_FACTOR = 3  # times as long as a partition was in transit its hosts are left to the job


@dataclass(frozen=True)
class StateTransferred:
    """A partition's state is sent; ``begun_s``: since when it waits, ``sent_s``: since when it is sent."""

    action: act.HandOver | act.Drain | act.Replicate | act.RestorePartition
    begun_s: float
    sent_s: float = 0.0
    address: str = ""
    failures: int = 0


@dataclass(frozen=True)
class TargetCleared:
    """The target of a restored partition drops what it has of it."""

    action: act.RestorePartition


@dataclass(frozen=True)
class ReplicaPromoted:
    """A replica begins to serve, from clock ``first`` on."""

    action: act.PromoteReplica
    partition: int
    first: int
    failures: int = 0


@dataclass(frozen=True)
class ReplicaSet:
    """A server replicates to one replica alone."""

    partition: int


@dataclass(frozen=True)
class MoveCommitted:
    """The new primary of a partition begins; a move that was called off is prepared once more."""

    partition: int
    term: int
    source: int
    has_replica: bool
    preparing: bool = False
    attempt: int = 0


# Transfers of state, each asked for until it succeeds or is no longer needed.


def transfer(ctx: Context, action: act.HandOver | act.Drain | act.Replicate) -> None:
    """Move a partition to its new primary, or add a replica beside the one that is there."""
    if isinstance(action, act.Replicate):
        replicas = {**ctx.state.migration.replicas, (action.partition, action.term): ctx.state.address(action.host)}
        ctx.state.migration = replace(ctx.state.migration, replicas=replicas)
    # Not before the state that asks for it is the one that holds.
    ctx.later(0.0, StateTransferred(action, ctx.now))


def restore(ctx: Context, action: act.RestorePartition) -> None:
    """Send a partition from a replica to who is to serve it; what that one has of it is of no use."""
    ctx.request(action.to, Drop(action.partition, action.term), TargetCleared(action))


@on_answer(TargetCleared)
def _target_cleared(ctx: Context, purpose: TargetCleared, answer: Answer, result: Result | None) -> None:
    """Send a partition to a target that has dropped what it had of it."""
    if answer.kind != GONE:
        ctx.later(0.0, StateTransferred(purpose.action, ctx.now))


@on_timer(StateTransferred)
def _try_transfer(ctx: Context, due: StateTransferred) -> None:
    """Send a state, unless it has to wait or is no longer wanted."""
    state, action = ctx.state, due.action
    number, term, source = action.partition, action.term, action.source
    if state.migration.opening:  # what moves now would be given up for a replica that has nothing yet
        ctx.later(_RETRY_S, due)
        return
    if not _wanted(state, number, term) or source not in state.members:
        return
    if isinstance(action, act.HandOver | act.Drain) and _has_to_wait(ctx, due, source, action.to):
        ctx.later(_WAIT_S, due)
        return
    target = action.host if isinstance(action, act.Replicate) else action.to
    address = ctx.state.address(target)
    request: Request
    if isinstance(action, act.Replicate):
        request = AddReplica(number, term, address)
    elif isinstance(action, act.RestorePartition):
        request = RestoreTo(number, term, address, action.clock - CLOCK_SHIFT + 1)
    else:
        in_transit = {**ctx.state.migration.in_transit, (number, term): frozenset((source, target))}
        ctx.state.migration = replace(ctx.state.migration, in_transit=in_transit)
        request = Prepare(number, term, address, _new_replica(state, number, target))
    ctx.request(source, request, replace(due, sent_s=ctx.now, address=address))


@on_answer(StateTransferred)
def _transferred(ctx: Context, purpose: StateTransferred, answer: Answer, result: Result | None) -> None:
    """Have the placement decide on a state that has arrived, or send it once more while it is needed."""
    action = purpose.action
    number, term, source = action.partition, action.term, action.source
    if isinstance(action, act.HandOver | act.Drain):
        _rest(ctx, action, (ctx.now - purpose.sent_s) * (answer.error is None))
    if answer.error is None:
        if isinstance(action, act.Replicate) and not _is_replica(ctx.state, number, purpose.address):
            ctx.send(source, StopReplicating(number, purpose.address))
        ctx.state.undecided = (*ctx.state.undecided, Moved(number, term))
    elif answer.kind != GONE and _wanted(ctx.state, number, term) and source in ctx.state.members:
        purpose = replace(purpose, failures=purpose.failures + 1)
        if not isinstance(action, act.RestorePartition) or not _gives_up_restore(ctx, action, answer, purpose.failures):
            ctx.later(_RETRY_S, purpose)


def _gives_up_restore(ctx: Context, action: act.RestorePartition, answer: Answer, failures: int) -> bool:
    """Return whether to give up restoring a partition from this replica to this host: nobody serves it meanwhile."""
    members = ctx.state.members
    text = f"partition {action.partition} cannot be restored from {members[action.source].name}: {answer.error}"
    if failures == 1:
        ctx.note(text)
    if answer.kind == REFUSED and failures >= _MAX_REFUSALS:
        ctx.state.undecided = (*ctx.state.undecided, Unserved(action.partition, action.term, has_replica=False))
        return True
    if failures >= _MAX_RESTORE_ATTEMPTS:
        ctx.emit(HostsLost((action.to,), text))
        return True
    return False


def _has_to_wait(ctx: Context, due: StateTransferred, source: int, target: int) -> bool:
    """Return whether a partition has to wait before it moves.

    Where there is time those who leave first end what they work on: the servers that stay are fewer, and would have all
    of the workers for some clocks. And a host sends or takes one partition at a time, so that each is in transit for a
    shorter time and fewer updates have to go along; where hosts leave none goes for a while after it.
    """
    waited_s = ctx.now - due.begun_s
    migration = ctx.state.migration
    resting = tuple((ends, until) for ends, until in migration.resting if ctx.now < until)
    ctx.state.migration = replace(migration, resting=resting)
    partitions, leaving = ctx.state.cluster.partitions, ctx.state.cluster.leaving
    beginning = ({origin, partitions[number].primary} for number, (_, origin) in migration.commits.items())
    busy = (*migration.in_transit.values(), *(ends for ends, _ in resting), *beginning)
    in_the_way = any({source, target} & ends for ends in busy) or any(map(ctx.state.rebalancing.works, leaving))
    return in_the_way and waited_s <= _max_wait_s(ctx, waited_s)


def _max_wait_s(ctx: Context, waited_s: float) -> float:
    """Return how long a move may wait that has waited for so long.

    It is a part of the time that the leaving hosts had left when the wait began.
    """
    deadlines = ctx.state.draining.deadlines
    times = [deadlines[host] - ctx.now for host in ctx.state.cluster.leaving if host in deadlines]
    return WAIT_SHARE * (min(times) + waited_s) if times else _MAX_WAIT_S


def _rest(ctx: Context, action: act.HandOver | act.Drain, seconds: float) -> None:
    migration, key = ctx.state.migration, (action.partition, action.term)
    in_transit = {other: ends for other, ends in migration.in_transit.items() if other != key}
    resting = migration.resting
    # Not so with newcomers, who serve less than their part until they have it all, and are about to work.
    if ctx.state.cluster.leaving:
        resting = (*resting, (frozenset((action.source, action.to)), ctx.now + _REST_FACTOR * seconds))
    ctx.state.migration = replace(migration, in_transit=in_transit, resting=resting)


def _new_replica(state: State, number: int, target: int) -> str:
    """Address of the replica that a target shall replicate to; a reliable one is its own."""
    safe = target not in state.members or state.members[target].reliable
    return "" if safe else state.address(state.cluster.partitions[number].replica)


def _is_replica(state: State, number: int, address: str) -> bool:
    """Return whether a server is a partition's replica, or becomes one.

    It may have been added in another term since.
    """
    partition = state.cluster.partitions[number]
    hosts = (partition.replica, partition.copy.to) if partition.copy else (partition.replica,)
    return not state.cluster.halted and address in map(state.address, hosts)


def _wanted(state: State, number: int, term: int) -> bool:
    partition = state.cluster.partitions[number]
    moves = [move.term for move in (partition.move, partition.copy) if move]
    return not state.cluster.halted and (term in moves or (partition.waiting and partition.term == term))


# Who serves, and who is the replica.


def promote(ctx: Context, action: act.PromoteReplica) -> None:
    """Have a replica serve; where a commit is under way that one does it."""
    first = ctx.state.cluster.consistent - CLOCK_SHIFT + 1
    for number in action.partitions:
        ctx.later(0.0, ReplicaPromoted(action, number, first))


@on_timer(ReplicaPromoted)
def _try_promote(ctx: Context, due: ReplicaPromoted) -> None:
    """Have it serve one partition, if it still is to."""
    state, action, number = ctx.state, due.action, due.partition
    if number not in state.migration.commits and state.cluster.serves(number, action.term):
        ctx.request(action.host, Promote(number, action.term, due.first), due)


@on_answer(ReplicaPromoted)
def _promoted(ctx: Context, purpose: ReplicaPromoted, answer: Answer, result: Result | None) -> None:
    """Have a replica that could not serve yet try again, or give it up."""
    host, number, term = purpose.action.host, purpose.partition, purpose.action.term
    if answer.error is None or host not in ctx.state.members or not ctx.state.cluster.serves(number, term):
        return
    purpose = replace(purpose, failures=purpose.failures + 1)
    ctx.note(f"{ctx.state.members[host].name} cannot serve partition {number} yet: {answer.error}")
    if answer.kind == REFUSED and purpose.failures >= _MAX_REFUSALS:
        ctx.state.undecided = (*ctx.state.undecided, Unserved(number, term, has_replica=False))
    else:
        ctx.later(_RETRY_S, purpose)


def cancel(ctx: Context, action: act.CancelMove) -> None:
    """Call off a move or a copy."""
    migration, key = ctx.state.migration, (action.partition, action.term)
    address = migration.replicas.get(key)
    replicas = {other: address_of for other, address_of in migration.replicas.items() if other != key}
    ctx.state.migration = replace(migration, replicas=replicas)
    for host in action.hosts:
        if address is None:
            ctx.send(host, Cancel(action.partition, action.term))
        else:
            ctx.send(host, StopReplicating(action.partition, address))


def set_replica(ctx: Context, action: act.ReplicateTo) -> None:
    """Have a server replicate to one replica alone. Who takes over was told to whom it replicates."""
    if action.partition not in ctx.state.migration.commits and action.replica in ctx.state.members:
        request = SetReplica(action.partition, ctx.state.address(action.replica))
        ctx.request(action.host, request, ReplicaSet(action.partition))


@on_answer(ReplicaSet)
def _replica_set(ctx: Context, purpose: ReplicaSet, answer: Answer, result: Result | None) -> None:
    """Note a server that could not."""
    if answer.error is not None and answer.kind != GONE:
        ctx.note(f"partition {purpose.partition}: {answer.error}")


def commit(ctx: Context, before: Cluster, after: Cluster, event: Moved) -> None:
    """Commit a move that was decided: the target begins, and the source ends.

    Where a lost connection or a roll-back has cancelled the move the source has everything still: it is prepared once
    more.
    """
    number, term, members = event.partition, event.term, ctx.state.members
    partition = before.partitions[number]
    if not partition.move or partition.move.term != term or after.partitions[number].term != term:
        return
    unreliable = partition.move.to not in members or not members[partition.move.to].reliable
    has_replica = partition.safe and (unreliable or partition.move.drain)
    commits = {**ctx.state.migration.commits, number: (term, partition.primary)}
    ctx.state.migration = replace(ctx.state.migration, commits=commits)
    _try_commit(ctx, MoveCommitted(number, term, partition.primary, has_replica))


@on_timer(MoveCommitted)
def _try_commit(ctx: Context, purpose: MoveCommitted) -> None:
    """Have the source of a move commit it, or prepare it once more."""
    number, term, source = purpose.partition, purpose.term, purpose.source
    if ctx.state.migration.commits.get(number) != (term, source):
        return
    if source not in ctx.state.members:
        _committed(ctx, purpose, Answer(id=-1, error="the host is lost", kind=GONE), None)
        return
    request: Request = Commit(number, term)
    if purpose.preparing:
        primary = ctx.state.cluster.partitions[number].primary
        request = Prepare(number, term, ctx.state.address(primary), _new_replica(ctx.state, number, primary))
    ctx.request(source, request, purpose)


@on_answer(MoveCommitted)
def _committed(ctx: Context, purpose: MoveCommitted, answer: Answer, result: Result | None) -> None:
    """End a move that is committed; retry one that could not be, or give it up."""
    number, state, preparing = purpose.partition, ctx.state, purpose.preparing
    if state.migration.commits.get(number) != (purpose.term, purpose.source):
        return
    alive = purpose.source in state.members and state.cluster.partitions[number].primary in state.members
    refused, attempt = answer.kind == REFUSED, purpose.attempt + 1
    if answer.error is None and not preparing:
        _end_commit(ctx, number)
    elif answer.error is None:
        _try_commit(ctx, replace(purpose, preparing=False))
    elif alive and attempt < _MAX_COMMIT_ATTEMPTS and not (refused and preparing):
        ctx.later(_RETRY_S, replace(purpose, preparing=refused or preparing, attempt=attempt))
    else:
        _end_commit(ctx, number)
        state.undecided = (*state.undecided, Unserved(number, purpose.term, purpose.has_replica))


def _end_commit(ctx: Context, number: int) -> None:
    migration = ctx.state.migration
    commits = {other: other_commit for other, other_commit in migration.commits.items() if other != number}
    ctx.state.migration = replace(migration, commits=commits)


# Everybody goes back, or begins anew.


def give_up(ctx: Context, before: Cluster) -> None:
    """Drop partitions at servers that no longer serve them, before a roll-back: they must not take another update."""
    members = ctx.state.members
    for number, (partition, now) in enumerate(zip(before.partitions, ctx.state.cluster.partitions, strict=True)):
        if partition.primary != now.primary and partition.primary in members and partition.primary != now.replica:
            ctx.send(partition.primary, Drop(number, now.term))
        term, source = ctx.state.migration.commits.get(number, (now.term, -1))
        if term != now.term:  # it is served from elsewhere than the target that was to begin
            _end_commit(ctx, number)
            if source in members and source not in (now.primary, now.replica):
                ctx.send(source, Drop(number, now.term))


def forget_replicas(ctx: Context, before: Cluster) -> None:
    """Drop states of former replicas, which could not roll back with the others."""
    for number, (partition, now) in enumerate(zip(before.partitions, ctx.state.cluster.partitions, strict=True)):
        _, source = ctx.state.migration.commits.get(number, (0, None))  # who still gives it away
        is_lost = partition.replica not in ctx.state.members
        if partition.replica != now.replica and not is_lost and partition.replica not in (now.primary, source):
            ctx.send(partition.replica, Drop(number, now.term + 1))


def rolled_back(migration: Migration, *, anew: bool) -> Migration:
    """Reset after a roll-back: copies that were under way are off; where all begins ``anew``, so is everything else."""
    return replace(migration, replicas={}, opening={}, commits={}) if anew else replace(migration, replicas={})
