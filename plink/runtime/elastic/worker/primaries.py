"""Requests to the primaries of partitions, repeated until they are answered.

Requests to several partitions are under way at the same time, over a few connections to each server. Partitions move
and servers die meanwhile: a request that was not acknowledged is sent again, to the primary by then.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from plink.errors import PlinkError
from plink.runtime.elastic.transport.connection import Connection, StoreConfig
from plink.runtime.elastic.transport.keys import Unauthenticated
from plink.runtime.elastic.transport.messages import AnswerKind, ServerAnswer, ServerRequest, Status
from plink.runtime.elastic.transport.records import ConnectionLost, Forged

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


@dataclass(frozen=True)
class PrimaryAddress:
    """Address of a partition's primary; the greater term is the newer."""

    address: str
    term: int = 0


@dataclass(frozen=True)
class Timeouts:
    """Seconds that a client waits until it raises :class:`Unanswered`.

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


class PrimaryClient:
    """Client of all partitions; for one thread, but for :meth:`set_primary` and :meth:`give_up`.

    :param primaries: of every partition.
    :ivar now: the clock; all workers connect in the same, so a connection beside another is made once in a clock.
    :ivar waiting: entered while servers are waited for.
    :ivar waited_s: until answers began to arrive, in all; what they bring takes its own time.
    """

    def __init__(self, config: StoreConfig, primaries: Mapping[int, PrimaryAddress], timeouts: Timeouts) -> None:
        layout = config.layout
        self.layout, self._keys, self._timeouts = layout, config.keys, timeouts
        self._partition_bytes = sum(table.rows * table.row_bytes for table in layout.tables) / layout.partitions
        self._primaries, self._pointing = dict(primaries), threading.Lock()
        self._connections: dict[tuple[str, int], Connection] = {}
        self._met: dict[str, int] = {}  # the clock in which the last line to a server was made
        self._cancelled = self._renamed = False
        self.waiting: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        self.now, self.waited_s = 0, 0.0

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
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

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
