"""A host of a simulated job: the real node and what it knows of its workers, without threads, in told time."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from plink.elastic import App, Objective, Params, StoppingCriterion, Table
from plink.errors import PlinkError
from plink.model.consistency import BSP
from plink.model.elastic import requests as r
from plink.model.elastic.codec import Envelope, decode_request, encode_message
from plink.model.elastic.fields import TrafficCounters
from plink.model.elastic.reports import Alive, Failed, WorkerFinished
from plink.model.elastic.results import Begun
from plink.runtime.agileml.arrays.layout import run_of
from plink.runtime.agileml.arrays.row_blocks import RowBlock
from plink.runtime.agileml.node import _LONG_HANDLERS, _MAX_CONCURRENT_MOVES, _MAX_RETRIES, Node
from plink.runtime.agileml.partition.partition import RejectedRequest
from plink.runtime.agileml.server.request_handlers import MOVING
from plink.runtime.agileml.transport.store_config import StoreConfig
from plink.runtime.agileml.transport.wire import LAST, Kind, Status, Wanted
from plink.runtime.agileml.transport.wire import Message as Word
from plink.runtime.agileml.worker.assignments import Assigned
from plink.runtime.agileml.worker.client import PrimaryAddress, RolledBack
from plink.runtime.agileml.worker.progress import job_layout
from plink.runtime.agileml.worker.worker import RELEASED, Clock
from plink.runtime.agileml.worker.worker_threads import WorkerThreads, _Running
from tests.runners.agile.simulated_help import SimulatedHelping, SimulatedRebalancer
from tests.runners.agile.simulated_server import Net, SimulatedServer, copied, far_enough

_WAIT_S = 300.0


class Counting(App[int]):
    """Every partition has a row for every shard, which counts the clocks that were worked on, by grains."""

    def __init__(self, shards: int, partitions: int, clocks: int, grains: int = 1) -> None:
        self.grains = grains
        self.shards, self.partitions, self.batches, self.seed = shards, partitions, 1, 1
        self.stop = StoppingCriterion(clocks=clocks)
        self.tables: Sequence[Table] = (Table("n", shards * partitions, 1, "int64"),)

    def load(self, shard: int) -> Sequence[int]:
        return [shard]

    def part(self, items: int, grain: int) -> int:
        return items

    def process(self, items: int, params: Params) -> Objective | None:
        raise AssertionError("simulated workers do that")


class _Blocked(Exception):
    """Somebody would have to wait."""


class _Unlocked:
    """A condition for one thread, in which nobody may wait."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def wait(self) -> None:
        raise _Blocked

    def notify_all(self) -> None:
        pass


class SimulatedClient:
    """What :class:`WorkerThreads` wants of one."""

    def __init__(self, primaries: dict[int, PrimaryAddress], clock: int, generation: int) -> None:
        self.primaries, self.now, self.generation, self.given_up = dict(primaries), clock, generation, False

    def set_primary(self, partition: int, primary: PrimaryAddress) -> None:
        if primary.term >= self.primaries[partition].term:
            self.primaries[partition] = primary

    def give_up(self) -> None:
        self.given_up = True

    def close(self) -> None:
        pass


class SimulatedWorker:
    """Clock after clock: begin, read all partitions, work, tell all partitions."""

    def __init__(self, host: "SimulatedHost", number: int, running: Any) -> None:
        self._host, self.number, self._running, self._client = host, number, running, running.client
        self._shards: tuple[int, ...] = ()
        self._left: set[int] = set()
        self._does = self._begin
        self._worked_s = 0.0
        self._soon(0.0)

    def _soon(self, seconds: float) -> None:
        self._host.later(seconds, self._run_next)

    def _run_next(self) -> None:
        if self._running.ended and (self._client.given_up or self._does == self._begin):
            self._finished(RELEASED)
            return
        try:
            self._does()
        except _Blocked:
            self._soon(self._host.net.delay(0.001, 0.01))
        except RolledBack as back:
            self._client.now, self._client.generation, self._does = back.clock + 1, back.generation, self._begin
            self._soon(0.001)
        except Exception as error:
            reason = f"worker {self.number} at clock {self._client.now}: {type(error).__name__}: {error}"
            self._host.send(encode_message(Failed(reason, self.number, type(error).__name__)))

    def _begin(self) -> None:
        now, app = self._client.now, self._host.app
        assert app.stop.clocks is not None
        if now > app.stop.clocks:
            self._finished(f"{app.stop.clocks} clocks are done")
            return
        shards = self._running.assigned.begin(now, self._client.generation)
        if shards is None:
            self._finished(RELEASED)
            return
        self._shards, self._left, self._does = shards, set(range(app.partitions)), self._read
        self._host.begun(self.number, now, self._client.generation, shards, self._running.until is None)
        self._soon(0.0)

    def _read(self) -> None:
        now = self._client.now
        for partition in sorted(self._left) if now else ():
            rows = range(self._host.app.shards)
            wanted = Wanted(0, rows)
            generation = self._client.generation
            word = Word(
                Kind.READ,
                partition,
                worker=self.number,
                generation=generation,
                clock=now,
                before=now - 1,
                wanted=(wanted,),
            )
            if (answer := self._ask(word)) is not None:
                self._left.discard(partition)
                if (answer.blocks[0].values != now * self._host.app.grains).any() and not self._done_by_all(now):
                    raise AssertionError(f"partition {partition} at clock {now}: {answer.blocks[0].values.ravel()}")
        if now and self._left:
            self._soon(0.02)
            return
        self._left, self._does = set(range(self._host.app.partitions)), self._update
        if (helping := self._helping) is not None:
            helping.begin(self._shards, self._client)
            self._does = self._work
            self._soon(0.0)
            return
        self._worked_s = self._host.seconds_of_work(now, len(self._shards))
        self._soon(self._worked_s)

    @property
    def _helping(self) -> SimulatedRebalancer | None:
        """Who helps this worker now, if anybody may."""
        host = self._host._helping
        own = self._running.until is None and self._client.now
        return host.of(self.number) if isinstance(host, SimulatedHelping) and own else None

    def _work(self) -> None:
        assert self._helping is not None
        seconds = self._helping.step()
        if seconds is None:
            self._does = self._update
        self._soon(seconds or 0.0)

    def _done_by_all(self, clock: int) -> bool:
        """Whether it does not matter what a worker sees, because nobody needs its update any more."""
        seen = [
            status
            for server in self._host.net.servers.values()
            for status in server.status()
            if status.role == "serving"
        ]
        return all(item.clocks[-1] >= clock for item in seen)

    def _update(self) -> None:
        """Some partitions at a time: another host may be lost, or this one, before all have it."""
        some = sorted(self._left, key=lambda _: self._host.net.delay(0.0, 1.0))
        for partition in some[: 1 + int(self._host.net.delay(0, len(some)))]:
            rows = run_of(np.array(sorted(self._shards), dtype=np.uint32))
            block = RowBlock(0, rows, np.full((len(rows), 1), self._host.app.grains, dtype=np.int64))
            if (helping := self._helping) is not None:
                block = helping.added(partition, self._shards)
            now = self._client.now
            word = Word(
                Kind.UPDATE, partition, worker=self.number, generation=self._client.generation, clock=now, flags=LAST,
                blocks=(block,) if len(block.rows) else (),
            )  # fmt: skip
            if self._ask(word) is not None:
                self._left.discard(partition)
        if self._left:
            self._soon(self._host.net.delay(0.001, 0.02))
            return
        now = self._client.now
        self._client.now, self._does = now + 1, self._begin
        self._host.workers._done(
            self._running,
            Clock(now, now - 1, len(self._shards), 0.1, self._worked_s, 0 in self._shards, now - 2),
        )
        self._soon(0.0)

    def _ask(self, word: Word) -> Word | None:
        return self._host.ask(self._client, word)

    def _finished(self, reason: str) -> None:
        takeover, messages = self._running.until is not None, reason == RELEASED
        self._host.send(encode_message(WorkerFinished(self.number, self._client.now, takeover, messages)))
        if self._running.until is None and reason != RELEASED and hasattr(self._host.workers, "finished"):
            self._host.workers.finished.setdefault(self.number, self._client.now)
        running = self._host.workers._running
        if running.get(self.number) is self._running:
            del running[self.number]
        if self._running.until is None and self._host._helping is not None:
            self._host._helping.end(self.number)


class SimulatedWorkers(WorkerThreads):
    """Those of one host."""

    def __init__(self, host: "SimulatedHost") -> None:
        super().__init__(host._loaded, host.client, host._send, 0.0, host._helping)
        self._host = host

    def _start(
        self, number: int, assigned: Assigned, shards: tuple[int, ...], clock: int, generation: int,
        until: int | None = None
    ) -> None:  # fmt: skip
        assigned._changed = _Unlocked()  # type: ignore[assignment]
        running = _Running(self._client(number, clock, generation), assigned, shards, until)
        self._running[number] = running
        if self._helping is not None and until is None:
            self._helping.start(number, running.client.primaries)
        SimulatedWorker(self._host, number, running)


class SimulatedHost(Node):
    """``says`` takes what it says on its line; ``begun`` hears of every clock that one of its workers begins."""

    def __init__(
        self, app: Counting, address: str, net: Net, says: Callable[[dict[str, Any]], None],
        begun: Callable[[int, int, int, tuple[int, ...], bool], None], slow: float,
    ) -> None:  # fmt: skip
        super().__init__(app, None)  # type: ignore[arg-type]
        self.app, self.address, self.net, self._says, self.begun, self.alive = app, address, net, says, begun, True
        self.work_s = 0.01 * slow, 0.04 * slow
        self._inbox: list[Envelope] = []
        self._busy = False
        self._moving: list[Callable[[], bool]] = []
        self._channel = self  # type: ignore[assignment]

    def seconds_of_work(self, clock: int, shards: int) -> float:
        """Of a worker at a clock: drawn, or so much for each shard."""
        return self.net.delay(*self.work_s) if self.shard_s is None else self.shard_s(clock) * shards

    def later(self, seconds: float, does: Callable[[], None]) -> None:
        """If it is alive then."""
        self.net.later(seconds, lambda: does() if self.alive else None)

    def send(self, message: dict[str, Any]) -> None:
        """On its line."""
        if self.alive:
            if message["type"] == "answer" and message["error"]:
                self.noted(f"{self.address} refuses {message}")
            self._says(json.loads(json.dumps(message)))

    def client(self, number: int, clock: int, generation: int) -> Any:
        """Of a worker."""
        return SimulatedClient(self._primaries, clock, generation)

    def ask(self, client: Any, word: Word) -> Word | None:
        """As a client would: None where it is to be asked again."""
        address = client.primaries[word.partition].address
        server = self.net.servers.get(address)
        if server is None:
            return None
        answer = server._answer(copied(word), {})
        self.net.carry(self.address, address, word, answer)
        if answer.status is Status.ROLLED_BACK:
            raise RolledBack(answer.clock, answer.generation)
        if answer.status is Status.REFUSED:
            raise PlinkError(f"partition {word.partition} at {address}: {answer.text}")
        if answer.text and answer.status in (Status.OK, Status.ELSEWHERE):
            client.set_primary(word.partition, PrimaryAddress(answer.text, answer.term))
        return answer if answer.status is Status.OK else None

    def die(self) -> None:
        """At once."""
        self.alive = False
        if self._server is not None:
            self._server.die()  # type: ignore[attr-defined]

    def hear(self, body: dict[str, Any]) -> None:
        """Of the controller's."""
        self._inbox.append(decode_request(body))
        self._run_next()

    def _run_next(self) -> None:
        while self._inbox and not self._busy and self.alive:
            self._execute(self._inbox.pop(0))

    def _dispatch(self, envelope: Envelope) -> None:
        request, kind = envelope.request, type(envelope.request)
        if isinstance(request, r.Begin):
            self._do(envelope, SimulatedHost.begin)
        elif isinstance(request, r.Bye):
            self.later(0.0, self.leave)
        elif isinstance(request, r.RollBack):
            self._roll_back(envelope, request, 0)
        elif kind in MOVING:
            self._queue_move(envelope)
        elif isinstance(request, r.Commit):
            self.later(self.net.delay(0.001, 0.03), lambda: self._commit(envelope, request))
        elif isinstance(request, r.WriteResult):
            self._result(envelope, request, 0)
        elif kind in _LONG_HANDLERS:
            self.later(self.net.delay(0.001, 0.2), lambda: self._do(envelope, _LONG_HANDLERS[kind]))
        else:
            super()._dispatch(envelope)

    shard_s: Callable[[int], float] | None = None
    leave: Callable[[], None]
    noted: Callable[[str], None]

    def begin(self, request: r.Begin) -> Begun:
        if self._server is None:
            nobody: Any = None  # no keys: nothing is sealed
            config = StoreConfig(job_layout(self.app, request.partitions), nobody, BSP())
            self._server = SimulatedServer(config, self.address, self.net)
            self._server.help = None
            if request.rebalance:
                self._helping = SimulatedHelping(self, self._server)
            self._workers = SimulatedWorkers(self)
            self._checkpoints, self._job = request.checkpoints, request.job
            self._watch()
            self._stay()
        return Begun(self.server.address, None, None, *self._on_disk())

    def _roll_back(self, envelope: Envelope, request: r.RollBack, times: int) -> None:
        """With everything behind it waiting, as in a node."""
        try:
            self.server.roll_back(request.clock, request.generation)
        except RejectedRequest as error:
            self._busy = times < _MAX_RETRIES - 1
            if self._busy:
                self.later(0.05, lambda: self._roll_back(envelope, request, times + 1))
            else:
                self._answer(envelope, str(error), "RejectedRequest")
                self._run_next()
            return
        self.workers.rolled_back(request.clock, request.generation)
        self._answer(envelope)
        self._busy = False
        self._run_next()

    def _queue_move(self, envelope: Envelope) -> None:
        self._moving.append(lambda: self._move(envelope))
        if len(self._moving) <= _MAX_CONCURRENT_MOVES:
            self.later(self.net.delay(0.001, 0.05), self._moving[-1])  # type: ignore[arg-type]

    def _moved(self, envelope: Envelope, error: BaseException | None = None) -> None:
        if error is None:
            self._answer(envelope)
        else:
            self._answer(envelope, str(error), type(error).__name__)
        self._moving.pop(0)
        if len(self._moving) >= _MAX_CONCURRENT_MOVES:
            self.later(self.net.delay(0.001, 0.05), self._moving[_MAX_CONCURRENT_MOVES - 1])  # type: ignore[arg-type]

    def _move(self, envelope: Envelope) -> None:
        try:
            request = envelope.request
            if isinstance(request, r.Prepare):
                server = self.server
                assert isinstance(server, SimulatedServer)
                move = server._begin_move(
                    request.partition, request.address, request.term, request.replica
                )  # fmt: skip
                self._await_move(envelope, move)
                return
            _LONG_HANDLERS[type(request)](self, request)
        except Exception as error:
            self._moved(envelope, error)
        else:
            self._moved(envelope)

    def _await_move(self, envelope: Envelope, move: Any) -> None:
        if move is not None and not far_enough(move):
            self.later(0.005, lambda: self._await_move(envelope, move))
            return
        try:
            if move is not None:
                move.check()
        except Exception as error:
            self._moved(envelope, error)
        else:
            self._moved(envelope)

    def _commit(self, envelope: Envelope, request: r.Commit) -> None:
        server = self.server
        assert isinstance(server, SimulatedServer)
        outgoing = server.actor(request.partition).outgoing
        if server.under_way(request.partition) and outgoing is not None and outgoing.term == request.term:
            self.later(0.005, lambda: self._commit(envelope, request))
        else:
            self._do(envelope, _LONG_HANDLERS[r.Commit])

    def _result(self, envelope: Envelope, request: r.WriteResult, times: int) -> None:
        """What was learnt, read as a worker reads."""
        reader = SimulatedWorker.__new__(SimulatedWorker)
        reader._host, reader.number = self, -1
        reader._client = self.client(-1, request.clock, request.generation)
        for partition in range(self.app.partitions):
            wanted = Wanted(0, range(self.app.shards))
            try:
                word = Word(
                    Kind.READ, partition, worker=-1, generation=request.generation, clock=request.clock,
                    before=request.clock - 1, wanted=(wanted,),
                )  # fmt: skip
                answer = reader._ask(word)
            except PlinkError as error:
                self._answer(envelope, str(error), type(error).__name__)
                return
            if answer is None:
                if times > _WAIT_S / 0.05:
                    self._answer(envelope, f"partition {partition} is silent", "Unanswered")
                else:
                    self.later(0.05, lambda: self._result(envelope, request, times + 1))
                return
            if (answer.blocks[0].values != request.clock * self.app.grains).any():
                self._answer(envelope, f"WRONG: partition {partition}: {answer.blocks[0].values.ravel()}")
                return
        self._answer(envelope)

    def _traffic(self) -> TrafficCounters:
        return self.net.traffic[self.address]

    def _watch(self) -> None:
        self._report_changes()
        self.later(0.05, self._watch)

    def _stay(self) -> None:
        self._send(Alive(self._traffic()))
        self.later(0.3, self._stay)
