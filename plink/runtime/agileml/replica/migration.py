"""A partition moves to another server while it is used, in two steps (Harlap thesis, 4.2.3).

*Prepare*: the state is copied in the background, and updates that come meanwhile are taken and follow; a backup is
pushed what it lacks instead. The old owner serves on until *commit*, which stops the partition for as long as the rest
takes to send: then the new owner is told to begin, and whoever asks the old one is sent on. Until it was told to begin
a new owner that is lost, or a move that is cancelled, costs nothing.

All messages of one attempt have a number of their own: what a connection that was given up delivers late is refused.
"""

import contextlib
import itertools
import os

from plink.errors import PlinkError
from plink.runtime.agileml.partition.partition import Refused
from plink.runtime.agileml.partition.serialization import What, parts_of
from plink.runtime.agileml.replica.outgoing import Attempt, Outgoing, tell
from plink.runtime.agileml.replica.partition_replica import MOVER_BITS, Owner, Role, order
from plink.runtime.agileml.replica.replicator import next_push, push_message
from plink.runtime.agileml.transport.connection import Line
from plink.runtime.agileml.transport.keys import Stranger
from plink.runtime.agileml.transport.records import Forged, Lost
from plink.runtime.agileml.transport.wire import Kind, Message

_TOLD = 2  # times that the new owner is told to begin, before it is left open whether it has
_MOVER = int.from_bytes(os.urandom(3), "little") << MOVER_BITS  # whose attempts have a common order
_attempts = itertools.count(1)


class Unsure(PlinkError):
    """The new owner was told to begin and was not heard of again: the old one has stopped, and keeps what it has.
    :func:`settle` asks again; if the new one is known to be dead, the old one is as good a backup as any."""


def attempt_number() -> int:
    """Return the next attempt's number; those of one process rise."""
    return _MOVER | next(_attempts)


def prepared(owner: Owner, line: Line, epoch: int, backup: str, here: str) -> Outgoing | None:
    """In the owner's thread: a move that has begun, the one that was under way if it is the same; None if that one has
    taken place. Any other is given up.

    :param here: the address of this server.
    :raises Refused: it cannot move so.
    """
    if epoch in owner.settled and owner.address == line.address:
        return None
    now = owner.outgoing if owner.outgoing is not None and not owner.outgoing.over else None
    if now is not None and (now.epoch, now.line.address, now.backup) == (epoch, line.address, backup):
        return now
    if owner.role is not Role.SERVING:
        raise Refused("a partition that is not served here cannot be given away")
    if epoch in owner.cancelled:
        raise Refused(f"the move in epoch {epoch} was cancelled")
    latest = owner.epoch if now is None else max(owner.epoch, now.epoch - 1)
    if epoch <= latest:
        raise Refused(f"partition {owner.partition.number} is in epoch {latest}: a new owner needs a later one")
    if line.address == here:
        raise Refused(f"partition {owner.partition.number} is here already")
    if line.address in owner.copying:
        raise Refused(f"{line.address} is not a backup yet, but becomes one")
    drains = line.address in owner.partition.backups
    if backup == here:
        owner.partition.keep_history()
    parts = [] if drains else parts_of(owner.partition)
    result = Outgoing(line, Attempt(attempt_number(), epoch, owner.era, owner.era_clock), backup, drains=drains)
    result.add(parts)
    if now is not None:
        now.end(Refused(f"the move was given up for that in epoch {epoch}"))
    owner.outgoing = result
    return result


def finish(owner: Owner, move: Outgoing, here: str, agreed: int | None) -> None:
    """In the owner's thread, when nothing else uses the move's line or pushes the partition: the new one begins.

    :param agreed: the clock up to which backups are pushed to, None for all that there is.
    :raises Unsure: whether it has is not known. :raises PlinkError: it has not, and is served here on.
    """
    move.check()
    if owner.outgoing is not move:
        raise Refused(f"the move in epoch {move.epoch} was given up")
    partition, backups = owner.partition, {}
    if move.backup == here:
        backups = {here: partition.clock}
    elif move.backup not in ("", move.line.address):
        if move.backup not in partition.backups or move.backup in owner.copying:
            raise Refused(f"{move.backup} is no backup of partition {partition.number}")
        backups = {move.backup: partition.backups[move.backup]}
    if move.drains:
        _last_pushes(owner, move, agreed)
    else:
        move.send_queued()
        # One who died since it was last sent anything is found out before it is told to begin.
        tell(move.line, move.attempt.addressed(Message(Kind.PART, partition.number, flags=What.NOTHING)))
    begin = order(
        Role.SERVING, partition.number, backups, partition.push_sequence, era=owner.era, epoch=move.epoch,
        sequence=move.attempt.number,
    )  # fmt: skip
    _tell_to_begin(owner, move.line, begin, stays=move.backup == here)


def _last_pushes(owner: Owner, move: Outgoing, agreed: int | None) -> None:
    """To the backup that is to serve, the last with the end-of-life flag; then what is ahead of the state."""
    partition, to = owner.partition, move.line.address
    while True:
        clock = next_push(partition, to, agreed)
        push = partition.take_push(to, clock, last=clock == partition.clock)
        tell(move.line, push_message(owner, push))
        partition.arrived(to, push)
        if push.last:
            break
    for part in parts_of(partition, values=False):
        tell(move.line, move.attempt.addressed(part))


def settle(owner: Owner, line: Line) -> None:
    """After :class:`Unsure`, in the owner's thread: tell the new owner again.

    :raises Unsure: it is not heard of. :raises Refused: it has not begun and will not.
    """
    if owner.role is not Role.UNSURE or owner.unsure is None:
        raise Refused("it is known who has this partition")
    _tell_to_begin(owner, line, owner.unsure, stays=owner.stays)


def cancel(owner: Owner, epoch: int) -> bool:
    """In the owner's thread, of who gives or who gets. :returns: False if that move has taken place.

    :raises Unsure: it may have.
    """
    if owner.role is Role.UNSURE and owner.epoch == epoch:
        raise Unsure(f"whether {owner.address} has begun is not known")
    if epoch in owner.settled:
        return False
    owner.cancelled.add(epoch)
    if owner.outgoing is not None and owner.outgoing.epoch == epoch:
        owner.outgoing.end(Refused(f"the move in epoch {epoch} was cancelled"))
        owner.outgoing = None
    if owner.arriving_epoch == epoch:
        owner.stop_arriving()
    return True


def tell_surely(line: Line, message: Message) -> None:
    """Telling twice does no harm. :raises Unsure: whether it was heard is not known. :raises Refused: it was not."""
    reason: PlinkError | None = None
    for _ in range(_TOLD):
        try:
            return tell(line, message)
        except (Lost, Forged, Stranger) as error:
            reason = error
    raise Unsure(f"whether {line.address} has begun is not known: {reason}")


def _tell_to_begin(owner: Owner, line: Line, message: Message, *, stays: bool) -> None:
    """:param stays: whether the old owner is the new one's backup."""
    try:
        tell_surely(line, message)
    except Unsure:
        owner.end_move()
        owner.address, owner.unsure, owner.stays = line.address, message, stays
        owner.place(owner.partition, Role.UNSURE, message.epoch)
        raise
    owner.end_move()
    owner.settled.add(message.epoch)
    owner.address = line.address
    if stays:
        owner.partition.stand_by()
        owner.place(owner.partition, Role.BACKUP, message.epoch)
    else:
        owner.place(None, Role.GONE, message.epoch)


def give_up(owner: Owner, move: Outgoing, error: BaseException) -> None:
    """From any thread: this move will not be, if it has not been."""

    def given_up() -> None:
        if owner.outgoing is move:
            owner.outgoing = None

    move.end(error)
    with contextlib.suppress(Refused):  # the server was closed meanwhile
        owner.call(given_up)
