"""A straggler's side of helping, without threads, sockets or clocks: what it gives away, and what comes back.

Each grain of a clock is in exactly one of three places: in the worker's own queue, in a pending request, or done. A
request's result counts if the request is pending, and whatever it does not cover comes back into the queue. So each
grain counts once, whatever helpers and the network do. (Harlap thesis, 3.3.3, Algorithm 1.)
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from plink.runtime.elastic.helping.messages import (
    MAX_GRAINS,
    HelpBegun,
    HelpCancelled,
    HelpCompleted,
    HelpMessage,
    HelpRefused,
    HelpRequest,
    HelpReturned,
    ProgressReport,
    ReturnRequest,
)
from plink.runtime.elastic.helping.settings import Rebalance
from plink.runtime.elastic.worker.clock_work import Grain

Outgoing = tuple[int, HelpMessage]  # receiver first
_ID_BITS = 48


class GrainQueue(Protocol):
    """Grains of a clock that are left, and what they cost, as
    :class:`~plink.runtime.elastic.worker.clock_work.ClockWork` has them."""

    @property
    def left(self) -> float: ...

    def __len__(self) -> int: ...

    def cost(self, grain: Grain) -> float: ...

    def take_from_back(self, count: int) -> list[Grain]: ...

    def take_back(self, grains: Iterable[Grain]) -> None: ...


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

    message: ProgressReport
    received_s: float


class Helpee:
    """What one worker gives away; for one thread, ``now_s`` of any one clock.

    :ivar moved: grains that helpers have done, of all clocks. ``total``: all grains.
    :ivar helped: grains of this clock that helpers have done, by helper.
    """

    def __init__(self, worker: int, settings: Rebalance) -> None:
        self._worker, self._settings = worker, settings
        self._reports: dict[int, _Report] = {}
        self._refusing: set[int] = set()
        self._pending: dict[int, _Pending] = {}
        self._next_id = secrets.randbits(_ID_BITS)  # another one than those of an earlier worker of this number
        self._queue: GrainQueue | None = None
        self._clock = self._generation = self._state = -1
        self._grains, self._cost = 1, 1.0  # of this clock
        self._worked_s = self._worked_cost = 0.0  # of the grains of this clock that were done here
        self._latest_s = self._mean_s = 0.0  # for a grain that costs 1: the latest of this clock; over clocks
        self.moved = self.total = 0
        self.helped: dict[int, int] = {}

    def begin(self, queue: GrainQueue, clock: int, generation: int, state: int) -> list[Outgoing]:
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

    def received(self, message: HelpMessage, now_s: float) -> list[Outgoing]:
        """Handle a helper's message, other than :class:`HelpCompleted`."""
        helper = message.sender
        if isinstance(message, ProgressReport):
            self._reports[helper] = _Report(message, now_s)
        elif isinstance(message, HelpBegun) and self.expects(helper, message.id):
            pending = self._pending[message.id]
            pending.begun, pending.since_s = True, now_s
            return self._give(helper, self._settings.follow_up, now_s)
        elif isinstance(message, HelpRefused) and self.expects(helper, message.id):
            self._refusing.add(helper)
            self._take_back(message.id)
        elif isinstance(message, HelpReturned) and self.expects(helper, message.id):
            pending = self._pending[message.id]
            returned = [grain for grain in pending.grains if grain in message.grains]
            pending.grains = [grain for grain in pending.grains if grain not in message.grains]
            pending.returning = False
            self._requeue(returned)
        return []

    def accept(self, message: HelpCompleted, now_s: float) -> tuple[bool, list[Outgoing]]:
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
                    messages.append((pending.helper, ReturnRequest(self._worker, number)))
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
        return [(helper, HelpRequest(self._worker, number, self._generation, self._clock, self._state, _plain(grains)))]

    def _from_back(self, cost: float) -> list[Grain]:
        """Take the last grains that cost about so much; one at least, and not the only one."""
        assert self._queue is not None
        grains: list[Grain] = []
        while len(self._queue) > 1 and len(grains) < MAX_GRAINS:
            taken = self._queue.take_from_back(1)
            cost -= self._queue.cost(taken[0]) / 2
            if grains and cost < 0:
                self._queue.take_back(taken)
                break
            grains = taken + grains
            cost -= self._queue.cost(taken[0]) / 2
        return grains

    def _cancel(self, number: int) -> Outgoing:
        helper = self._pending[number].helper
        self._take_back(number)
        return helper, HelpCancelled(self._worker, number)

    def _take_back(self, number: int) -> None:
        self._requeue(self._pending.pop(number).grains)

    def _requeue(self, grains: Sequence[Grain]) -> None:
        if self._queue is not None and grains:
            self._queue.take_back(grains)


def _plain(grains: Iterable[Grain]) -> tuple[tuple[int, int], ...]:
    return tuple((grain.shard, grain.number) for grain in grains)
