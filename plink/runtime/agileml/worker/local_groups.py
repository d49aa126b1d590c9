"""Updates of workers of one host that travel to the servers as one (MLfabric, Viswanathan and Akella 2020, section
5)."""

import threading
import time
from collections.abc import Mapping

from plink.runtime.agileml.transport.wire import Message

_JOIN_S = 2.0  # that a sender waits for the others, whose answers come with its own
_SENT_S = 30.0  # that these wait for it: what they read next should have their updates
_MAX_CLOSED = 64  # groups, of which a worker may not have noticed yet that they are closed

Group = tuple[int, int, int]  # generation, the arbiter's term, number of the transfer
Updates = Mapping[int, Message]  # of one step of a worker, by partition


class LocalGroups:
    """Where workers of one host leave their updates for the one that sends the sum; for any thread.

    A worker leaves an update only after servers have counted its step, as an empty one. So it counts once or, where its
    sender does not wait that long or is lost, never, as one that is dropped.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: dict[Group, list[Updates]] = {}
        self._closed: dict[Group, None] = {}  # in the order of their ends

    def leave(self, group: Group, updates: Updates) -> None:
        """Leave a step's updates for the sender, and wait until it has sent them."""
        with self._changed:
            if group not in self._closed:
                self._left.setdefault(group, []).append(updates)
                self._changed.notify_all()
                self._changed.wait_for(lambda: group in self._closed, _SENT_S)

    def join(self, group: Group, others: int) -> list[Updates]:
        """Return what the others have left, once all have; what comes later is not sent."""
        end = time.monotonic() + _JOIN_S
        with self._changed:
            self._changed.wait_for(lambda: len(self._left.get(group, ())) >= others, end - time.monotonic())
            return self._left.pop(group, [])

    def close(self, group: Group) -> None:
        """Let the others go on: all is sent, or will not be."""
        with self._changed:
            self._left.pop(group, None)
            self._closed[group] = None
            if len(self._closed) > _MAX_CLOSED:
                self._closed.pop(next(iter(self._closed)))
            self._changed.notify_all()
