"""Scheduler of measurement tasks: runs them side by side, with no host in two tasks at once.

A :class:`ProbeTask` is a generator that yields batches of requests to agents and is sent their answers. When an agent
is lost or an answer is late, :class:`TaskFailed` is thrown into it, so that it records what it could not measure.
"""

import contextlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from plink.transport.fleet import AgentMessage, Fleet

AgentBody = dict[str, Any]  # what is sent to an agent, or what it answers


@dataclass(frozen=True)
class AgentRequest:
    """A message to one agent, to be answered within ``timeout_s`` by a message with the same ``task``."""

    host: int
    body: AgentBody
    timeout_s: float


class TaskFailed(Exception):
    """An agent that a task needs was lost, or did not answer in time; ``str()`` says which."""


OUT_OF_TIME = "not tried: the time was over"
# The two ends of a pair keep two cores busy. With fewer, each waits for the other.
CORES_PER_TASK = 2

RequestBatches = Generator[list[AgentRequest], list[AgentBody], None]


@dataclass
class ProbeTask:
    """A measurement, and the hosts that it needs exclusively.

    ``on_skipped`` is called with the reason when one of the hosts is lost before the task begins.
    """

    hosts: tuple[int, ...]
    batches: RequestBatches
    on_skipped: Callable[[str], None] = lambda reason: None
    pending: dict[int, int] = field(default_factory=dict)  # number of a request -> its place in the batch
    answers: list[AgentBody] = field(default_factory=list)
    deadline: float = 0.0


class ProbeScheduler:
    """Runs measurement tasks on a fleet of agents.

    :param names: host names; tasks use their indices.
    :param clock: monotonic seconds.
    """

    def __init__(self, fleet: Fleet, names: Sequence[str], clock: Callable[[], float]) -> None:
        self.fleet, self.names, self.clock = fleet, list(names), clock
        self.lost_hosts: dict[int, str] = {}  # by index, with the reason
        self.stop_at: Callable[[], float] = lambda: math.inf  # by the clock: from then on tasks end, and none begins
        self._excluded: dict[int, str] = {}
        self._index = {name: i for i, name in enumerate(names)}
        self._machine: dict[int, tuple[str, int]] = {}
        self._requests = 0

    def set_machine(self, host: int, boot_id: str, cores: int) -> None:
        """Set the kernel that a host runs on, and its number of cores."""
        self._machine[host] = (boot_id, cores)

    def mark_lost(self, host: int, reason: str) -> None:
        """Exclude a host from all further tasks. The first reason is kept."""
        self.lost_hosts.setdefault(host, reason)

    @contextlib.contextmanager
    def excluding(self, hosts: Iterable[int], reason: str) -> Iterator[None]:
        """Skip the tasks of these hosts for a while, for this reason."""
        self._excluded = dict.fromkeys(hosts, reason)
        try:
            yield
        finally:
            self._excluded = {}

    @property
    def unavailable_hosts(self) -> dict[int, str]:
        """Hosts that are lost or excluded, by index, with the reason."""
        return self._excluded | self.lost_hosts

    def run(
        self, tasks: list[ProbeTask], on_done: Callable[[], None] = lambda: None, cores_per_task: int = CORES_PER_TASK
    ) -> None:
        """Run tasks to completion, as many at a time as their hosts allow, and call ``on_done`` after each.

        Hosts that share a kernel (containers, a lab) share its cores: a task takes ``cores_per_task`` of them; with 0
        cores do not limit tasks.
        """
        waiting, active = list(tasks), list[ProbeTask]()
        while waiting or active:
            is_over = self.clock() >= self.stop_at()
            for task in [task for task in active if is_over and self._fail(task, OUT_OF_TIME)]:
                active.remove(task)
                on_done()
            for task in list(waiting):
                reason = OUT_OF_TIME if is_over else self._lost_host(task)
                if reason is not None:
                    waiting.remove(task)
                    task.on_skipped(reason)
                    on_done()
                elif self._can_start(task, active, cores_per_task):
                    waiting.remove(task)
                    if self._begin(task):
                        active.append(task)
                    else:
                        on_done()
            if active:
                for task in self._process_next(active):
                    active.remove(task)
                    on_done()

    def _lost_host(self, task: ProbeTask) -> str | None:
        """Return which host of a task is lost, and why; None while all are there."""
        unavailable = self.unavailable_hosts
        host = next((host for host in task.hosts if host in unavailable), None)
        return None if host is None else f"{self.names[host]}: {unavailable[host]}"

    def _can_start(self, task: ProbeTask, active: list[ProbeTask], cores_per_task: int) -> bool:
        busy = {host for other in active for host in other.hosts}
        if busy & set(task.hosts):
            return False
        for host in task.hosts:
            boot, cores = self._machine.get(host, ("", 1))
            if not cores_per_task or not boot or [b for b, _ in self._machine.values()].count(boot) < 2:
                continue
            running = sum(any(self._machine[h][0] == boot for h in other.hosts) for other in active)
            if running >= max(1, cores // cores_per_task):
                return False
        return True

    def _begin(self, task: ProbeTask) -> bool:
        try:
            self._send(task, next(task.batches))
        except StopIteration:
            return False
        return True

    def _send(self, task: ProbeTask, batch: list[AgentRequest]) -> None:
        task.pending, task.answers = {}, [{} for _ in batch]
        task.deadline = self.clock() + max((request.timeout_s for request in batch), default=0.0)
        for place, request in enumerate(batch):
            self._requests += 1
            task.pending[self._requests] = place
            if request.host in self.lost_hosts:
                task.deadline = self.clock()  # no answer will come
            else:
                self.fleet.send(self.names[request.host], **request.body, task=self._requests)

    def _process_next(self, active: list[ProbeTask]) -> list[ProbeTask]:
        """Wait for one message or time-out, and return the tasks that it ended."""
        due = min(self.stop_at(), *(task.deadline for task in active))
        message = self.fleet.receive(due - self.clock())
        if message is None:
            late = [task for task in active if task.deadline <= self.clock()]
            return [task for task in late if self._fail(task, self._timeout_reason(task))]
        if message.body is None:
            host = self.record_loss(message)
            affected = [task for task in active if host in task.hosts]
            return [task for task in affected if self._fail(task, f"{message.host}: {self.lost_hosts[host]}")]
        number = message.body.get("task")
        task = next((task for task in active if type(number) is int and number in task.pending), None)
        if task is None or number is None or self._index[message.host] not in task.hosts:
            return []  # the late answer to a request that timed out
        task.answers[task.pending.pop(number)] = message.body
        if task.pending:
            return []
        try:
            self._send(task, task.batches.send(task.answers))
        except StopIteration:
            return [task]
        return []

    def _timeout_reason(self, task: ProbeTask) -> str:
        names = " and ".join(self.names[host] for host in task.hosts)
        return self._lost_host(task) or f"no answer in time from the agents of {names}"

    def _fail(self, task: ProbeTask, reason: str) -> bool:
        """Throw the reason into a task; True when that ended it (a task may go on with other requests)."""
        try:
            self._send(task, task.batches.throw(TaskFailed(reason)))
        except (StopIteration, TaskFailed):
            return True
        return False

    def record_loss(self, message: AgentMessage) -> int:
        """Mark the host of an agent that ended as lost, and return its index."""
        assert message.error is not None
        host = self._index[message.host]
        self.mark_lost(host, message.error.reason)
        return host
