"""The workers of one host: a thread each, told from outside what to work on (Harlap thesis, 4.2.1).

Beside its own workers a host may stand in for one of another host that was lost, in its name, until others have its
pieces.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plink.errors import PlinkError
from plink.model.elastic.reports import ClockDone, Failed, Log, Message, WorkerFinished
from plink.runtime.agileml.worker.assignments import Assigned, Assignment
from plink.runtime.agileml.worker.client import Client, Ownership, Unanswered
from plink.runtime.agileml.worker.loaded_shards import Loaded
from plink.runtime.agileml.worker.worker import TOLD, Clock, Finished, Worker


@dataclass
class _Running:
    """One worker. ``until``: the first clock that it does not do, for one that stands in."""

    client: Client
    assigned: Assigned
    pieces: tuple[int, ...]
    until: int | None = None
    thread: threading.Thread | None = field(default=None, repr=False)
    ended: bool = False

    def end(self) -> None:
        """As soon as it notices."""
        self.ended = True
        self.assigned.end()
        self.client.give_up()


class WorkerThreads:
    """For the one thread that is told what to do; what workers tell comes from their own threads.

    :param loaded: the program, with the pieces in memory.
    :param client: makes the client of a worker: number, first clock, era.
    :param tell: sends a message to the controller.
    :param started: of the job, by ``time.time``.
    """

    def __init__(
        self, loaded: Loaded[Any], client: Callable[[int, int, int], Client],
        tell: Callable[[Message], None], started: float,
    ) -> None:  # fmt: skip
        self._loaded, self._client, self._tell, self._started = loaded, client, tell, started
        self._running: dict[int, _Running] = {}
        self._changing = threading.Lock()
        self._held: int | None = None
        self.era = 0
        self.finished: dict[int, int] = {}  # own workers whose job is over: the first clock that was not done

    def assign(self, workers: Mapping[int, Sequence[int]], clock: int, era: int) -> None:
        """These workers with these pieces, and no others, from ``clock`` on in ``era``; nothing is held any more."""
        self.era = max(era, self.era)
        for number, running in self._all().items():
            if running.until is None and number not in workers:
                running.assigned.add(Assignment(clock, era, None))
        for number, pieces in workers.items():
            running_now = self._all().get(number)
            if running_now is None:
                self._start(number, _assigned(pieces, era), tuple(pieces), clock, era)
            else:
                running_now.pieces = tuple(pieces)
                running_now.assigned.add(Assignment(clock, era, tuple(pieces)))
        self.let_go()

    def stand_in(
        self, number: int, had: Sequence[tuple[int, Sequence[int]]], clock: int, until: int, era: int
    ) -> None:  # fmt: skip
        """Do the clocks from ``clock`` to before ``until`` of a worker that is lost, in its name. Who does less for it
        already ends: what both do counts once.

        :param had: since which clock it had which pieces, rising.
        """
        now = self._all().get(number)
        if now is not None and (now.until is None or (now.until >= until and not now.ended)):
            return
        if now is not None:
            now.end()
        assigned = _assigned(had[0][1], era)
        for since, pieces in had:
            assigned.add(Assignment(since, era, tuple(pieces)))
        assigned.add(Assignment(until, era, None))
        self._start(number, assigned, tuple(had[-1][1]), clock, era, until)

    def hold(self, clock: int) -> int:
        """No worker begins ``clock`` before :meth:`assign` or :meth:`let_go`; returns the latest that one has."""
        self._held = clock
        own = [running for running in self._all().values() if running.until is None]
        return max([running.assigned.hold(clock) for running in own] + self._done_by_finished())

    def let_go(self) -> None:
        """Nothing is held any more."""
        self._held = None
        for running in self._all().values():
            running.assigned.let_go()

    @property
    def held(self) -> bool:
        """Whether workers are held."""
        return self._held is not None

    def rolled_back(self, clock: int, era: int) -> None:
        """All are back at the state of a clock: workers wait for what they are to do in the new era, and who stood in
        for another is not needed any more."""
        self.era, self._held = max(era, self.era), None
        self.finished.clear()
        for running in self._all().values():
            if running.until is not None:
                running.end()
            running.assigned.rolled_back(clock, era)

    def point(self, owners: Mapping[int, Ownership]) -> None:
        """Partitions have other owners."""
        for running in self._all().values():
            for partition, owner in owners.items():
                running.client.point(partition, owner)

    def own(self) -> dict[int, tuple[int, ...]]:
        """This host's workers and their pieces."""
        return {number: item.pieces for number, item in self._all().items() if item.until is None}

    def stands_in_for(self) -> dict[int, int]:
        """Workers of others, with the first clock that is not done in their name."""
        return {number: item.until for number, item in self._all().items() if item.until is not None}

    @property
    def begun(self) -> int:
        """The latest clock that one of this host's own workers has begun."""
        running = [item.assigned.begun for item in self._all().values() if item.until is None]
        return max(running + self._done_by_finished())

    def _done_by_finished(self) -> list[int]:
        """The last clocks of workers that have ended because the job is over; -1 with them."""
        return [-1, *(clock - 1 for clock in self.finished.values())]

    def _all(self) -> dict[int, _Running]:
        with self._changing:
            return dict(self._running)

    def _start(
        self, number: int, assigned: Assigned, pieces: tuple[int, ...], clock: int, era: int, until: int | None = None
    ) -> None:  # fmt: skip
        running = _Running(self._client(number, clock, era), assigned, pieces, until)
        worker = Worker(
            self._loaded, running.client, assigned, started=self._started,
            say=lambda line: self._tell(Log(line)),
            done=lambda done: self._done(running, done),
        )  # fmt: skip
        running.thread = threading.Thread(
            target=self._run, args=(number, running, worker), name=f"plink-worker-{number}", daemon=True
        )
        with self._changing:
            self._running[number] = running
        running.thread.start()

    def _done(self, running: _Running, done: Clock) -> None:
        self._tell(
            ClockDone(
                clock=done.clock, iteration=done.iteration, batches=self._loaded.app.batches, seconds=done.seconds,
                is_leader=done.leads, evaluated_iteration=done.judged, objective=done.objective, era=running.client.era,
            )
        )  # fmt: skip

    def _run(self, number: int, running: _Running, worker: Worker[Any]) -> None:
        """To the worker's end; what it cannot mend is told."""
        try:
            finished = self._persist(number, running, worker)
            if running.until is None and finished.why != TOLD:
                self.finished[number] = finished.clock
            stood_in, messages = running.until is not None, finished.why == TOLD
            self._tell(WorkerFinished(number, finished.clock, stood_in, messages))
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
            running.client.close()

    def _persist(self, number: int, running: _Running, worker: Worker[Any]) -> Finished:
        """A silent server is not the worker's affair: who serves in its place will be named."""
        while True:
            try:
                return worker.run()
            except Unanswered as error:
                if running.ended:
                    return Finished(running.client.now, TOLD)
                self._tell(Log(f"worker {number} asks again: {error}"))


def _assigned(pieces: Sequence[int], era: int) -> Assigned:
    return Assigned(tuple(pieces), era=era, every_era=True)
