"""A partition moves to another server while it is used, in two steps (Harlap thesis, 4.2.3).

*Prepare*: the state is copied in the background, and updates that come meanwhile are taken and follow; a replica is
pushed only the rows that it lacks. The old primary serves on until *commit*, which stops the partition for as long as
the rest takes to send: then the new primary is told to begin, and the old one refers requests to it. Before that, the
loss of the new primary, or a move that is cancelled, costs nothing.

All messages of one attempt have its number: a late message, of a connection that was given up, is refused.
"""

import contextlib
import itertools
import os
from collections.abc import Collection

from plink.errors import PlinkError
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.partition.serialization import parts_of, workers_part
from plink.runtime.elastic.replica.outgoing import Attempt, Outgoing, tell
from plink.runtime.elastic.replica.partition_replica import MOVER_BITS, PartitionReplica
from plink.runtime.elastic.replica.replicator import next_replicated_clock
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.transport.connection import Connection
from plink.runtime.elastic.transport.keys import Unauthenticated
from plink.runtime.elastic.transport.messages import Activate, PartitionPart, PartKind
from plink.runtime.elastic.transport.records import ConnectionLost, Forged

_MAX_BEGIN_ATTEMPTS = 2  # times that the new primary is told to begin, before it is left open whether it has
_MOVER = int.from_bytes(os.urandom(3), "little") << MOVER_BITS  # whose attempts have a common order
_attempts = itertools.count(1)


class InDoubt(PlinkError):
    """The outcome of a move is unknown (as in two-phase commit): the new primary did not answer the order to begin. The
    old one has stopped, and keeps what it has. :func:`resolve` asks again; if the new one is known to be dead, the old
    one is as good a replica as any."""


def attempt_number() -> int:
    """Return the next attempt's number; those of one process rise."""
    return _MOVER | next(_attempts)


def prepared(actor: PartitionReplica, connection: Connection, term: int, replica: str, here: str) -> Outgoing | None:
    """Begin a move, in the actor's thread, and return it; the one under way if it is the same; None if that one has
    taken place. Any other is given up.

    :param here: the address of this server.
    :raises RejectedRequest: it cannot move so.
    """
    if term in actor.completed_moves and actor.address == connection.address:
        return None
    now = actor.outgoing if actor.outgoing is not None and not actor.outgoing.over else None
    if now is not None and (now.term, now.connection.address, now.replica) == (term, connection.address, replica):
        return now
    if actor.role is not Role.SERVING:
        raise RejectedRequest("a partition that is not served here cannot be given away")
    if term in actor.cancelled:
        raise RejectedRequest(f"the move in term {term} was cancelled")
    latest = actor.term if now is None else max(actor.term, now.term - 1)
    if term <= latest:
        raise RejectedRequest(
            f"partition {actor.partition.number} is in term {latest}: a new primary needs a later one"
        )
    if connection.address == here:
        raise RejectedRequest(f"partition {actor.partition.number} is here already")
    if connection.address in actor.copying:
        raise RejectedRequest(f"{connection.address} is not a replica yet, but becomes one")
    drains = connection.address in actor.partition.replicas
    if replica == here:
        actor.partition.keep_history()
    parts = [] if drains else parts_of(actor.partition)
    result = Outgoing(
        connection, Attempt(attempt_number(), term, actor.generation, actor.generation_clock), replica, drains=drains
    )
    result.add(parts)
    if now is not None:
        now.end(RejectedRequest(f"the move was given up for that in term {term}"))
    actor.outgoing = result
    return result


def finish(actor: PartitionReplica, move: Outgoing, here: str, agreed: int) -> None:
    """Let the new primary begin, in the actor's thread, when nothing else uses the move's connection or pushes the
    partition.

    :param agreed: the clock up to which replicas are pushed to.
    :raises InDoubt: whether it has is not known. :raises PlinkError: it has not, and is served here on.
    """
    move.check()
    if actor.outgoing is not move:
        raise RejectedRequest(f"the move in term {move.term} was given up")
    partition, replicas = actor.partition, {}
    if move.replica == here:
        replicas = {here: partition.clock}
    elif move.replica not in ("", move.connection.address):
        if move.replica not in partition.replicas or move.replica in actor.copying:
            raise RejectedRequest(f"{move.replica} is no replica of partition {partition.number}")
        replicas = {move.replica: partition.replicas[move.replica]}
    if move.drains:
        _drain(actor, move, agreed)
    else:
        move.send_queued()
        # One who died since it was last sent anything is found out before it is told to begin.
        tell(move.connection, move.attempt.addressed(PartitionPart(partition.number, PartKind.PROBE)))
    unconfirmed = {} if partition.distances is None else partition.distances.unconfirmed
    begin = move.attempt.order(partition.number, Role.SERVING, replicas, partition.delta_sequence, unconfirmed)
    _tell_to_begin(actor, move.connection, begin, stays=move.replica == here)


def _drain(actor: PartitionReplica, move: Outgoing, agreed: int) -> None:
    """Send a replica that is to serve its last pushes, the last with the end-of-life flag; then what is ahead of the
    state."""
    partition, to = actor.partition, move.connection.address
    while True:
        clock = next_replicated_clock(partition, to, agreed)
        push = actor.take_delta(to, clock, last=clock == partition.clock)
        tell(move.connection, push)
        partition.arrived(to, push)
        if push.last:
            break
    for part in parts_of(partition, values=False):
        tell(move.connection, move.attempt.addressed(part))


def resolve(actor: PartitionReplica, connection: Connection) -> None:
    """Resolve an :class:`InDoubt` move, in the actor's thread: order the new primary again.

    :raises InDoubt: it does not answer. :raises RejectedRequest: it has not begun and will not.
    """
    if actor.role is not Role.IN_DOUBT or actor.in_doubt is None:
        raise RejectedRequest("it is known who has this partition")
    _tell_to_begin(actor, connection, actor.in_doubt, stays=actor.stays)


def cancel(actor: PartitionReplica, term: int) -> bool:
    """Cancel a move, in the actor's thread, at its source or its target.

    :returns: False if that move has taken place.

    :raises InDoubt: it may have.
    """
    if actor.role is Role.IN_DOUBT and actor.term == term:
        raise InDoubt(f"whether {actor.address} has begun is not known")
    if term in actor.completed_moves:
        return False
    actor.cancelled.add(term)
    if actor.outgoing is not None and actor.outgoing.term == term:
        actor.outgoing.end(RejectedRequest(f"the move in term {term} was cancelled"))
        actor.outgoing = None
    if actor.arriving_term == term:
        actor.stop_arriving()
    return True


def tell_until_answered(connection: Connection, message: Activate) -> None:
    """Send an order to begin until it is answered; a repeat does no harm.

    :raises InDoubt: whether it was received is not known.
    :raises RejectedRequest: it was not.
    """
    reason: PlinkError | None = None
    for _ in range(_MAX_BEGIN_ATTEMPTS):
        try:
            return tell(connection, message)
        except (ConnectionLost, Forged, Unauthenticated) as error:
            reason = error
    raise InDoubt(f"whether {connection.address} has begun is not known: {reason}")


def _tell_to_begin(actor: PartitionReplica, connection: Connection, message: Activate, *, stays: bool) -> None:
    """Order the new primary to begin.

    :param stays: whether the old primary is the new one's replica.
    """
    try:
        tell_until_answered(connection, message)
    except InDoubt:
        actor.end_move()
        actor.address, actor.in_doubt, actor.stays = connection.address, message, stays
        actor.place(actor.partition, Role.IN_DOUBT, message.term)
        raise
    actor.end_move()
    actor.completed_moves.add(message.term)
    actor.address = connection.address
    if stays:
        actor.partition.demote()
        actor.place(actor.partition, Role.REPLICA, message.term)
    else:
        actor.place(None, Role.MOVED, message.term)


def give_up(actor: PartitionReplica, move: Outgoing, error: BaseException) -> None:
    """Give up a move that has not taken place, from any thread."""

    def clear_outgoing() -> None:
        if actor.outgoing is move:
            actor.outgoing = None

    move.end(error)
    with contextlib.suppress(RejectedRequest):  # the server was closed meanwhile
        actor.call(clear_outgoing)


def add_replica(actor: PartitionReplica, connection: Connection) -> None:
    """Give a server the present state as a replica, which can go back as far as the primary and is pushed to from now
    on.

    :raises PlinkError: it is none, and nothing has changed.
    """
    number, address = attempt_number(), connection.address

    def begin() -> tuple[Attempt, list[PartitionPart]]:
        if actor.role is not Role.SERVING:
            raise RejectedRequest("a partition that is not served here cannot be given a replica")
        if actor.outgoing is not None and actor.outgoing.connection.address == address:
            raise RejectedRequest(f"the partition itself moves to {address}")
        if address in actor.copying:
            actor.stop_copying(address)
        attempt = Attempt(number, actor.term, actor.generation, actor.generation_clock)
        if address in actor.partition.replicas:
            return attempt, []
        actor.partition.keep_history()
        parts = [attempt.addressed(part) for part in parts_of(actor.partition, ahead=False)]
        actor.copying[address] = connection
        actor.partition.replicas[address] = actor.partition.clock  # what it lacks after that is kept from now on
        return attempt, parts

    def under_way() -> None:
        if actor.copying.get(address) is not connection:
            raise RejectedRequest("the replica was given up: there was a roll-back, a move or another order meanwhile")

    def end() -> None:
        under_way()
        del actor.copying[address]
        actor.changed()

    def give_up() -> None:
        if actor.copying.get(address) is connection:
            actor.stop_copying(address)

    attempt, parts = actor.call(begin)
    if not parts:
        return
    try:
        for part in parts:
            tell(connection, part)
        actor.call(under_way)
        tell(connection, attempt.order(parts[0].partition, Role.REPLICA, {}, 0))
        actor.call(end)
    except BaseException:
        actor.call(give_up)
        raise


def restore_to(
    actor: PartitionReplica, connection: Connection, term: int, workers: Collection[int], first: int, here: str
) -> None:
    """Send a replica's state to a server that serves it from there on; this one stays its replica. A server that serves
    it itself, in an earlier term, or does not know whether another does, is the replica from now on.

    :param here: the address of this server.
    :raises InDoubt: whether the new primary has begun is not known: the same again settles it.
    :raises PlinkError: it has not.
    """
    number = attempt_number()

    def begin() -> tuple[list[PartitionPart], Activate | None]:
        if actor.role in (Role.SERVING, Role.IN_DOUBT) and term > actor.term:
            actor.demote()
        if actor.role is not Role.REPLICA:
            raise RejectedRequest("a partition that is not backed up here cannot be restored from here")
        if term < actor.term:
            raise RejectedRequest(f"partition {actor.partition.number} is in term {actor.term} here")
        if term in actor.completed_moves and actor.address == connection.address:
            return [], None
        if first <= actor.partition.clock:
            raise RejectedRequest(
                f"no worker can begin at clock {first}: the state is of clock {actor.partition.clock}"
            )
        actor.term = term  # who pushed before pushes no more
        to, previous_order = actor.restoring or ("", None)
        same = previous_order and (to, previous_order.term, previous_order.generation) == (
            connection.address,
            term,
            actor.generation,
        )
        parts = [*parts_of(actor.partition, ahead=False), workers_part(actor.partition.number, workers, first)]
        attempt = Attempt(number, term, actor.generation, actor.generation_clock)
        return [attempt.addressed(part) for part in parts], previous_order if same else None

    def begin_order() -> Activate:
        """Return the order to begin; from here on the new primary may begin at any time."""
        if actor.role is not Role.REPLICA or actor.term != term or actor.generation != parts[0].generation:
            raise RejectedRequest("the partition was given up meanwhile: there was a roll-back or another order")
        clock = actor.partition.clock
        attempt = Attempt(number, term, actor.generation, actor.generation_clock)
        last = attempt.order(actor.partition.number, Role.SERVING, {here: clock}, actor.partition.delta_sequence)
        actor.restoring = connection.address, last
        return last

    def end() -> None:
        actor.completed_moves.add(term)
        actor.address, actor.restoring = connection.address, None

    parts, earlier = actor.call(begin)
    if not parts:
        return
    if earlier is not None:  # perhaps it was received
        try:
            tell_until_answered(connection, earlier)
        except RejectedRequest:
            pass
        else:
            actor.call(end)
            return
    for part in parts:
        tell(connection, part)
    tell_until_answered(connection, actor.call(begin_order))
    actor.call(end)
