"""Pushes from active servers to their replicas, in the background, as fast as the network takes them.

Each replica has a thread and a connection, so that one that is slow or silent keeps none waiting. While a push is under
way clocks go by, and the next push has them all: the slower the network, the more clocks in each and the fewer vectors
that are sent twice. A push that is lost is not kept, for the next contains it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from plink.errors import PlinkError
from plink.runtime.agileml.partition.partition import Partition, ReplicationDelta
from plink.runtime.agileml.replica.partition_replica import PartitionReplica, Role
from plink.runtime.agileml.transport.connection import Connection
from plink.runtime.agileml.transport.wire import LAST, Kind, Message, Status

RETRY_S = 0.2


class _Lane:
    """Channel to one replica: its thread, and the partition that it pushes just now."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.due = connection, threading.Event()
        self.pushing: int | None = None
        self.trouble: dict[int, str] = {}
        self.thread: threading.Thread | None = None


def delta_message(actor: PartitionReplica, push: ReplicationDelta) -> Message:
    """Return a push as a message."""
    return Message(
        Kind.REPLICATE, actor.partition.number, flags=LAST * push.last, generation=actor.generation, term=actor.term,
        clock=push.after, before=push.before, sequence=push.sequence, blocks=push.blocks,
    )  # fmt: skip


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
        self._lanes: dict[str, _Lane] = {}
        self._paused: Counter[int] = Counter()
        self._state = threading.Condition()  # of lanes and what they push
        self._end = threading.Event()
        self.agreed = -1

    def advanced(self, replicas: Collection[str]) -> None:
        """Notify that there may be something to push to these replicas."""
        for address in replicas:
            with self._state:
                lane = self._lanes.get(address)
                if lane is None and not self._end.is_set():
                    lane = self._lanes[address] = _Lane(self._connection(address))
                    lane.thread = threading.Thread(target=self._run, args=(lane,), name="plink-pusher", daemon=True)
                    lane.thread.start()
            if lane is not None:
                lane.due.set()

    def trouble(self, number: int, replicas: Collection[str]) -> str:
        """Return why the last pushes did not arrive; empty if they did."""
        lanes = [self._lanes.get(address) for address in replicas]
        return "; ".join(filter(None, (lane.trouble.get(number) for lane in lanes if lane)))

    def limit(self, clock: int) -> None:
        """Push no clock after this one. Replicas that are pushed to one agreed clock after the other have a clock in
        common to go back to."""
        self.agreed = clock
        self.advanced(list(self._lanes))

    @contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """Pause pushes of a partition in a context."""
        with self._state:
            self._paused[number] += 1
            self._state.wait_for(lambda: all(lane.pushing != number for lane in self._lanes.values()))
        try:
            yield
        finally:
            with self._state:
                self._paused[number] -= 1
            self.advanced(list(self._lanes))

    def close(self) -> None:
        """End the threads; a push that is under way is cut off."""
        with self._state:
            self._end.set()
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.due.set()
            lane.connection.wake()
        for lane in lanes:
            assert lane.thread is not None
            lane.thread.join()

    def _run(self, lane: _Lane) -> None:
        while not self._end.is_set():
            lane.due.wait()
            lane.due.clear()
            self._push_all(lane)
            if lane.trouble and not self._end.wait(RETRY_S):
                lane.due.set()
        lane.connection.close()

    def _push_all(self, lane: _Lane) -> None:
        """Push what one replica lacks of each partition, once."""
        actors = {
            number: actor
            for number, actor in self._actors().items()
            if lane.connection.address in actor.snapshot.replicas
        }
        for number, actor in actors.items():
            with self._state:
                if self._paused[number] or self._end.is_set():
                    continue
                lane.pushing = number
            try:
                self._push(actor, lane)
                lane.trouble.pop(number, None)
            except (PlinkError, MemoryError) as error:
                if number in lane.trouble:  # not for the first time: the connection may have been an old one
                    self._lose(actor, lane.connection.address, error)
                lane.trouble[number] = str(error)
            finally:
                with self._state:
                    lane.pushing = None
                    self._state.notify_all()
        for number in lane.trouble.keys() - actors.keys():
            del lane.trouble[number]
        if not actors:
            lane.connection.close()

    def _push(self, actor: PartitionReplica, lane: _Lane) -> None:
        taken = actor.call(lambda: self._take(actor, lane.connection.address))
        if taken is None:
            return
        push, message = taken
        answer = lane.connection.ask(message)
        if answer.status is not Status.OK:
            raise PlinkError(f"{lane.connection.address} answers {answer.status.name} {answer.text}".rstrip())
        actor.call(lambda: self._arrived(actor, lane.connection.address, push, message.generation))
        lane.due.set()

    def _take(self, actor: PartitionReplica, to: str) -> tuple[ReplicationDelta, Message] | None:
        """Return the next push, in the actor's thread."""
        if actor.role is not Role.SERVING or to in actor.copying or to not in actor.partition.replicas:
            return None
        partition, drain = actor.partition, actor.outgoing
        clock = min(self.agreed, partition.clock)
        if drain is not None and drain.drains and drain.connection.address == to:
            drain.replicated(partition.clock - partition.replicas[to])
            clock = next_replicated_clock(partition, to, self.agreed)
        if clock <= partition.replicas[to]:
            return None
        push = partition.take_delta(to, clock)
        return push, delta_message(actor, push)

    @staticmethod
    def _arrived(actor: PartitionReplica, to: str, push: ReplicationDelta, generation: int) -> None:
        if actor.role is Role.SERVING and actor.generation == generation and to in actor.partition.replicas:
            actor.partition.arrived(to, push)

    @staticmethod
    def _lose(actor: PartitionReplica, address: str, error: Exception) -> None:
        """End a drain to a replica that is lost."""
        move = actor.outgoing
        if move is not None and move.drains and move.connection.address == address:
            move.end(error)
