"""Messages between workers that help each other: over the servers' connections, to a host in order, and never waited
for by a worker."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from plink.errors import PlinkError, ProtocolError
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.helping import messages as m
from plink.runtime.elastic.transport.connection import Connection, StoreConfig
from plink.runtime.elastic.transport.messages import Help, HelpResult, ServerAnswer, Status

Blocks = Mapping[int, tuple[RowBlock, ...]]  # by partition
_TIMEOUT_S = 5.0  # for connecting, and for an answer
_MAX_QUEUED = 10_000  # batches to one host: beyond it takes none, or too slowly to help


class Receiver(Protocol):
    """A worker that others help, and that helps others; its methods are for any thread."""

    def received(self, message: m.HelpMessage) -> None:
        """Take a message."""

    def result_part(self, part: HelpResult) -> None:
        """Take what a helper adds to a partition, before its :class:`~messages.HelpCompleted`."""

    def lost(self, worker: int) -> None:
        """Note that a worker could not be reached."""


class HelpNetwork:
    """Ends of one host; for any thread."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._receivers: dict[int, Receiver] = {}
        self._addresses: dict[int, str] = {}
        self._senders: dict[str, _Sender] = {}
        self._changing, self._closed = threading.Lock(), False

    def join(self, worker: int, receiver: Receiver) -> None:
        """Let a worker of this host receive messages."""
        with self._changing:
            self._receivers[worker] = receiver

    def leave(self, worker: int, receiver: Receiver) -> None:
        """Let a worker receive no more."""
        with self._changing:
            if self._receivers.get(worker) is receiver:
                del self._receivers[worker]

    def set_addresses(self, addresses: Mapping[int, str]) -> None:
        """Set the addresses of the servers of all workers' hosts."""
        with self._changing:
            self._addresses = dict(addresses)
            unused = [address for address in self._senders if address not in self._addresses.values()]
            for address in unused:
                self._senders.pop(address).close()

    def send(self, worker: int, message: m.HelpMessage, blocks: Blocks | None = None) -> None:
        """Send a message, after what a helper adds; if it cannot be delivered, receivers here are notified."""
        batch: list[Help | HelpResult] = []
        if blocks and isinstance(message, m.HelpCompleted):
            position = message.generation, message.clock, message.id
            batch += [HelpResult(number, worker, message.sender, *position, added) for number, added in blocks.items()]
        batch.append(Help(0, worker, m.encode(message)))
        with self._changing:
            address = self._addresses.get(worker)
            sender = None if address is None or self._closed else self._sender(address)
        if sender is None or not sender.put(batch):
            self._lost([worker])

    def _sender(self, address: str) -> "_Sender":
        if address not in self._senders:
            connection = Connection(address, self._config.keys, self._config.layout, _TIMEOUT_S)
            self._senders[address] = _Sender(connection, self._lost)
        return self._senders[address]

    def _lost(self, workers: Iterable[int]) -> None:
        with self._changing:
            receivers = list(self._receivers.values())
        for worker in set(workers):
            for receiver in receivers:
                receiver.lost(worker)

    def answer(self, message: Help | HelpResult) -> ServerAnswer:
        """Take what another host's worker sent, as its server got it."""
        with self._changing:
            receiver = self._receivers.get(message.worker)
        if receiver is None:
            return _refused(message, f"worker {message.worker} is not here")
        if isinstance(message, HelpResult):
            receiver.result_part(message)
        else:
            try:
                receiver.received(m.decode(message.text))
            except ProtocolError as error:
                return _refused(message, str(error))
        return ServerAnswer(message.partition)

    def close(self) -> None:
        """Send no more."""
        with self._changing:
            self._closed = True
            senders = list(self._senders.values())
        for sender in senders:
            sender.close()


def _refused(message: Help | HelpResult, reason: str) -> ServerAnswer:
    return ServerAnswer(message.partition, Status.REFUSED, text=reason)


class _Sender:
    """Thread that sends to one host. After an error what waits is dropped; the next batch is tried anew."""

    def __init__(self, connection: Connection, lost: Callable[[Iterable[int]], None]) -> None:
        self._connection, self._lost = connection, lost
        self._batches: queue.Queue[Sequence[Help | HelpResult] | None] = queue.Queue(_MAX_QUEUED)
        threading.Thread(target=self._run, name="plink-help-sender", daemon=True).start()

    def put(self, batch: Sequence[Help | HelpResult]) -> bool:
        """Queue messages that belong together; False: there are too many."""
        try:
            self._batches.put_nowait(batch)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """End the thread."""
        with contextlib.suppress(queue.Full):
            self._batches.put_nowait(None)
        self._connection.wake()

    def _run(self) -> None:
        with contextlib.closing(self._connection):
            while (batch := self._batches.get()) is not None:
                try:
                    refused = any(self._connection.ask(message).status is not Status.OK for message in batch)
                except PlinkError:
                    self._lost([batch[0].worker, *self._drop()])
                else:
                    if refused:
                        self._lost([batch[0].worker])

    def _drop(self) -> list[int]:
        """Drop what waits, and return whom it was for."""
        workers: list[int] = []
        while True:
            try:
                batch = self._batches.get_nowait()
            except queue.Empty:
                return workers
            if batch is None:
                self._batches.put(None)
                return workers
            workers.append(batch[0].worker)
