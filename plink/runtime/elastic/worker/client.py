"""Client of the parameter servers: a worker reads and updates parameters with it.

Reads are served from the cache as long as the rule allows; updates are summed in the cache until the worker pushes
them, and then go to every partition, one message each. The servers must have acknowledged them before
:meth:`Client.push` returns. A clock ends with its last push. Requests to several partitions are under
way at the same time, over a few connections to each server.

The last update of a clock requests the rows that were read at this clock and the one before. Its acknowledgement brings
them if the state that the rule demands is there; else the first read of the next clock requests all of them.

Partitions move and servers die meanwhile. A message that was not acknowledged is sent again, to the primary of the
partition by then; by worker, clock and step a server sees that it has it already.
"""

import functools
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import structs

from plink.elastic.tables import Table, Values
from plink.errors import InputError, PlinkError
from plink.runtime.elastic.arrays.layout import Indices
from plink.runtime.elastic.arrays.row_blocks import Overflow, no_room
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.messages import (
    Read,
    ServerAnswer,
    Update,
    UpdateAnswer,
)
from plink.runtime.elastic.transport.wire import requests_by_partition
from plink.runtime.elastic.worker.announcer import Announcer
from plink.runtime.elastic.worker.cache import Cache, added_blocks
from plink.runtime.elastic.worker.primaries import PrimaryAddress, PrimaryClient, RolledBack, Timeouts


class OtherSteps(PlinkError):
    """Another one of this worker's number did more or fewer steps of this clock: :meth:`Client.discard`, and do the
    clock again, with as many as :meth:`Client.is_last` says. Nothing was sent to a partition that the other one may
    not have sent it."""


class Client(PrimaryClient):
    """One worker's view of the parameters; for one thread, but for :meth:`set_primary`.

    :param worker: its number, which decides the order of additions; one who takes over for a lost worker takes its
        number too, and redoes its clock: what the servers had of it counts once. Where a clock may have several steps,
        each goes to one partition first, always the same: how many it has is how many there are, whoever did them.
        Partition 0 comes after all others where a transfer is planned: the arbiter there sees its last byte arrive.
    :param primaries: of every partition.
    :param clock: the first that it works in.
    :ivar announcer: asks whether and when an update may be sent; None: nobody need be asked.
    """

    def __init__(
        self,
        config: StoreConfig,
        worker: int,
        primaries: Mapping[int, PrimaryAddress],
        *,
        clock: int = 0,
        generation: int = 0,
        timeouts: Timeouts | None = None,
    ) -> None:
        super().__init__(config, primaries, timeouts or Timeouts())
        self.rule, self.worker, self.generation = config.rule, worker, generation
        self.now, self.step = clock, 0
        self._caches = [Cache(table) for table in self.layout.tables]
        self._unsent: Mapping[int, Update] | None = None  # the updates of a step that is not over yet
        self.announcer: Announcer | None = None
        self._admitted = False  # whether these may be sent
        self._least_state = -1  # that may be read, whatever the rule
        self._versions: dict[int, int] = {}  # of partitions, when this step first read them, or when the last was sent
        self._partitions_read: set[int] = set()  # partitions that this step has read
        self.latest_finished = -1  # clock that any worker has finished, as of the last push
        self._included = False  # whether what was given at this clock has this worker's update of it
        self._expected: dict[int, Indices] = {}  # rows by table that this clock will probably read, and did not yet
        self._shared = (0, False)  # steps of this clock that are in its number already, and whether it ends with these

    def table(self, name: str) -> Table:
        """Return a table. :raises InputError: there is none of that name."""
        return self.layout.tables[self.layout.table(name)]

    def read(self, table: str, rows: object, *, own: bool = True) -> Values:
        """Return vectors of a table with what this worker has added, shape (len(rows), width); the array is the
        caller's.

        :param rows: numbers in any order, of which some may come twice.
        :param own: with what it has added at this clock, too.
        :raises RolledBack: begin again from there.
        :raises Unanswered: a server or the other workers were silent for too long.
        :raises InputError: no such table or rows, or a sum with what it has added is too large for the table's type.
        :raises PlinkError: a server found a sum of the workers' updates that is.
        """
        number = self.layout.table(table)
        cache = self._caches[number]
        wanted = cache.rows(rows)
        missing = cache.missing(wanted, self._needs(self.now))
        if len(missing):
            if self._unsent is not None:
                raise PlinkError(f"clock {self.now} is not over: call push() again before reading")
            self._fetch(number, missing)
        try:
            return cache.read(wanted) if own else cache.fetched(wanted)
        except Overflow as error:
            raise self._too_large(f"table {table!r}", error, cache) from None

    def require_previous(self) -> None:
        """Let reads of this clock and all later ones see all updates of the clocks before it, whatever the rule: what
        this worker takes over from another one, and may not read before a later clock, has to be as that one left
        it."""
        self.require(self.now - 1)

    def require(self, state: int) -> None:
        """Let reads of this clock and all later ones see all updates up to clock ``state``, though the rule may need
        less."""
        self._least_state = max(self._least_state, state)

    def forget_fetched(self, table: str) -> None:
        """Fetch a table's rows anew when they are read next, though the rule allows what is cached."""
        self._caches[self.layout.table(table)].forget_fetched()

    @property
    def needed_state(self) -> int:
        """Return the least clock of the state that may be read now."""
        return self._needs(self.now)

    def read_as_of(self, clock: int, generation: int, state: int) -> None:
        """Read at a clock from here on, in the state of clock ``state`` or a later one, and nothing from the cache."""
        self.roll_back(clock - 1, generation)
        self._least_state = state

    def _needs(self, clock: int) -> int:
        """Return the least clock of the state that may be read at ``clock``."""
        return max(self.rule.needs(clock), self._least_state)

    def update(self, table: str, rows: object, deltas: object) -> None:
        """Add to vectors; others see it after :meth:`push`.

        :param deltas: shape (len(rows), width).
        :raises InputError: shapes or types that do not fit, NaN, or a sum with what it has added at this clock before
            that is too large for the table's type: nothing was added.
        """
        cache = self._caches[self.layout.table(table)]
        try:
            cache.add(cache.rows(rows), deltas)
        except Overflow as error:
            raise self._too_large(f"update of table {table!r}", error, cache) from None

    def _too_large(self, where: str, error: Overflow, cache: Cache) -> InputError:
        what = f"with what worker {self.worker} adds at clock {self.now} there is {no_room(cache.table.dtype)}"
        return InputError(where, f"row {error.row}: {what}")

    @property
    def unfinished(self) -> bool:
        """Return whether updates are made but not acknowledged: :meth:`push` is to be called again."""
        return self._unsent is not None

    def discard(self) -> None:
        """Forget what was added at this clock, to begin it again with its first step."""
        if self._unsent is None:
            self.step = 0
            for cache in self._caches:
                cache.discard()

    def is_last(self, wanted: bool, has_work: bool = True) -> bool:
        """Return whether the present step is to be the last of its clock: as is wanted, unless another one of this
        worker's number has ended the clock with another one, or did more.

        :param has_work: whether its work is done. A step that another one has ended the clock with needs it.
        """
        steps, finished = self._shared
        if finished:
            return has_work and self.step + 1 == steps
        return wanted and self.step >= steps

    def push(self, last: bool = True) -> None:
        """Send all updates of one step. After an :class:`Unanswered` it may be called again, which goes on with the
        same step.

        :param last: of this clock, which is over then.
        :raises RolledBack, Unanswered: as for :meth:`read`.
        :raises OtherSteps: with this step the clock would not be the same in all partitions.
        :raises PlinkError: a server refused it, as with it a sum is too large for a table's type; its state is as it
            was before this clock.
        """
        if self._unsent is None:
            self._unsent, self._admitted = self._updates(last), False
        last = any(update.last for update in self._unsent.values())
        try:
            self._unsent = self._admit(self._unsent)
            answers = self._send_step(dict(self._unsent), last)
        except (RolledBack, OtherSteps):
            self._unsent = None
            if self.announcer is not None:
                self.announcer.finished(sent=False)
            raise
        if self.announcer is not None:
            self.announcer.finished(sent=True, given_up=lambda: self._cancelled)
        self.latest_finished = max([self.latest_finished, *(answer.latest_finished for answer in answers)])
        self._unsent = None
        self._versions |= {answer.partition: answer.version for answer in answers}
        if last:
            self.now, self.step, self._shared = self.now + 1, 0, (0, False)
        else:
            self.step += 1
        self._give(answers)

    def _admit(self, updates: Mapping[int, Update]) -> Mapping[int, Update]:
        """Return what is to be sent of a step's updates, once it may be."""
        if self.announcer is not None and not self._admitted:
            local = {number for number, primary in self.primaries().items() if self.announcer.home == primary.address}
            announcement = self.announcer.announcement(updates, local)
            if announcement is not None:
                updates = self.announcer.admitted(self._ask_all({0: announcement})[0], updates)
        self._admitted = True
        return updates

    def _send_step(self, updates: dict[int, Update], last: bool) -> list[UpdateAnswer]:
        answers: list[UpdateAnswer] = []
        if self.rule.steps:
            others = self.layout.partitions - 1
            first = 1 + self.worker % others if others else 0
            answer = self._ask_all({first: updates.pop(first)})[first]
            answers.append(answer)
            steps, finished = answer.steps, answer.finished
            if finished and not steps:
                return answers  # all partitions have had the whole clock for long
            self._shared = steps, finished
            if last != (finished and self.step + 1 == steps) or self.step >= steps:
                count = f"{steps} steps" if finished else f"{steps} steps or more"
                raise OtherSteps(f"clock {self.now} of worker {self.worker} has {count}")
        planned = self.announcer is not None and self.announcer.planned
        at_last = {0: updates.pop(0)} if planned and 0 in updates else {}  # servers do not wait for each other
        return [*answers, *self._ask_all(updates).values(), *self._ask_all(at_last).values()]

    def roll_back(self, clock: int, generation: int) -> None:
        """Forget everything after ``clock``; the next is the one after it."""
        for cache in self._caches:
            cache.forget()
        self._unsent, self._included, self._least_state, self._shared, self._expected = None, False, -1, (0, False), {}
        self._versions, self._partitions_read = {}, set()
        self.latest_finished = clock
        self.now, self.step, self.generation = clock + 1, 0, generation

    def close(self) -> None:
        """Close all connections. Nobody waits for what this worker has not sent."""
        if self.announcer is not None:
            self.announcer.finished(sent=False)
        super().close()

    def _fetch(self, table: int, rows: Indices) -> None:
        """Fetch rows of a table, and what this clock will probably read beside them."""
        expected, self._expected = self._expected, {}
        fetched = {other: self._caches[other].missing(more, self.needed_state) for other, more in expected.items()}
        fetched[table] = np.union1d(rows, fetched[table]) if len(fetched.get(table, ())) else rows
        read = self.worker, self.generation, self.now, self.needed_state
        wanted = requests_by_partition(self.layout, fetched)
        request = {number: Read(number, *read, theirs) for number, theirs in wanted.items()}
        ask = functools.partial(self._ask_all, request)
        answers = ask() if self.announcer is None else self.announcer.read(request, ask)
        # A step is as old as its first read: later ones, as of progress, would make it look newer.
        self._versions |= {
            number: answer.version for number, answer in answers.items() if number not in self._partitions_read
        }
        self._partitions_read |= answers.keys()
        self._give(answers.values())

    def _give(self, answers: Iterable[ServerAnswer]) -> None:
        for answer in answers:
            self._included |= answer.included
            for block in answer.blocks:
                rows = self.layout.rows_of(answer.partition, block.rows)
                self._caches[block.table].give(rows, block.values, answer.clock)

    def _updates(self, last: bool) -> dict[int, Update]:
        """Return one update for every partition, with what was added to it, if anything was, and the rows wanted."""
        least, blocks = self._needs(self.now + 1), added_blocks(self.layout, self._caches)
        for cache in self._caches:
            cache.sent(least)
            if not last or self.rule.steps or self._included:  # read anew; or one's update would be in it twice
                cache.forget_fetched()
        expects = last and not self.rule.steps
        self._expected = {table: cache.expected(least) for table, cache in enumerate(self._caches) if expects}
        self._included, rows, self._partitions_read = False, requests_by_partition(self.layout, self._expected), set()
        update = Update(0, self.worker, self.generation, self.now, self.step, last, state=least)
        return {
            number: structs.replace(
                update,
                partition=number,
                version=self._versions.get(number, 0),
                blocks=blocks.get(number, ()),
                wanted=rows.get(number, ()),
            )
            for number in reversed(range(self.layout.partitions))
        }
