"""Pushes from active servers to their backups, in the background, as fast as the network takes them.

Each backup has a thread and a connection, so that one that is slow or silent keeps none waiting. While a push is under
way clocks go by, and the next push has them all: the slower the network, the more clocks in each and the fewer vectors
that are sent twice. A push that is lost is not kept, for the next contains it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from plink.errors import PlinkError
from plink.runtime.agileml.partition.partition import Partition, Push
from plink.runtime.agileml.replica.partition_replica import Owner, Role
from plink.runtime.agileml.transport.connection import Line
from plink.runtime.agileml.transport.wire import LAST, Kind, Message, Status

_AGAIN_S = 0.2


class _Lane:
    """To one backup: its thread, and the partition that it pushes just now."""

    def __init__(self, line: Line) -> None:
        self.line, self.due = line, threading.Event()
        self.pushing: int | None = None
        self.trouble: dict[int, str] = {}
        self.thread: threading.Thread | None = None


def push_message(owner: Owner, push: Push) -> Message:
    """As it travels."""
    return Message(
        Kind.PUSH, owner.partition.number, flags=LAST * push.last, era=owner.era, epoch=owner.epoch, clock=push.after,
        before=push.before, sequence=push.sequence, pieces=push.pieces,
    )  # fmt: skip


def next_push(partition: Partition, to: str, agreed: int | None) -> int:
    """Up to which clock a backup that is to serve is pushed next: to the agreed one, then clock by clock, so that it
    can go back to whichever is agreed on later."""
    if agreed is None:
        return partition.clock
    return min(max(agreed, partition.backups[to] + 1), partition.clock)


class Pusher:
    """The threads that push what one server is active for.

    :param owners: of all partitions, by number.
    :param line: connects to an address.
    """

    def __init__(self, owners: Callable[[], Mapping[int, Owner]], line: Callable[[str], Line]) -> None:
        self._owners, self._line = owners, line
        self._lanes: dict[str, _Lane] = {}
        self._held: Counter[int] = Counter()
        self._state = threading.Condition()  # of lanes and what they push
        self._end = threading.Event()
        self.agreed: int | None = None

    def advanced(self, backups: Collection[str]) -> None:
        """There may be something to push to them."""
        for address in backups:
            with self._state:
                lane = self._lanes.get(address)
                if lane is None and not self._end.is_set():
                    lane = self._lanes[address] = _Lane(self._line(address))
                    lane.thread = threading.Thread(target=self._run, args=(lane,), name="plink-pusher", daemon=True)
                    lane.thread.start()
            if lane is not None:
                lane.due.set()

    def trouble(self, number: int, backups: Collection[str]) -> str:
        """Why the last pushes did not arrive; empty if they did."""
        lanes = [self._lanes.get(address) for address in backups]
        return "; ".join(filter(None, (lane.trouble.get(number) for lane in lanes if lane)))

    def limit(self, clock: int | None) -> None:
        """Push no clock after this one. Backups that are pushed to one agreed clock after the other have a clock in
        common to go back to; without a limit each gets what there is."""
        self.agreed = clock
        self.advanced(list(self._lanes))

    @contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """No push of this partition is under way."""
        with self._state:
            self._held[number] += 1
            self._state.wait_for(lambda: all(lane.pushing != number for lane in self._lanes.values()))
        try:
            yield
        finally:
            with self._state:
                self._held[number] -= 1
            self.advanced(list(self._lanes))

    def close(self) -> None:
        """End the threads; a push that is under way is cut off."""
        with self._state:
            self._end.set()
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.due.set()
            lane.line.wake()
        for lane in lanes:
            assert lane.thread is not None
            lane.thread.join()

    def _run(self, lane: _Lane) -> None:
        while not self._end.is_set():
            lane.due.wait()
            lane.due.clear()
            owners = {
                number: owner for number, owner in self._owners().items() if lane.line.address in owner.seen.backups
            }
            for number, owner in owners.items():
                with self._state:
                    if self._held[number] or self._end.is_set():
                        continue
                    lane.pushing = number
                try:
                    self._push(owner, lane)
                    lane.trouble.pop(number, None)
                except (PlinkError, MemoryError) as error:
                    if number in lane.trouble:  # not for the first time: the connection may have been an old one
                        self._lose(owner, lane.line.address, error)
                    lane.trouble[number] = str(error)
                finally:
                    with self._state:
                        lane.pushing = None
                        self._state.notify_all()
            for number in lane.trouble.keys() - owners.keys():
                del lane.trouble[number]
            if not owners:
                lane.line.close()
            if lane.trouble and not self._end.wait(_AGAIN_S):
                lane.due.set()
        lane.line.close()

    def _push(self, owner: Owner, lane: _Lane) -> None:
        taken = owner.call(lambda: self._take(owner, lane.line.address))
        if taken is None:
            return
        push, message = taken
        answer = lane.line.ask(message)
        if answer.status is not Status.OK:
            raise PlinkError(f"{lane.line.address} answers {answer.status.name} {answer.text}".rstrip())
        owner.call(lambda: self._arrived(owner, lane.line.address, push, message.era))
        lane.due.set()

    def _take(self, owner: Owner, to: str) -> tuple[Push, Message] | None:
        """In the owner's thread."""
        if owner.role is not Role.SERVING or to in owner.copying or to not in owner.partition.backups:
            return None
        partition, drain = owner.partition, owner.outgoing
        clock = partition.clock if self.agreed is None else min(self.agreed, partition.clock)
        if drain is not None and drain.drains and drain.line.address == to:
            drain.pushed(partition.clock - partition.backups[to])
            clock = next_push(partition, to, self.agreed)
        if clock <= partition.backups[to]:
            return None
        push = partition.take_push(to, clock)
        return push, push_message(owner, push)

    @staticmethod
    def _arrived(owner: Owner, to: str, push: Push, era: int) -> None:
        if owner.role is Role.SERVING and owner.era == era and to in owner.partition.backups:
            owner.partition.arrived(to, push)

    @staticmethod
    def _lose(owner: Owner, address: str, error: Exception) -> None:
        """A drain to a backup that is not there any more."""
        move = owner.outgoing
        if move is not None and move.drains and move.line.address == address:
            move.end(error)
