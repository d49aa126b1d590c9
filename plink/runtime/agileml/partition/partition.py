"""One partition of the parameters: its consistent state, what is ahead of it, and how to go back.

The *consistent state* of clock K has every update up to K and none after (Harlap thesis, 4.2.3, note 5). Updates of
later clocks wait beside it. It is made the same to the bit whatever the order of arrival: the updates of a clock are
taken by worker number; those of neighbours in this order that name the same rows are summed first (as they arrive, so
that no more than one stays in memory), and the sums are added to the state one after the other. A worker may send its
update of a clock in several *steps*, numbered from 0, of which one is the last; these are summed by worker first.

A sum that the type of its table has no room for ends this: the state stays that of the clock before, and nothing can be
read or updated any more, but for going back. As it is the same wherever the updates go, so is this.

To go back, old vectors are kept: before a clock is added (at an active server), or a push applied (at a backup), the
vectors that it changes. A push carries the vectors themselves and not their differences, which are as many bytes: the
backup then equals the active server to the bit, and going back restores exactly what was.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from plink.elastic.tables import Values
from plink.errors import PlinkError
from plink.runtime.agileml.arrays.array_pool import copied
from plink.runtime.agileml.arrays.checked_sums import no_room
from plink.runtime.agileml.arrays.layout import Layout, Rows, index, same_rows
from plink.runtime.agileml.arrays.row_blocks import Piece, TooLarge, add_to, put, summed, touched


class Refused(PlinkError):
    """A partition cannot do what was asked: it is a mistake of the one who asked, and nothing has changed."""


@dataclass(frozen=True)
class Undo:
    """The vectors that the step from clock ``before`` to clock ``after`` changed, as they were."""

    before: int
    after: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Push:
    """What changed from clock ``before`` to ``after``: the vectors as of ``after``; ``last``: no push will follow."""

    sequence: int
    before: int
    after: int
    pieces: tuple[Piece, ...]
    last: bool = False


@dataclass
class Member:
    """A worker: the clocks from ``first`` to ``until`` (None: no end in sight) need its update; it sent all of
    ``finished`` and before, and ``steps`` steps of the clock after."""

    first: int
    finished: int
    until: int | None = None
    steps: int = 0

    @property
    def begun(self) -> int:
        """The latest clock that it has sent anything of."""
        return self.finished + (self.steps > 0)

    def owes(self, clock: int) -> bool:
        """Whether the state of ``clock`` has to wait for it."""
        return self.first <= clock and (self.until is None or clock <= self.until) and self.finished < clock


@dataclass
class Ahead:
    """Updates of one clock that is not in the state yet: the sums of the workers ``summed``, and the rest."""

    summed: list[int] = field(default_factory=list)
    sums: list[Piece] = field(default_factory=list)
    waiting: dict[int, tuple[Piece, ...]] = field(default_factory=dict)


class Partition:
    """The state of one partition; it belongs to one thread.

    ``backups`` says up to which clock each address has been pushed to; ``overflow`` which sum was too large, if any.

    :param history: keep what it takes to go back; without it nothing can be pushed or rolled back.
    :param sees_ahead: keep a second copy that has all that arrived, for rules that serve it.
    """

    def __init__(
        self, layout: Layout, number: int, *, clock: int = -1, history: bool = False, sees_ahead: bool = False
    ) -> None:
        self.layout, self.number, self.clock = layout, number, clock
        self.values: list[Values] = [
            np.zeros((layout.rows_in(table, number), shape.width), dtype=shape.dtype)
            for table, shape in enumerate(layout.tables)
        ]
        self.newest = [values.copy() for values in self.values] if sees_ahead else None
        self.members: dict[int, Member] = {}
        self.ahead: dict[int, Ahead] = {}
        self.history: deque[Undo] | None = deque() if history else None
        self.last_step: Undo | None = None  # kept in any case: one who redoes a clock reads what was before it
        self.backups: dict[str, int] = {}
        self.push_sequence = 0
        self.overflow = ""

    @property
    def pushed(self) -> int:
        """The clock that all backups have; without any the partition is its own."""
        return min(self.backups.values(), default=self.clock)

    def admit(self, workers: Mapping[int, int]) -> None:
        """Workers take part from their first clocks on; no clock passes before all of them are there.

        :raises Refused: a clock has begun or a worker is there, and then nobody has joined.
        """
        for worker, first in workers.items():
            if first <= self._begun():
                raise Refused(f"worker {worker} cannot join at clock {first}: it has begun")
            if worker in self.members:
                raise Refused(f"worker {worker} is here already")
        self.members |= {worker: Member(first, first - 1) for worker, first in sorted(workers.items())}
        self.advance()

    def workers_from(self, workers: Collection[int], first: int) -> bool:
        """From clock ``first`` on exactly these take part. Who is not among them owes the clocks before it still, or
        somebody in its name; what it sent of that clock or a later one counts no more: it was given up and did not
        know, and others do that work.

        :returns: False if that was so already.
        :raises Refused: one of these has begun that clock, or all have, or a worker had ended before it.
        """
        members: dict[int, Member] = {}
        for worker, member in self.members.items():
            if worker in workers and member.until is not None and member.until < first - 1:
                raise Refused(f"worker {worker} has ended at clock {member.until}, and cannot come back at {first}")
            if worker in workers:
                members[worker] = replace(member, until=None) if member.first <= first else Member(first, first - 1)
            elif member.first < first:
                until = first - 1 if member.until is None else min(member.until, first - 1)
                finished = min(member.finished, first - 1)
                steps = member.steps if member.finished < until else 0
                members[worker] = replace(member, until=until, finished=finished, steps=steps)
        members |= {worker: Member(first, first - 1) for worker in sorted(workers) if worker not in members}
        if members == self.members:
            return False
        staying = [member for worker, member in self.members.items() if worker in workers]
        if first <= self.clock or any(member.begun >= max(first, member.first) for member in staying):
            raise Refused(f"the workers of clock {first} cannot change: it has begun")
        self._drop_from(first)
        self.members = members
        self.advance()
        return True

    def _drop_from(self, first: int) -> None:
        """Updates of this clock and later ones, none of them in the state, do not count."""
        remaining = {clock: ahead for clock, ahead in self.ahead.items() if clock < first}
        if len(remaining) == len(self.ahead):
            return
        self.forget_ahead()
        self.ahead = remaining
        for clock, ahead in remaining.items():
            for pieces in (ahead.sums, *ahead.waiting.values()):
                self.show(clock, pieces)

    def _begun(self) -> int:
        """The latest clock that anybody has sent anything of."""
        return max(self.ahead, default=self.clock)

    def update(self, worker: int, clock: int, step: int, last: bool, pieces: Sequence[Piece]) -> bool:
        """Take one step of what a worker adds at a clock, which it has finished with the ``last``. Arrays are the
        partition's own from now on. A last step that came before as another one's, of a worker that this one goes on
        for and did more, ends the clock and adds nothing.

        :returns: False for one that came before, which counts once.
        :raises Refused: nobody by that number, or a clock or a step was left out.
        """
        if worker not in self.members and clock <= self.can_roll_back()[0]:
            return False  # of one who has ended long ago
        member = self._member(worker)
        if clock <= member.finished:
            self.advance()  # which may have lacked memory the first time
            return False
        if clock != member.finished + 1 or (member.until is not None and clock > member.until):
            raise Refused(f"worker {worker} sent clock {clock} after {member.finished}")
        if step > member.steps:
            raise Refused(f"worker {worker} sent step {step} of clock {clock} after {member.steps}")
        fresh = step == member.steps
        if not fresh and not last:
            return False
        waiting = self._with_step(worker, clock, pieces) if fresh else ()  # may lack memory: nothing has changed then
        member.finished, member.steps = (clock, 0) if last else (clock - 1, step + 1)
        if fresh:
            self.ahead.setdefault(clock, Ahead()).waiting[worker] = waiting
            self.show(clock, pieces)
        if last and clock == self.clock + 1:
            self._sum(self.ahead[clock])
            self.advance()
        return True

    def wait(self, worker: int, clock: int, pieces: Sequence[Piece]) -> None:
        """Keep some of what a worker adds at a clock until its turn comes, whatever is known of the worker."""
        waiting = self._with_step(worker, clock, pieces)
        self.ahead.setdefault(clock, Ahead()).waiting[worker] = waiting
        self.show(clock, pieces)

    def _with_step(self, worker: int, clock: int, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """What waits of a worker, and one more step of it. Where a sum is too large nothing is lost: it is so as well
        wherever the partition goes."""
        waiting = self.ahead[clock].waiting.get(worker, ()) if clock in self.ahead else ()
        if not waiting:
            return tuple(pieces)
        try:
            return tuple(_summed(waiting, pieces))
        except TooLarge as error:
            self._stop(error, clock)
            return (*waiting, *pieces)

    def show(self, clock: int, pieces: Sequence[Piece]) -> None:
        """What is ahead of the state, to those who may see it."""
        if self.newest is not None and not self.overflow:
            try:
                add_to(self.newest, pieces)
            except TooLarge as error:
                self._stop(error, clock)

    def check(self) -> None:
        """:raises Refused: a sum was too large, and is again unless all go back to before it."""
        if self.overflow:
            raise Refused(self.overflow)

    def laggards(self) -> list[int]:
        """The workers whose updates the next clock waits for."""
        return sorted(worker for worker, member in self.members.items() if member.owes(self.clock + 1))

    def read(self, table: int, rows: Rows, clock: int | None = None) -> Values:
        """A copy of some vectors, shape (len(rows), width); as of a clock, the present one if None.

        :raises Refused: the state of that clock is not kept.
        """
        if clock is None or clock == self.clock:
            return copied((self.newest or self.values)[table], index(rows), len(rows))
        steps = self.steps_back()
        if clock not in [step.before for step in steps]:
            raise Refused(f"partition {self.number} has the state of clock {self.clock}, that of {clock} is not kept")
        return self._as_of(clock, table, rows, steps)

    def take_push(self, to: str, clock: int | None = None, last: bool = False) -> Push:
        """What changed since the last push that arrived at a backup, up to ``clock`` (None: the latest common one). One
        that is lost need not be kept: the next has it all.

        :raises Refused: that is no backup, the state has not got there, or was pushed further.
        """
        after = self.clock if clock is None else clock
        pushed, steps = self._pushed_to(to), self._steps()
        if not pushed <= after <= self.clock:
            raise Refused(f"partition {self.number} has clocks {pushed} to {self.clock} to push, not {after}")
        pieces = tuple(
            Piece(table, rows, self._as_of(after, table, rows, steps))
            for table, rows in touched(piece for step in steps if pushed < step.after <= after for piece in step.pieces)
        )
        self.push_sequence += 1
        return Push(self.push_sequence, pushed, after, pieces, last)

    def arrived(self, to: str, push: Push) -> None:
        """The backup has it."""
        self.backups[to] = max(self._pushed_to(to), push.after)

    def _pushed_to(self, address: str) -> int:
        if address not in self.backups:
            raise Refused(f"partition {self.number} is not pushed to {address}")
        return self.backups[address]

    def apply_push(self, push: Push) -> bool:
        """At a backup: take over what changed. :returns: False for a push that came before, or after a later one.
        :raises Refused: one before it is missing."""
        if push.sequence <= self.push_sequence or push.after < self.clock:
            return False
        if push.before > self.clock:
            raise Refused(f"partition {self.number}: a push of clocks {push.before} to {push.after} at {self.clock}")
        if push.after > self.clock:
            self._keep(self._step(push.after, [(piece.table, piece.rows) for piece in push.pieces]))
            put(self.values, push.pieces)
            if self.newest is not None:
                put(self.newest, push.pieces)
        self.clock = push.after
        self.push_sequence = push.sequence
        return True

    def keep_history(self) -> None:
        """From now on."""
        self.history = self.history if self.history is not None else deque()

    def can_roll_back(self) -> list[int]:
        """The clocks whose state can be had, rising; the last is the present one."""
        return [step.before for step in self.history or ()] + [self.clock]

    def roll_back(self, clock: int) -> None:
        """Back to the state as of a clock: later updates are gone, and all workers owe the next one.

        :raises Refused: that state cannot be had.
        """
        if clock not in self.can_roll_back():
            raise Refused(f"partition {self.number} can go back to clocks {self.can_roll_back()}, not {clock}")
        while self.history and self.clock > clock:
            self.last_step = None
            step = self.history.pop()
            self._undo(step)
            self.clock = step.before
        self.backups = {address: min(pushed, clock) for address, pushed in self.backups.items()}
        self.forget_ahead()
        for member in self.members.values():
            member.finished, member.steps = min(member.finished, max(clock, member.first - 1)), 0

    def forget_ahead(self) -> None:
        """Only the consistent state counts."""
        self.ahead, self.overflow = {}, ""
        if self.newest is not None:
            self.newest = [values.copy() for values in self.values]

    def release(self, clock: int) -> None:
        """Nobody will go back to before ``clock``, nor push from there; who has ended by then is forgotten."""
        while self.history and self.history[0].after <= min(clock, self.pushed):
            self.history.popleft()
        least = min(clock, self.can_roll_back()[0])
        self.members = {
            worker: member
            for worker, member in self.members.items()
            if member.until is None or member.until > least or member.finished < member.until
        }

    def stand_by(self) -> None:
        """Only what a backup needs: the consistent state and the way back."""
        self.members.clear()
        self.backups.clear()
        self.forget_ahead()

    def steps_back(self) -> list[Undo]:
        """All that are kept, the earliest first."""
        return list(self.history or ()) or ([self.last_step] if self.last_step else [])

    @property
    def earliest(self) -> int:
        """The clock of the earliest state that can be read."""
        steps = self.steps_back()
        return steps[0].before if steps else self.clock

    def _steps(self) -> deque[Undo]:
        if self.history is None:
            raise Refused(f"partition {self.number} keeps no history, so that nothing can be pushed or rolled back")
        return self.history

    def _member(self, worker: int) -> Member:
        if worker not in self.members:
            raise Refused(f"worker {worker} does not take part")
        return self.members[worker]

    def advance(self) -> None:
        """As far as what is here allows."""
        while self.members and not self.laggards():
            clock = self.clock + 1
            if all(member.until is not None and member.until < clock for member in self.members.values()):
                return  # nobody is left: time stands still
            ahead = self.ahead.get(clock, Ahead())
            self._sum(ahead)
            if self.overflow:
                return
            step = self._step(clock, touched(ahead.sums))  # may lack memory: nothing has changed then
            try:
                add_to(self.values, ahead.sums)
            except BaseException as error:
                self._undo(step)
                if not isinstance(error, TooLarge):
                    raise
                self._stop(error, clock)
                return
            self._keep(step)
            self.ahead.pop(clock, None)
            self.clock = clock
            if clock + 1 in self.ahead:
                self._sum(self.ahead[clock + 1])

    def _sum(self, ahead: Ahead) -> None:
        """Sum what there is in the order of the workers, up to the first who is missing. Nothing is lost where a sum is
        too large: it is so as well wherever the partition goes."""
        taking_part = (worker for worker in sorted(self.members) if worker not in ahead.summed)
        for worker in taking_part:
            if self.members[worker].owes(self.clock + 1):  # though some of its steps may wait
                return
            if worker not in ahead.waiting:
                continue
            try:
                ahead.sums = _summed(ahead.sums, ahead.waiting[worker])
            except TooLarge as error:
                self._stop(error, self.clock + 1)
                return
            del ahead.waiting[worker]
            ahead.summed.append(worker)

    def _stop(self, error: TooLarge, clock: int) -> None:
        table, row = self.layout.tables[error.table], error.row * self.layout.partitions + self.number
        what = f"with what the workers add at clock {clock} there is {no_room(table.dtype)}"
        self.overflow = f"table {table.name!r}, row {row}: {what}"

    def _step(self, after: int, touched: Iterable[tuple[int, Rows]]) -> Undo:
        old = tuple(Piece(table, rows, copied(self.values[table], index(rows), len(rows))) for table, rows in touched)
        return Undo(self.clock, after, old)

    def _undo(self, step: Undo) -> None:
        put(self.values, step.pieces)

    def _keep(self, step: Undo) -> None:
        if self.history is None and self.newest is not None:
            return  # nobody can go back, and nobody reads what was
        self.last_step = step
        if self.history is not None:
            self.history.append(step)

    def _as_of(self, clock: int, table: int, rows: Rows, steps: Sequence[Undo]) -> Values:
        """Some vectors as they were in the state of a clock, shape (len(rows), width)."""
        result: Values = copied(self.values[table], index(rows), len(rows))
        wanted = np.asarray(rows)
        for step in reversed(steps):
            for piece in step.pieces if step.after > clock else ():
                if piece.table == table:
                    _, here, there = np.intersect1d(
                        wanted, np.asarray(piece.rows), assume_unique=True, return_indices=True
                    )
                    result[here] = piece.values[there]
        return result


def _summed(sums: Sequence[Piece], pieces: Iterable[Piece]) -> list[Piece]:
    """With what one more worker adds. :raises TooLarge: nothing has changed."""
    result = list(sums)
    for piece in pieces:
        last = next((place for place in reversed(range(len(result))) if result[place].table == piece.table), None)
        if last is not None and same_rows(result[last].rows, piece.rows):
            result[last] = summed(result[last], piece)
        else:
            result.append(piece)
    return result
