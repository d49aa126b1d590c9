"""Parameter servers of a simulated job: the real ones, without sockets or threads, in a time that is told.

What a server is asked is done at once, in the thread of whoever asks; what it does by itself (pushes, copies) comes
later, when the world says so.
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
from msgspec import structs

from plink.model.elastic.fields import TrafficCounters
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.replica import migration
from plink.runtime.elastic.replica.outgoing import Outgoing
from plink.runtime.elastic.replica.partition_replica import PartitionReplica
from plink.runtime.elastic.replica.replicator import RETRY_S, Replicator, _Channel
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.transport.connection import Connection, StoreConfig
from plink.runtime.elastic.transport.messages import Announce, Message, Read, Status, Update
from plink.runtime.elastic.transport.records import ConnectionLost

_HEAD = 100  # bytes of a message without its values
Later = Callable[[float, Callable[[], None]], None]


class Net:
    """Who listens where, how long things take, and what was carried, by address. ``hurdle`` says whether the next word
    is lost, and its answer."""

    def __init__(
        self, later: Later, delay: Callable[[float, float], float], hurdle: Callable[[], str],
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:  # fmt: skip
        self.later, self.delay, self.hurdle, self.now = later, delay, hurdle, now
        self.servers: dict[str, SimulatedServer] = {}
        self.traffic: defaultdict[str, TrafficCounters] = defaultdict(TrafficCounters)
        self.applied = self.dropped = 0  # updates of the program's tables, of all servers
        self.left = self.summed = 0  # updates that were left for another worker, and that one has sent
        self.notes: list[str] = []

    def carry(self, asking: str, serving: str, there: Message, back: Message) -> None:
        """A question and its answer."""
        sent, received = (_HEAD + sum(block.values.nbytes for block in blocks_of(message)) for message in (there, back))
        item = self.traffic[asking]
        self.traffic[asking] = structs.replace(
            item, client_sent=item.client_sent + sent, client_received=item.client_received + received
        )
        item = self.traffic[serving]
        self.traffic[serving] = structs.replace(
            item, server_sent=item.server_sent + received, server_received=item.server_received + sent
        )


class SimulatedLine(Connection):
    """A question is answered at once, or the server is gone."""

    def __init__(self, address: str, net: Net, asking: str) -> None:
        self.address, self._net, self._asking = address, net, asking

    def ask(self, message: Any) -> Any:
        server, hurdle = self._net.servers.get(self.address), self._net.hurdle()
        if server is None or hurdle == "asking":
            raise ConnectionLost(f"{self.address}: nobody is there")
        answer = server._answer(copied(message), {})
        self._net.carry(self._asking, self.address, message, answer)
        if hurdle == "answering":
            raise ConnectionLost(f"{self.address}: nobody answers")
        return copied(answer)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


def copied(message: Any) -> Any:
    """As it would come out of a socket."""
    blocks = tuple(RowBlock(block.table, block.rows, np.array(block.values)) for block in blocks_of(message))
    return structs.replace(message, blocks=blocks) if blocks else message


def blocks_of(message: Any) -> tuple[RowBlock, ...]:
    """Of a message of any kind."""
    return getattr(message, "blocks", ())


class SeenUpdate(Update, frozen=True):
    """An update that says how many its worker had seen."""

    text: str = ""


class AtOnce:
    """In the place of a primary's thread: that of whoever asks. What nobody thought of is raised, and not told."""

    def __init__(self, primary: PartitionReplica) -> None:
        self._primary = primary

    def ask(self, request: Any) -> Any:
        """Its result; a read whose state is not there yet is told so."""
        primary = self._primary
        try:
            if callable(request):
                return request()
            if not isinstance(request, Read | Announce):
                return primary._answer(request)
            primary.answer_waiting()  # what is due by now comes first
            box: SimpleQueue[Any] = SimpleQueue()
            primary._read(request, box, 0.0, 0.0)
            return box.get_nowait()
        except RejectedRequest as error:
            if not callable(request):
                return primary._answer_with(Status.REFUSED, str(error))
            raise
        finally:
            primary.publish()

    def run_inline(self, look: object, at: object) -> None:
        """Nothing is read in passing."""

    def close(self) -> None:
        """There is nothing to end."""


class SimulatedReplica(PartitionReplica):
    """Without a thread of its own. Where updates may be dropped it holds each against what the worker saw: the text of
    an update says how many there were then."""

    def __init__(self, *arguments: Any, net: Net, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.thread.close()
        self.thread = AtOnce(self)  # type: ignore[assignment]
        self._net, self.now = net, net.now  # type: ignore[method-assign]

    def _update(self, message: Message) -> Message:
        if message.unsent:
            assert not self.partition.changes_program(message.blocks)
        if not message.text or not message.clock:
            return super()._update(message)
        before = self._applied()
        answer = super()._update(message)
        applied, delay = self._applied() - before, before - int(message.text) + message.others
        members, dropped = 1 + message.others, bool(answer.dropped) * (1 + message.others)
        assert applied + dropped in (0, members), f"{applied} applied, {dropped} dropped"
        assert self._max_delay is not None
        within = 0 <= delay <= self._max_delay
        assert within if applied else not (dropped and within), f"delay {delay}, {applied} applied, {dropped} dropped"
        self._net.applied += applied
        self._net.dropped += dropped
        return answer

    def _applied(self) -> int:
        """By what readers see."""
        newest = self.partition.newest
        assert newest is not None
        return int(newest[1][0, 0])


class SimulatedPusher(Replicator):
    """Pushes when the world says so."""

    def __init__(self, server: "SimulatedServer", net: Net) -> None:
        super().__init__(server._present, server.connection)
        self._net, self._due = net, set[str]()

    def advanced(self, replicas: Any) -> None:
        for address in replicas:
            if address not in self._channels:
                self._channels[address] = _Channel(self._connection(address))
            self._soon(address, self._net.delay(0.001, 0.02))

    def _soon(self, address: str, seconds: float) -> None:
        if address not in self._due:
            self._due.add(address)
            self._net.later(seconds, lambda: self._run_next(self._channels[address]))

    def _run_next(self, channel: _Channel) -> None:
        self._due.discard(channel.connection.address)
        channel.due.clear()
        self._push_all(channel)
        if channel.trouble:
            self._soon(channel.connection.address, RETRY_S)
        elif channel.due.is_set():
            self._soon(channel.connection.address, self._net.delay(0.001, 0.02))


class SimulatedServer(Server):
    """Of one host."""

    def __init__(self, config: StoreConfig, address: str, net: Net) -> None:
        self.config, self.address, self.net = config, address, net
        self._timeout_s, self._read_wait_s = 5.0, 1.0
        self._actors, self._least_generation = {}, 0
        self.note, self.link_bytes_s = net.notes.append, 0.0
        self._changing, self.closed = threading.Lock(), False
        self._pusher = SimulatedPusher(self, net)
        net.servers[address] = self

    def connection(self, address: str) -> Connection:
        return SimulatedLine(address, self.net, self.address)

    def actor(self, number: int) -> PartitionReplica:
        layout = self.config.layout
        if not 0 <= number < layout.partitions:
            raise RejectedRequest(f"partition {number} of {layout.partitions}")
        if number not in self._actors:
            self._actors[number] = SimulatedReplica(
                self.config, number, read_wait_s=self._read_wait_s, advanced=self._pusher.advanced,
                least_generation=self._least_generation, net=self.net,
                arbiter=self._arbiter if number == 0 and self.config.arbitrated else None,
            )  # fmt: skip
        return self._actors[number]

    def die(self) -> None:
        """Nobody is answered any more."""
        self.net.servers.pop(self.address, None)
        self._pusher._end.set()

    def _send_copy(self, actor: PartitionReplica, move: Outgoing) -> None:
        self.net.later(self.net.delay(0.0, 0.1), lambda: self._send(actor, move))

    def _send(self, actor: PartitionReplica, move: Outgoing) -> None:
        if self.closed or self.address not in self.net.servers or move.over:
            return
        try:
            move.send_queued()
        except Exception as error:
            migration.give_up(actor, move, error)
        else:
            move.caught_up()

    def under_way(self, number: int) -> bool:
        """Whether a move that has begun lacks too much to be committed."""
        move = self.actor(number).outgoing
        return move is not None and not far_enough(move)

    def close(self) -> None:
        with contextlib.suppress(KeyError):
            self.die()


def far_enough(move: Outgoing) -> bool:
    """Whether nobody has to wait for it."""
    return move.over or move._caught_up
