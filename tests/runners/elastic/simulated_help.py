"""Helping among workers of a simulated job: the real sides and messages of it, over the simulated servers.

A grain adds one to the row of its shard in each partition. What a helper read otherwise than it must be spoils what it
adds, so that it shows if it counts.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plink.elastic import Rebalance
from plink.runtime.elastic.arrays.layout import run_of
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.helping import messages as m
from plink.runtime.elastic.helping.help_network import HelpNetwork
from plink.runtime.elastic.helping.host_rebalancing import HostRebalancing, helpees
from plink.runtime.elastic.helping.sides import Helpee, Helper, HelpSession
from plink.runtime.elastic.transport.messages import HelpResult, Message, Read, RowRequest, Status
from plink.runtime.elastic.transport.records import ConnectionLost
from plink.runtime.elastic.worker.clock_work import Grain
from plink.runtime.elastic.worker.primaries import PrimaryAddress, RolledBack
from plink.runtime.elastic.worker.worker import WorkOff
from tests.runners.elastic.simulated_server import SimulatedLine
from tests.runtime.elastic.simulated_helping import Queue

if TYPE_CHECKING:
    from tests.runners.elastic.simulated_host import SimulatedHost

_SPOILT = 1000
_GRAIN_S = 0.004, 0.012


class _Sender:
    """To one host: after a while, in order."""

    def __init__(self, host: "SimulatedHost", address: str, network: "SimulatedHelpNetwork") -> None:
        self._host, self._address, self._network, self._latest_s = host, address, network, 0.0

    def put(self, batch: Sequence[Message]) -> bool:
        now_s = self._host.net.now()
        self._latest_s = max(self._latest_s, now_s + self._host.net.delay(0.0005, 0.02))
        self._host.later(self._latest_s - now_s, lambda: self._carry(batch))
        return True

    def _carry(self, batch: Sequence[Message]) -> None:
        line = SimulatedLine(self._address, self._host.net, self._host.address)
        try:
            if any(line.ask(message).status is not Status.OK for message in batch):
                self._network._lost([batch[0].worker])
        except ConnectionLost:
            self._network._lost([batch[0].worker])

    def close(self) -> None:
        pass


class SimulatedHelpNetwork(HelpNetwork):
    """Without sockets or threads."""

    def __init__(self, host: "SimulatedHost", config: Any) -> None:
        super().__init__(config)
        self._host = host

    def _sender(self, address: str) -> Any:
        return self._senders.setdefault(address, _Sender(self._host, address, self))  # type: ignore[arg-type]


class SimulatedHelping(HostRebalancing):
    """Of one host."""

    def __init__(self, host: "SimulatedHost", server: Any) -> None:
        super().__init__(host._loaded, server, Rebalance(initial=0.1, follow_up=0.2, redo_least_s=0.2), host.noted)
        self._host, self.network = host, SimulatedHelpNetwork(host, server.config)
        server.help = self.network.answer

    def start(self, worker: int, primaries: Mapping[int, PrimaryAddress]) -> WorkOff:
        made = self._rebalancers[worker] = SimulatedRebalancer(self._host, worker, self.network)  # type: ignore[assignment]
        made.set_helpees(helpees(self._groups, worker))
        return made.step  # type: ignore[attr-defined, no-any-return]

    def of(self, worker: int) -> "SimulatedRebalancer | None":
        """Of a worker that takes part."""
        return self._rebalancers.get(worker)  # type: ignore[return-value]

    def _load(self, shards: Sequence[int]) -> None:
        self._loaded.ahead(shards)


class SimulatedRebalancer:
    """Of one worker, which calls :meth:`step` until nothing is left of its clock."""

    def __init__(self, host: "SimulatedHost", worker: int, network: HelpNetwork) -> None:
        self._host, self.worker, self._network = host, worker, network
        settings = Rebalance(initial=0.1, follow_up=0.2, redo_least_s=0.2)
        self._settings, self._helpee = settings, Helpee(worker, settings)
        self._helper = Helper(worker, lambda shards: shards <= set(host._loaded.here()))
        self._helpees: tuple[int, ...] = ()
        self._inbox: list[tuple[m.HelpMessage, float]] = []
        self._lost: set[int] = set()
        self._parts: dict[tuple[int, int], dict[int, tuple[RowBlock, ...]]] = {}
        self._queue, self._closed, self._reported = Queue([]), False, False
        self._session: HelpSession | None = None
        self._client: Any = None
        self._sums: dict[int, Any] = {}
        self._due_s = 0.0
        network.join(worker, self)
        self._help_others()

    helped = property(lambda self: (self._helpee.grains, self._helpee.helped))
    moved = property(lambda self: (self._helpee.moved, self._helpee.total))

    def set_helpees(self, workers: Sequence[int]) -> None:
        self._helpees = tuple(workers)

    def close(self) -> None:
        self._closed = True
        self._network.leave(self.worker, self)

    def received(self, message: m.HelpMessage) -> None:
        if isinstance(message, m.HelpRequest | m.HelpCancelled | m.ReturnRequest):
            self._send(self._helper.received(message))
        else:
            self._inbox.append((message, self._host.net.now()))

    def drop(self, workers: Collection[int]) -> None:
        self._lost.update(workers)
        self._send(self._helper.drop(workers))

    def result_part(self, part: HelpResult) -> None:
        if self._helpee.counts(part.helper, part.id, (part.clock, part.generation)):
            self._parts.setdefault((part.helper, part.id), {})[part.partition] = part.blocks

    def lost(self, worker: int) -> None:
        self._lost.add(worker)

    # The worker's own work.

    def begin(self, shards: Sequence[int], client: Any) -> None:
        """A clock's grains."""
        app, self._client = self._host.app, client
        self._queue = Queue([Grain(shard, number) for shard in shards for number in range(app.grains)])
        self._sums = {partition: np.zeros((app.shards, 1), dtype=np.int64) for partition in range(app.partitions)}
        self._parts.clear()
        self._send(self._helpee.begin(self._queue, client.now, client.generation, client.needed_state))
        self._helper.at(client.now, client.generation, finished=False)
        self._reported, self._slowness = False, self._host.net.delay(0.0, 1.0) ** 4 * 8

    def step(self, *_: object) -> float | None:
        """Do one grain, and return how long it takes; None: all are done."""
        self._check()
        if len(self._queue):
            grain = self._queue.grains.pop(0)
            for sums in self._sums.values():
                sums[grain.shard] += 1
            seconds = self._host.net.delay(*_GRAIN_S) * (1 + self._slowness)
            self._helpee.worked(seconds)
            return seconds
        if self._helpee.waits:
            messages, wait_s = self._helpee.wait(self._host.net.now())
            self._send(messages)
            self._helper.at(*self._helpee.position, finished=not len(self._queue))
            return min(wait_s, 0.01)
        self._helper.at(*self._helpee.position, finished=True)
        return None

    def added(self, partition: int, shards: Sequence[int]) -> RowBlock:
        """What the clock adds to a partition; of all rows that it adds anything to."""
        rows = sorted({*shards, *np.flatnonzero(self._sums[partition]).tolist()})
        return RowBlock(0, run_of(np.array(rows, dtype=np.uint32)), self._sums[partition][rows])

    def _check(self) -> None:
        for worker in self._lost:
            self._helpee.lost(worker)
        self._lost.clear()
        while self._inbox:
            message, received_s = self._inbox.pop(0)
            if isinstance(message, m.HelpCompleted):
                parts = self._parts.pop((message.sender, message.id), {})
                counts, messages = self._helpee.accept(message, received_s)
                for partition, blocks in parts.items() if counts else ():
                    for block in blocks:
                        self._sums[partition][np.asarray(block.rows)] += block.values
            else:
                messages = self._helpee.received(message, received_s)
            self._send(messages)
        self._send(self._helpee.check(self._host.net.now()))
        if not self._reported and self._helpee.done >= self._settings.report:
            self._reported = True
            clock, generation = self._helpee.position
            report = m.ProgressReport(self.worker, generation, clock, self._helpee.done)
            self._send([(helpee, report) for helpee in self._helpees])

    # Help for others.

    def _help_others(self) -> None:
        """One grain after the other, while there is anything to do."""
        if self._closed:
            return
        delay_s = 0.01
        if self._session is None and self._helper.can_begin:
            self._session, messages = self._helper.begin_next()
            self._send(messages)
        elif self._session is not None and self._session.next() is not None:
            delay_s = self._host.net.delay(*_GRAIN_S)
        elif self._session is not None:
            self._end(self._session)
            self._session = None
        self._host.later(delay_s, self._help_others)

    def _end(self, session: HelpSession) -> None:
        blocks = self._blocks(session)
        for receiver, message in self._helper.end(session, None if blocks is None else ()):
            self._network.send(receiver, message, blocks if isinstance(message, m.HelpCompleted) else None)

    def _blocks(self, session: HelpSession) -> dict[int, tuple[RowBlock, ...]] | None:
        """What a helper adds, as it read the state; None: it could not."""
        app, request = self._host.app, session.request
        sums = np.zeros((app.shards, 1), dtype=np.int64)
        for grain in session.done:
            sums[grain.shard] += 1
        rows = np.flatnonzero(sums)
        result = {}
        for partition in range(app.partitions):
            word = Read(
                partition,
                worker=-1,
                generation=request.generation,
                clock=request.clock,
                state=request.state,
                wanted=(RowRequest(0, range(app.shards)),),
            )
            try:
                answer = self._host.ask(self._client, word)
            except RolledBack:
                return None
            if answer is None:
                return None
            values = answer.blocks[0].values
            right = (values >= app.units(request.state)).all() and (values[rows] == app.units(request.clock - 1)).all()
            if not app.rule.sees_ahead:
                right &= (values == app.units(request.clock - 1)).all()
            added = sums[rows] if right else sums[rows] + _SPOILT
            result[partition] = (RowBlock(0, run_of(rows.astype(np.uint32)), added),)
        return result

    def _send(self, messages: Sequence[tuple[int, m.HelpMessage]]) -> None:
        for receiver, message in messages:
            self._network.send(receiver, message)
