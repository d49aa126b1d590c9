"""A parameter server: the partitions of one host, a thread each, and the elasticity controller's requests about them.

Nothing here chooses a server's role in a partition: the caller of its methods does. A controller that was started anew
may repeat every request. Numbers of terms rise: a request of an earlier one changes nothing.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from plink.errors import PlinkError
from plink.model.elastic.fields import UpdateCounts
from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.partition.serialization import read_partition, saved_part, write_partition
from plink.runtime.elastic.replica import migration
from plink.runtime.elastic.replica.arbitration import Arbitration
from plink.runtime.elastic.replica.outgoing import Outgoing
from plink.runtime.elastic.replica.partition_replica import PartitionReplica
from plink.runtime.elastic.replica.replicator import Replicator
from plink.runtime.elastic.replica.snapshot import PartitionStatus, Role
from plink.runtime.elastic.transport import messages as m
from plink.runtime.elastic.transport.connection import Connection, Connections, Listener, StoreConfig


@dataclass(frozen=True)
class SavedState:
    """State of a partition in a file of a checkpoint.

    :ivar clock: of the state, one that the partition could go back to; None: the latest.
    :ivar of_another_job: tables of one job (:attr:`Layout.of_one_job`) begin with zeros instead.
    """

    path: Path
    clock: int | None = None
    of_another_job: bool = False


class Server:
    """Parameter server of one host: it listens from the start, with no partitions; ``close`` it.

    :param host: the address to listen on, at any port that is free.
    :param timeout_s: for handshakes and for what other servers answer.
    :param read_wait_s: how long a read waits for its state before the client is told to ask again.
    :param refused: is called with the reason why a connection was closed or refused; from any thread.
    :ivar help: answers messages between workers that help each other; None: nobody does.
    :ivar note: takes lines for whoever looks for the cause of something; from any thread.
    :ivar link_bytes_s: what this host receives in a second; 0: it is not known.
    :raises OSError: the address cannot be had.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        host: str = "127.0.0.1",
        timeout_s: float = 10.0,
        read_wait_s: float = 1.0,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.config = config
        self._timeout_s, self._read_wait_s = timeout_s, read_wait_s
        self._actors: dict[int, PartitionReplica] = {}
        self._least_generation = 0
        self.help: Callable[[m.Help | m.HelpResult], m.ServerAnswer] | None = None
        self.note: Callable[[str], None] = lambda line: None
        self.link_bytes_s = 0.0
        self._changing, self.closed = threading.Lock(), False
        self._pusher = Replicator(self._present, self.connection)
        self.listener = Listener(config, host, timeout_s, self._answer, refused)
        self.address = self.listener.address
        self.listener.start()

    def connection(self, address: str) -> Connection:
        """Return a connection to another server of the run."""
        return Connection(address, self.config.keys, self.config.layout, self._timeout_s)

    def actor(self, number: int) -> PartitionReplica:
        """Return the actor of a partition, which may not be here (yet).

        :raises RejectedRequest: there is no such partition.
        """
        layout = self.config.layout
        if not 0 <= number < layout.partitions:
            raise RejectedRequest(f"partition {number} of {layout.partitions}")
        with self._changing:
            if number not in self._actors:
                self._actors[number] = PartitionReplica(
                    self.config,
                    number,
                    self._pusher.advanced,
                    self._least_generation,
                    read_wait_s=self._read_wait_s,
                    arbiter=self._arbiter if number == 0 and self.config.arbitrated else None,
                )
            return self._actors[number]

    def _arbiter(self, now: float) -> Arbitration:
        return Arbitration(int(self.config.max_delay or 0), self.link_bytes_s, lambda line: self.note(line), now)

    def open(
        self, number: int, workers: Mapping[int, int], *, generation: int = 0, term: int = 0, history: bool = False
    ) -> None:
        """Serve a partition that nobody has yet, of zeros.

        :param workers: those who take part, with their first clocks.
        :param history: keep what it takes to go back, until :meth:`truncate`.
        :raises RejectedRequest: it is or was here in another or a later term.
        """
        partition = Partition(self.config.layout, number, history=history, sees_ahead=self.config.sees_ahead)
        partition.admit(workers)
        self._serve_new(partition, generation, term)

    def checkpoint(self, number: int, path: Path, clock: int | None = None) -> None:
        """Write the state that a partition, served here or a replica, had at a clock (None: the present one) into a
        file: copied in its thread, written in the caller's.

        :raises RejectedRequest: it is not here, or cannot go back to that clock.
        """
        actor = self.actor(number)
        write_partition(path, [actor.call(lambda: saved_part(actor.partition, clock))], self.config.layout)

    def restore(self, number: int, saved: SavedState, workers: Collection[int], *, generation: int, term: int) -> int:
        """Serve the consistent state in a file; what was ahead of it is to be done again.

        :param workers: those who take part, from the clock after that of the state on.
        :returns: the clock of the state.
        :raises InputError: see :func:`~plink.runtime.elastic.partition.serialization.read_partition`.
        :raises RejectedRequest: the file is of another partition or has no state of that clock; or as :meth:`open`.
        """
        partition = read_partition(saved.path, self.config.layout, sees_ahead=self.config.sees_ahead)
        if partition.number != number:
            raise RejectedRequest(f"{saved.path} has partition {partition.number}, not {number}")
        if saved.clock is not None:
            partition.roll_back(saved.clock)
        for table, values in zip(self.config.layout.tables, partition.values, strict=True):
            if saved.of_another_job and table.name in self.config.layout.of_one_job:
                values[:] = 0
        partition.demote()
        partition.admit(dict.fromkeys(workers, partition.clock + 1))
        self._serve_new(partition, generation, term)
        return partition.clock

    def _serve_new(self, partition: Partition, generation: int, term: int) -> None:
        actor, clock = self.actor(partition.number), partition.clock

        def begin() -> None:
            if actor.role is Role.SERVING and actor.term == term:
                return  # a repeat
            if generation < actor.least_generation:
                raise RejectedRequest(
                    f"partition {partition.number} is of generation {generation}; all began anew in "
                    f"{actor.least_generation}"
                )
            if actor.role not in (Role.ABSENT, Role.MOVED, Role.IN_DOUBT):
                raise RejectedRequest(f"partition {partition.number} is here already, in term {actor.term}")
            if term < actor.term or (actor.role is not Role.ABSENT and term == actor.term):
                raise RejectedRequest(f"partition {partition.number} was here in term {actor.term}")
            actor.generation, actor.generation_clock = generation, clock
            actor.place(partition, Role.SERVING, term)

        actor.call(begin)

    def workers_from(self, number: int, workers: Collection[int], first: int) -> None:
        """Set exactly these workers as participants from clock ``first`` on, wherever the partition goes. A worker that
        ends has to finish the clocks before it, or another one in its name. What it sent of later ones does not count,
        and its number is not used again.

        :raises RejectedRequest: one of these has begun that clock and it was not so, or all have, or the partition is
            not served here.
        """
        actor = self.actor(number)
        actor.call(lambda: actor.workers_from(workers, first))

    def prepare(self, number: int, address: str, term: int, *, replica: str) -> None:
        """Bring a partition to another server, all but what still comes, which follows it there; it is served here
        until :meth:`commit`. To one of its replicas: push what that lacks. Returns when it lacks little. Whatever else
        was prepared for this partition is given up.

        :param term: of the new primary, above the present one.
        :param replica: the address that the new primary shall push to: this server's own, one of the replicas at the
            time of the commit, or none ("").
        :raises PlinkError: the move is off: the other one cannot be reached, there was a roll-back, :meth:`cancel`...
        """
        move = self._begin_move(number, address, term, replica)
        if move is not None:
            move.wait_until_caught_up()

    def _begin_move(self, number: int, address: str, term: int, replica: str) -> Outgoing | None:
        """Begin a move, and return it; None if it has taken place."""
        actor, connection = self.actor(number), self.connection(address)
        move = actor.call(lambda: migration.prepared(actor, connection, term, replica, self.address))
        if move is not None and move.connection is connection:
            if move.drains:
                self._pusher.advanced([address])
            else:
                self._send_copy(actor, move)
        return move

    def _send_copy(self, actor: PartitionReplica, move: Outgoing) -> None:
        move.begin(lambda error: migration.give_up(actor, move, error))

    def commit(self, number: int, term: int) -> None:
        """Commit a prepared move: the target begins, with all that was acknowledged here, and clients are redirected.
        If the target replicates to this server, this one is its replica now.

        :raises migration.InDoubt: see there; the same again, or :meth:`resolve`, asks again.
        :raises PlinkError: it has not begun and will not, and is served here on; or nothing of that term is prepared.
        """
        actor = self.actor(number)
        if term in actor.completed_moves:
            return
        if actor.role is Role.IN_DOUBT and actor.term == term:
            self.resolve(number)
            return
        move = actor.outgoing
        if move is None or move.term != term:
            raise RejectedRequest(f"no move of partition {number} in term {term} is prepared")
        move.wait_until_caught_up()
        try:
            with self._pusher.paused(number), move.sending, contextlib.closing(move.connection):
                move.send_rest()
                actor.call(lambda: migration.finish(actor, move, self.address, self._pusher.agreed))
        except BaseException as error:
            migration.give_up(actor, move, error)
            raise

    def cancel(self, number: int, term: int) -> bool:
        """Cancel a move, at its source or at its target.

        :returns: False if it has taken place.
        :raises migration.InDoubt: it may have.
        """
        actor = self.actor(number)
        return actor.call(lambda: migration.cancel(actor, term))

    def resolve(self, number: int) -> None:
        """Order the new primary again to begin, after :class:`migration.InDoubt`.

        :raises InDoubt: it is still silent.
        :raises RejectedRequest: it has not begun and will not.
        """
        actor = self.actor(number)
        with contextlib.closing(self.connection(actor.address)) as connection:
            actor.call(lambda: migration.resolve(actor, connection))

    def add_replica(self, number: int, address: str) -> None:
        """Make another server a replica of a partition, beside those that there are: it gets the state and the way back
        and is pushed to from now on. Meanwhile no clock counts as pushed that it would lack.

        :raises PlinkError: it is none; :meth:`stop_replicating` and roll-backs give it up.
        """
        with contextlib.closing(self.connection(address)) as connection:
            migration.add_replica(self.actor(number), connection)

    def set_replica(self, number: int, address: str) -> None:
        """Push a partition to this replica alone. :raises RejectedRequest: it is none."""
        actor = self.actor(number)

        def only() -> None:
            if address not in actor.partition.replicas or address in actor.copying:
                raise RejectedRequest(f"{address} is no replica of partition {number}")
            for other in set(actor.partition.replicas) - {address}:
                actor.stop_replicating(other)
            actor.release()

        actor.call(only)

    def stop_replicating(self, number: int, address: str) -> None:
        """Stop replicating to a server, or making it a replica."""
        actor = self.actor(number)

        def stop() -> None:
            actor.stop_replicating(address)
            actor.release()

        actor.call(stop)

    def replicate_up_to(self, clock: int) -> None:
        """Begin a round: push no clock after this one to any replica, so that all have a clock in common. Before the
        first round nothing is pushed."""
        self._pusher.limit(clock)

    def promote(self, number: int, workers: Collection[int], first: int, term: int) -> None:
        """Promote a replica: it serves the state that it has, without replicas of its own, with these workers from
        clock ``first`` on. A partition that is served already gets this term. After :class:`migration.InDoubt` the old
        primary is such a replica: the sender knows that the new one is gone.

        :raises RejectedRequest: it is not here, or of a later term, or that clock has begun.
        """
        actor = self.actor(number)

        def begin() -> None:
            if actor.role is Role.SERVING and term >= actor.term:
                actor.term = term  # the workers may be others by now, if this comes late
                return
            if actor.role is Role.IN_DOUBT and term > actor.term:
                actor.demote()
            if actor.role is not Role.REPLICA:
                raise RejectedRequest(f"partition {number} has no replica here")
            if term <= actor.term:
                raise RejectedRequest(
                    f"partition {number} is in term {actor.term} here: a new primary needs a later one"
                )
            if first <= actor.partition.clock:
                raise RejectedRequest(
                    f"no worker can begin at clock {first}: the state is of clock {actor.partition.clock}"
                )
            actor.partition.demote()
            actor.partition.workers_from(workers, first)
            actor.place(actor.partition, Role.SERVING, term)

        actor.call(begin)

    def restore_to(self, number: int, address: str, term: int, workers: Collection[int], first: int) -> None:
        """Send a replica's state to another server, which serves it from there on, with these workers from clock
        ``first`` on. This server stays the replica, or becomes it: as :meth:`promote`. Primaries of earlier terms are
        refused from then on.

        :raises migration.InDoubt: whether the other one has begun is not known; the same again settles it.
        :raises PlinkError: it has not.
        """
        with contextlib.closing(self.connection(address)) as connection:
            migration.restore_to(self.actor(number), connection, term, workers, first, self.address)

    def drop(self, number: int, term: int) -> None:
        """Forget a partition, whatever it is here, unless it is of this term or a later one."""
        actor = self.actor(number)

        def forget() -> None:
            if max(actor.term, actor.arriving_term) < term:
                actor.forget()

        actor.call(forget)

    def roll_back(self, clock: int, generation: int) -> None:
        """Roll back all partitions here, served or replicas, to a clock, and begin a new generation: updates of the old
        one are refused, and workers are notified. Moves are given up, and what arrives is forgotten. A repeat changes
        nothing.

        :raises RejectedRequest: one cannot; then none has, unless it could a moment before: repeat it then.
        """
        for actor in self._present().values():
            actor.call(lambda actor=actor: actor.can_roll_back(clock, generation))  # type: ignore[misc]
        with self._changing:
            self._least_generation = max(self._least_generation, generation)  # for who is not here yet
            actors = list(self._actors.values())
        for actor in actors:
            actor.call(lambda actor=actor: actor.roll_back(clock, generation))  # type: ignore[misc]

    def reset(self, generation: int) -> None:
        """Reset to a new generation: what is here is forgotten, and what arrives of an earlier one is refused. A repeat
        changes nothing."""
        with self._changing:
            self._least_generation = max(self._least_generation, generation)
            actors = list(self._actors.values())
        for actor in actors:
            actor.call(lambda actor=actor: actor.reset(generation))  # type: ignore[misc]

    def truncate(self, clock: int) -> None:
        """Truncate undo logs: nobody rolls back to before a clock.

        :param clock: one at which a round of replication ended, and that all replicas have (:meth:`replicate_up_to`).
            What a replica merely went past in one push it cannot go back to.
        """
        for actor in self._present().values():
            actor.call(lambda actor=actor: actor.truncate(clock))  # type: ignore[misc]

    def status(self) -> list[PartitionStatus]:
        """Return the status of every partition that is or was here, by number, as of its last change."""
        statuses = [actor.snapshot for _, actor in sorted(self._present().items())]
        return [replace(each, trouble=self._pusher.trouble(each.partition, each.replicas)) for each in statuses]

    def updates(self) -> UpdateCounts:
        """Return what was applied and dropped here so far, of all partitions."""
        return sum((actor.updates for actor in self._present().values()), UpdateCounts())

    def close(self) -> None:
        """End all connections and threads; what is here and nowhere else is gone. May be called twice."""
        if self.closed:
            return
        self.closed = True
        self.listener.stop_accepting()
        for actor in self._present().values():
            if (move := actor.outgoing) is not None:
                move.end(RejectedRequest("the server is closed"))
        self._pusher.close()
        self.listener.close()
        for actor in self._present().values():
            actor.close()

    def _present(self) -> dict[int, PartitionReplica]:
        with self._changing:
            return dict(self._actors)

    def _answer(self, message: m.Message, connections: Connections) -> m.ServerAnswer:
        if isinstance(message, m.Help | m.HelpResult):
            if self.help is None:
                return m.ServerAnswer(message.partition, m.Status.REFUSED, text="workers do not help each other")
            return self.help(message)
        if isinstance(message, m.Read | m.Update | m.Announce) and message.partition not in self._actors:
            return m.ServerAnswer(message.partition, m.Status.ABSENT)
        answer = self.actor(message.partition).ask(message)
        if isinstance(message, m.Read | m.Update) and answer.status is m.Status.ELSEWHERE:
            return self._forward(message, answer, connections)
        return answer

    def _forward(
        self, message: m.ServerRequest[Any], moved: m.ServerAnswer, connections: Connections
    ) -> m.ServerAnswer:
        """Ask the new primary, and say that one should have asked there."""
        if moved.text not in connections:  # the others that this client was sent on to may be gone for long
            for address in connections.keys() - {actor.snapshot.address for actor in self._present().values()}:
                connections.pop(address).close()
            connections[moved.text] = self.connection(moved.text)
        connection = connections[moved.text]
        try:
            answer: m.ServerAnswer = connection.ask(message)
        except PlinkError:
            return moved
        if answer.status is m.Status.OK and not answer.text:
            return structs.replace(answer, text=moved.text, term=moved.term)
        return answer
