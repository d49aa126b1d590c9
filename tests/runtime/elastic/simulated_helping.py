"""Workers that help each other in virtual time: the real sides of helping, a simulated processor each, and a network
that delays messages or is cut. All chance is of a seed.

Each grain's contribution is carried along, and each update must have every grain of its clock exactly once.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from plink.runtime.elastic.helping import messages as m
from plink.runtime.elastic.helping.host_rebalancing import helpees, helper_groups
from plink.runtime.elastic.helping.sides import Helpee, Helper, HelpSession, Rebalance
from plink.runtime.elastic.worker.clock_work import Grain

Slowness = Callable[[int, int, float, float], float]  # of a worker, at a clock, after so much work, at a time


class Queue:
    """A worker's own grains of a clock, and what they cost."""

    def __init__(self, grains: Sequence[Grain], cost: Callable[[Grain], float] = lambda grain: 1.0) -> None:
        self.grains, self.cost = list(grains), cost

    @property
    def left(self) -> float:
        return sum(map(self.cost, self.grains))

    def __len__(self) -> int:
        return len(self.grains)

    def take_last(self) -> Grain:
        return self.grains.pop()

    def take_back(self, grains: Sequence[Grain]) -> None:  # type: ignore[override]
        self.grains += grains


@dataclass
class Network:
    """How messages fare: how long they take, between whom all are lost in silence, and when."""

    delay_s: float = 0.001
    cut: frozenset[int] = frozenset()
    cut_s: tuple[float, float] = (0.0, 0.0)

    def is_cut(self, pair: set[int], now_s: float) -> bool:
        """Return whether two cannot reach each other."""
        return pair <= self.cut and self.cut_s[0] <= now_s < self.cut_s[1]


@dataclass
class Course:
    """A job of ``workers`` that each have ``grains`` of ``parts`` shards, of a second's work in all at slowness 1.

    A grain costs what ``cost`` says, of a mean of 1; workers go by it if ``uses_cost``.
    Each may be ``staleness`` clocks ahead of the slowest; or, as under DSSP, up to ``upper`` clocks, drawn each time.
    ``before_merge`` is called when a result has arrived and is not merged yet, with helper and helpee.

    :param tail: share of a worker's shards, its last ones, that its helpers have.
    :ivar updates: of each worker and clock, how often each grain is in it.
    :ivar spans: of each worker and clock, when it began and ended.
    """

    workers: int
    grains: int
    clocks: int
    slowness: Slowness = lambda worker, clock, work, now: 1.0
    staleness: int = 0
    upper: int = 0
    settings: Rebalance | None = field(default_factory=Rebalance)
    network: Network = field(default_factory=Network)
    seed: int = 0
    clock_s: float = 1.0
    hosts: Callable[[int], int] = lambda worker: worker
    cost: Callable[[Grain], float] = lambda grain: 1.0
    uses_cost: bool = False
    parts: int = 1
    tail: float = 1.0
    before_merge: Callable[["Course", int, int], None] = lambda course, helper, helpee: None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.updates: dict[tuple[int, int], Counter[Grain]] = {}
        self.spans: dict[tuple[int, int], tuple[float, float]] = {}
        self.generation = 0
        self.moved = 0
        groups = helper_groups(
            {number: self.hosts(number) for number in range(self.workers)},
            self.settings.helpers if self.settings else 1,
        )
        self.each = [Worker(self, number, helpees(groups, number)) for number in range(self.workers)]
        for worker in self.each:
            self.later(0.0, worker.act)

    def helped_shards(self, shards: set[int]) -> bool:
        """Return whether helpers have the data of all these."""
        return all(shard % self.parts >= round(self.parts * (1 - self.tail)) for shard in shards)

    def later(self, seconds: float, does: Callable[[], None]) -> None:
        """In so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), does))

    def run(self) -> float:
        """Run to the end of the last clock and return its time."""
        while any(worker.alive and worker.clock < self.clocks for worker in self.each):
            assert self._events, "nothing goes on any more"
            self.now, _, does = heapq.heappop(self._events)
            does()
        return self.now

    def may_begin(self, clock: int) -> bool:
        """Return whether a clock is near enough to those that all have done."""
        bound = self.random.randint(self.staleness, self.upper) if self.upper > self.staleness else self.staleness
        return clock - self.finished() - 1 <= bound

    def finished(self) -> int:
        """Return the last clock that all have done."""
        return min(worker.clock for worker in self.each if worker.alive) - 1

    def send(self, sender: "Worker", receiver: int, message: m.HelpMessage, payload: Sequence[Grain] = ()) -> None:
        """Send a message, with what a helper did."""
        to, delay_s = self.each[receiver], self.network.delay_s
        if self.network.is_cut({sender.number, receiver}, self.now):
            return
        if to.alive:
            message = m.decode(m.encode(message))  # as it travels
            self.later(delay_s, lambda: to.received(message, payload))
        else:
            self.later(delay_s, lambda: sender.lost(receiver))

    def wake(self) -> None:
        """Let those who wait for a clock look whether it may begin."""
        for worker in self.each:
            self.later(0.0, worker.act)

    def kill(self, number: int) -> None:
        """End a worker at once. What it has not finished is done in its name; then another one has its shards."""
        worker = self.each[number]
        if not worker.alive or sum(other.alive for other in self.each) == 1:
            return
        worker.alive = False
        successors = [other for other in self.each if other.alive]
        since, shards = worker.assigned[-1]
        successor = self.random.choice(successors)
        until = max(since, successor.assigned[-1][0], 1 + max(other.clock for other in successors))
        for clock in range(worker.clock, min(until, self.clocks)):
            self.updates[number, clock] = Counter(worker.all_grains(clock))
        successor.gets(shards, until)
        self.wake()


class Worker:
    """One worker: a processor that does its own grains, and those of others."""

    def __init__(self, course: Course, number: int, mine: tuple[int, ...]) -> None:
        self._course, self.number, self._helpees, self.alive = course, number, mine, True
        self.clock, self._began, self._began_s = 0, -1, 0.0
        self.work = 0.0
        shards = tuple(range(number * course.parts, (number + 1) * course.parts))
        self.assigned: list[tuple[int, tuple[int, ...]]] = [(0, shards)]
        self._helpee = Helpee(number, course.settings or Rebalance())
        self._helper = Helper(number, course.helped_shards)
        self._inbox: list[tuple[m.HelpMessage, Sequence[Grain], float]] = []
        self._lost: set[int] = set()
        self._queue = Queue([])
        self._session: HelpSession | None = None
        self._busy = self._reported = False
        self._update: Counter[Grain] = Counter()

    def all_grains(self, clock: int) -> list[Grain]:
        """Return its grains of a clock."""
        shards = [shards for since, shards in self.assigned if since <= clock][-1]
        return [Grain(shard, number) for shard in shards for number in range(self._course.grains // self._course.parts)]

    def gets(self, shards: tuple[int, ...], clock: int) -> None:
        """Have more shards from a clock on."""
        self.assigned.append((max(clock, self.assigned[-1][0]), self.assigned[-1][1] + shards))

    def lost(self, other: int) -> None:
        """Note that another one could not be reached."""
        self._lost.add(other)
        self.act()

    def received(self, message: m.HelpMessage, payload: Sequence[Grain]) -> None:
        """Take a message."""
        if not self.alive:
            return
        if isinstance(message, m.HelpRequest | m.HelpCancelled | m.ReturnRequest):
            self._send(self._helper.received(message))
        else:
            self._inbox.append((message, payload, self._course.now))
            if isinstance(message, m.HelpCompleted):
                self._course.before_merge(self._course, message.sender, self.number)
        self.act()

    def act(self) -> None:
        """Do what comes next, unless something is under way."""
        if not self.alive or self._busy:
            return
        if self._session is not None:
            self._continue_session()
        elif self._course.settings is not None and self._helper.can_begin:
            self._session, messages = self._helper.begin_next()
            self._send(messages)
            self._course.later(0.0, self.act)
        elif self._began == self.clock:
            self._own_work()
        elif self.clock < self._course.clocks and self._course.may_begin(self.clock):
            self._begin()

    def _begin(self) -> None:
        self._began, self._began_s, self._reported = self.clock, self._course.now, False
        cost = (self._course.cost,) if self._course.uses_cost else ()
        self._queue, self._update = Queue(self.all_grains(self.clock), *cost), Counter()
        self._send(self._helpee.begin(self._queue, self.clock, self._course.generation, self.clock - 1))
        self._helper.at(self.clock, self._course.generation, finished=False)
        self.act()

    def _own_work(self) -> None:
        self._check()
        if len(self._queue):
            self._helper.at(self.clock, self._course.generation, finished=False)
            grain, clock = self._queue.grains.pop(0), self.clock
            update = self._update
            self._busy_for(grain, clock, lambda seconds: self._did(grain, update, seconds))
        elif self._helpee.waits:
            self._wait()
        else:
            self._finish()

    def _did(self, grain: Grain, update: Counter[Grain], seconds: float) -> None:
        update[grain] += 1
        self._helpee.worked(seconds, self._queue.cost(grain))

    def _check(self) -> None:
        if self._course.settings is None:
            return
        for other in self._lost:
            self._helpee.lost(other)
        self._lost.clear()
        inbox, self._inbox = self._inbox, []
        for message, payload, at_s in inbox:
            if isinstance(message, m.HelpCompleted):
                counts, messages = self._helpee.accept(message, at_s)
                if counts:
                    self._update.update(payload)
                    self._course.moved += len(payload)
            else:
                messages = self._helpee.received(message, at_s)
            self._send(messages)
        self._send(self._helpee.check(self._course.now))
        if not self._reported and self._helpee.done >= self._course.settings.report:
            self._reported = True
            report = m.ProgressReport(self.number, self._course.generation, self.clock, self._helpee.done)
            self._send([(other, report) for other in self._helpees])

    def _wait(self) -> None:
        messages, wait_s = self._helpee.wait(self._course.now)
        self._send(messages)
        if not len(self._queue):
            self._helper.at(self.clock, self._course.generation, finished=True)
            self._course.later(wait_s + 1e-6, self.act)
            if not self._helper.can_begin:
                return
        self._course.later(0.0, self.act)

    def _finish(self) -> None:
        self._course.updates[self.number, self.clock] = self._update
        self._course.spans[self.number, self.clock] = self._began_s, self._course.now
        self._helper.at(self.clock, self._course.generation, finished=True)
        self.clock += 1
        self._course.wake()

    def _continue_session(self) -> None:
        session = self._session
        assert session is not None
        if (grain := session.next()) is not None:
            self._busy_for(grain, session.request.clock, lambda seconds: None)
            return
        self._session = None
        for receiver, message in self._helper.end(session, ()):
            self._course.send(self, receiver, message, session.done)
        self._course.later(0.0, self.act)

    def _busy_for(self, grain: Grain, clock: int, does: Callable[[float], None]) -> None:
        part = self._course.cost(grain) / self._course.grains
        seconds = part * self._course.clock_s * self._course.slowness(self.number, clock, self.work, self._course.now)
        self.work += part
        self._busy = True

        def done() -> None:
            self._busy = False
            does(seconds)
            self.act()

        self._course.later(seconds, done)

    def _send(self, messages: Sequence[tuple[int, m.HelpMessage]]) -> None:
        for receiver, message in messages:
            self._course.send(self, receiver, message)
