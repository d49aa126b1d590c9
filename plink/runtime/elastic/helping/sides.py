"""Both sides of helping, without threads, sockets or clocks (Harlap thesis, 3.3).

Each grain of a clock is in exactly one of three places: in the worker's own queue, in a pending request, or done. A
request's result counts if the request is pending, and whatever it does not cover comes back into the queue. So each
grain counts once, whatever helpers and the network do.
"""

import secrets
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from plink.errors import UsageError
from plink.runtime.elastic.helping import messages as m
from plink.runtime.elastic.worker.clock_work import ClockWork, Grain

MAX_HELPERS = 64


@dataclass(frozen=True)
class Rebalance:
    """When work is given away, how much, and to how many; the defaults are the thesis's.

    :param helpers: those who may help a worker.
    :param initial, follow_up: share of a clock's work in the first request to a helper, and in the next ones.
    :param trigger: share of a clock that a worker must be behind a helper.
    :param report: share of its own work at which a worker reports its progress to those whom it may help.
    :param redo_factor, redo_least_s: a helper's result is waited for so many times as long as the work is expected to
        take, and no less than so many seconds; then the worker does it itself.
    :raises UsageError: a value that cannot be.
    """

    helpers: int = 4
    initial: float = 0.025
    follow_up: float = 0.05
    trigger: float = 0.2
    report: float = 0.75
    redo_factor: float = 2.0
    redo_least_s: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.helpers <= MAX_HELPERS:
            raise UsageError(f"{self.helpers} helpers a worker: choose 1 to {MAX_HELPERS}")
        for name in ("initial", "follow_up", "trigger", "report"):
            if not 0 < getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}: choose a share above 0, at most 1")
        if not (self.redo_factor >= 1 and self.redo_least_s > 0):
            raise UsageError("redo_factor must be at least 1, and redo_least_s above 0")


Outgoing = tuple[int, m.HelpMessage]  # receiver first
_ID_BITS = 48


@dataclass
class _Pending:
    """A request whose result counts. ``since_s``: when it was sent, or begun; ``returning``: some were asked back."""

    helper: int
    grains: list[Grain]
    since_s: float
    begun: bool = False
    returning: bool = False


@dataclass(frozen=True)
class _Report:
    """The latest report of a possible helper, and when it arrived: no clocks of two hosts are compared."""

    message: m.ProgressReport
    received_s: float


class Helpee:
    """The side of a worker that gives work away; for one thread, ``now_s`` of any one clock.

    :ivar moved: grains that helpers have done, of all clocks. ``total``: all grains.
    :ivar helped: grains of this clock that helpers have done, by helper.
    """

    def __init__(self, worker: int, settings: Rebalance) -> None:
        self._worker, self._settings = worker, settings
        self._reports: dict[int, _Report] = {}
        self._refusing: set[int] = set()
        self._pending: dict[int, _Pending] = {}
        self._next_id = secrets.randbits(_ID_BITS)  # another one than those of an earlier worker of this number
        self._queue: ClockWork[Any] | None = None
        self._clock = self._generation = self._state = -1
        self._grains, self._cost = 1, 1.0  # of this clock
        self._worked_s = self._worked_cost = 0.0  # of the grains of this clock that were done here
        self._latest_s = self._mean_s = 0.0  # for a grain that costs 1: the latest of this clock; over clocks
        self.moved = self.total = 0
        self.helped: dict[int, int] = {}

    def begin(self, queue: ClockWork[Any], clock: int, generation: int, state: int) -> list[Outgoing]:
        """Begin a clock, perhaps again: nothing that was given away before counts any more.

        :param state: the least clock of the state that the program may see.
        """
        if self._worked_cost:
            mean_s = self._worked_s / self._worked_cost
            self._mean_s = (self._mean_s + mean_s) / 2 if self._mean_s else mean_s
        messages = [self._cancel(number) for number in list(self._pending)]
        self._queue, self._clock, self._generation, self._state = queue, clock, generation, state
        self._grains, self._cost = max(1, len(queue)), queue.left or 1.0
        self._worked_s = self._worked_cost = self._latest_s = 0.0
        self._refusing.clear()
        self.helped = {}
        self.total += len(queue)
        return messages

    @property
    def position(self) -> tuple[int, int]:
        """Return clock and generation."""
        return self._clock, self._generation

    @property
    def grains(self) -> int:
        """Return how many grains this clock has."""
        return self._grains

    @property
    def done(self) -> float:
        """Return the share of this clock's work that is not in the queue any more."""
        return 1.0 if self._queue is None else min(1.0, max(0.0, 1.0 - self._queue.left / self._cost))

    @property
    def waits(self) -> bool:
        """Return whether a result is pending."""
        return bool(self._pending)

    def expects(self, helper: int, number: int) -> bool:
        """Return whether a request is pending with a helper."""
        return number in self._pending and self._pending[number].helper == helper

    def counts(self, helper: int, number: int, position: tuple[int, int]) -> bool:
        """Return whether what a helper did is of a pending request; ``position``: its clock and generation."""
        return position == self.position and self.expects(helper, number)

    def worked(self, seconds: float, cost: float = 1.0) -> None:
        """Note how long a grain of this worker's took here, without waits."""
        self._worked_s, self._worked_cost = self._worked_s + seconds, self._worked_cost + cost
        self._latest_s = seconds / cost

    def received(self, message: m.HelpMessage, now_s: float) -> list[Outgoing]:
        """Handle a helper's message, other than :class:`HelpCompleted`."""
        helper = message.sender
        if isinstance(message, m.ProgressReport):
            self._reports[helper] = _Report(message, now_s)
        elif isinstance(message, m.HelpBegun) and self.expects(helper, message.id):
            pending = self._pending[message.id]
            pending.begun, pending.since_s = True, now_s
            return self._give(helper, self._settings.follow_up, now_s)
        elif isinstance(message, m.HelpRefused) and self.expects(helper, message.id):
            self._refusing.add(helper)
            self._take_back(message.id)
        elif isinstance(message, m.HelpReturned) and self.expects(helper, message.id):
            pending = self._pending[message.id]
            returned = [grain for grain in pending.grains if grain in message.grains]
            pending.grains = [grain for grain in pending.grains if grain not in message.grains]
            pending.returning = False
            self._requeue(returned)
        return []

    def accept(self, message: m.HelpCompleted, now_s: float) -> tuple[bool, list[Outgoing]]:
        """Return whether what a helper did counts; if so it is to be merged now. What it left out comes back."""
        if not self.counts(message.sender, message.id, (message.clock, message.generation)):
            return False, []
        pending = self._pending.pop(message.id)
        done = set(message.grains)
        if not done <= set(pending.grains):  # it did what was not requested: no sum can be divided
            self._requeue(pending.grains)
            self._refusing.add(message.sender)
            return False, []
        self._requeue([grain for grain in pending.grains if grain not in done])
        self.moved += len(done)
        self.helped[message.sender] = self.helped.get(message.sender, 0) + len(done)
        if any(other.helper == message.sender for other in self._pending.values()):
            return True, []
        return True, self._give(message.sender, self._settings.follow_up, now_s)

    def check(self, now_s: float) -> list[Outgoing]:
        """Give work away to those who are ahead (Algorithm 1); between any two grains."""
        messages: list[Outgoing] = []
        busy = {pending.helper for pending in self._pending.values()}
        for helper, report in self._reports.items():
            if helper not in busy and self._behind(report, now_s) > self._settings.trigger:
                messages += self._give(helper, self._settings.initial, now_s)
        return messages

    def _behind(self, report: _Report, now_s: float) -> float:
        """Return how many clocks this worker is behind a helper, by its report and what it may have done since."""
        message = report.message
        if message.generation != self._generation or message.clock < self._clock or message.sender in self._refusing:
            return 0.0
        mean_s = self._mean_s or (self._worked_s / self._worked_cost if self._worked_cost else 0.0)
        since = (now_s - report.received_s) / (mean_s * self._cost) if mean_s else 0.0
        return message.clock + message.done - self._clock - self.done + since

    def wait(self, now_s: float) -> tuple[list[Outgoing], float]:
        """Go on when the queue is empty and results are pending: take back what is not begun, a request at a time;
        else ask back some of what is, and do again what should have come long ago.

        :returns: messages, and for how long to wait for others if the queue is still empty.
        """
        messages: list[Outgoing] = []
        for number, pending in list(self._pending.items()):
            if now_s >= self._deadline_s(pending):
                messages.append(self._cancel(number))
                self._refusing.add(pending.helper)
        assert self._queue is not None
        unbegun = [number for number, pending in self._pending.items() if not pending.begun]
        if unbegun and not len(self._queue):
            messages.append(self._cancel(unbegun[-1]))
        if not len(self._queue):
            for number, pending in self._pending.items():
                if not pending.returning and len(pending.grains) > 1:
                    pending.returning = True
                    messages.append((pending.helper, m.ReturnRequest(self._worker, number)))
        deadlines = [self._deadline_s(pending) - now_s for pending in self._pending.values()]
        return messages, max(0.0, min(deadlines, default=0.0))

    def lost(self, helper: int) -> None:
        """Take back all from a helper that cannot be reached."""
        self._reports.pop(helper, None)
        for number in [number for number, pending in self._pending.items() if pending.helper == helper]:
            self._take_back(number)

    def _deadline_s(self, pending: _Pending) -> float:
        assert self._queue is not None
        cost = sum(map(self._queue.cost, pending.grains))
        expected_s = self._settings.redo_factor * cost * max(self._latest_s, self._mean_s)
        return pending.since_s + max(self._settings.redo_least_s, expected_s)

    def _give(self, helper: int, share: float, now_s: float) -> list[Outgoing]:
        assert self._queue is not None
        grains = [] if helper in self._refusing else self._from_back(share * self._cost)
        if not grains:
            return []
        number, self._next_id = self._next_id, self._next_id + 1
        self._pending[number] = _Pending(helper, grains, now_s)
        return [
            (helper, m.HelpRequest(self._worker, number, self._generation, self._clock, self._state, tuple(grains)))
        ]

    def _from_back(self, cost: float) -> list[Grain]:
        """Take the last grains that cost about so much; one at least, and not the only one."""
        assert self._queue is not None
        grains: list[Grain] = []
        while len(self._queue) > 1 and len(grains) < m.MAX_GRAINS:
            grain = self._queue.take_last()
            cost -= self._queue.cost(grain) / 2
            if grains and cost < 0:
                self._queue.take_back([grain])
                break
            grains = [grain, *grains]
            cost -= self._queue.cost(grain) / 2
        return grains

    def _cancel(self, number: int) -> Outgoing:
        helper = self._pending[number].helper
        self._take_back(number)
        return helper, m.HelpCancelled(self._worker, number)

    def _take_back(self, number: int) -> None:
        self._requeue(self._pending.pop(number).grains)

    def _requeue(self, grains: Sequence[Grain]) -> None:
        if self._queue is not None and grains:
            self._queue.take_back(grains)


class HelpSession:
    """A request that is worked on."""

    def __init__(self, request: m.HelpRequest) -> None:
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
    """The side of a worker that works for others; for one thread at a time.

    :param able: whether the data of all these shards are in memory.
    """

    def __init__(self, worker: int, able: Callable[[set[int]], bool]) -> None:
        self._worker, self._able = worker, able
        self._clock = self._generation = -1
        self._finished = False
        self._queue: list[m.HelpRequest] = []
        self._session: HelpSession | None = None

    def at(self, clock: int, generation: int, *, finished: bool) -> None:
        """Set where this worker is; ``finished``: nothing of its own work of that clock is left for it to do now."""
        self._clock, self._generation, self._finished = clock, generation, finished

    def received(self, message: m.HelpMessage) -> list[Outgoing]:
        """Handle a helpee's message."""
        session = self._session
        running = session is not None and session.request.sender == message.sender
        if isinstance(message, m.HelpRequest):
            if message.generation != self._generation or message.clock > self._clock:
                return [(message.sender, m.HelpRefused(self._worker, message.id))]
            self._queue.append(message)
        elif isinstance(message, m.HelpCancelled):
            self._queue = [other for other in self._queue if (other.sender, other.id) != (message.sender, message.id)]
            if running and session is not None and session.request.id == message.id:
                session.cancelled = True
        elif isinstance(message, m.ReturnRequest) and session is not None and running:
            return self._returned(session, message)
        return []

    def _returned(self, session: HelpSession, message: m.ReturnRequest) -> list[Outgoing]:
        grains = session.give_back() if session.request.id == message.id else []
        if not grains:
            return []
        return [(message.sender, m.HelpReturned(self._worker, message.id, tuple(grains)))]

    def drop(self, helpees: Collection[int]) -> list[Outgoing]:
        """Refuse all requests of workers that are on other hosts now, also the one under way: a worker that starts
        again at a clock does not count what was done for it before."""
        session = self._session
        dropped = [request for request in self._queue if request.sender in helpees]
        self._queue = [request for request in self._queue if request.sender not in helpees]
        if session is not None and not session.cancelled and session.request.sender in helpees:
            session.cancelled = True
            dropped.append(session.request)
        return [(request.sender, m.HelpRefused(self._worker, request.id)) for request in dropped]

    @property
    def can_begin(self) -> bool:
        """Return whether a queued request may begin now."""
        return any(self._may_begin(request) for request in self._queue)

    def _may_begin(self, request: m.HelpRequest) -> bool:
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
                return self._session, [*messages, (request.sender, m.HelpBegun(self._worker, request.id))]
            messages.append((request.sender, m.HelpRefused(self._worker, request.id)))
        return None, messages

    def end(self, session: HelpSession, scores: tuple[tuple[float, float], ...] | None) -> list[Outgoing]:
        """End a request; ``scores``: objectives of what is done, None: it failed."""
        self._session, request = None, session.request
        if session.cancelled:
            return []
        if scores is None:
            return [(request.sender, m.HelpRefused(self._worker, request.id))]
        done = tuple(session.done)
        completed = m.HelpCompleted(self._worker, request.id, request.generation, request.clock, done, scores)
        return [(request.sender, completed)]
