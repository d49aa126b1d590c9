"""A host of a simulated job: the real node and what it knows of its workers, without threads, in told time."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from plink.errors import PlinkError
from plink.model.consistency import BSP
from plink.runtime.agileml.app import App, Score, Stop, layout_of
from plink.runtime.agileml.assigned import Assigned
from plink.runtime.agileml.client import Ownership, RolledBack
from plink.runtime.agileml.control_line import Message
from plink.runtime.agileml.layout import Table, run_of
from plink.runtime.agileml.node import _LONG, _MOVES, _TIMES, Node
from plink.runtime.agileml.params import Params
from plink.runtime.agileml.partition import Refused
from plink.runtime.agileml.pieces import Piece
from plink.runtime.agileml.progress import TABLES
from plink.runtime.agileml.server_words import MOVING
from plink.runtime.agileml.store_config import StoreConfig
from plink.runtime.agileml.wire import LAST, Kind, Status, Wanted
from plink.runtime.agileml.wire import Message as Word
from plink.runtime.agileml.worker import TOLD, Clock
from plink.runtime.agileml.worker_threads import WorkerThreads, _Running
from tests.runners.agile.simulated_server import Net, SimulatedServer, copied, far_enough

_WAIT_S = 60.0


class Counting(App[int]):
    """Every partition has a row for every piece, which counts the clocks that were worked on."""

    def __init__(self, pieces: int, partitions: int, clocks: int) -> None:
        self.pieces, self.partitions, self.batches, self.seed = pieces, partitions, 1, 1
        self.stop = Stop(clocks=clocks)
        self.tables: Sequence[Table] = (Table("n", pieces * partitions, 1, "int64"),)

    def load(self, piece: int) -> Sequence[int]:
        return [piece]

    def process(self, items: int, params: Params) -> Score | None:
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

    def __init__(self, owners: dict[int, Ownership], clock: int, era: int) -> None:
        self.owners, self.now, self.era, self.given_up = dict(owners), clock, era, False

    def point(self, partition: int, owner: Ownership) -> None:
        if owner.epoch >= self.owners[partition].epoch:
            self.owners[partition] = owner

    def give_up(self) -> None:
        self.given_up = True

    def close(self) -> None:
        pass


class SimulatedWorker:
    """Clock after clock: begin, read all partitions, work, tell all partitions."""

    def __init__(self, host: "SimulatedHost", number: int, running: Any) -> None:
        self._host, self.number, self._running, self._client = host, number, running, running.client
        self._pieces: tuple[int, ...] = ()
        self._left: set[int] = set()
        self._does = self._begin
        self._soon(0.0)

    def _soon(self, seconds: float) -> None:
        self._host.later(seconds, self._turn)

    def _turn(self) -> None:
        if self._running.ended and (self._client.given_up or self._does == self._begin):
            self._finished(TOLD)
            return
        try:
            self._does()
        except _Blocked:
            self._soon(self._host.net.delay(0.001, 0.01))
        except RolledBack as back:
            self._client.now, self._client.era, self._does = back.clock + 1, back.era, self._begin
            self._soon(0.001)
        except Exception as error:
            why = f"worker {self.number} at clock {self._client.now}: {type(error).__name__}: {error}"
            self._host.tell({"is": "failed", "worker": self.number, "kind": type(error).__name__, "why": why})

    def _begin(self) -> None:
        now, app = self._client.now, self._host.app
        assert app.stop.clocks is not None
        if now > app.stop.clocks:
            self._finished(f"{app.stop.clocks} clocks are done")
            return
        pieces = self._running.assigned.begin(now, self._client.era)
        if pieces is None:
            self._finished(TOLD)
            return
        self._pieces, self._left, self._does = pieces, set(range(app.partitions)), self._read
        self._host.begun(self.number, now, self._client.era, pieces, self._running.until is None)
        self._soon(0.0)

    def _read(self) -> None:
        now = self._client.now
        for partition in sorted(self._left) if now else ():
            rows = range(self._host.app.pieces)
            wanted = Wanted(0, rows)
            if (answer := self._ask(Word(Kind.READ, partition, worker=self.number, era=self._client.era, clock=now,
                                         before=now - 1, wanted=(wanted,)))) is not None:  # fmt: skip
                self._left.discard(partition)
                if (answer.pieces[0].values != now).any() and not self._done_by_all(now):
                    raise AssertionError(f"partition {partition} at clock {now}: {answer.pieces[0].values.ravel()}")
        if now and self._left:
            self._soon(0.02)
            return
        self._left, self._does = set(range(self._host.app.partitions)), self._update
        self._soon(self._host.net.delay(*self._host.work_s))

    def _done_by_all(self, clock: int) -> bool:
        """Whether it does not matter what a worker sees, because nobody needs its update any more."""
        seen = [one for server in self._host.net.servers.values() for one in server.status() if one.role == "serving"]
        return all(one.clocks[-1] >= clock for one in seen)

    def _update(self) -> None:
        """Some partitions at a time: another host may be lost, or this one, before all have it."""
        some = sorted(self._left, key=lambda _: self._host.net.delay(0.0, 1.0))
        for partition in some[: 1 + int(self._host.net.delay(0, len(some)))]:
            rows = run_of(np.array(sorted(self._pieces), dtype=np.uint32))
            piece = Piece(0, rows, np.ones((len(rows), 1), dtype=np.int64))
            now = self._client.now
            word = Word(Kind.UPDATE, partition, worker=self.number, era=self._client.era, clock=now, flags=LAST,
                        pieces=(piece,) if len(rows) else ())  # fmt: skip
            if self._ask(word) is not None:
                self._left.discard(partition)
        if self._left:
            self._soon(self._host.net.delay(0.001, 0.02))
            return
        now = self._client.now
        self._client.now, self._does = now + 1, self._begin
        self._host.workers._done(
            self._running, Clock(now, now - 1, len(self._pieces), 0.1, 0.1, 0 in self._pieces, now - 2)
        )
        self._soon(0.0)

    def _ask(self, word: Word) -> Word | None:
        """As a client would: None where it is to be asked again."""
        address = self._client.owners[word.partition].address
        server = self._host.net.servers.get(address)
        if server is None:
            return None
        answer = server._answer(copied(word), {})
        self._host.net.carry(self._host.address, address, word, answer)
        if answer.status is Status.ROLLED_BACK:
            raise RolledBack(answer.clock, answer.era)
        if answer.status is Status.REFUSED:
            raise PlinkError(f"partition {word.partition} at {address}: {answer.text}")
        if answer.text and answer.status in (Status.OK, Status.ELSEWHERE):
            self._client.point(word.partition, Ownership(answer.text, answer.epoch))
        return answer if answer.status is Status.OK else None

    def _finished(self, why: str) -> None:
        self._host.tell(
            {"is": "finished", "worker": self.number, "clock": self._client.now, "why": why,
             "stood_in": self._running.until is not None, "told": why == TOLD}
        )  # fmt: skip
        if self._running.until is None and why != TOLD and hasattr(self._host.workers, "finished"):
            self._host.workers.finished.setdefault(self.number, self._client.now)
        running = self._host.workers._running
        if running.get(self.number) is self._running:
            del running[self.number]


class SimulatedWorkers(WorkerThreads):
    """Those of one host."""

    def __init__(self, host: "SimulatedHost") -> None:
        super().__init__(host._loaded, host.client, host.tell, 0.0)
        self._host = host

    def _start(
        self, number: int, assigned: Assigned, pieces: tuple[int, ...], clock: int, era: int, until: int | None = None
    ) -> None:  # fmt: skip
        assigned._changed = _Unlocked()  # type: ignore[assignment]
        running = _Running(self._client(number, clock, era), assigned, pieces, until)
        self._running[number] = running
        SimulatedWorker(self._host, number, running)


class SimulatedHost(Node):
    """``says`` takes what it says on its line; ``begun`` hears of every clock that one of its workers begins."""

    def __init__(
        self, app: Counting, address: str, net: Net, says: Callable[[Message], None],
        begun: Callable[[int, int, int, tuple[int, ...], bool], None], slow: float,
    ) -> None:  # fmt: skip
        super().__init__(app, None)  # type: ignore[arg-type]
        self.app, self.address, self.net, self._says, self.begun, self.alive = app, address, net, says, begun, True
        self.work_s = 0.01 * slow, 0.04 * slow
        self._inbox: list[Message] = []
        self._busy = False
        self._moving: list[Callable[[], bool]] = []
        self._line = self  # type: ignore[assignment]

    send = mention = lambda self, message: self.tell(message)

    def later(self, seconds: float, does: Callable[[], None]) -> None:
        """If it is alive then."""
        self.net.later(seconds, lambda: does() if self.alive else None)

    def tell(self, message: dict[str, Any]) -> None:
        """On its line."""
        if self.alive:
            if message["is"] == "answer" and message["why"]:
                self.noted(f"{self.address} refuses {message}")
            self._says(json.loads(json.dumps(message)))

    def client(self, number: int, clock: int, era: int) -> Any:
        """Of a worker."""
        return SimulatedClient(self._owners, clock, era)

    def die(self) -> None:
        """At once."""
        self.alive = False
        if self._server is not None:
            self._server.die()  # type: ignore[attr-defined]

    def hear(self, message: Message) -> None:
        """Of the controller's."""
        self._inbox.append(message)
        self._turn()

    def _turn(self) -> None:
        while self._inbox and not self._busy and self.alive:
            self._obey(self._inbox.pop(0))

    def _obey(self, message: Message) -> None:
        name = message["do"]
        if message["by"] < self._by or (name not in _LONG and name not in ("begin", "roll_back", "bye")):
            super()._obey(message)
            return
        self._by = message["by"]
        self._number = max([self._number, *(message[key] for key in ("epoch", "era", "version") if key in message)])
        if name == "begin":
            self._do(message, SimulatedHost.begin)
        elif name == "bye":
            self.later(0.0, self.leave)
        elif name == "roll_back":
            self._roll_back(message, 0)
        elif name in MOVING:
            self._queue_move(message)
        elif name == "commit":
            self.later(self.net.delay(0.001, 0.03), lambda: self._commit(message))
        elif name == "result":
            self._result(message, 0)
        else:
            self.later(self.net.delay(0.001, 0.2), lambda: self._do(message, _LONG[name]))

    leave: Callable[[], None]
    noted: Callable[[str], None]

    def begin(self, message: Message) -> Message:
        if self._server is None:
            nobody: Any = None  # no keys: nothing is sealed
            config = StoreConfig(layout_of(self.app, message["partitions"], TABLES), nobody, BSP())
            self._server = SimulatedServer(config, self.address, self.net)
            self._server.push_up_to(-1)
            self._workers = SimulatedWorkers(self)
            self._checkpoints, self._job = message["checkpoints"], message["job"]
            self._watch()
            self._stay()
        return {"address": self.server.address, "unwritable": None, "unsaved": None, **self._on_disk()}

    def _roll_back(self, message: Message, times: int) -> None:
        """With everything behind it waiting, as in a node."""
        try:
            self.server.roll_back(message["clock"], message["era"])
        except Refused:
            self._busy = times < _TIMES - 1
            if self._busy:
                self.later(0.05, lambda: self._roll_back(message, times + 1))
            else:
                self._turn()
            return
        self.workers.rolled_back(message["clock"], message["era"])
        self._busy = False
        self._turn()

    def _queue_move(self, message: Message) -> None:
        self._moving.append(lambda: self._move(message))
        if len(self._moving) <= _MOVES:
            self.later(self.net.delay(0.001, 0.05), self._moving[-1])  # type: ignore[arg-type]

    def _moved(self, message: Message, error: BaseException | None = None) -> None:
        if error is None:
            self._answer(message)
        else:
            self._answer(message, why=str(error), kind=type(error).__name__)
        self._moving.pop(0)
        if len(self._moving) >= _MOVES:
            self.later(self.net.delay(0.001, 0.05), self._moving[_MOVES - 1])  # type: ignore[arg-type]

    def _move(self, message: Message) -> None:
        try:
            if message["do"] == "prepare":
                server = self.server
                assert isinstance(server, SimulatedServer)
                move = server.begin_move(
                    message["partition"], message["address"], message["epoch"], message["backup"]
                )  # fmt: skip
                self._await_move(message, move)
                return
            _LONG[message["do"]](self, message)
        except Exception as error:
            self._moved(message, error)
        else:
            self._moved(message)

    def _await_move(self, message: Message, move: Any) -> None:
        if move is not None and not far_enough(move):
            self.later(0.005, lambda: self._await_move(message, move))
            return
        try:
            if move is not None:
                move.check()
        except Exception as error:
            self._moved(message, error)
        else:
            self._moved(message)

    def _commit(self, message: Message) -> None:
        server = self.server
        assert isinstance(server, SimulatedServer)
        if (
            server.under_way(message["partition"])
            and server.owner(message["partition"]).outgoing.epoch
            == message[  # type: ignore[union-attr]
                "epoch"
            ]
        ):
            self.later(0.005, lambda: self._commit(message))
        else:
            self._do(message, _LONG["commit"])

    def _result(self, message: Message, times: int) -> None:
        """What was learnt, read as a worker reads."""
        reader = SimulatedWorker.__new__(SimulatedWorker)
        reader._host, reader.number = self, -1
        reader._client = self.client(-1, message["clock"], message["era"])
        for partition in range(self.app.partitions):
            wanted = Wanted(0, range(self.app.pieces))
            try:
                answer = reader._ask(Word(Kind.READ, partition, worker=-1, era=message["era"], clock=message["clock"],
                                          before=message["clock"] - 1, wanted=(wanted,)))  # fmt: skip
            except PlinkError as error:
                self._answer(message, why=str(error), kind=type(error).__name__)
                return
            if answer is None:
                if times > _WAIT_S / 0.05:
                    self._answer(message, why=f"partition {partition} is silent", kind="Unanswered")
                else:
                    self.later(0.05, lambda: self._result(message, times + 1))
                return
            if (answer.pieces[0].values != message["clock"]).any():
                self._answer(message, why=f"WRONG: partition {partition}: {answer.pieces[0].values.ravel()}")
                return
        self._answer(message)

    def _carried(self) -> Message:
        return asdict(self.net.carried[self.address])

    def _watch(self) -> None:
        changed = {}
        for one in self.server.status():
            now = [one.role, one.era, one.epoch, one.clocks[-1] if one.clocks else -1, one.pushed]
            if self._told.get(one.partition) != now:
                self._told[one.partition] = changed[one.partition] = now
        if changed:
            self.tell({"is": "partitions", "partitions": changed})
        self.later(0.05, self._watch)

    def _stay(self) -> None:
        self.tell({"is": "alive", "carried": self._carried()})
        self.later(0.3, self._stay)
