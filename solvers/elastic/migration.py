"""Migration: partitions move from server to server, and get other replicas.

A state that has arrived, or cannot, is an event for the placement.
"""

from dataclasses import dataclass, replace

from plink.model.elastic import requests as r
from plink.model.elastic.reports import Answer
from solvers.elastic.context import Context
from solvers.elastic.events import HostsLost, PartitionMoved, PartitionUnserved
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.state import GONE, REFUSED, Migration, State, omit

WAIT_SHARE = 0.25  # of a warning, for which transfers may be kept back until they are in nobody's way
_RETRY_S = 0.3
_MAX_COMMIT_ATTEMPTS = 100  # whose source is alive
_MAX_RESTORE_ATTEMPTS = 100  # between two hosts that are alive
_MAX_REFUSALS = 30  # of a replica that is to serve, or to be sent to whoever is
_WAIT_S = 0.1
_MAX_WAIT_S = 10.0  # until it is a partition's turn to move, where no host leaves
_REST_FACTOR = 3  # times as long as a partition was in transit its hosts are left to the job


@dataclass(frozen=True)
class StateTransferred:
    """A partition's state is sent; ``begun_s``: since when it waits, ``sent_s``: since when it is sent.

    ``method``: Prepare: ``to`` becomes the primary. ``source`` sends its state and the updates since the clock that all
    replicas have, so that ``to`` can roll back to it too; to its own replica only what that lacks. It serves on until
    the next primaries are named. AddReplica: ``to`` becomes the replica; ``source`` replicates to it beside the old
    one, if there is one. RestoreTo: the replica ``source`` sends its state at ``clock``, from which ``to`` serves on.
    """

    method: type[r.Prepare | r.AddReplica | r.RestoreTo]
    source: int
    to: int
    partition: int
    term: int
    clock: int = -1
    begun_s: float = 0.0
    sent_s: float = 0.0
    address: str = ""
    failures: int = 0


@dataclass(frozen=True)
class ReplicaPromoted:
    """A replica begins to serve, from clock ``first`` on."""

    host: int
    partition: int
    term: int
    first: int
    failures: int = 0


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


def transfer(ctx: Context, sent: StateTransferred) -> None:
    """Send a partition's state. To whom it is restored, what that one has of it is of no use."""
    if sent.method is r.RestoreTo:
        ctx.request(sent.to, r.Drop(sent.partition, sent.term), _target_cleared, sent)
        return
    if sent.method is r.AddReplica:
        replicas = {**ctx.state.migration.replicas, (sent.partition, sent.term): ctx.state.address(sent.to)}
        ctx.state.migration = replace(ctx.state.migration, replicas=replicas)
    ctx.later(0.0, _try_transfer, replace(sent, begun_s=ctx.now))


def _target_cleared(ctx: Context, sent: StateTransferred, answer: Answer, result: r.Result | None) -> None:
    """Send a partition to a target that has dropped what it had of it."""
    if answer.kind != GONE:
        ctx.later(0.0, _try_transfer, replace(sent, begun_s=ctx.now))


def _try_transfer(ctx: Context, due: StateTransferred) -> None:
    """Send a state, unless it has to wait or is no longer wanted."""
    state, number, term, source, target = ctx.state, due.partition, due.term, due.source, due.to
    if state.migration.opening:  # what moves now would be given up for a replica that has nothing yet
        ctx.later(_RETRY_S, _try_transfer, due)
        return
    if not _wanted(state, number, term) or source not in state.members:
        return
    if due.method is r.Prepare and _has_to_wait(ctx, due):
        ctx.later(_WAIT_S, _try_transfer, due)
        return
    address = ctx.state.address(target)
    request: r.Request
    if due.method is r.AddReplica:
        request = r.AddReplica(number, term, address)
    elif due.method is r.RestoreTo:
        request = r.RestoreTo(number, term, address, due.clock + 1)
    else:
        in_transit = {**ctx.state.migration.in_transit, (number, term): frozenset((source, target))}
        ctx.state.migration = replace(ctx.state.migration, in_transit=in_transit)
        request = r.Prepare(number, term, address, _new_replica(state, number, target))
    ctx.request(source, request, _transferred, replace(due, sent_s=ctx.now, address=address))


def _transferred(ctx: Context, sent: StateTransferred, answer: Answer, result: r.Result | None) -> None:
    """Have the placement decide on a state that has arrived, or send it once more while it is needed."""
    number, term, source = sent.partition, sent.term, sent.source
    if sent.method is r.Prepare:
        _rest(ctx, sent, (ctx.now - sent.sent_s) * (answer.error is None))
    if answer.error is None:
        if sent.method is r.AddReplica and not _is_replica(ctx.state, number, sent.address):
            ctx.send(source, r.StopReplicating(number, sent.address))
        ctx.decide(PartitionMoved(number, term))
    elif answer.kind != GONE and _wanted(ctx.state, number, term) and source in ctx.state.members:
        sent = replace(sent, failures=sent.failures + 1)
        if sent.method is not r.RestoreTo or not _gives_up_restore(ctx, sent, answer):
            ctx.later(_RETRY_S, _try_transfer, sent)


def _gives_up_restore(ctx: Context, sent: StateTransferred, answer: Answer) -> bool:
    """Return whether to give up restoring a partition from this replica to this host: nobody serves it meanwhile."""
    members = ctx.state.members
    text = f"partition {sent.partition} cannot be restored from {members[sent.source].name}: {answer.error}"
    if sent.failures == 1:
        ctx.note(text)
    if answer.kind == REFUSED and sent.failures >= _MAX_REFUSALS:
        ctx.decide(PartitionUnserved(sent.partition, sent.term, has_replica=False))
        return True
    if sent.failures >= _MAX_RESTORE_ATTEMPTS:
        ctx.emit(HostsLost((sent.to,), text))
        return True
    return False


def _has_to_wait(ctx: Context, due: StateTransferred) -> bool:
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
    in_the_way = any({due.source, due.to} & ends for ends in busy) or any(map(ctx.state.rebalancing.works, leaving))
    return in_the_way and waited_s <= _max_wait_s(ctx, waited_s)


def _max_wait_s(ctx: Context, waited_s: float) -> float:
    """Return how long a move may wait that has waited for so long.

    It is a part of the time that the leaving hosts had left when the wait began.
    """
    deadlines = ctx.state.draining.deadlines
    times = [deadlines[host] - ctx.now for host in ctx.state.cluster.leaving if host in deadlines]
    return WAIT_SHARE * (min(times) + waited_s) if times else _MAX_WAIT_S


def _rest(ctx: Context, sent: StateTransferred, seconds: float) -> None:
    migration, key = ctx.state.migration, (sent.partition, sent.term)
    in_transit = omit(migration.in_transit, key)
    resting = migration.resting
    # Not so with newcomers, who serve less than their part until they have it all, and are about to work.
    if ctx.state.cluster.leaving:
        resting = (*resting, (frozenset((sent.source, sent.to)), ctx.now + _REST_FACTOR * seconds))
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


def send_primaries(ctx: Context) -> None:
    """Send all members the primaries of all partitions: a server that is none any more forwards what still comes in."""
    cluster = ctx.state.cluster
    primaries = {
        number: (ctx.state.address(partition.primary), partition.term)
        for number, partition in enumerate(cluster.partitions)
        if partition.primary in ctx.state.members
    }
    ctx.send_all(r.SetPrimaries(primaries, cluster.number))


def promote(ctx: Context, host: int, partitions: tuple[int, ...], term: int) -> None:
    """Have a replica serve from the state that it has; where a commit is under way that one does it."""
    for number in partitions:
        ctx.later(0.0, _try_promote, ReplicaPromoted(host, number, term, ctx.state.cluster.consistent + 1))


def _try_promote(ctx: Context, due: ReplicaPromoted) -> None:
    """Have it serve one partition, if it still is to."""
    number, term = due.partition, due.term
    if number not in ctx.state.migration.commits and ctx.state.cluster.serves(number, term):
        ctx.request(due.host, r.Promote(number, term, due.first), _promoted, due)


def _promoted(ctx: Context, due: ReplicaPromoted, answer: Answer, result: r.Result | None) -> None:
    """Have a replica that could not serve yet try again, or give it up."""
    host, number, term = due.host, due.partition, due.term
    if answer.error is None or host not in ctx.state.members or not ctx.state.cluster.serves(number, term):
        return
    due = replace(due, failures=due.failures + 1)
    ctx.note(f"{ctx.state.members[host].name} cannot serve partition {number} yet: {answer.error}")
    if answer.kind == REFUSED and due.failures >= _MAX_REFUSALS:
        ctx.decide(PartitionUnserved(number, term, has_replica=False))
    else:
        ctx.later(_RETRY_S, _try_promote, due)


def cancel(ctx: Context, hosts: tuple[int, ...], partition: int, term: int) -> None:
    """Call off a move or a copy at those of its ends that are left; the primary serves on."""
    migration, key = ctx.state.migration, (partition, term)
    address = migration.replicas.get(key)
    ctx.state.migration = replace(migration, replicas=omit(migration.replicas, key))
    for host in hosts:
        ctx.send(host, r.Cancel(partition, term) if address is None else r.StopReplicating(partition, address))


def set_replica(ctx: Context, host: int, partition: int, replica: int) -> None:
    """Have a server replicate to one replica alone. Who takes over was told to whom it replicates."""
    if partition not in ctx.state.migration.commits and replica in ctx.state.members:
        ctx.request(host, r.SetReplica(partition, ctx.state.address(replica)), _replica_set, partition)


def _replica_set(ctx: Context, partition: int, answer: Answer, result: r.Result | None) -> None:
    """Note a server that could not."""
    if answer.error is not None and answer.kind != GONE:
        ctx.note(f"partition {partition}: {answer.error}")


def commit(ctx: Context, number: int, partition: PartitionPlacement) -> None:
    """Commit the move of a partition, as it was before: the target begins, and the source ends.

    Where a lost connection or a roll-back has cancelled the move the source has everything still: it is prepared once
    more.
    """
    move, members = partition.move, ctx.state.members
    assert move
    unreliable = move.to not in members or not members[move.to].reliable
    has_replica = partition.safe and (unreliable or move.drain)
    commits = {**ctx.state.migration.commits, number: (move.term, partition.primary)}
    ctx.state.migration = replace(ctx.state.migration, commits=commits)
    _try_commit(ctx, MoveCommitted(number, move.term, partition.primary, has_replica))


def _try_commit(ctx: Context, move: MoveCommitted) -> None:
    """Have the source of a move commit it, or prepare it once more."""
    number, term, source = move.partition, move.term, move.source
    if ctx.state.migration.commits.get(number) != (term, source):
        return
    if source not in ctx.state.members:
        _committed(ctx, move, Answer(id=-1, error="the host is lost", kind=GONE), None)
        return
    request: r.Request = r.Commit(number, term)
    if move.preparing:
        primary = ctx.state.cluster.partitions[number].primary
        request = r.Prepare(number, term, ctx.state.address(primary), _new_replica(ctx.state, number, primary))
    ctx.request(source, request, _committed, move)


def _committed(ctx: Context, move: MoveCommitted, answer: Answer, result: r.Result | None) -> None:
    """End a move that is committed; retry one that could not be, or give it up."""
    number, state, preparing = move.partition, ctx.state, move.preparing
    if state.migration.commits.get(number) != (move.term, move.source):
        return
    alive = move.source in state.members and state.cluster.partitions[number].primary in state.members
    refused, attempt = answer.kind == REFUSED, move.attempt + 1
    if answer.error is None and not preparing:
        _end_commit(ctx, number)
    elif answer.error is None:
        _try_commit(ctx, replace(move, preparing=False))
    elif alive and attempt < _MAX_COMMIT_ATTEMPTS and not (refused and preparing):
        ctx.later(_RETRY_S, _try_commit, replace(move, preparing=refused or preparing, attempt=attempt))
    else:
        _end_commit(ctx, number)
        ctx.decide(PartitionUnserved(number, move.term, move.has_replica))


def _end_commit(ctx: Context, number: int) -> None:
    migration = ctx.state.migration
    ctx.state.migration = replace(migration, commits=omit(migration.commits, number))


# Everybody goes back, or begins anew.


def give_up(ctx: Context, before: Cluster) -> None:
    """Drop partitions at servers that no longer serve them, before a roll-back: they must not take another update."""
    members = ctx.state.members
    for number, (partition, now) in enumerate(zip(before.partitions, ctx.state.cluster.partitions, strict=True)):
        if partition.primary != now.primary and partition.primary in members and partition.primary != now.replica:
            ctx.send(partition.primary, r.Drop(number, now.term))
        term, source = ctx.state.migration.commits.get(number, (now.term, -1))
        if term != now.term:  # it is served from elsewhere than the target that was to begin
            _end_commit(ctx, number)
            if source in members and source not in (now.primary, now.replica):
                ctx.send(source, r.Drop(number, now.term))


def forget_replicas(ctx: Context, before: Cluster) -> None:
    """Drop states of former replicas, which could not roll back with the others."""
    for number, (partition, now) in enumerate(zip(before.partitions, ctx.state.cluster.partitions, strict=True)):
        _, source = ctx.state.migration.commits.get(number, (0, None))  # who still gives it away
        is_lost = partition.replica not in ctx.state.members
        if partition.replica != now.replica and not is_lost and partition.replica not in (now.primary, source):
            ctx.send(partition.replica, r.Drop(number, now.term + 1))


def rolled_back(migration: Migration, *, anew: bool) -> Migration:
    """Reset after a roll-back: copies that were under way are off; where all begins ``anew``, so is everything else."""
    return replace(migration, replicas={}, opening={}, commits={}) if anew else replace(migration, replicas={})
