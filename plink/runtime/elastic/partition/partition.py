"""One partition of the parameters: its consistent state, what is ahead of it, and how to go back.

The *consistent state* of clock K has every update up to K and none after (Harlap thesis, 4.2.3, note 5). Updates of
later clocks wait beside it. It is made the same to the bit whatever the order of arrival: the updates of a clock are
taken by worker number; those of neighbours in this order that name the same rows are summed first (as they arrive, so
that no more than one stays in memory), and the sums are added to the state one after the other. A worker may send its
update of a clock in several *steps*, numbered from 0, of which one is the last; these are summed by worker first.

A sum that the type of its table has no room for ends this: the state stays that of the clock before, and nothing can be
read or updated any more, but for going back. As it is the same wherever the updates go, so is this.

To go back, old vectors are kept: before a clock is added (at an active server), or a push applied (at a replica), the
vectors that it changes. A push carries the vectors themselves and not their differences, which are as many bytes: the
replica then equals the active server to the bit, and going back restores exactly what was.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import structs

from plink.elastic.app_error import AppError
from plink.elastic.tables import Values
from plink.errors import PlinkError
from plink.runtime.elastic.arrays.array_pool import copied
from plink.runtime.elastic.arrays.layout import Layout, Rows, index
from plink.runtime.elastic.arrays.row_blocks import RowBlock, TooLarge, add_to, no_room, put, touched, with_more
from plink.runtime.elastic.partition.changes import Ahead, Participant, Undo, additions_of
from plink.runtime.elastic.partition.divergence import ReplicaDistances
from plink.runtime.elastic.transport.messages import ReplicationDelta


class RejectedRequest(PlinkError):
    """A request that a partition cannot carry out: the sender's mistake, and nothing has changed."""


class Partition:
    """State of one partition; it belongs to one thread.

    ``replicas`` says up to which clock each address has been pushed to; ``overflow`` which sum was too large, if any.
    ``version`` counts the updates with anything for the program's tables. It never falls, and it moves with the
    partition; a replica that is promoted counts from an older one, in a generation of its own.

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
        self.members: dict[int, Participant] = {}
        self.ahead: dict[int, Ahead] = {}
        self.history: deque[Undo] | None = deque() if history else None
        self.last_step: Undo | None = None  # kept in any case: one who redoes a clock reads what was before it
        self.replicas: dict[str, int] = {}
        self.distances: ReplicaDistances | None = None  # where these are bounded
        self.delta_sequence = self.version = 0
        self.overflow = ""

    @property
    def replicated(self) -> int:
        """Return the clock that all replicas have; without any the partition's own clock."""
        return min(self.replicas.values(), default=self.clock)

    def admit(self, workers: Mapping[int, int]) -> None:
        """Let workers take part from their first clocks on; no clock passes before all of them have joined.

        :raises RejectedRequest: a clock has begun or a worker is there, and then nobody has joined.
        """
        for worker, first in workers.items():
            if first <= self._begun():
                raise RejectedRequest(f"worker {worker} cannot join at clock {first}: it has begun")
            if worker in self.members:
                raise RejectedRequest(f"worker {worker} is here already")
        self.members |= {worker: Participant(first, first - 1) for worker, first in sorted(workers.items())}
        self.advance()

    def workers_from(self, workers: Collection[int], first: int) -> bool:
        """Set exactly these workers as participants from clock ``first`` on. Workers not listed must finish all
        earlier clocks, or a substitute must in their name. Their updates of that clock and later ones do not count:
        they were given up and did not know, and others do that work.

        :returns: False if that was so already.
        :raises RejectedRequest: one of these has begun that clock, or all have, or a worker had ended before it.
        """
        members: dict[int, Participant] = {}
        for worker, member in self.members.items():
            if worker in workers and member.until is not None and member.until < first - 1:
                raise RejectedRequest(
                    f"worker {worker} has ended at clock {member.until}, and cannot come back at {first}"
                )
            if worker in workers:
                stays = member.first <= first
                members[worker] = structs.replace(member, until=None) if stays else Participant(first, first - 1)
            elif member.first < first:
                members[worker] = member.ending(first - 1)
        members |= {worker: Participant(first, first - 1) for worker in sorted(workers) if worker not in members}
        if members == self.members:
            return False
        staying = [member for worker, member in self.members.items() if worker in workers]
        if first <= self.clock or any(member.begun >= max(first, member.first) for member in staying):
            raise RejectedRequest(f"the workers of clock {first} cannot change: it has begun")
        self._drop_from(first)
        self.members = members
        self.advance()
        return True

    def _drop_from(self, first: int) -> None:
        """Drop updates of this clock and later ones, none of which is in the state."""
        remaining = {clock: ahead for clock, ahead in self.ahead.items() if clock < first}
        if len(remaining) == len(self.ahead):
            return
        self.forget_ahead()
        self.ahead = remaining
        for clock, ahead in remaining.items():
            for blocks in (ahead.sums, *ahead.waiting.values()):
                self.show(clock, blocks)

    def _begun(self) -> int:
        """Return the latest clock of which any update has come."""
        return max(self.ahead, default=self.clock)

    def update(
        self, worker: int, clock: int, step: int, last: bool, blocks: Sequence[RowBlock], members: int = 1
    ) -> bool:
        """Take one step of what a worker adds at a clock, which it has finished with the ``last``. Arrays are the
        partition's own from now on.

        :param members: how many workers' updates are summed in it; those of the others come empty.
        :returns: False for one that came before, which counts once; the clock goes on if that one was not the last.
        :raises RejectedRequest: nobody by that number, or a clock or a step was left out.
        """
        if worker not in self.members and clock <= self.can_roll_back()[0]:
            return False  # of one who has ended long ago
        member = self._member(worker)
        if clock <= member.finished:
            self.advance()  # which may have lacked memory the first time
            return False
        if clock != member.finished + 1 or (member.until is not None and clock > member.until):
            raise RejectedRequest(f"worker {worker} sent clock {clock} after {member.finished}")
        if step > member.steps:
            raise RejectedRequest(f"worker {worker} sent step {step} of clock {clock} after {member.steps}")
        if step < member.steps:
            return False
        waiting = self._with_step(worker, clock, blocks)  # may lack memory: nothing has changed then
        if last:
            member.finished, member.steps, member.finished_steps = clock, 0, step + 1
        else:
            member.steps = step + 1
        self.ahead.setdefault(clock, Ahead()).waiting[worker] = waiting
        self.version += members * self.changes_program(blocks)
        self.show(clock, blocks)
        if last and clock == self.clock + 1:
            self._sum(self.ahead[clock])
            self.advance()
        return True

    def changes_program(self, blocks: Sequence[RowBlock]) -> bool:
        """Return whether an update has anything for the program's tables."""
        return any(block.table not in self.layout.reserved for block in blocks)

    def steps_of(self, worker: int, clock: int) -> tuple[int, bool]:
        """Return how many steps a worker has sent of a clock, and whether it has finished it; 0 steps of a finished one
        if that was so long ago that all partitions have it."""
        member = self.members.get(worker)
        if member is not None and clock > member.finished:
            return member.steps, False
        return (member.finished_steps if member is not None and clock == member.finished else 0), True

    def wait(self, worker: int, clock: int, blocks: Sequence[RowBlock]) -> None:
        """Keep some of what a worker adds at a clock until its turn comes, whatever is known of the worker."""
        waiting = self._with_step(worker, clock, blocks)
        self.ahead.setdefault(clock, Ahead()).waiting[worker] = waiting
        self.show(clock, blocks)

    def _with_step(self, worker: int, clock: int, blocks: Sequence[RowBlock]) -> tuple[RowBlock, ...]:
        """Return a worker's waiting blocks with one more step. Where a sum is too large nothing is lost: it is so as
        well wherever the partition goes."""
        waiting = self.ahead[clock].waiting.get(worker, ()) if clock in self.ahead else ()
        if not waiting:
            return tuple(blocks)
        try:
            return tuple(with_more(waiting, blocks))
        except TooLarge as error:
            self._stop(error, clock)
            return (*waiting, *blocks)

    def show(self, clock: int, blocks: Sequence[RowBlock]) -> None:
        """Add updates ahead of the state to the copy that readers may see."""
        if self.newest is not None and not self.overflow:
            try:
                add_to(self.newest, blocks)
            except TooLarge as error:
                self._stop(error, clock)

    @property
    def latest_finished(self) -> int:
        """Return the latest clock that any worker has finished."""
        return max((member.finished for member in self.members.values()), default=self.clock)

    def check(self) -> None:
        """Fail if a sum was too large.

        :raises RejectedRequest: a sum was too large, and is again unless all go back to before it.
        """
        if self.overflow:
            raise RejectedRequest(self.overflow)

    def stragglers(self) -> list[int]:
        """Return the workers whose updates the next clock waits for."""
        return sorted(worker for worker, member in self.members.items() if member.has_pending(self.clock + 1))

    def read(self, table: int, rows: Rows, clock: int | None = None) -> Values:
        """Return a copy of some vectors, shape (len(rows), width); as of a clock, the present one if None.

        :raises RejectedRequest: the state of that clock is not kept.
        """
        if clock is None or clock == self.clock:
            return copied((self.newest or self.values)[table], index(rows), len(rows))
        steps = self.steps_back()
        if clock not in [step.before for step in steps]:
            raise RejectedRequest(
                f"partition {self.number} has the state of clock {self.clock}, that of {clock} is not kept"
            )
        return self._as_of(clock, table, rows, steps)

    def state_of(self, clock: int) -> list[Values]:
        """Return copies of all vectors, by table, as of a clock.

        :raises RejectedRequest: the state of that clock is not kept.
        """
        if clock not in self.can_roll_back():
            raise RejectedRequest(f"partition {self.number} has clocks {self.can_roll_back()}, not {clock}")
        values = [vectors.copy() for vectors in self.values]
        for step in reversed(self.history or ()):
            if step.after > clock:
                put(values, step.blocks)
        return values

    def take_delta(self, to: str, clock: int | None = None, last: bool = False) -> ReplicationDelta:
        """Return what changed since the last push that arrived at a replica, up to ``clock`` (None: the latest common
        one). A lost push need not be kept: the next one has it all.

        :raises RejectedRequest: that is no replica, the state has not got there, or was pushed further.
        """
        after = self.clock if clock is None else clock
        replicated, steps = self._replicated_to(to), self._steps()
        if not replicated <= after <= self.clock:
            raise RejectedRequest(
                f"partition {self.number} has clocks {replicated} to {self.clock} to push, not {after}"
            )
        blocks = tuple(
            RowBlock(table, rows, self._as_of(after, table, rows, steps))
            for table, rows in touched(
                block for step in steps if replicated < step.after <= after for block in step.blocks
            )
        )
        self.delta_sequence += 1
        if self.distances is not None:
            self.distances.sent(to, after)
        return ReplicationDelta(self.number, self.delta_sequence, replicated, after, blocks, last)

    def arrived(self, to: str, push: ReplicationDelta) -> None:
        """Note that a replica has a push."""
        self.replicas[to] = max(self._replicated_to(to), push.after)
        if self.distances is not None:
            self.distances.arrived(to, self.replicas, self.clock)

    def _replicated_to(self, address: str) -> int:
        if address not in self.replicas:
            raise RejectedRequest(f"partition {self.number} is not pushed to {address}")
        return self.replicas[address]

    def apply_delta(self, push: ReplicationDelta) -> bool:
        """Apply a push to a replica.

        :returns: False for a push that came before, or after a later one.
        :raises RejectedRequest: one before it is missing.
        """
        if push.sequence <= self.delta_sequence or push.after < self.clock:
            return False
        if push.before > self.clock:
            raise RejectedRequest(
                f"partition {self.number}: a push of clocks {push.before} to {push.after} at {self.clock}"
            )
        if push.after > self.clock:
            self._keep(self._step(push.after, [(block.table, block.rows) for block in push.blocks]))
            put(self.values, push.blocks)
            if self.newest is not None:
                put(self.newest, push.blocks)
        self.clock = push.after
        self.delta_sequence = push.sequence
        return True

    def keep_history(self) -> None:
        """Keep undo records from now on."""
        self.history = self.history if self.history is not None else deque()

    def can_roll_back(self) -> list[int]:
        """Return the clocks that can be rolled back to, rising; the last is the present one."""
        return [step.before for step in self.history or ()] + [self.clock]

    def roll_back(self, clock: int) -> None:
        """Roll back to the state of a clock: later updates are dropped, and all workers send the next clock again.

        :raises RejectedRequest: that state cannot be had.
        """
        if clock not in self.can_roll_back():
            raise RejectedRequest(f"partition {self.number} can go back to clocks {self.can_roll_back()}, not {clock}")
        while self.history and self.clock > clock:
            self.last_step = None
            step = self.history.pop()
            self._undo(step)
            self.clock = step.before
        self.replicas = {address: min(replicated, clock) for address, replicated in self.replicas.items()}
        if self.distances is not None:
            self.distances.rolled_back(self.replicas, clock)
        self.forget_ahead()
        for member in self.members.values():
            member.finished = min(member.finished, max(clock, member.first - 1))
            member.steps = member.finished_steps = 0

    def forget_ahead(self) -> None:
        """Drop all updates that are not in the consistent state."""
        self.ahead, self.overflow = {}, ""
        if self.newest is not None:
            self.newest = [values.copy() for values in self.values]

    def truncate(self, clock: int) -> None:
        """Truncate the undo log: nobody rolls back to before ``clock``, nor replicates from there; workers that ended
        by then are forgotten."""
        while self.history and self.history[0].after <= min(clock, self.replicated):
            self.history.popleft()
        least = min(clock, self.can_roll_back()[0])
        self.members = {
            worker: member
            for worker, member in self.members.items()
            if member.until is None or member.until > least or member.finished < member.until
        }

    def demote(self) -> None:
        """Keep only what a replica needs: the consistent state and the undo log."""
        self.members.clear()
        self.replicas.clear()
        self.distances = None
        self.forget_ahead()

    def steps_back(self) -> list[Undo]:
        """Return all undo records, the earliest first."""
        return list(self.history or ()) or ([self.last_step] if self.last_step else [])

    @property
    def earliest(self) -> int:
        """Return the clock of the earliest state that can be read."""
        steps = self.steps_back()
        return steps[0].before if steps else self.clock

    def _steps(self) -> deque[Undo]:
        if self.history is None:
            raise RejectedRequest(
                f"partition {self.number} keeps no history, so that nothing can be pushed or rolled back"
            )
        return self.history

    def _member(self, worker: int) -> Participant:
        if worker not in self.members:
            raise RejectedRequest(f"worker {worker} does not take part")
        return self.members[worker]

    def advance(self) -> None:
        """Advance the state as far as the updates allow, and the bound of the distance to replicas."""
        while self.members and not self.stragglers():
            clock = self.clock + 1
            if all(member.until is not None and member.until < clock for member in self.members.values()):
                return  # nobody is left: time stands still
            ahead = self.ahead.get(clock, Ahead())
            self._sum(ahead)
            if self.overflow:
                return
            try:
                additions = additions_of(self.layout, self.values, ahead.sums, clock)
            except (TooLarge, AppError) as error:
                self._stop(error, clock)
                return
            if self.distances is not None:
                self.distances.follow(self.replicas, self.values, self.history or ())
            step = self._step(clock, touched(additions))  # may lack memory: nothing has changed then
            try:
                add_to(self.values, additions)
                if self.distances is not None and not self.distances.admits(self.values, step):
                    self._undo(step)
                    return
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
            if self.members[worker].has_pending(self.clock + 1):  # though some of its steps may wait
                return
            if worker not in ahead.waiting:
                continue
            try:
                ahead.sums = with_more(ahead.sums, ahead.waiting[worker])
            except TooLarge as error:
                self._stop(error, self.clock + 1)
                return
            del ahead.waiting[worker]
            ahead.summed.append(worker)

    def _stop(self, error: TooLarge | AppError, clock: int) -> None:
        if isinstance(error, AppError):
            self.overflow = str(error)
            return
        table, row = self.layout.tables[error.table], error.row * self.layout.partitions + self.number
        what = f"with what the workers add at clock {clock} there is {no_room(table.dtype)}"
        self.overflow = f"table {table.name!r}, row {row}: {what}"

    def _step(self, after: int, touched: Iterable[tuple[int, Rows]]) -> Undo:
        old = tuple(
            RowBlock(table, rows, copied(self.values[table], index(rows), len(rows))) for table, rows in touched
        )
        return Undo(self.clock, after, old)

    def _undo(self, step: Undo) -> None:
        put(self.values, step.blocks)

    def _keep(self, step: Undo) -> None:
        if self.history is None and self.newest is not None:
            return  # nobody can go back, and nobody reads what was
        self.last_step = step
        if self.history is not None:
            self.history.append(step)

    def _as_of(self, clock: int, table: int, rows: Rows, steps: Sequence[Undo]) -> Values:
        """Return some vectors as of a clock, shape (len(rows), width)."""
        result: Values = copied(self.values[table], index(rows), len(rows))
        requested = np.asarray(rows)
        for step in reversed(steps):
            for block in step.blocks if step.after > clock else ():
                if block.table == table:
                    _, here, there = np.intersect1d(
                        requested, np.asarray(block.rows), assume_unique=True, return_indices=True
                    )
                    result[here] = block.values[there]
        return result
