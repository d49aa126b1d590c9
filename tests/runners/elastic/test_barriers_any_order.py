"""Turns while anything happens: at every clock each shard is worked on once, whoever is lost, in whatever order."""

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.runners.elastic.barrier_desk import Table

SHARDS = 6
SERVER = 0  # which is never lost, and has the only partition


@dataclass
class Working:
    """One worker on its host, as a node has it: what it was told, and the next clock."""

    host: int
    next: int
    generation: int
    assignments: list[tuple[int, int, tuple[int, ...] | None]] = field(
        default_factory=list
    )  # clock, generation, shards
    until: int | None = None
    begun: bool = False


class Turning(RuleBasedStateMachine):
    """A job on paper around :mod:`solvers.elastic.rebalancing`."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table({0: 1, 1: 1, 2: 2}, {0: (0, 1), 1: (2, 3), 2: (4, 5)}, serves=(SERVER,))
        self.table.load({host: range(SHARDS) for host in range(99)})
        self.read, self.newest = 0, 2
        self.inbox: dict[int, list[dict[str, Any]]] = {}
        self.workers: dict[int, Working] = {}
        self.paused: dict[int, int | None] = {}
        self.parts: list[tuple[int, tuple[int, ...]]] = []
        self.done: dict[int, dict[int, tuple[int, ...]]] = {}  # by clock and worker
        self.generation, self.back, self.used = 0, -1, set[int]()
        self.table.advance()

    def _receive(self) -> None:
        for word in self.table.sent[self.read :]:
            self.inbox.setdefault(word["to"], []).append(word)
        self.read = len(self.table.sent)

    def deliver(self, place: int) -> None:
        """The next word to some host."""
        self._receive()
        hosts = [host for host, words in self.inbox.items() if words and host in self.table.hosts]
        if hosts:
            host = hosts[place % len(hosts)]
            self._obey(host, self.inbox[host].pop(0))

    def _obey(self, host: int, word: dict[str, Any]) -> None:
        own = {number: worker for number, worker in self.workers.items() if worker.host == host}
        match word["do"]:
            case "pause":
                self.paused[host] = word["clock"]
                begun = [
                    worker.next if worker.begun else worker.next - 1 for worker in own.values() if worker.until is None
                ]
                self.table.answer(word, begun=max(begun, default=-1))
            case "resume":
                self.paused[host] = None
            case "set_participants":
                self.parts.append((word["first"], tuple(word["workers"])))
                self.table.answer(word, elsewhere=[])
                self._advance()
            case "assign_shards":
                self._assigned(host, own, word)
            case "take_over" if word["generation"] == self.generation and word["worker"] not in own:
                messages = [(-1, word["generation"], tuple(word["had"][0][1]))]
                messages += [(clock, word["generation"], tuple(shards)) for clock, shards in word["had"]]
                self.workers[word["worker"]] = Working(host, word["clock"], word["generation"], messages, word["until"])
            case "roll_back":
                self.paused[host] = None
                for number, worker in own.items():
                    if worker.until is not None:
                        del self.workers[number]

    def _assigned(self, host: int, own: dict[int, Working], word: dict[str, Any]) -> None:
        clock, generation = word["clock"], word["generation"]
        for number, worker in own.items():
            if worker.until is None and number not in word["workers"]:
                worker.assignments.append((clock, generation, None))
        for number, shards in word["workers"].items():
            if number not in own:
                assert number not in self.used, "a number is used again"
                self.used.add(number)
                self.workers[number] = Working(host, clock, generation)
            self.workers[number].assignments.append((clock, generation, tuple(shards)))
        self.paused[host] = None

    def work(self, place: int) -> None:
        """Some worker begins a clock, or is done with it."""
        if not self.workers:
            return
        number = sorted(self.workers)[place % len(self.workers)]
        item = self.workers[number]
        if item.generation < self.generation:
            item.next, item.generation, item.begun = self.back + 1, self.generation, False
        paused = self.paused.get(item.host)
        if not any(generation == item.generation for _, generation, _ in item.assignments):
            return
        if not item.begun and (
            (paused is not None and item.next >= paused and item.until is None) or self._clock() < item.next - 1
        ):
            return
        shards = [
            theirs
            for clock, generation, theirs in item.assignments
            if clock <= item.next and generation <= item.generation
        ][-1]
        if (item.until is not None and item.until <= item.next) or shards is None:
            del self.workers[number]
            self.table.ended(number)
        elif not item.begun:
            item.begun = True
            if item.until is None:
                self.table.set(begun=max(self.table.rebalancing.begun, item.next))
        else:
            self.done.setdefault(item.next, {}).setdefault(number, shards)
            item.next, item.begun = item.next + 1, False
            self._advance()

    @rule(steps=st.integers(1, 80), seed=st.integers(0, 10**6))
    def go_on(self, steps: int, seed: int) -> None:
        """Hosts hear and work for a while."""
        chance = random.Random(seed)
        for _ in range(steps):
            chance.choice([self.deliver, self.work])(chance.randrange(100))

    def _clock(self) -> int:
        return self.table.clock

    def _advance(self) -> None:
        while True:
            clock = self._clock() + 1
            taking = [workers for first, workers in self.parts if first <= clock]
            done = self.done.get(clock, {})
            if not taking or not set(taking[-1]) <= set(done):
                return
            assert set(done) == set(taking[-1]), "who does not take part has worked"
            result = sorted(shard for shards in done.values() for shard in shards)
            assert result == list(range(SHARDS)), f"shards of clock {clock}: {done}"
            self.table.clock = clock

    @rule(places=st.lists(st.integers(0, 9), min_size=SHARDS, max_size=SHARDS))
    def decide(self, places: list[int]) -> None:
        """Who is to work on what is another."""
        hosts = self.table.hosts
        self.table.want(self._next_assignment(hosts, places))

    def _next_assignment(self, hosts: list[int], places: list[int]) -> dict[int, tuple[int, ...]]:
        result: dict[int, list[int]] = {}
        for shard, place in enumerate(places):
            result.setdefault(hosts[place % len(hosts)], []).append(shard)
        return {host: tuple(result[host]) for host in sorted(result)}

    @precondition(lambda self: len(self.table.hosts) > 1)
    @rule(
        place=st.integers(0, 99),
        some=st.booleans(),
        places=st.lists(st.integers(0, 9), min_size=SHARDS, max_size=SHARDS),
    )
    def lose(self, place: int, some: bool, places: list[int]) -> None:
        """A host is lost; its shards are others', at once or when those have loaded them."""
        hosts = sorted(set(self.table.hosts) - {SERVER})
        host = hosts[place % len(hosts)]
        self.workers = {number: worker for number, worker in self.workers.items() if worker.host != host}
        left = sorted(set(self.table.hosts) - {host})
        target = {other: shards for other, shards in self.table.rebalancing.target.items() if other != host}
        self.table.die(host, target=target if some else self._next_assignment(left, places))

    @rule(slots=st.integers(1, 3))
    def join(self, slots: int) -> None:
        """Another host."""
        self.newest += 1
        self.table.join(self.newest, slots)

    @rule(places=st.integers(0, 3))
    def roll_back(self, places: int) -> None:
        """All go back some clocks."""
        self._receive()
        self.generation, self.back = self.generation + 1, max(-1, self._clock() - places)
        self.table.clock = self.back
        self.done = {clock: done for clock, done in self.done.items() if clock <= self.back}
        for host in self.table.hosts:
            self.inbox.setdefault(host, []).append({"do": "roll_back"})
            if host == SERVER:
                for word in [request for request in self.inbox[host] if request["do"] == "set_participants"]:
                    self.inbox[host].remove(word)
        self.table.roll_back(self.back, self.generation)
        self.table.advance()

    @rule()
    def wait(self) -> None:
        """What was put off is done."""
        self.table.wait()

    @invariant()
    def check_participants(self) -> None:
        """What servers and hosts are told agree."""
        words = self.table.words("assign_shards")
        if words:
            taking = [word for word in self.table.words("set_participants") if word["first"] == words[-1]["clock"]]
            assert sorted(words[-1]["everywhere"]) in [word["workers"] for word in taking]


class TestTurning(Turning.TestCase):
    """Tried with many courses of things."""

    settings = settings(max_examples=30, stateful_step_count=60, phases=(Phase.generate,), database=None)
