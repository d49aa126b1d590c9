"""What a worker reads and updates parameters with.

Reads are served from the cache as long as the rule allows; updates are summed in the cache until the worker pushes
them, and then go to every partition, one message each. The servers must have acknowledged them before
:meth:`Client.push` returns. A clock ends with its last push. What is asked of several partitions is under way at the
same time, over a few connections to each server.
The last update of a clock wants the rows that this one and the clock before have read. Its acknowledgement brings them
if the state that the rule demands is there; else the first read of the next clock requests all of them.

Partitions move and servers die meanwhile. A message that was not acknowledged is sent again, to whoever owns the
partition by then; worker, clock and step tell a server that it has it already.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from plink.elastic.tables import Table, Values
from plink.errors import InputError, PlinkError
from plink.runtime.elastic.arrays.layout import Indices
from plink.runtime.elastic.arrays.row_blocks import Overflow, no_room
from plink.runtime.elastic.transport.connection import Connection, StoreConfig
from plink.runtime.elastic.transport.keys import Unauthenticated
from plink.runtime.elastic.transport.messages import (
    AnswerKind,
    Read,
    ServerAnswer,
    ServerRequest,
    Status,
    Update,
    UpdateAnswer,
)
from plink.runtime.elastic.transport.records import ConnectionLost, Forged
from plink.runtime.elastic.transport.wire import requests_by_partition
from plink.runtime.elastic.worker.announcer import Announcer
from plink.runtime.elastic.worker.cache import Cache, added_blocks

_RETRY_S = 0.02
# To each server: a handshake takes both ends milliseconds, and when partitions move all workers have one with every new
# primary at once.
MAX_CONNECTIONS = 2
_ONE_CONNECTION_BYTES = 1 << 20  # of a server's parameters


class Unanswered(PlinkError):
    """A server did not answer in time, or other workers kept a read waiting for too long."""


class RolledBack(PlinkError):
    """The parameters are as of ``clock`` again, in generation ``generation``: call :meth:`Client.roll_back` and go on
    with the work of the clock after."""

    def __init__(self, clock: int, generation: int) -> None:
        super().__init__(f"the parameters were rolled back to clock {clock}")
        self.clock, self.generation = clock, generation


class OtherSteps(PlinkError):
    """Another one of this worker's number did more or fewer steps of this clock: :meth:`Client.discard`, and do the
    clock again, with as many as :meth:`Client.is_last` says. Nothing was sent to a partition that the other one may
    not have sent it."""


@dataclass(frozen=True)
class PrimaryAddress:
    """Address of a partition's primary; the greater term is the newer."""

    address: str
    term: int = 0


@dataclass(frozen=True)
class Timeouts:
    """How long a client waits until it raises :class:`Unanswered`.

    :ivar primary_s: for a partition's primary to answer, or to become known; longer than the servers' ``read_wait_s``.
    :ivar workers_s: for the other workers to come as far as a read needs.
    """

    primary_s: float = 10.0
    workers_s: float = 600.0


@dataclass(frozen=True)
class _Trouble:
    """A partition that does not answer: since when, why as far as is known, and its primary."""

    since: float
    reason: str
    address: str


class Client:
    """One worker's view of the parameters; for one thread, but for :meth:`set_primary`.

    :param worker: its number, which decides the order of additions; one who takes over for a lost worker takes its
        number too, and redoes its clock: what the servers had of it counts once. Where a clock may have several steps,
        each goes to one partition first, always the same: how many it has is how many there are, whoever did them.
        Partition 0 comes after all others where a transfer is planned: the arbiter there sees its last byte arrive.
    :param primaries: of every partition.
    :param clock: the first that it works in.
    :ivar announcer: asks whether and when an update may be sent; None: nobody need be asked.
    :ivar waiting: entered while servers are waited for.
    :ivar waited_s: until answers began to arrive, in all; what they bring takes its own time.
    """

    def __init__(
        self, config: StoreConfig, worker: int, primaries: Mapping[int, PrimaryAddress], *, clock: int = 0,
        generation: int = 0, timeouts: Timeouts | None = None,
    ) -> None:  # fmt: skip
        layout = config.layout
        self.layout, self.rule, self._keys = layout, config.rule, config.keys
        self.worker, self.now, self.step, self.generation = worker, clock, 0, generation
        self._timeouts = timeouts or Timeouts()
        self._partition_bytes = sum(table.rows * table.row_bytes for table in layout.tables) / layout.partitions
        self._primaries, self._pointing = dict(primaries), threading.Lock()
        self._caches = [Cache(table) for table in layout.tables]
        self._connections: dict[tuple[str, int], Connection] = {}
        self._met: dict[str, int] = {}  # the clock in which the last line to a server was made
        self._cancelled = self._renamed = False
        self.waiting: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        self._unsent: Mapping[int, Update] | None = None  # the updates of a step that is not over yet
        self.announcer: Announcer | None = None
        self._admitted = False  # whether these may be sent
        self._least_state = -1  # that may be read, whatever the rule
        self._versions: dict[int, int] = {}  # of partitions, when this step first read them, or when the last was sent
        self._partitions_read: set[int] = set()  # partitions that this step has read
        self.waited_s = 0.0
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

    def set_primary(self, partition: int, primary: PrimaryAddress) -> None:
        """Set the primary of a partition, if this is newer than what is known; from any thread."""
        with self._pointing:
            if primary.term >= self._primaries[partition].term:
                before, self._primaries[partition] = self._primaries[partition].address, primary
                self._renamed |= before != primary.address
                if all(other.address != before for other in self._primaries.values()):
                    for (address, _), connection in self._connections.items():
                        if address == before:  # it may be silent for ever
                            connection.wake()

    def primaries(self) -> dict[int, PrimaryAddress]:
        """Return the primaries, as far as they are known here."""
        with self._pointing:
            return dict(self._primaries)

    def give_up(self) -> None:
        """End what is under way with :class:`Unanswered`, from any thread, once the servers answer or are lost."""
        self._cancelled = True

    def close(self) -> None:
        """Close all connections. Nobody waits for what this worker has not sent."""
        if self.announcer is not None:
            self.announcer.finished(sent=False)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

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

    def _ask_all(self, messages: Mapping[int, ServerRequest[AnswerKind]]) -> dict[int, AnswerKind]:
        """Return the answers to requests to several partitions; repeats requests until the time is over."""
        with self.waiting():
            return self._ask_until_answered(messages)

    def _ask_until_answered(self, messages: Mapping[int, ServerRequest[AnswerKind]]) -> dict[int, AnswerKind]:
        answers: dict[int, AnswerKind] = {}
        begun = time.monotonic()
        trouble: dict[int, _Trouble] = {}
        while len(answers) < len(messages):
            if self._cancelled:
                raise Unanswered("given up, as was asked for")
            for batch in self._batches(partition for partition in messages if partition not in answers):
                for partition, answer in self._ask_batch(batch, messages, trouble).items():
                    if self._heed(partition, answer, trouble):
                        answers[partition] = answer
            if not trouble:
                continue
            primaries = self.primaries()
            for partition, snapshot in list(trouble.items()):
                now = time.monotonic()
                if partition in answers or snapshot.address != primaries[partition].address:
                    del trouble[partition]  # who owns it now has all its time
                elif now - snapshot.since > self._timeouts.primary_s or now - begun > self._timeouts.workers_s:
                    silent_s = now - snapshot.since
                    raise Unanswered(
                        f"partition {partition} at {snapshot.address}, for {silent_s:.1f} s: {snapshot.reason}"
                    )
            if trouble.keys() - answers.keys():
                time.sleep(_RETRY_S)
        return answers

    def _heed(self, partition: int, answer: ServerAnswer, trouble: dict[int, _Trouble]) -> bool:
        """Act on an answer, and return whether it is final."""
        if answer.status is Status.ROLLED_BACK:
            raise RolledBack(answer.clock, answer.generation)
        if answer.status is Status.REFUSED:
            raise PlinkError(f"partition {partition} at {self._primaries[partition].address}: {answer.text}")
        request = self._primaries[partition].address
        if answer.text and answer.status in (Status.OK, Status.ELSEWHERE):
            self.set_primary(partition, PrimaryAddress(answer.text, answer.term))
        if answer.status is Status.WAITING:
            reason = f"waits for the updates of workers {answer.text} after clock {answer.clock}"
            trouble[partition] = _Trouble(time.monotonic(), reason, request)  # it is alive
        elif answer.status is not Status.OK:
            trouble.setdefault(partition, _Trouble(time.monotonic(), f"says {answer.status.name.lower()}", request))
        return answer.status is Status.OK

    def _batches(self, partitions: Iterable[int]) -> list[list[tuple[Connection, int]]]:
        """Return batches of requests that can be under way together: on every connection one message at a time."""
        primaries = self.primaries()
        if self._renamed:
            self._leave_unused()
        by_address: dict[str, list[int]] = {}
        for partition in partitions:
            by_address.setdefault(primaries[partition].address, []).append(partition)
        queues: list[list[tuple[Connection, int]]] = []
        for address, theirs in by_address.items():
            connections = self._some_connections(address, len(theirs))
            queues += [
                [(connection, partition) for partition in theirs[index :: len(connections)]]
                for index, connection in enumerate(connections)
            ]
        longest = max(map(len, queues))
        return [[queue[batch] for queue in queues if batch < len(queue)] for batch in range(longest)]

    def _some_connections(self, address: str, partitions: int) -> list[Connection]:
        """Return connections to a server that has so many of the requested partitions. A new one is made once in a
        clock, because all workers connect in the same."""
        large = partitions * self._partition_bytes > _ONE_CONNECTION_BYTES
        wanted = min(MAX_CONNECTIONS, partitions) if large else 1
        connections = [
            self._connections[address, index] for index in range(wanted) if (address, index) in self._connections
        ]
        if not connections or (len(connections) < wanted and self._met[address] != self.now):
            connection = Connection(address, self._keys, self.layout, self._timeouts.primary_s)
            with self._pointing:
                self._connections[address, len(connections)] = connection
            self._met[address] = self.now
            connections.append(connection)
        return connections

    def _leave_unused(self) -> None:
        """Close connections to servers that are no primary any more."""
        with self._pointing:
            self._renamed, addresses = False, {primary.address for primary in self._primaries.values()}
            unused = [key for key in self._connections if key[0] not in addresses]
            for key in unused:
                self._connections.pop(key).close()

    def _ask_batch(
        self,
        batch: list[tuple[Connection, int]],
        messages: Mapping[int, ServerRequest[AnswerKind]],
        trouble: dict[int, _Trouble],
    ) -> dict[int, AnswerKind]:
        """Send one batch and return the answers that come; a lost connection has none."""
        posted: list[tuple[Connection, int]] = []
        answers: dict[int, AnswerKind] = {}
        begun, broken = time.monotonic(), None
        for connection, partition in batch:
            if self._primaries[partition].address != connection.address:
                continue  # named anew meanwhile, perhaps because this one is silent
            try:
                connection.post(messages[partition])
                posted.append((connection, partition))
            except (ConnectionLost, Forged, Unauthenticated) as error:  # it may have died in the midst of a word
                trouble.setdefault(partition, _Trouble(begun, str(error), connection.address))
            except PlinkError as error:
                broken = error
        for connection, _ in posted[:1]:
            connection.wait()
            self.waited_s += time.monotonic() - begun
        for connection, partition in posted:  # all of them, or an answer would be taken for that to the next question
            try:
                answers[partition] = connection.answer(messages[partition])
            except (ConnectionLost, Forged, Unauthenticated) as error:  # it may have died in the midst of a word
                trouble.setdefault(partition, _Trouble(begun, str(error), connection.address))
            except PlinkError as error:
                broken = error
        if broken is not None:
            raise broken
        return answers
