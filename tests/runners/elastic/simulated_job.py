"""A whole elastic job in one thread and no time: the real controller, nearly real hosts, and a fake supervisor.

MessageSchema keep their order between two ends; how long they take is drawn by chance, from a seed.
"""

import functools
import heapq
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from plink.elastic.optimisers import Optimiser
from plink.model.elastic.codec import decode_message
from runners.elastic.controller import Controller, RequestLine, decode, encode
from solvers.elastic import commands, events
from solvers.elastic.member import Member
from solvers.elastic.settings import Settings
from tests.runners.elastic.simulated_host import Counting, SimulatedHost
from tests.runners.elastic.simulated_server import Net

_TICK_S = 0.2
_STARTS_S = 0.5, 1.2  # another controller
_STUCK_S = 120.0  # longer than anybody waits for anything


class Stuck(AssertionError):
    """Nothing goes on any more."""


@dataclass
class SimulatedJob:
    """:param tiers: a letter a host, r or t. ``rough``: now and then a word between two servers is lost. ``shard_s``:
    how long a worker of a host takes for a shard at a clock; then each has one worker. ``watch``: is called after
    everything that happens. ``dtype``: of what is counted. ``slots``: of hosts, of which each has one at random."""

    seed: int
    tiers: str
    partitions: int = 3
    shards: int = 8
    clocks: int = 40
    rough: float = 0.0
    grains: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    optimiser: Optimiser | None = None
    dtype: str = "int64"
    watch: Callable[["SimulatedJob"], None] = lambda job: None
    shard_s: Callable[[int, int], float] | None = None
    slots: tuple[int, ...] = (1, 1, 2, 3)
    now: float = 0.0
    log: list[str] = field(default_factory=list)
    ended: tuple[int, str] | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.net = Net(self.later, self.random.uniform, self._hurdle, lambda: self.now)
        self.hosts: dict[int, SimulatedHost] = {}
        self.members: dict[int, Member] = {}
        self._members_by_number: dict[int, Member] = {}
        self.warned: dict[int, float] = {}
        self._arrives: dict[object, float] = {}  # the latest word between two ends
        self._controller: Controller | None = None
        self._term = 0
        self._out: list[dict[str, Any]] = []
        self._in: list[dict[str, Any]] | None = None
        self._clock_at, self.clock, self._next_barrier = 0.0, -1, 0
        self._settings = Settings(
            keys="", partitions=self.partitions, shards=self.shards, shapes=((1 << 10, 1 << 10),),
            started=0.0, began=0.0, **self.settings,
        )  # fmt: skip
        members = [self._host(tier) for tier in self.tiers]
        self.members |= {member.number: member for member in members}
        self._start_controller(events.JobStarted(tuple(members)))
        self._tick()

    # Time.

    def later(self, seconds: float, does: Callable[[], None]) -> None:
        """In so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), does))

    def _in_order(self, ends: object, slowest: float, does: Callable[[], None]) -> None:
        """A word: not before the one before it."""
        at = max(self._arrives.get(ends, 0.0), self.now + self.random.uniform(0.0002, slowest))
        self._arrives[ends] = at
        heapq.heappush(self._events, (at, next(self._order), does))

    def run(self) -> None:
        """To its end. :raises Stuck: it does not come."""
        while self.ended is None:
            at, _, does = heapq.heappop(self._events)
            self.now = max(at, self.now)
            does()
            self.watch(self)
            if self.now - self._clock_at > _STUCK_S:
                raise Stuck(f"seed {self.seed}: nothing has happened since clock {self.clock} at {self._clock_at:.2f}")

    def note(self, text: str) -> None:
        """For whoever looks for the cause of something."""
        self.log.append(f"{self.now:8.3f} {text}")

    def _hurdle(self) -> str:
        if self.rough and self.random.random() < self.rough:
            return self.random.choice(["asking", "answering"])
        return ""

    # Hosts.

    def _host(self, tier: str) -> Member:
        number = len(self._members_by_number)
        slots = self.random.choice(self.slots) if self.shard_s is None else 1
        member = Member(number, f"h{number}", "reliable" if tier == "r" else "transient", slots)
        slowest = self.random.choice([0.002, 0.02, 0.1])
        host = SimulatedHost(
            Counting(
                self.shards, self.partitions, self.clocks, self.grains, self._settings.rule, self.optimiser, self.dtype
            ),
            f"{number}:1", self.net,
            lambda message: self._in_order((number, "supervisor"), slowest, lambda: self._receive(number, message)),
            lambda *messages: None, self.random.choice([0.5, 1.0, 2.0]),
        )  # fmt: skip
        host.leave = lambda: self.kill(number, "its node ended")  # type: ignore[method-assign]
        host.noted = self.note  # type: ignore[method-assign]
        if self.shard_s is not None:
            host.shard_s = functools.partial(self.shard_s, number)
        self._members_by_number[number], self.hosts[number] = member, host
        return member

    def join(self, tiers: str, bulk: bool) -> list[int]:
        """Hosts come."""
        members = [self._host(tier) for tier in tiers]
        self.note(f"join {[f'{m.name} {m.tier}' for m in members]} bulk={bulk}")
        self.members |= {member.number: member for member in members}
        self._tell(events.HostsJoined(tuple(members), bulk))
        return [member.number for member in members]

    def warn(self, numbers: list[int], seconds: float) -> None:
        """Hosts will be taken away, and then are."""
        cached = [number for number in numbers if number in self.members]
        self.note(f"warn {cached} in {seconds:.2f} s")
        for number in cached:
            self.warned[number] = self.now + seconds
            self.later(seconds, lambda number=number: self.kill(number, "taken away"))  # type: ignore[misc]
        if cached:
            self._tell(events.EvictionNotice(tuple(cached), seconds, "warned"))

    def kill(self, number: int, reason: str = "killed", silently: bool = False) -> None:
        """A host is gone, and somebody says so, or nobody."""
        if self.hosts[number].alive:
            self.note(f"host {number} is gone: {reason}")
            self.hosts[number].die()
            if not silently:
                self._in_order((number, "supervisor"), 0.3, lambda: self._lost(number, reason))

    def _lost(self, number: int, reason: str) -> None:
        if self.members.pop(number, None):
            self.warned.pop(number, None)
            self._tell(events.HostsLost((number,), reason))

    def _receive(self, number: int, message: dict[str, Any]) -> None:
        if number in self.members:
            self._tell(events.HostMessage(number, decode_message(message)))

    # The controller.

    def _start_controller(self, event: Any) -> None:
        self._term += 1
        self._out, self._in = [], [encode(event)]
        for number, at in self.warned.items():
            seconds = max(0.1, at - self.now)
            self._tell(events.EvictionNotice((number,), seconds, "warned"))
        by = self._term
        self.later(self.random.uniform(*_STARTS_S), lambda: self._controller_begins(by))

    def _controller_begins(self, by: int) -> None:
        if by != self._term or self._in is None:
            return
        self._controller = Controller(self._written, self._settings, by, lambda: self.now)
        self._run_next(by)

    def kill_controller(self) -> None:
        """Of its last words some are lost, and what it was told; another one begins."""
        if self._in is None:
            return
        self.note(f"controller {self._term} is gone")
        self._out = self._out[: self.random.randint(0, len(self._out))]
        self._flush(self._term)
        self._controller, self._in = None, None
        self._term += 1
        self.later(self.random.uniform(0.0, 0.3), lambda: self._resume())

    def _resume(self) -> None:
        self._term -= 1
        self._start_controller(events.ControllerRestarted(tuple(self.members.values())))

    def _tell(self, event: Any) -> None:
        if self._in is not None:
            self._in.append(json.loads(json.dumps(encode(event))))
            by = self._term
            self.later(0.0, lambda: self._run_next(by))

    def _run_next(self, by: int) -> None:
        if by != self._term or self._controller is None or self._in is None:
            return
        messages, self._in = self._in, []
        for message in messages:
            self._controller.handle(decode(message))
        wait_s = min(max(self._controller.tick(), 0.0005), 0.5)
        self._next_barrier += 1
        mine = self._next_barrier
        self.later(wait_s, lambda: self._run_next(by) if mine == self._next_barrier else None)

    def _tick(self) -> None:
        self._tell(events.SupervisorAlive())  # so that it knows that it is the hosts that are silent
        self.later(_TICK_S, self._tick)

    def _written(self, message: dict[str, Any]) -> None:
        self._out.append(json.loads(json.dumps(message)))
        by = self._term
        self._in_order("out", 0.005, lambda: self._pass_on(by))

    def _pass_on(self, by: int) -> None:
        if by == self._term and self._out:
            self._says(self._out.pop(0))

    def _flush(self, by: int) -> None:
        while self._out:
            self._pass_on(by)

    def _says(self, message: dict[str, Any]) -> None:
        """The controller does."""
        match item := decode(message):
            case RequestLine(number, body):
                if body["method"] not in ("truncate", "replicate_up_to"):
                    self.note(f"-> {number} { ({'method': body['method'], **body['params']}) }")
                if number in self.hosts:
                    host = self.hosts[number]
                    delay = self.random.choice([0.002, 0.02, 0.1])
                    self._in_order(("supervisor", number), delay, lambda: host.hear(body))
            case commands.LogLine(fields):
                self.note(f"log {dict(fields)}")
                if fields["what"] == "iteration":
                    self._progress(fields["clock"])
            case commands.Note(text):
                self.note(f"note {text}")
            case commands.Say(text):
                self.note(f"say {text}")
            case commands.DropHost(number):
                self.members.pop(number, None)
                self.warned.pop(number, None)
                self.kill(number, "dropped", silently=True)
            case commands.StartReliableHosts():
                self.note("reliable hosts are wanted")
                self.later(1.0, lambda: self.join("r", True))
            case commands.EndJob():
                self.note(f"the end: {item}")
                self.ended = item.code, item.reason

    def _progress(self, clock: int) -> None:
        self.clock, self._clock_at = clock, self.now

    def alive(self, tier: str = "") -> list[int]:
        """Members that are there, of a tier."""
        return [number for number in self.members
                if self.hosts[number].alive and self.members[number].tier.startswith(tier)]  # fmt: skip
