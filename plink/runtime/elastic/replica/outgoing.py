"""A partition on its way to another server: the messages that the other one lacks, and the thread that sends them.

Updates that the partition takes are queued behind its copy, in order, until the other server is told to begin: so
little is left to be sent then. A fault of the other server ends the move and nothing else.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Struct, structs

from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.transport import messages as m
from plink.runtime.elastic.transport.connection import Connection

_MAX_ROUNDS = 8  # of sending what came meanwhile; the target then counts as caught up, if there is always more
_MAX_PUSHES = 64  # and to a replica that never gets all


def tell(connection: Connection, request: m.ServerRequest[m.AnswerKind]) -> None:
    """Send a request that must be accepted.

    :raises RejectedRequest: it is not taken.
    :raises PlinkError: the connection is lost.
    """
    answer = connection.ask(request)
    if answer.status is not m.Status.OK:
        raise RejectedRequest(f"{connection.address} answers {answer.status.name} {answer.text}".rstrip())


class BeginOrder(Struct, frozen=True):
    """The order to a server to begin: its role, and the replicas with the clocks that they have; ``unconfirmed``:
    clocks that they may have."""

    role: Role
    replicas: dict[str, int]
    unconfirmed: dict[str, tuple[int, ...]]
    delta_sequence: int


@dataclass(frozen=True)
class Attempt:
    """One attempt to bring a partition's state to another server.

    :ivar number: what all its messages bear.
    :ivar term: the new primary's.
    :ivar generation: of the state; ``generation_clock`` is the clock that it began with.
    """

    number: int
    term: int
    generation: int
    generation_clock: int

    def addressed(self, part: m.PartitionPart) -> m.PartitionPart:
        """Return a part as a message of this attempt."""
        begun = self.generation_clock if part.kind is m.PartKind.STATE else 0
        return structs.replace(
            part, generation=self.generation, term=self.term, attempt=self.number, generation_clock=begun
        )

    def order(
        self,
        partition: int,
        role: Role,
        replicas: Mapping[str, int],
        delta_sequence: int,
        unconfirmed: Mapping[str, Collection[int]] | None = None,
    ) -> m.Activate:
        """Return the order to begin with what this attempt has brought."""
        may_have = {to: tuple(sorted(clocks)) for to, clocks in (unconfirmed or {}).items()}
        text = json.dumps(msgspec.to_builtins(BeginOrder(role, dict(replicas), may_have, delta_sequence)))
        return m.Activate(partition, self.generation, self.term, self.number, text)


class Outgoing:
    """One attempt to move a partition.

    :param replica: the address that the new primary shall push to; empty for none.
    :param drains: to the replica, which is pushed what it lacks: nothing is copied or queued.
    """

    def __init__(self, connection: Connection, attempt: Attempt, replica: str, *, drains: bool) -> None:
        self.connection, self.attempt, self.term, self.replica, self.drains = (
            connection,
            attempt,
            attempt.term,
            replica,
            drains,
        )
        self.sending = threading.Lock()  # the connection is for one thread at a time
        self._parts: deque[m.PartitionPart] = deque()
        self._changed = threading.Condition()
        self._caught_up, self._over, self._pushes = False, False, 0
        self._error: BaseException | None = None

    def add(self, parts: Iterable[m.PartitionPart]) -> None:
        """Queue parts for the new primary; they belong to the move from now on."""
        if not self.drains:
            with self._changed:
                self._parts.extend(parts)
                self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """End the move, from any thread: nothing more is sent; whoever waits in it gets the error."""
        with self._changed:
            if self._over:
                return
            self._over, self._error = True, error
            self._parts.clear()
            self._changed.notify_all()
        if error is not None:
            self.connection.wake()

    def check(self) -> None:
        """Raise the error that the move ended with.

        :raises BaseException: what it ended with.
        """
        if self._error is not None:
            raise self._error

    def begin(self, lost: Callable[[Exception], None]) -> None:
        """Send in the background. :param lost: is called with what makes it impossible, and ends the move."""
        try:
            threading.Thread(target=self._follow, args=(lost,), name="plink-outgoing", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            lost(error)

    @property
    def over(self) -> bool:
        """Return whether it ended."""
        return self._over

    def wait_until_caught_up(self) -> None:
        """Wait until the new primary lacks little.

        :raises BaseException: what the move ended with meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._caught_up or self._over)
        self.check()

    def caught_up(self) -> None:
        """Note that the new primary lacks little."""
        with self._changed:
            self._caught_up = True
            self._changed.notify_all()

    def replicated(self, lacking: int) -> None:
        """Note by how many clocks the replica of a drain lags."""
        self._pushes += 1
        if lacking <= 1 or self._pushes > _MAX_PUSHES:
            self.caught_up()

    def send_queued(self) -> bool:
        """Send what is queued now, holding the connection. :returns: False if it was nothing.

        :raises PlinkError: it did not get there.
        """
        with self._changed:
            parts = list(self._parts)
            self._parts.clear()
        for part in parts:
            self.check()
            tell(self.connection, self.attempt.addressed(part))
        return bool(parts)

    def send_rest(self) -> None:
        """Send what is queued, until little is left of what still comes."""
        for _ in range(_MAX_ROUNDS):
            if not self.send_queued():
                break

    def _follow(self, lost: Callable[[Exception], None]) -> None:
        try:
            self._send_all(lost)
        finally:
            with self.sending:
                self.connection.close()

    def _send_all(self, lost: Callable[[Exception], None]) -> None:
        rounds = 0
        while True:
            with self._changed:
                if not self._parts or rounds == _MAX_ROUNDS:
                    self._caught_up = True
                    self._changed.notify_all()
                self._changed.wait_for(lambda: self._parts or self._over)
                if self._over:
                    return
            rounds += 1
            try:
                with self.sending:
                    self.send_queued()
            except Exception as error:
                lost(error)
                return
