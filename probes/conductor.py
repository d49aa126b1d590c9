"""Run measurements on agents side by side, no host ever in two of them, each a small generator of steps.

A measurement is an :class:`Errand`: a generator that yields the commands of one step and is sent their answers. When an
agent is lost or an answer late, the errand gets an :class:`ErrandFailed` thrown in and notes what it could not measure.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from plink.remote.fleet import Fleet, Message


@dataclass(frozen=True)
class Command:
    """One message to one agent, answered by a message with the same ``task`` within ``timeout_s``."""

    host: int
    body: dict[str, Any]
    timeout_s: float


class ErrandFailed(Exception):
    """Thrown into an errand whose agents cannot go on; ``str()`` says why."""


# The two ends of a pair keep two cores busy; with fewer, each waits for the other's turn.
CORES_EACH = 2

Steps = Generator[list[Command], list[dict[str, Any]], None]


@dataclass
class Errand:
    """One measurement and the hosts it needs to itself; ``unstarted`` is told why when one of them is gone already."""

    hosts: tuple[int, ...]
    steps: Steps
    unstarted: Callable[[str], None] = lambda why: None
    waiting: dict[int, int] = field(default_factory=dict)  # task -> place in the step
    answers: list[dict[str, Any]] = field(default_factory=list)
    deadline: float = 0.0


class Conductor:
    """Drives errands over a fleet.

    :param names: host names; errands speak of their indices.
    :param clock: monotonic seconds.
    """

    def __init__(self, fleet: Fleet, names: Sequence[str], clock: Callable[[], float]) -> None:
        self.fleet, self.names, self.clock = fleet, list(names), clock
        self.gone: dict[int, str] = {}
        self._index = {name: i for i, name in enumerate(names)}
        self._machine: dict[int, tuple[str, int]] = {}
        self._tasks = 0

    def settle(self, host: int, boot_id: str, cores: int) -> None:
        """Say on which kernel a host runs, and on how many cores."""
        self._machine[host] = (boot_id, cores)

    def lose(self, host: int, why: str) -> None:
        """A host cannot be used (any more)."""
        self.gone.setdefault(host, why)

    def run(
        self, errands: list[Errand], on_done: Callable[[], None] = lambda: None, cores_each: int = CORES_EACH
    ) -> None:
        """Run errands to their ends, as many at a time as their hosts allow; ``on_done`` after each.

        Hosts that share a kernel (containers, a lab) share its cores: an errand counts for ``cores_each`` of them.
        """
        waiting, active = list(errands), list[Errand]()
        while waiting or active:
            for errand in list(waiting):
                missing = next((host for host in errand.hosts if host in self.gone), None)
                if missing is not None:
                    waiting.remove(errand)
                    errand.unstarted(f"{self.names[missing]}: {self.gone[missing]}")
                    on_done()
                elif self._has_room(errand, active, cores_each):
                    waiting.remove(errand)
                    if self._begin(errand):
                        active.append(errand)
                    else:
                        on_done()
            if active:
                for errand in self._step(active):
                    active.remove(errand)
                    on_done()

    def _has_room(self, errand: Errand, active: list[Errand], cores_each: int) -> bool:
        busy = {host for other in active for host in other.hosts}
        if busy & set(errand.hosts):
            return False
        for host in errand.hosts:
            boot, cores = self._machine.get(host, ("", 1))
            if not boot or [b for b, _ in self._machine.values()].count(boot) < 2:
                continue
            there = sum(any(self._machine[h][0] == boot for h in other.hosts) for other in active)
            if there >= max(1, cores // cores_each):
                return False
        return True

    def _begin(self, errand: Errand) -> bool:
        try:
            self._send(errand, next(errand.steps))
        except StopIteration:
            return False
        return True

    def _send(self, errand: Errand, commands: list[Command]) -> None:
        errand.waiting, errand.answers = {}, [{} for _ in commands]
        errand.deadline = self.clock() + max((command.timeout_s for command in commands), default=0.0)
        for place, command in enumerate(commands):
            self._tasks += 1
            errand.waiting[self._tasks] = place
            if command.host in self.gone:
                errand.deadline = self.clock()  # nobody will answer
            else:
                self.fleet.send(self.names[command.host], **command.body, task=self._tasks)

    def _step(self, active: list[Errand]) -> list[Errand]:
        """Wait for one thing to happen; returns the errands that ended by it."""
        message = self.fleet.receive(min(errand.deadline for errand in active) - self.clock())
        if message is None:
            late = [errand for errand in active if errand.deadline <= self.clock()]
            return [errand for errand in late if self._fail(errand, self._who_is_late(errand))]
        if message.body is None:
            host = self.note_gone(message)
            hit = [errand for errand in active if host in errand.hosts]
            return [errand for errand in hit if self._fail(errand, f"{message.host}: {self.gone[host]}")]
        task = message.body.get("task")
        errand = next((one for one in active if type(task) is int and task in one.waiting), None)
        if errand is None or task is None or self._index[message.host] not in errand.hosts:
            return []  # the late answer to something given up before
        errand.answers[errand.waiting.pop(task)] = message.body
        if errand.waiting:
            return []
        try:
            self._send(errand, errand.steps.send(errand.answers))
        except StopIteration:
            return [errand]
        return []

    def _who_is_late(self, errand: Errand) -> str:
        missing = next((host for host in errand.hosts if host in self.gone), None)
        if missing is not None:
            return f"{self.names[missing]}: {self.gone[missing]}"
        return f"no answer in time from the agents of {' and '.join(self.names[host] for host in errand.hosts)}"

    def _fail(self, errand: Errand, why: str) -> bool:
        """Throw the reason in; True when the errand has ended (it may have other steps to take)."""
        try:
            self._send(errand, errand.steps.throw(ErrandFailed(why)))
        except (StopIteration, ErrandFailed):
            return True
        return False

    def note_gone(self, message: Message) -> int:
        """Note an agent's end; returns its host's index."""
        assert message.error is not None
        host = self._index[message.host]
        self.lose(host, message.error.reason)
        return host
