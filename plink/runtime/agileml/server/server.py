"""A parameter server: the partitions of one host, a thread each, and what the elasticity controller has done with them.

What a server is to a partition is decided by whoever calls its methods: nothing here chooses roles. A controller that
was started anew may say everything twice. Numbers of epochs rise: what is said of an earlier one changes nothing.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from plink.errors import PlinkError
from plink.runtime.agileml.partition.checkpoint_file import read_partition, write_partition
from plink.runtime.agileml.partition.partition import Partition, Refused
from plink.runtime.agileml.partition.serialization import parts_of
from plink.runtime.agileml.replica import migration, state_transfer
from plink.runtime.agileml.replica.partition_replica import Owner, Role
from plink.runtime.agileml.replica.replicator import Pusher
from plink.runtime.agileml.transport.connection import Line
from plink.runtime.agileml.transport.listener import Lines, Listener
from plink.runtime.agileml.transport.store_config import StoreConfig
from plink.runtime.agileml.transport.wire import Kind, Message, Status


@dataclass(frozen=True)
class PartitionStatus:
    """What a server says of one partition.

    :ivar clocks: those whose state it can go back to, rising; the last is the present.
    :ivar pushed: the clock that all backups have; the present one if there is none.
    :ivar laggards: the workers whose updates the next clock waits for.
    :ivar backups: the addresses that it is pushed to.
    :ivar trouble: why pushes do not arrive.
    :ivar ended: a backup that had its last push.
    :ivar address: of who has it, where it is gone.
    """

    partition: int
    role: str
    era: int
    epoch: int
    clocks: tuple[int, ...]
    pushed: int
    laggards: tuple[int, ...]
    backups: tuple[str, ...]
    trouble: str
    ended: bool
    address: str


class Server:
    """Listens from the start, with no partitions; ``close`` it.

    :param host: the address to listen on, at any port that is free.
    :param timeout_s: for handshakes and for what other servers answer.
    :param patience_s: how long a read waits for its state before the client is told to ask again.
    :param refused: hears why a connection was closed that made no sense, or could not be had; from any thread.
    :raises OSError: the address cannot be had.
    """

    def __init__(
        self, config: StoreConfig, *, host: str = "127.0.0.1", timeout_s: float = 10.0, patience_s: float = 1.0,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:  # fmt: skip
        self.config = config
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._owners: dict[int, Owner] = {}
        self._least_era = 0
        self._changing, self.closed = threading.Lock(), False
        self._pusher = Pusher(self._present, self.line)
        self.listener = Listener(config, host, timeout_s, self._answer, refused)
        self.address = self.listener.address
        self.listener.start()

    def line(self, address: str) -> Line:
        """To another server of the run."""
        return Line(address, self.config.keys, self.config.layout, self._timeout_s)

    def owner(self, number: int) -> Owner:
        """The one of a partition, which may not be here (yet). :raises Refused: there is no such partition."""
        layout = self.config.layout
        if not 0 <= number < layout.partitions:
            raise Refused(f"partition {number} of {layout.partitions}")
        with self._changing:
            if number not in self._owners:
                self._owners[number] = Owner(
                    layout, number, sees_ahead=self.config.sees_ahead, patience_s=self._patience_s,
                    advanced=self._pusher.advanced, least_era=self._least_era,
                )  # fmt: skip
            return self._owners[number]

    def open(
        self, number: int, workers: Mapping[int, int], *, era: int = 0, epoch: int = 0, history: bool = False
    ) -> None:
        """Serve a partition that nobody has yet, of zeros.

        :param workers: those who take part, with their first clocks.
        :param history: keep what it takes to go back, until :meth:`release`.
        :raises Refused: it is or was here in another or a later epoch.
        """
        partition = Partition(self.config.layout, number, history=history, sees_ahead=self.config.sees_ahead)
        partition.admit(workers)
        self._serve_new(partition, era, epoch)

    def checkpoint(self, number: int, path: Path) -> None:
        """Write a partition that is here, served or a backup, into a file, with all clocks that it can go back to:
        copied in its thread, written in the caller's."""
        owner = self.owner(number)
        write_partition(path, owner.call(lambda: parts_of(owner.partition)), self.config.layout)

    def restore(
        self, number: int, path: Path, workers: Collection[int], *, era: int, epoch: int, clock: int | None = None
    ) -> int:
        """Serve the consistent state in a file; what was ahead of it is to be done again.

        :param workers: those who take part, from the clock after that of the state on.
        :param clock: of the state, one that the partition could go back to; None: the latest.
        :returns: the clock of the state.
        :raises InputError: see :func:`~plink.runtime.agileml.partition.checkpoint_file.read_partition`.
        :raises Refused: the file is of another partition or has no state of that clock; or as :meth:`open`.
        """
        partition = read_partition(path, self.config.layout, sees_ahead=self.config.sees_ahead)
        if partition.number != number:
            raise Refused(f"{path} has partition {partition.number}, not {number}")
        if clock is not None:
            partition.roll_back(clock)
        partition.stand_by()
        partition.admit(dict.fromkeys(workers, partition.clock + 1))
        self._serve_new(partition, era, epoch)
        return partition.clock

    def _serve_new(self, partition: Partition, era: int, epoch: int) -> None:
        owner, clock = self.owner(partition.number), partition.clock

        def begin() -> None:
            if owner.role is Role.SERVING and owner.epoch == epoch:
                return  # said twice
            if era < owner.least_era:
                raise Refused(f"partition {partition.number} is of era {era}; all began anew in {owner.least_era}")
            if owner.role not in (Role.ABSENT, Role.GONE, Role.UNSURE):
                raise Refused(f"partition {partition.number} is here already, in epoch {owner.epoch}")
            if epoch < owner.epoch or (owner.role is not Role.ABSENT and epoch == owner.epoch):
                raise Refused(f"partition {partition.number} was here in epoch {owner.epoch}")
            owner.era, owner.era_clock = era, clock
            owner.place(partition, Role.SERVING, epoch)

        owner.call(begin)

    def workers_from(self, number: int, workers: Collection[int], first: int) -> None:
        """From clock ``first`` on exactly these workers take part, wherever the partition goes. Who ends owes the
        clocks before it still, or somebody in its name; what it sent of later ones counts no more, and its number is
        not used again.

        :raises Refused: one of these has begun that clock and it was not so, or all have, or the partition is not
            served here.
        """
        owner = self.owner(number)
        owner.call(lambda: owner.workers_from(workers, first))

    def prepare(self, number: int, address: str, epoch: int, *, backup: str) -> None:
        """Bring a partition to another server, all but what still comes, which follows it there; it is served here
        until :meth:`commit`. To one of its backups: push what that lacks. Returns when it lacks little. Whatever else
        was prepared for this partition is given up.

        :param epoch: of the new owner, above the present one.
        :param backup: the address that the new owner shall push to: this server's own, one of the backups at the time
            of the commit, or none ("").
        :raises PlinkError: the move is off: the other one cannot be reached, there was a roll-back, :meth:`cancel`...
        """
        owner, line, address_here = self.owner(number), self.line(address), self.address
        move = owner.call(lambda: migration.prepared(owner, line, epoch, backup, address_here))
        if move is None:
            return
        if move.line is line:
            if move.drains:
                self._pusher.advanced([address])
            else:
                move.begin(lambda error: migration.give_up(owner, move, error))
        move.wait_until_caught_up()

    def commit(self, number: int, epoch: int) -> None:
        """The server that was prepared begins, with all that was acknowledged here; whoever asks here is sent on. If it
        pushes to this server, this one is its backup now.

        :raises moves.Unsure: see there; the same again, or :meth:`settle`, asks again.
        :raises PlinkError: it has not begun and will not, and is served here on; or nothing of that epoch is prepared.
        """
        owner = self.owner(number)
        if epoch in owner.settled:
            return
        if owner.role is Role.UNSURE and owner.epoch == epoch:
            self.settle(number)
            return
        move = owner.outgoing
        if move is None or move.epoch != epoch:
            raise Refused(f"no move of partition {number} in epoch {epoch} is prepared")
        move.wait_until_caught_up()
        try:
            with self._pusher.paused(number), move.sending, contextlib.closing(move.line):
                move.send_rest()
                owner.call(lambda: migration.finish(owner, move, self.address, self._pusher.agreed))
        except BaseException as error:
            migration.give_up(owner, move, error)
            raise

    def cancel(self, number: int, epoch: int) -> bool:
        """Nothing of a move is to happen any more; at the server that gives it as well as at the one that gets it.

        :returns: False if it has taken place.
        :raises moves.Unsure: it may have.
        """
        owner = self.owner(number)
        return owner.call(lambda: migration.cancel(owner, epoch))

    def settle(self, number: int) -> None:
        """After :class:`moves.Unsure`: tell the new owner again to begin. :raises Unsure: it is still silent.
        :raises Refused: it has not begun and will not."""
        owner = self.owner(number)
        with contextlib.closing(self.line(owner.address)) as line:
            owner.call(lambda: migration.settle(owner, line))

    def back_up(self, number: int, address: str) -> None:
        """Make another server a backup of a partition, beside those that there are: it gets the state and the way back
        and is pushed to from now on. Meanwhile no clock counts as pushed that it would lack.

        :raises PlinkError: it is none; :meth:`stop_pushing` and roll-backs give it up.
        """
        with contextlib.closing(self.line(address)) as line:
            state_transfer.back_up(self.owner(number), line)

    def push_to(self, number: int, address: str) -> None:
        """Push a partition to this backup alone. :raises Refused: it is none."""
        owner = self.owner(number)

        def only() -> None:
            if address not in owner.partition.backups or address in owner.copying:
                raise Refused(f"{address} is no backup of partition {number}")
            for other in set(owner.partition.backups) - {address}:
                owner.stop_pushing(other)
            owner.changed()

        owner.call(only)

    def stop_pushing(self, number: int, address: str) -> None:
        """A server is no backup any more, or does not become one."""
        owner = self.owner(number)

        def stop() -> None:
            owner.stop_pushing(address)
            owner.changed()

        owner.call(stop)

    def push_up_to(self, clock: int | None) -> None:
        """Push no clock after this one to any backup, so that all have a clock in common; None: each what there is."""
        self._pusher.limit(clock)

    def take_over(self, number: int, workers: Collection[int], first: int, epoch: int) -> None:
        """A backup serves the state that it has, pushing to nobody, with these workers from clock ``first`` on. What
        is served already is so in this epoch. After :class:`moves.Unsure` the old owner is such a backup: who asks for
        this knows that the new one is gone.

        :raises Refused: it is not here, or of a later epoch, or that clock has begun.
        """
        owner = self.owner(number)

        def begin() -> None:
            if owner.role is Role.SERVING and epoch >= owner.epoch:
                owner.epoch = epoch  # the workers may be others by now, if this comes late
                return
            if owner.role is Role.UNSURE and epoch > owner.epoch:
                owner.stand_back()
            if owner.role is not Role.BACKUP:
                raise Refused(f"partition {number} has no backup here")
            if epoch <= owner.epoch:
                raise Refused(f"partition {number} is in epoch {owner.epoch} here: a new owner needs a later one")
            if first <= owner.partition.clock:
                raise Refused(f"no worker can begin at clock {first}: the state is of clock {owner.partition.clock}")
            owner.partition.stand_by()
            owner.partition.workers_from(workers, first)
            owner.place(owner.partition, Role.SERVING, epoch)

        owner.call(begin)

    def restore_to(self, number: int, address: str, epoch: int, workers: Collection[int], first: int) -> None:
        """A backup brings its state to another server, which serves it from there on, with these workers from clock
        ``first`` on; this server stays the backup, or is it from now on: as :meth:`take_over`. Nobody of an earlier
        epoch pushes to it any more.

        :raises moves.Unsure: whether the other one has begun is not known; the same again settles it.
        :raises PlinkError: it has not.
        """
        with contextlib.closing(self.line(address)) as line:
            state_transfer.restore_to(self.owner(number), line, epoch, workers, first, self.address)

    def drop(self, number: int, epoch: int) -> None:
        """Forget a partition, whatever it is here, unless it is of this epoch or a later one."""
        owner = self.owner(number)

        def forget() -> None:
            if max(owner.epoch, owner.arriving_epoch) < epoch:
                owner.forget()

        owner.call(forget)

    def roll_back(self, clock: int, era: int) -> None:
        """All partitions here, served or backups, go back to the state of a clock, and a new era begins: what workers
        sent in the old one is refused, and they are told. What moves is given up, and what arrives is forgotten. A
        repeat changes nothing.

        :raises Refused: one cannot; then none has, unless it could a moment before: repeat it then.
        """
        for owner in self._present().values():
            owner.call(lambda owner=owner: owner.can_roll_back(clock, era))  # type: ignore[misc]
        with self._changing:
            self._least_era = max(self._least_era, era)  # for who is not here yet
            owners = list(self._owners.values())
        for owner in owners:
            owner.call(lambda owner=owner: owner.roll_back(clock, era))  # type: ignore[misc]

    def begin_anew(self, era: int) -> None:
        """All begins anew in this era: what is here is forgotten, and what arrives of an earlier one is refused. A
        repeat changes nothing."""
        with self._changing:
            self._least_era = max(self._least_era, era)
            owners = list(self._owners.values())
        for owner in owners:
            owner.call(lambda owner=owner: owner.begin_anew(era))  # type: ignore[misc]

    def release(self, clock: int) -> None:
        """Nobody will go back to before a clock: all backups have it."""
        for owner in self._present().values():
            owner.call(lambda owner=owner: owner.release(clock))  # type: ignore[misc]

    def status(self) -> list[PartitionStatus]:
        """Of every partition that is or was here, by number; as each was after its last change, without asking it."""
        result = []
        for number, owner in sorted(self._present().items()):
            seen = owner.seen
            result.append(
                PartitionStatus(
                    number, seen.role.value, seen.era, seen.epoch, seen.clocks, seen.pushed, seen.laggards,
                    seen.backups, self._pusher.trouble(number, seen.backups), seen.ended, seen.address,
                )
            )  # fmt: skip
        return result

    def close(self) -> None:
        """End all connections and threads; what is here and nowhere else is gone. May be called twice."""
        if self.closed:
            return
        self.closed = True
        self.listener.close_door()
        for owner in self._present().values():
            if (move := owner.outgoing) is not None:
                move.end(Refused("the server is closed"))
        self._pusher.close()
        self.listener.close()
        for owner in self._present().values():
            owner.close()

    def _present(self) -> dict[int, Owner]:
        with self._changing:
            return dict(self._owners)

    def _answer(self, message: Message, lines: Lines) -> Message:
        request = message.kind in (Kind.READ, Kind.UPDATE)
        if request and message.partition not in self._owners:
            return Message(Kind.ANSWER, message.partition, Status.ABSENT)
        answer = self.owner(message.partition).ask(message)
        if request and answer.status is Status.ELSEWHERE:
            return self._forward(message, answer, lines)
        return answer

    def _forward(self, message: Message, moved: Message, lines: Lines) -> Message:
        """Ask the new owner, and say that one should have asked there."""
        if moved.text not in lines:  # the others that this client was sent on to may be gone for long
            for address in lines.keys() - {owner.seen.address for owner in self._present().values()}:
                lines.pop(address).close()
            lines[moved.text] = self.line(moved.text)
        line = lines[moved.text]
        try:
            answer = line.ask(message)
        except PlinkError:
            return moved
        if answer.status is Status.OK and not answer.text:
            return answer._replace(text=moved.text, epoch=moved.epoch)
        return answer
