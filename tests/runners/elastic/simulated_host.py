"""A host of a simulated job: the real node and what it knows of its workers, without threads, in told time."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

from plink.elastic import App, Objective, Params, StoppingCriterion, Table, Values
from plink.elastic.optimisers import Optimiser
from plink.errors import PlinkError
from plink.model.consistency import parse_rule
from plink.model.divergence import parse_divergence
from plink.model.elastic import requests as r
from plink.model.elastic.codec import Envelope, decode_request
from plink.model.elastic.fields import TrafficCounters
from plink.model.elastic.reports import Alive
from plink.model.elastic.requests import Begun
from plink.model.rules.ordered import Ordered
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.host.checkpoint_folder import JobCheckpoints
from plink.runtime.elastic.node import _MAX_CONCURRENT_MOVES, Node
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.request_handlers import LONG_HANDLERS, MAX_RETRIES, MOVING
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.messages import Read, RowRequest, Status
from plink.runtime.elastic.worker.primaries import PrimaryAddress, RolledBack
from plink.runtime.elastic.worker.progress import job_layout
from tests.runners.elastic.simulated_help import SimulatedHelping
from tests.runners.elastic.simulated_server import Net, SimulatedServer, copied, far_enough
from tests.runners.elastic.simulated_worker import SimulatedClient, SimulatedWorker, SimulatedWorkers

_WAIT_S = 300.0


class Counting(App[int]):
    """Every partition has a row for every shard, which counts the steps that were worked on, by grains.

    Under a rule that drops updates these rows are plink's own, which are never dropped, and a row of the program's
    counts the updates that the partition has applied.
    """

    def __init__(
        self, shards: int, partitions: int, clocks: int, grains: int = 1, rule: str = "bsp",
        optimiser: Optimiser | None = None, dtype: str = "int64",
    ) -> None:  # fmt: skip
        self.grains, self.rule = grains, parse_rule(rule)
        self.shards, self.partitions, self.batches, self.seed = shards, partitions, 1, 1
        self.stop = StoppingCriterion(clocks=clocks)
        dtype = dtype if optimiser is None else "float64"
        self.tables: Sequence[Table] = (Table("n", shards * partitions, 1, dtype),)
        if self.drops:
            self.tables = (*self.tables, Table("updates", partitions, 1, dtype))
        self.optimisers = {} if optimiser is None else {"n": optimiser}
        self._optimised: list[list[Values]] = []  # a row and its moments, by clock

    @property
    def drops(self) -> bool:
        """Whether updates may be dropped."""
        return isinstance(self.rule, Ordered)

    @property
    def asks(self) -> bool:
        """Whether workers ask before they send."""
        return isinstance(self.rule, Ordered) and not self.rule.direct

    def layout(self, partitions: int) -> Layout:
        """Of all tables."""
        layout = job_layout(self, partitions)
        first, *others = layout.tables
        return replace(layout, tables=(replace(first, name=f"plink.{first.name}"), *others)) if self.drops else layout

    def steps(self, clock: int) -> int:
        """How many every worker does at a clock."""
        return 1 + clock % 3 if self.rule.steps else 1

    def added(self, clock: int) -> Values:
        """What a worker adds to a row at a clock: 1 for each grain, or a gradient."""
        if self.optimisers and clock:
            return np.array([[math.sin(clock)]])
        return np.array([[self.grains]], dtype=self.tables[0].dtype)

    def units(self, clock: int) -> float:
        """What every row must be when all clocks up to this one are done; with an optimiser to the bit."""
        assert self.stop.clocks is not None
        for optimiser in self.optimisers.values():
            if not self._optimised:
                self._optimised.append([self.added(0), *(np.zeros((1, 1)) for _ in optimiser.moments(self.tables[0]))])
            for now in range(len(self._optimised), self.stop.clocks + 1):
                before = self._optimised[-1]
                additions = optimiser.additions(before, self.added(now), now)
                self._optimised.append([row + more for row, more in zip(before, additions, strict=True)])
            return float(self._optimised[min(clock, self.stop.clocks)][0].item())
        return self.grains * sum(map(self.steps, range(min(clock, self.stop.clocks) + 1)))

    def load(self, shard: int) -> Sequence[int]:
        return [shard]

    def part(self, items: int, grain: int) -> int:
        return items

    def process(self, items: int, params: Params) -> Objective | None:
        raise AssertionError("simulated workers do that")


class SimulatedHost(Node):
    """``says`` takes what it says on its line; ``begun`` hears of every clock that one of its workers begins."""

    def __init__(
        self, app: Counting, address: str, net: Net, says: Callable[[dict[str, Any]], None],
        begun: Callable[[int, int, int, tuple[int, ...], bool], None], slow: float,
    ) -> None:  # fmt: skip
        super().__init__(app, None)  # type: ignore[arg-type]
        self.app, self.address, self.net, self._says, self.begun, self.alive = app, address, net, says, begun, True
        self.work_s, self.groups = (0.01 * slow, 0.04 * slow), {}
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
        return SimulatedClient(number, self._primaries, clock, generation)

    def ask(self, client: Any, word: Any) -> Any:
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
        elif kind in LONG_HANDLERS:
            self.later(self.net.delay(0.001, 0.2), lambda: self._do(envelope, LONG_HANDLERS[kind]))
        else:
            super()._dispatch(envelope)

    shard_s: Callable[[int], float] | None = None
    groups: dict[tuple[int, int, int], list[dict[int, tuple[int, int]]]]  # what workers whose updates others send saw
    leave: Callable[[], None]
    noted: Callable[[str], None]

    def begin(self, request: r.Begin) -> Begun:
        if self._server is None:
            nobody: Any = None  # no keys: nothing is sealed
            bound = parse_divergence(request.divergence)
            config = StoreConfig(self.app.layout(request.partitions), nobody, parse_rule(request.rule), bound)
            self._server = SimulatedServer(config, self.address, self.net)
            self._server.help = None
            if request.rebalance:
                self._helping = SimulatedHelping(self, self._server)
            self._workers = SimulatedWorkers(self)
            self._checkpoints = JobCheckpoints(request.checkpoints, job=request.job)
            self._watch()
            self._stay()
        return Begun(self.server.address, None, None, *self._checkpoints.on_disk())

    def _roll_back(self, envelope: Envelope, request: r.RollBack, times: int) -> None:
        """With everything behind it waiting, as in a node."""
        try:
            self.server.roll_back(request.clock, request.generation)
        except RejectedRequest as error:
            self._busy = times < MAX_RETRIES - 1
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
            LONG_HANDLERS[type(request)](self, request)
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
            self._do(envelope, LONG_HANDLERS[r.Commit])

    def _result(self, envelope: Envelope, request: r.WriteResult, times: int) -> None:
        """What was learnt, read as a worker reads."""
        reader = SimulatedWorker.__new__(SimulatedWorker)
        reader._host, reader.number = self, -1
        reader._client = self.client(-1, request.clock, request.generation)
        for partition in range(self.app.partitions):
            wanted = RowRequest(0, range(self.app.shards))
            try:
                word = Read(
                    partition,
                    worker=-1,
                    generation=request.generation,
                    clock=request.clock,
                    state=request.clock - 1,
                    wanted=(wanted,),
                )
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
            if (answer.blocks[0].values != self.app.units(request.clock - 1)).any():
                self._answer(envelope, f"WRONG: partition {partition}: {answer.blocks[0].values.ravel()}")
                return
        self._answer(envelope)

    def _traffic(self) -> TrafficCounters:
        traffic = self.net.traffic[self.address]
        return traffic if self._server is None else structs.replace(traffic, updates=self._server.updates())

    def _watch(self) -> None:
        self._report_changes()
        self.later(0.05, self._watch)

    def _stay(self) -> None:
        self._send(Alive(self._traffic()))
        self.later(0.3, self._stay)
