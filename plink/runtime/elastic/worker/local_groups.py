"""What workers of one host do together: updates travel to the servers as one (MLfabric, Viswanathan and Akella 2020,
section 5), and so do the models that they then read."""

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from math import inf

from plink.errors import PlinkError
from plink.runtime.elastic.transport.messages import Answer, Update

_JOIN_S = 2.0  # that a sender waits for the others, whose answers come with its own
_SENT_S = 30.0  # that these wait for it: what they read next should have their updates
_SLICE_S = 0.2  # between looks whether the waiting worker is given up
_MAX_CLOSED = 64  # groups, of which a worker may not have noticed yet that they are closed

Group = tuple[int, int, int]  # generation, the arbiter's term, number of the transfer
Updates = Mapping[int, Update]  # of one step of a worker, by partition


class LocalGroups:
    """Where workers of one host leave their updates for the one that sends the sum; for any thread.

    A worker leaves an update only after servers have counted its step, as an empty one. So it counts once or, where its
    sender does not wait that long or is given up, never.

    :ivar unsent: updates of partitions that were left, and that nobody has sent.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: dict[Group, list[Updates]] = {}
        self._joined: dict[Group, list[Updates]] = {}  # their sender has them
        self.unsent = 0
        self._closed: dict[Group, float] = {}  # when, in this order
        self._reads: dict[Hashable, tuple[float, Future[dict[int, Answer]]]] = {}  # under way, since when

    def leave(self, group: Group, updates: Updates, given_up: Callable[[], bool]) -> float:
        """Leave a step's updates for the sender, and wait until it has sent them; return when it had.

        :param given_up: whether to wait no longer; asked now and then.
        """
        with self._changed:
            end_s, left = time.monotonic() + _SENT_S, self._left.setdefault(group, [])
            left.append(updates)
            self._changed.notify_all()
            while not (group in self._closed or given_up() or time.monotonic() > end_s):
                self._changed.wait(_SLICE_S)
            if self._left.get(group) is left:  # nobody has joined or closed it since
                left[:] = [each for each in left if each is not updates]
                self.unsent += len(updates)
                if not left:
                    del self._left[group]
            return self._closed.get(group, time.monotonic())

    def join(self, group: Group, others: int) -> list[Updates]:
        """Return what the others have left, once all have; what comes later is not sent."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._left.get(group, ())) >= others, _JOIN_S)
            self._joined[group] = self._left.pop(group, [])
            return self._joined[group]

    def close(self, group: Group, sent: bool) -> None:
        """Let the others go on: what was joined is sent, or will not be."""
        with self._changed:
            joined = self._joined.pop(group, [])
            lost = [*self._left.pop(group, []), *([] if sent else joined)]
            self.unsent += sum(map(len, lost))
            self._closed[group] = time.monotonic()
            if len(self._closed) > _MAX_CLOSED:
                self._closed.pop(next(iter(self._closed)))
            self._changed.notify_all()

    def read(self, what: Hashable, since_s: float, ask: Callable[[], dict[int, Answer]]) -> dict[int, Answer]:
        """Return the answers to a read: those of another worker that asks the same now and began after a time, by
        ``time.monotonic``; else one's own."""
        own: Future[dict[int, Answer]] = Future()
        with self._changed:
            begun_s, answers = self._reads.get(what, (-inf, own))
            if begun_s < since_s:
                self._reads[what] = time.monotonic(), own
        if begun_s >= since_s:
            with contextlib.suppress(PlinkError):
                return answers.result()
            return ask()
        try:
            own.set_result(ask())
        except BaseException as error:
            own.set_exception(error)
        with self._changed:
            if self._reads.get(what, (0.0, None))[1] is own:
                del self._reads[what]
        return own.result()
