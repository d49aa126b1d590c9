"""One partition at one server, and the thread that it belongs to: nobody else changes its state (tall aggregation; Luo
et al., PHub, SoCC 2018, 4.2). While that thread has nothing to do, who wants to read does so in its place."""

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

from plink.errors import PlinkError
from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.arrays.row_blocks import Piece
from plink.runtime.agileml.partition.partition import Partition, Push, Refused
from plink.runtime.agileml.partition.serialization import What, begun, take, update_part, workers_part
from plink.runtime.agileml.replica.mailbox import Box, Failed, OwnThread, Result
from plink.runtime.agileml.replica.outgoing import Outgoing
from plink.runtime.agileml.transport.connection import Line
from plink.runtime.agileml.transport.wire import INCLUDED, LAST, Kind, Message, Status

MOVER_BITS = 40  # attempts to bring a partition are numbered in these; the bits above tell who numbers


class Role(Enum):
    """What a server is to a partition."""

    ABSENT = "absent"
    SERVING = "serving"
    BACKUP = "backup"
    ARRIVING = "arriving"
    GONE = "gone"
    UNSURE = "unsure"  # given away, but whether the other one has begun is not known: the state is kept


@dataclass(frozen=True)
class Seen:
    """What is to be known of a partition, as it was after the last change."""

    role: Role
    era: int
    epoch: int
    clocks: tuple[int, ...] = ()
    pushed: int = -1
    laggards: tuple[int, ...] = ()
    backups: tuple[str, ...] = ()
    ended: bool = False
    address: str = ""


@dataclass(frozen=True)
class _Waiting:
    """A read whose state is not there yet."""

    message: Message
    box: Box
    until: float


class Owner:
    """The thread, and what it knows of the partition.

    :param sees_ahead: whether reads are served from all that arrived. Which state they need they say themselves.
    :param patience_s: how long a read waits before it is told to ask again; so that one who asks can tell a server
        that waits from one that is gone.
    :param advanced: is called with the backups after the consistent state or the role has changed.
    :param least_era: what arrives from an earlier one is refused: it missed a roll-back.
    """

    def __init__(
        self, layout: Layout, number: int, *, sees_ahead: bool, patience_s: float,
        advanced: Callable[[Collection[str]], None], least_era: int = 0,
    ) -> None:  # fmt: skip
        self._layout, self._number, self._sees_ahead = layout, number, sees_ahead
        self._patience_s, self._advanced = patience_s, advanced
        self.role = Role.ABSENT
        self.least_era = least_era
        self.era = self.era_clock = self.epoch = 0
        self.address = ""  # of who has it now, when it is gone
        self.unsure: Message | None = None  # what the new owner was told without being heard of
        self.stays = False  # as its backup, once it is heard of
        self.restoring: tuple[str, Message] | None = None  # whom a backup told to serve, and what
        self.ended = False  # a backup that had its last push
        self.outgoing: Outgoing | None = None  # the move that is under way
        self.copying: dict[str, Line] = {}  # to those that are to be backups
        self.settled: set[int] = set()  # epochs of moves that took place
        self.cancelled: set[int] = set()  # and of those that will not
        self._partition: Partition | None = None
        self._attempt: int | None = None  # to bring the partition here, while it is under way
        self._last_attempt, self._attempt_epoch, self._begun = -1, -1, -1
        self.seen = Seen(self.role, 0, 0)  # for any thread
        self._waiting: list[_Waiting] = []
        self.thread = OwnThread(f"plink-partition-{number}", self._do, self._due, self.answer_waiting, self._ended)

    def ask(self, message: Message) -> Message:
        """What a client or another server wants, from any thread; returns when it is done."""
        at_once = self.thread.meanwhile(self._answer_read, message) if message.kind is Kind.READ else None
        answer: Message = at_once or self.thread.ask(message)
        return answer

    def call(self, function: Callable[[], Result]) -> Result:
        """Run something in the partition's thread. :raises PlinkError: what it raises."""
        result: Result = self.thread.ask(function)
        return result

    def close(self) -> None:
        """End the thread; what is in its queue is answered first."""
        self.thread.close()

    # From here on everything runs in the partition's thread, but for reads, or while that waits for its turn.

    @property
    def partition(self) -> Partition:
        """:raises Refused: there is none here."""
        if self._partition is None:
            raise Refused(f"partition {self._number} is not here")
        return self._partition

    def place(self, partition: Partition | None, role: Role, epoch: int) -> None:
        """Have it from now on, or have it no more. Whoever waits is told."""
        self._partition, self.role, self.epoch = partition, role, epoch
        self.call_off("the partition moved meanwhile")
        if role is not Role.UNSURE:
            self.unsure = None
        if role is Role.SERVING:
            self.address = ""
        self.changed()

    def stand_back(self) -> None:
        """From serving, or not knowing who does, to being a backup, with the same state."""
        self.partition.stand_by()
        self.address = ""  # of one that may never have begun
        self.place(self.partition, Role.BACKUP, self.epoch)

    def changed(self) -> None:
        """Whoever waits is told, and backups are pushed to."""
        self.answer_waiting()
        self.see()
        self._advanced(self.seen.backups)

    def call_off(self, reason: str) -> None:
        """Nothing is on its way to another server any more."""
        if self.outgoing is not None:
            self.outgoing.end(Refused(f"the move was given up: {reason}"))
            self.outgoing = None
        for address in list(self.copying):
            self.stop_copying(address)

    def end_move(self) -> None:
        """It has come to its end."""
        if self.outgoing is not None:
            self.outgoing.end()
            self.outgoing = None

    def stop_pushing(self, address: str) -> None:
        """To a backup, or one that was to be."""
        if self.outgoing is not None and self.outgoing.drains and self.outgoing.line.address == address:
            self.outgoing.end(Refused(f"the move was given up: {address} is to be no backup"))
            self.outgoing = None
        if address in self.copying:
            self.stop_copying(address)
        self.partition.backups.pop(address, None)

    def release(self, clock: int) -> None:
        """See there."""
        if self.role in (Role.SERVING, Role.BACKUP):
            self.partition.release(clock)

    def stop_copying(self, address: str) -> None:
        """To one that was to be a backup."""
        self.copying.pop(address).wake()
        if self._partition is not None:
            self._partition.backups.pop(address, None)

    def see(self) -> None:
        """Make known what there is."""
        here = self._partition if self.role not in (Role.ABSENT, Role.GONE) else None
        address = self.address if self.role is not Role.SERVING else ""
        if here is None:
            self.seen = Seen(self.role, self.era, self.epoch, ended=self.ended, address=address)
            return
        self.seen = Seen(
            self.role, self.era, self.epoch, tuple(here.can_roll_back()), here.pushed, tuple(here.laggards()),
            tuple(address for address in here.backups if address not in self.copying), self.ended, address,
        )  # fmt: skip

    def roll_back(self, clock: int, era: int) -> None:
        """What is here goes back to the state of a clock, and what was sent in an earlier era does not count; what is
        still arriving from one may not begin. A repeat changes nothing. :raises Refused: nothing has changed."""
        if self.can_roll_back(clock, era):
            self.call_off("there was a roll-back meanwhile")
            self.partition.roll_back(clock)
            self.era, self.era_clock, self._attempt = era, clock, None
            self.changed()
        elif self.role is Role.ARRIVING and self.era < era:
            self.stop_arriving()
        self.least_era = max(self.least_era, era)

    def stop_arriving(self) -> None:
        """What is being brought here is not to begin; a backup stays one."""
        self._attempt = None
        if self.role is Role.ARRIVING:
            self.place(None, Role.GONE if self.address else Role.ABSENT, self.epoch)

    @property
    def arriving_epoch(self) -> int:
        """Of the move that is on its way here; -1 for none."""
        return self._attempt_epoch if self._attempt is not None else -1

    def forget(self) -> None:
        """Have nothing of the partition, and know of nobody who has."""
        self._attempt, self.address, self.ended = None, "", False
        self.place(None, Role.ABSENT, self.epoch)

    def begin_anew(self, era: int) -> None:
        """What is here of an era before this one counts no more, nor what comes of one. Another host may have been
        told sooner, and what it has sent of this era is here already."""
        if self.least_era < era:
            self.least_era = era
            if self.era < era:
                self.forget()

    def workers_from(self, workers: Collection[int], first: int) -> None:
        """Exactly these take part from a clock on, wherever the partition goes. :raises Refused: see there."""
        if self.role is not Role.SERVING:
            raise Refused(f"partition {self._number} is not served here")
        if self.partition.workers_from(workers, first):
            if self.outgoing is not None:
                self.outgoing.add([workers_part(self._number, workers, first)])
            self.changed()

    def can_roll_back(self, clock: int, era: int) -> bool:
        """Whether there is anything to be done for it. :raises Refused: it cannot be done."""
        if self.role is Role.UNSURE:  # the other one counts
            return era > self.era and clock in self.partition.can_roll_back()
        if self.role not in (Role.SERVING, Role.BACKUP) or (self.era, self.era_clock) == (era, clock):
            return False
        if era <= self.era:
            raise Refused(f"partition {self._number} is in era {self.era} since clock {self.era_clock}, not in {era}")
        clocks = self.partition.can_roll_back()
        if clock not in clocks:
            raise Refused(f"partition {self._number} can go back to clocks {clocks}, not {clock}")
        return True

    def answer_waiting(self) -> None:
        """Answer the reads that can be answered now, and those that have waited for too long."""
        waiting, self._waiting = self._waiting, []
        now = time.monotonic()
        for read in waiting:
            self._read(read.message, read.box, read.until, now)

    def _read(self, message: Message, box: Box, until: float, now: float) -> None:
        """Answer, or let wait."""
        answer = self._answer_read(message)
        if answer is None and now < until:
            self._waiting.append(_Waiting(message, box, until))
        else:
            laggards = [] if self._partition is None else self._partition.laggards()
            box.put(answer or self._said(Status.WAITING, ", ".join(map(str, laggards))))

    def _answer_read(self, message: Message) -> Message | None:
        """None: its state is not there yet. One that fails is of no harm to the others."""
        try:
            return self._stopped(message, Role.SERVING) or self._state_for(message)
        except Exception as error:
            return self._said(Status.REFUSED, str(error) if isinstance(error, PlinkError) else _named(error))

    def _state_for(self, message: Message) -> Message | None:
        self.partition.check()
        if self.partition.clock < message.before:
            return None
        member = self.partition.members.get(message.worker)
        again = member is not None and message.clock <= member.finished
        clock = self.partition.clock
        if again and not self._sees_ahead:  # a successor sees what its predecessor saw
            # What is not kept all have gone beyond: the update that it is for counts nowhere any more.
            clock = max(message.before, self.partition.earliest)
        pieces = tuple(
            Piece(wanted.table, wanted.rows, self.partition.read(wanted.table, wanted.rows, clock))
            for wanted in message.wanted
        )
        flags = INCLUDED * (again and self._sees_ahead)
        return self._said(Status.OK, clock=clock, flags=flags, pieces=pieces)

    def _due(self) -> float | None:
        return self._waiting[0].until - time.monotonic() if self._waiting else None

    def _ended(self) -> None:
        for read in self._waiting:
            read.box.put(Failed(Refused("the server is closed")))

    def _do(self, request: Message | Callable[[], Any], box: Box) -> None:
        try:
            if isinstance(request, Message) and request.kind is Kind.READ:
                now = time.monotonic()
                self._read(request, box, now + self._patience_s, now)
                return
            try:
                result = self._answer(request) if isinstance(request, Message) else request()
            finally:
                self.see()  # before anybody hears of it
            box.put(result)
        except Refused as error:
            box.put(self._said(Status.REFUSED, str(error)) if isinstance(request, Message) else Failed(error))
        except BaseException as error:
            if isinstance(request, Message) and not isinstance(error, PlinkError):
                box.put(self._said(Status.REFUSED, _named(error)))
            else:
                box.put(Failed(error))

    def _said(self, status: Status, text: str = "", **more: Any) -> Message:
        clock = more.pop("clock", -1 if self._partition is None else self._partition.clock)
        return Message(
            Kind.ANSWER, self._number, status, era=self.era, epoch=self.epoch, clock=clock, text=text, **more
        )

    def _stopped(self, message: Message, role: Role) -> Message | None:
        """The answer to a message that cannot be taken as things are."""
        if self.role in (Role.GONE, Role.UNSURE) or (self.role is not role and self.address):
            return self._said(Status.ELSEWHERE, self.address)
        if self.role is not role:
            return self._said(Status.ABSENT)
        if message.era < self.era:
            return self._said(Status.ROLLED_BACK, clock=self.era_clock)
        if message.era > self.era:
            return self._said(Status.BEHIND)
        return None

    def _answer(self, message: Message) -> Message:
        if message.kind is Kind.UPDATE:
            return self._stopped(message, Role.SERVING) or self._update(message)
        if message.kind is Kind.PUSH:
            return self._stopped(message, Role.BACKUP) or self._push(message)
        if message.kind is Kind.PART:
            return self._take_part(message)
        if message.kind is Kind.ACTIVATE:
            return self._activate(message)
        raise Refused(f"{message.kind.name} is no request")

    def _update(self, message: Message) -> Message:
        queued = update_part(message) if self.outgoing is not None and not self.outgoing.drains else None
        before = self.partition.clock
        last = bool(message.flags & LAST)
        taken = self.partition.update(message.worker, message.clock, message.sequence, last, message.pieces)
        if taken and queued and self.outgoing:
            self.outgoing.add([queued])
        if self.partition.clock > before or self.partition.overflow:
            self.changed()
        self.partition.check()
        return self._said(Status.OK)

    def _push(self, message: Message) -> Message:
        if message.epoch < self.epoch:
            raise Refused(f"partition {self._number} is pushed by its owner of epoch {self.epoch}")
        self.epoch = message.epoch
        last = bool(message.flags & LAST)
        if self.partition.apply_push(Push(message.sequence, message.before, message.clock, message.pieces, last)):
            self.ended = last  # a push after the last one: the drain did not succeed
        return self._said(Status.OK)

    def _take_part(self, message: Message) -> Message:
        if self.role is Role.SERVING:
            raise Refused(f"partition {self._number} is served here already")
        self._in_time(message)
        if self.role is Role.BACKUP and (message.era < self.era or (message.flags and message.era != self.era)):
            raise Refused(f"partition {self._number} is in era {self.era} here, not {message.era}")
        if message.flags in (What.STATE, What.NUMBERS):
            self._begin_attempt(message)
        elif message.sequence != self._attempt:
            raise Refused(f"partition {self._number} is not being brought by attempt {message.sequence}")
        if message.flags == What.STATE:  # a new beginning, whatever was here
            self._partition = begun(self._layout, message, sees_ahead=self._sees_ahead)
            self.role, self.era, self.era_clock, self.ended = Role.ARRIVING, message.era, message.before, False
            self.unsure = None
        else:
            take(self.partition, message)
        return self._said(Status.OK)

    def _begin_attempt(self, message: Message) -> None:
        same_mover = message.sequence >> MOVER_BITS == self._last_attempt >> MOVER_BITS
        late = message.sequence <= self._last_attempt if same_mover else message.epoch < self.arriving_epoch
        if late or message.epoch < self.epoch:
            raise Refused(f"partition {self._number} was brought later than that, in epoch {self.epoch}")
        if message.epoch in self.cancelled:
            raise Refused(f"the move of partition {self._number} in epoch {message.epoch} was cancelled")
        self._attempt = self._last_attempt = message.sequence
        self._attempt_epoch = message.epoch

    def _in_time(self, message: Message) -> None:
        if message.era < self.least_era:
            raise Refused(f"partition {self._number} is of era {message.era}, and was rolled back in {self.least_era}")

    def _activate(self, message: Message) -> Message:
        if message.sequence == self._begun:
            return self._said(Status.OK)  # told twice
        self._in_time(message)
        if self.role not in (Role.ARRIVING, Role.BACKUP):
            raise Refused(f"partition {self._number} has not arrived here")
        if message.sequence != self._attempt:
            raise Refused(f"partition {self._number} was not brought by attempt {message.sequence}")
        try:
            messages = json.loads(message.text)
            role, sequence = Role(messages["role"]), int(messages["push_sequence"])
            backups = {str(address): int(clock) for address, clock in messages["backups"].items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Refused("an order to begin that cannot be read") from None
        if role is Role.SERVING and message.epoch <= self.epoch:
            raise Refused(f"partition {self._number} is in epoch {self.epoch} already")
        self.partition.push_sequence = max(self.partition.push_sequence, sequence)
        self.partition.backups = backups
        if role is Role.SERVING:
            self.partition.advance()  # a sum that was too large where it was before is so here
        # Nothing before this said that it has begun: it may lack memory for that, and be told again.
        self._attempt, self._begun = None, message.sequence
        if role is Role.SERVING:
            self.settled.add(message.epoch)
        self.address = ""
        self.place(self.partition, role, message.epoch)
        return self._said(Status.OK)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def order(role: Role, number: int, backups: dict[str, int], push_sequence: int, **more: Any) -> Message:
    """To begin with what was sent: as who, and pushing to whom, with the clocks that they have."""
    message = json.dumps({"role": role.value, "backups": backups, "push_sequence": push_sequence})
    return Message(Kind.ACTIVATE, number, text=message, **more)
