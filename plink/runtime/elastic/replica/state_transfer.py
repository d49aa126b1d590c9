"""Copies of a partition that are made at one go: for a replica beside those that there are, and from a replica for one
who is to serve after its primary was lost (Harlap thesis, 4.2.3)."""

from collections.abc import Collection

from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.partition.serialization import parts_of, workers_part
from plink.runtime.elastic.replica.migration import attempt_number, tell_until_answered
from plink.runtime.elastic.replica.outgoing import Attempt, tell
from plink.runtime.elastic.replica.partition_replica import PartitionReplica
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.transport.connection import Connection
from plink.runtime.elastic.transport.messages import Activate, Part


def add_replica(actor: PartitionReplica, connection: Connection) -> None:
    """Give a server the present state as a replica, which can go back as far as the primary and is pushed to from now
    on.

    :raises PlinkError: it is none, and nothing has changed.
    """
    number, address = attempt_number(), connection.address

    def begin() -> tuple[Attempt, list[Part]]:
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

    def begin() -> tuple[list[Part], Activate | None]:
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
