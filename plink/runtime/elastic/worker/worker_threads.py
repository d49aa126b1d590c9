"""The workers of one host: a thread each, with assignments from outside (Harlap thesis, 4.2.1).

Beside its own workers a host may stand in for one of another host that was lost, in its name, until others have its
shards.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import structs

from plink.errors import PlinkError
from plink.model.elastic.reports import ClockDone, Failed, Log, NodeMessage, WorkerFinished
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Unanswered
from plink.runtime.elastic.worker.worker import RELEASED, Assigned, Assignment, Finished, Worker, WorkOff


@dataclass
class _Running:
    """A running worker. ``until``: the first clock that it does not do, for one that takes over for another."""

    client: Client
    assigned: Assigned
    shards: tuple[int, ...]
    until: int | None = None
    thread: threading.Thread | None = field(default=None, repr=False)
    ended: bool = False

    def end(self) -> None:
        """End the worker as soon as it notices."""
        self.ended = True
        self.assigned.end()
        self.client.give_up()


class Helping(Protocol):
    """Help between the workers of one host and others."""

    def start(self, worker: int, primaries: Mapping[int, PrimaryAddress]) -> WorkOff:
        """Let a worker take part; return how it is to work off a clock."""

    def end(self, worker: int) -> None:
        """End a worker's part, if it has any."""

    def helped(self, worker: int) -> tuple[int, Mapping[int, int]]:
        """Return how many grains a worker's latest clock had, and how many each helper did."""


class WorkerThreads:
    """Worker threads of one host; for the one thread that executes requests. Messages of workers come from their own
    threads.

    :param loaded: the program, with the shards in memory.
    :param client: makes the client of a worker: number, first clock, generation.
    :param tell: sends a message to the controller.
    :param started: of the job, by ``time.time``.
    :param helping: lets a worker of this host help others, and be helped.
    """

    def __init__(
        self,
        loaded: LoadedShards[Any],
        client: Callable[[int, int, int], Client],
        tell: Callable[[NodeMessage], None],
        started: float,
        helping: Helping | None = None,
    ) -> None:
        self._helping = helping
        self._loaded, self._client, self._tell, self._started = loaded, client, tell, started
        self._running: dict[int, _Running] = {}
        self._changing = threading.Lock()
        self._paused: int | None = None
        self.generation = 0
        self.finished: dict[int, int] = {}  # own workers whose job is over: the first clock that was not done

    def assign(self, workers: Mapping[int, Sequence[int]], clock: int, generation: int) -> None:
        """Assign these shards to these workers, and to no others, from ``clock`` on in ``generation``; a pause ends."""
        self.generation = max(generation, self.generation)
        for number, running in self._all().items():
            if running.until is None and number not in workers:
                running.assigned.add(Assignment(clock, generation, None))
        for number, shards in workers.items():
            running_now = self._all().get(number)
            if running_now is None:
                self._start(number, _assigned(shards, generation), tuple(shards), clock, generation)
            else:
                running_now.shards = tuple(shards)
                running_now.assigned.add(Assignment(clock, generation, tuple(shards)))
        self.resume()

    def take_over(
        self, number: int, had: Sequence[tuple[int, Sequence[int]]], clock: int, until: int, generation: int
    ) -> None:
        """Do the clocks from ``clock`` to before ``until`` of a worker that is lost, in its name. Who does less for it
        already ends: what both do counts once.

        :param had: since which clock it had which shards, rising.
        """
        now = self._all().get(number)
        if now is not None and (now.until is None or (now.until >= until and not now.ended)):
            return
        if now is not None:
            now.end()
        assigned = _assigned(had[0][1], generation)
        for since, shards in had:
            assigned.add(Assignment(since, generation, tuple(shards)))
        assigned.add(Assignment(until, generation, None))
        self._start(number, assigned, tuple(had[-1][1]), clock, generation, until)

    def pause(self, clock: int) -> int:
        """Pause before ``clock`` until :meth:`assign` or :meth:`resume`; return the latest clock that a worker has
        begun."""
        self._paused = clock
        own = [running for running in self._all().values() if running.until is None]
        return max([running.assigned.pause(clock) for running in own] + self._done_by_finished())

    def resume(self) -> None:
        """Resume: nothing is paused any more."""
        self._paused = None
        for running in self._all().values():
            running.assigned.resume()

    @property
    def paused(self) -> bool:
        """Return whether workers are paused."""
        return self._paused is not None

    def rolled_back(self, clock: int, generation: int) -> None:
        """Roll workers back to a clock: they wait for their assignments in the new generation, and those that took over
        for others end."""
        self.generation, self._paused = max(generation, self.generation), None
        self.finished.clear()
        for running in self._all().values():
            if running.until is not None:
                running.end()
            running.assigned.rolled_back(clock, generation)

    def set_primaries(self, primaries: Mapping[int, PrimaryAddress]) -> None:
        """Set the primaries of partitions for all workers."""
        for running in self._all().values():
            for partition, primary in primaries.items():
                running.client.set_primary(partition, primary)

    def own(self) -> dict[int, tuple[int, ...]]:
        """Return this host's workers and their shards."""
        return {number: item.shards for number, item in self._all().items() if item.until is None}

    def takeovers(self) -> dict[int, int]:
        """Return workers of others that this host took over, with the first clock that is not done in their name."""
        return {number: item.until for number, item in self._all().items() if item.until is not None}

    @property
    def begun(self) -> int:
        """Return the latest clock that one of this host's own workers has begun."""
        running = [item.assigned.begun for item in self._all().values() if item.until is None]
        return max(running + self._done_by_finished())

    def _done_by_finished(self) -> list[int]:
        """Return the last clocks of workers that have ended because the job is over; -1 with them."""
        return [-1, *(clock - 1 for clock in self.finished.values())]

    def _all(self) -> dict[int, _Running]:
        with self._changing:
            return dict(self._running)

    def _start(
        self,
        number: int,
        assigned: Assigned,
        shards: tuple[int, ...],
        clock: int,
        generation: int,
        until: int | None = None,
    ) -> None:
        running = _Running(self._client(number, clock, generation), assigned, shards, until)
        worker = Worker(
            self._loaded,
            running.client,
            assigned,
            started=self._started,
            say=lambda line: self._tell(Log(line)),
            done=lambda done: self._done(running, done),
        )
        if self._helping is not None and until is None:  # who does a lost worker's clocks again is not helped
            worker.work_off = self._helping.start(number, running.client.primaries())
        running.thread = threading.Thread(
            target=self._run, args=(number, running, worker), name=f"plink-worker-{number}", daemon=True
        )
        with self._changing:
            self._running[number] = running
        running.thread.start()

    def _done(self, running: _Running, done: ClockDone) -> None:
        if self._helping is not None and running.until is None and done.clock:
            grains, helped = self._helping.helped(done.worker)
            done = structs.replace(done, grains=grains, helped=dict(helped))
        self._tell(done)

    def _run(self, number: int, running: _Running, worker: Worker[Any]) -> None:
        """Run a worker to its end; errors are reported."""
        try:
            finished = self._persist(number, running, worker)
            self._end_help(number, running)
            if running.until is None and finished.reason != RELEASED:
                self.finished[number] = finished.clock
            takeover, released = running.until is not None, finished.reason == RELEASED
            self._tell(WorkerFinished(number, finished.clock, takeover, released, finished.reason))
        except PlinkError as error:
            self._tell(Failed(str(error), number, type(error).__name__))
        except BaseException as error:
            reason = f"worker {number}: {type(error).__name__}: {error}"
            self._tell(Failed(reason, number, type(error).__name__))
            raise
        finally:
            with self._changing:
                if self._running.get(number) is running:
                    del self._running[number]
            self._end_help(number, running)
            running.client.close()

    def _end_help(self, number: int, running: _Running) -> None:
        if self._helping is not None and running.until is None:
            self._helping.end(number)

    def _persist(self, number: int, running: _Running, worker: Worker[Any]) -> Finished:
        """Run a worker again after a server did not answer: another will be primary."""
        while True:
            try:
                return worker.run()
            except Unanswered as error:
                if running.ended:
                    return Finished(running.client.now, RELEASED)
                self._tell(Log(f"worker {number} asks again: {error}"))


def _assigned(shards: Sequence[int], generation: int) -> Assigned:
    return Assigned(tuple(shards), generation=generation, every_generation=True)
