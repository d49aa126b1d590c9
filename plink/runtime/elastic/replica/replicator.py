"""Pushes from active servers to their replicas, in the background, as fast as the network takes them.

Each replica has a thread and a connection, so that one that is slow or silent keeps none waiting. While a push is under
way clocks go by, and the next push has them all: the slower the network, the more clocks in each and the fewer vectors
that are sent twice. A push that is lost is not kept, for the next contains it. What waits for a push that has arrived
is added before the next.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from plink.errors import PlinkError
from plink.runtime.elastic.partition.partition import Partition
from plink.runtime.elastic.replica.partition_replica import PartitionReplica
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.transport.connection import Connection
from plink.runtime.elastic.transport.messages import ReplicationDelta, Status
from plink.runtime.elastic.transport.records import TRAFFIC

RETRY_S = 0.2


class _Channel:
    """Channel to one replica: its thread, and the partition that it pushes just now."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.due = connection, threading.Event()
        self.pushing: int | None = None
        self.trouble: dict[int, str] = {}
        self.thread: threading.Thread | None = None


def next_replicated_clock(partition: Partition, to: str, agreed: int) -> int:
    """Return the clock up to which a replica that is to serve is pushed next: to the agreed one, then clock by clock,
    so that it can roll back to whichever is agreed on later."""
    return min(max(agreed, partition.replicas[to] + 1), partition.clock)


class Replicator:
    """Threads that replicate what one server is primary for.

    :param primaries: of all partitions, by number.
    :param connection: connects to an address.
    """

    def __init__(
        self, actors: Callable[[], Mapping[int, PartitionReplica]], connection: Callable[[str], Connection]
    ) -> None:
        self._actors, self._connection = actors, connection
        self._channels: dict[str, _Channel] = {}
        self._paused: Counter[int] = Counter()
        self._state = threading.Condition()  # of channels and what they push
        self._end = threading.Event()
        self.agreed = -1

    def advanced(self, replicas: Collection[str]) -> None:
        """Notify that there may be something to push to these replicas."""
        for address in replicas:
            with self._state:
                channel = self._channels.get(address)
                if channel is None and not self._end.is_set():
                    channel = self._channels[address] = _Channel(self._connection(address))
                    channel.thread = threading.Thread(
                        target=self._run, args=(channel,), name="plink-replicator", daemon=True
                    )
                    channel.thread.start()
            if channel is not None:
                channel.due.set()

    def trouble(self, number: int, replicas: Collection[str]) -> str:
        """Return why the last pushes did not arrive; empty if they did."""
        channels = [self._channels.get(address) for address in replicas]
        return "; ".join(filter(None, (channel.trouble.get(number) for channel in channels if channel)))

    def limit(self, clock: int) -> None:
        """Push no clock after this one. Replicas that are pushed to one agreed clock after the other have a clock in
        common to go back to."""
        self.agreed = clock
        self.advanced(list(self._channels))

    @contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """Pause pushes of a partition in a context."""
        with self._state:
            self._paused[number] += 1
            self._state.wait_for(lambda: all(channel.pushing != number for channel in self._channels.values()))
        try:
            yield
        finally:
            with self._state:
                self._paused[number] -= 1
            self.advanced(list(self._channels))

    def close(self) -> None:
        """End the threads; a push that is under way is cut off."""
        with self._state:
            self._end.set()
            channels = list(self._channels.values())
        for channel in channels:
            channel.due.set()
            channel.connection.wake()
        for channel in channels:
            assert channel.thread is not None
            channel.thread.join()

    def _run(self, channel: _Channel) -> None:
        while not self._end.is_set():
            channel.due.wait()
            channel.due.clear()
            self._push_all(channel)
            if channel.trouble and not self._end.wait(RETRY_S):
                channel.due.set()
        channel.connection.close()

    def _push_all(self, channel: _Channel) -> None:
        """Push what one replica lacks of each partition, once."""
        actors = {
            number: actor
            for number, actor in self._actors().items()
            if channel.connection.address in actor.snapshot.replicas
        }
        for number, actor in actors.items():
            with self._state:
                if self._paused[number] or self._end.is_set():
                    continue
                channel.pushing = number
            try:
                self._push(actor, channel)
                channel.trouble.pop(number, None)
            except (PlinkError, MemoryError) as error:
                if number in channel.trouble:  # not for the first time: the connection may have been an old one
                    self._lose(actor, channel.connection.address, error)
                channel.trouble[number] = str(error)
            finally:
                with self._state:
                    channel.pushing = None
                    self._state.notify_all()
        for number in channel.trouble.keys() - actors.keys():
            del channel.trouble[number]
        if not actors:
            channel.connection.close()

    def _push(self, actor: PartitionReplica, channel: _Channel) -> None:
        push = actor.call(lambda: self._take(actor, channel.connection.address))
        if push is None:
            return
        TRAFFIC.replicated(push.blocks)
        answer = channel.connection.ask(push)
        if answer.status is not Status.OK:
            raise PlinkError(f"{channel.connection.address} answers {answer.status.name} {answer.text}".rstrip())
        actor.call(lambda: self._arrived(actor, channel.connection.address, push))
        channel.due.set()

    def _take(self, actor: PartitionReplica, to: str) -> ReplicationDelta | None:
        """Return the next push, in the actor's thread."""
        if actor.role is not Role.SERVING or to in actor.copying or to not in actor.partition.replicas:
            return None
        if actor.partition.distances is not None and actor.partition.distances.held:
            actor.release()
        partition, drain = actor.partition, actor.outgoing
        clock = min(self.agreed, partition.clock)
        if drain is not None and drain.drains and drain.connection.address == to:
            drain.replicated(partition.clock - partition.replicas[to])
            clock = next_replicated_clock(partition, to, self.agreed)
        if clock <= partition.replicas[to]:
            return None
        return actor.take_delta(to, clock)

    @staticmethod
    def _arrived(actor: PartitionReplica, to: str, push: ReplicationDelta) -> None:
        if actor.role is Role.SERVING and actor.generation == push.generation and to in actor.partition.replicas:
            actor.partition.arrived(to, push)

    @staticmethod
    def _lose(actor: PartitionReplica, address: str, error: Exception) -> None:
        """End a drain to a replica that is lost."""
        move = actor.outgoing
        if move is not None and move.drains and move.connection.address == address:
            move.end(error)
