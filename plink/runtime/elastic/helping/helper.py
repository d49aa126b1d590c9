"""A helper's side of helping, without threads, sockets or clocks (Harlap thesis, 3.3.3, Algorithm 2)."""

from collections import deque
from collections.abc import Callable, Collection

from plink.runtime.elastic.helping.helpee import Outgoing
from plink.runtime.elastic.helping.messages import (
    HelpBegun,
    HelpCancelled,
    HelpCompleted,
    HelpMessage,
    HelpRefused,
    HelpRequest,
    HelpReturned,
    ReturnRequest,
)
from plink.runtime.elastic.worker.clock_work import Grain


class HelpSession:
    """A request that is worked on."""

    def __init__(self, request: HelpRequest) -> None:
        self.request = request
        self._left = deque(Grain(*grain) for grain in request.grains)
        self.done: list[Grain] = []
        self.cancelled = False

    def next(self) -> Grain | None:
        """Return the next grain to work on; None: there is none left, or nobody wants them."""
        if self.cancelled or not self._left:
            return None
        self.done.append(self._left.popleft())
        return self.done[-1]

    def give_back(self) -> list[Grain]:
        """Give back half of what is not begun."""
        return [self._left.pop() for _ in range((len(self._left) + 1) // 2)]


class Helper:
    """What one worker does for others; for one thread at a time.

    :param able: whether the data of all these shards are in memory.
    """

    def __init__(self, worker: int, able: Callable[[set[int]], bool]) -> None:
        self._worker, self._able = worker, able
        self._clock = self._generation = -1
        self._finished = False
        self._queue: list[HelpRequest] = []
        self._session: HelpSession | None = None

    def at(self, clock: int, generation: int, *, finished: bool) -> None:
        """Set where this worker is; ``finished``: nothing of its own work of that clock is left for it to do now."""
        self._clock, self._generation, self._finished = clock, generation, finished

    def received(self, message: HelpMessage) -> list[Outgoing]:
        """Handle a helpee's message."""
        session = self._session
        running = session is not None and session.request.sender == message.sender
        if isinstance(message, HelpRequest):
            if message.generation != self._generation or message.clock > self._clock:
                return [(message.sender, HelpRefused(self._worker, message.id))]
            self._queue.append(message)
        elif isinstance(message, HelpCancelled):
            self._queue = [
                other for other in self._queue if (other.sender, other.id) != (message.sender, message.id)
            ]  # fmt: skip
            if running and session is not None and session.request.id == message.id:
                session.cancelled = True
        elif isinstance(message, ReturnRequest) and session is not None and running:
            return self._returned(session, message)
        return []

    def _returned(self, session: HelpSession, message: ReturnRequest) -> list[Outgoing]:
        grains = session.give_back() if session.request.id == message.id else []
        if not grains:
            return []
        return [(message.sender, HelpReturned(self._worker, message.id, tuple((g.shard, g.number) for g in grains)))]

    def drop(self, helpees: Collection[int]) -> list[Outgoing]:
        """Refuse all requests of workers that are on other hosts now, also the one under way: a worker that starts
        again at a clock does not count what was done for it before."""
        session = self._session
        dropped = [request for request in self._queue if request.sender in helpees]
        self._queue = [request for request in self._queue if request.sender not in helpees]
        if session is not None and not session.cancelled and session.request.sender in helpees:
            session.cancelled = True
            dropped.append(session.request)
        return [(request.sender, HelpRefused(self._worker, request.id)) for request in dropped]

    @property
    def can_begin(self) -> bool:
        """Return whether a queued request may begin now."""
        return any(self._may_begin(request) for request in self._queue)

    def _may_begin(self, request: HelpRequest) -> bool:
        if request.generation != self._generation:
            return True  # to be refused
        return request.clock < self._clock or (request.clock == self._clock and self._finished)

    def begin_next(self) -> tuple[HelpSession | None, list[Outgoing]]:
        """Begin the request of the earliest clock that may be begun, if there is one."""
        messages: list[Outgoing] = []
        while self.can_begin:
            request = min(filter(self._may_begin, self._queue), key=lambda request: request.clock)
            self._queue.remove(request)
            current = request.generation == self._generation
            if current and self._able({shard for shard, _ in request.grains}):
                self._session = HelpSession(request)
                return self._session, [*messages, (request.sender, HelpBegun(self._worker, request.id))]
            messages.append((request.sender, HelpRefused(self._worker, request.id)))
        return None, messages

    def end(self, session: HelpSession, scores: tuple[tuple[float, float], ...] | None) -> list[Outgoing]:
        """End a request; ``scores``: objectives of what is done, None: it failed."""
        self._session, request = None, session.request
        if session.cancelled:
            return []
        if scores is None:
            return [(request.sender, HelpRefused(self._worker, request.id))]
        grains = tuple((grain.shard, grain.number) for grain in session.done)
        completed = HelpCompleted(self._worker, request.id, request.generation, request.clock, grains, scores)
        return [(request.sender, completed)]
