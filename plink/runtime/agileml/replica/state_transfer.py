"""Copies of a partition that are made at one go: for a backup beside those that there are, and from a backup for one
who is to serve after its owner was lost (Harlap thesis, 4.2.3)."""

from collections.abc import Collection

from plink.runtime.agileml.partition.partition import Refused
from plink.runtime.agileml.partition.serialization import parts_of, workers_part
from plink.runtime.agileml.replica.migration import attempt_number, tell_surely
from plink.runtime.agileml.replica.outgoing import Attempt, tell
from plink.runtime.agileml.replica.partition_replica import Owner, Role, order
from plink.runtime.agileml.transport.connection import Line
from plink.runtime.agileml.transport.wire import Message


def back_up(owner: Owner, line: Line) -> None:
    """Give a server the present state as a backup, which can go back as far as the owner and is pushed to from now on.

    :raises PlinkError: it is none, and nothing has changed.
    """
    number, address = attempt_number(), line.address

    def begin() -> list[Message]:
        if owner.role is not Role.SERVING:
            raise Refused("a partition that is not served here cannot be given a backup")
        if owner.outgoing is not None and owner.outgoing.line.address == address:
            raise Refused(f"the partition itself moves to {address}")
        if address in owner.copying:
            owner.stop_copying(address)
        if address in owner.partition.backups:
            return []
        owner.partition.keep_history()
        attempt = Attempt(number, owner.epoch, owner.era, owner.era_clock)
        parts = [attempt.addressed(part) for part in parts_of(owner.partition, ahead=False)]
        owner.copying[address] = line
        owner.partition.backups[address] = owner.partition.clock  # what it lacks after that is kept from now on
        return parts

    def under_way() -> None:
        if owner.copying.get(address) is not line:
            raise Refused("the backup was given up: there was a roll-back, a move or another order meanwhile")

    def end() -> None:
        under_way()
        del owner.copying[address]
        owner.changed()

    def give_up() -> None:
        if owner.copying.get(address) is line:
            owner.stop_copying(address)

    parts = owner.call(begin)
    if not parts:
        return
    try:
        for part in parts:
            tell(line, part)
        owner.call(under_way)
        first = parts[0]
        tell(line, order(Role.BACKUP, first.partition, {}, 0, era=first.era, epoch=first.epoch, sequence=number))
        owner.call(end)
    except BaseException:
        owner.call(give_up)
        raise


def restore_to(owner: Owner, line: Line, epoch: int, workers: Collection[int], first: int, here: str) -> None:
    """A backup gives its state to a server that serves it from there on, and stays its backup. One that serves it
    itself, in an earlier epoch, or does not know whether another does, is the backup from now on.

    :param here: the address of this server.
    :raises Unsure: whether the new owner has begun is not known: the same again settles it.
    :raises PlinkError: it has not.
    """
    number = attempt_number()

    def begin() -> tuple[list[Message], Message | None]:
        if owner.role in (Role.SERVING, Role.UNSURE) and epoch > owner.epoch:
            owner.stand_back()
        if owner.role is not Role.BACKUP:
            raise Refused("a partition that is not backed up here cannot be restored from here")
        if epoch < owner.epoch:
            raise Refused(f"partition {owner.partition.number} is in epoch {owner.epoch} here")
        if epoch in owner.settled and owner.address == line.address:
            return [], None
        if first <= owner.partition.clock:
            raise Refused(f"no worker can begin at clock {first}: the state is of clock {owner.partition.clock}")
        owner.epoch = epoch  # who pushed before pushes no more
        to, told_before = owner.restoring or ("", None)
        same = told_before and (to, told_before.epoch, told_before.era) == (line.address, epoch, owner.era)
        parts = [*parts_of(owner.partition, ahead=False), workers_part(owner.partition.number, workers, first)]
        attempt = Attempt(number, epoch, owner.era, owner.era_clock)
        return [attempt.addressed(part) for part in parts], told_before if same else None

    def told() -> Message:
        """From here on the new owner may begin at any time."""
        if owner.role is not Role.BACKUP or owner.epoch != epoch or owner.era != parts[0].era:
            raise Refused("the partition was given up meanwhile: there was a roll-back or another order")
        clock = owner.partition.clock
        last = order(
            Role.SERVING, owner.partition.number, {here: clock}, owner.partition.push_sequence, era=owner.era,
            epoch=epoch, sequence=number,
        )  # fmt: skip
        owner.restoring = line.address, last
        return last

    def end() -> None:
        owner.settled.add(epoch)
        owner.address, owner.restoring = line.address, None

    parts, earlier = owner.call(begin)
    if not parts:
        return
    if earlier is not None:  # perhaps it was heard
        try:
            tell_surely(line, earlier)
        except Refused:
            pass
        else:
            owner.call(end)
            return
    for part in parts:
        tell(line, part)
    tell_surely(line, owner.call(told))
    owner.call(end)
