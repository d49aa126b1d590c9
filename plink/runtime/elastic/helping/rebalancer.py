"""Helping, of one worker: its own grains between two checks of messages, and a thread that helps others.

The thread computes while the worker waits for servers or results, or before the worker's own work where a helpee is at
an earlier clock; the worker's slot has one of the two at a time.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plink.elastic.app import Objective
from plink.elastic.app_error import AppError
from plink.elastic.tables import Table, Values
from plink.errors import InputError
from plink.model.consistency import Rule
from plink.runtime.elastic.arrays.row_blocks import Overflow, RowBlock, no_room
from plink.runtime.elastic.helping import messages as m
from plink.runtime.elastic.helping.help_network import HelpNetwork
from plink.runtime.elastic.helping.sides import Helpee, Helper, HelpSession, Outgoing, Rebalance
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.messages import HelpResult
from plink.runtime.elastic.worker.cache import Cache, added_blocks
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.clock_work import ClockWork, Grain, LoadedShards
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Timeouts


@dataclass(frozen=True)
class _AnyState(Rule):
    """Rule of a reader that says itself which state it needs."""

    sees_ahead: bool = True

    def needs(self, clock: int) -> int:
        """Return no bound: no state is older than that of clock -1."""
        return -1


class HelpStore:
    """Store of what is done for others; for one thread, but for :meth:`set_primary` and :meth:`give_up`.

    Nothing is read from a cache of the helper's own work: it may lack what the helpee itself has added before, on which
    programs that keep state of a shard in tables rely.
    """

    def __init__(self, config: StoreConfig, primaries: Mapping[int, PrimaryAddress], timeouts: Timeouts) -> None:
        reading = StoreConfig(config.layout, config.keys, _AnyState(config.sees_ahead))
        self._layout, self._client = config.layout, Client(reading, -1, primaries, timeouts=timeouts)
        self._added = [Cache(table) for table in config.layout.tables]
        self._session: tuple[int, int, int] | None = None
        self.set_primary, self.give_up = self._client.set_primary, self._client.give_up

    def begin(self, helpee: int, clock: int, generation: int, state: int) -> None:
        """Begin a request of a helpee's clock; what was read for another one of the same clock is read no more."""
        if self._session != (helpee, clock, generation):
            self._session = helpee, clock, generation
            self._client.read_as_of(clock, generation, state)
        self.discard()

    def table(self, name: str) -> Table:
        """Return a table. :raises InputError: there is none of that name."""
        return self._client.table(name)

    def read(self, table: str, rows: object, *, own: bool = False) -> Values:
        """Return vectors without what is added here; errors as :meth:`Client.read`."""
        return self._client.read(table, rows, own=False)

    def update(self, table: str, rows: object, deltas: object) -> None:
        """Add to what is done for the helpee. :raises InputError: as :meth:`Client.update`."""
        cache = self._added[self._layout.table(table)]
        try:
            cache.add(cache.rows(rows), deltas)
        except Overflow as error:
            reason = f"row {error.row}: with what a helper adds there is {no_room(cache.table.dtype)}"
            raise InputError(f"update of table {table!r}", reason) from None

    def take(self) -> dict[int, tuple[RowBlock, ...]]:
        """Take what was added, by partition."""
        blocks = added_blocks(self._layout, self._added)
        self.discard()
        return blocks

    def discard(self) -> None:
        """Forget what was added."""
        for cache in self._added:
            cache.discard()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class ComputeSlot:
    """Right to compute, of a worker and the thread that helps others in its place. The helping thread goes first: it
    asks only for what is more urgent, or while the worker waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: str | None = None
        self._helper_waits = False
        self.waited_s = 0.0  # by the worker, while it held the slot

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        """Hold it as the worker."""
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Release it while the worker waits for servers, if it holds it."""
        if self._holder != "worker":
            yield
            return
        begun = time.perf_counter()
        self._give()
        try:
            yield
        finally:
            self._take()
            self.waited_s += time.perf_counter() - begun

    @contextlib.contextmanager
    def helper(self) -> Iterator[None]:
        """Hold it as the helping thread."""
        with self._changed:
            self._helper_waits = True
            self._changed.wait_for(lambda: self._holder is None)
            self._holder, self._helper_waits = "helper", False
        try:
            yield
        finally:
            self._give()

    def _take(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._holder is None and not self._helper_waits)
            self._holder = "worker"

    def _give(self) -> None:
        with self._changed:
            self._holder = None
            self._changed.notify_all()


class Rebalancer:
    """Helping, of one worker; :meth:`work_off` is for its thread, the rest for any.

    :param store: for what is done for others.
    """

    def __init__(
        self, worker: int, loaded: LoadedShards[Any], store: HelpStore, network: HelpNetwork, settings: Rebalance
    ) -> None:
        self.worker, self._loaded, self._store, self._network, self._settings = (
            worker,
            loaded,
            store,
            network,
            settings,
        )
        self._helpee = Helpee(worker, settings)
        self._helper = Helper(worker, self._have)
        self._slot = ComputeSlot()
        self._changed = threading.Condition()  # of all below, and of helpee and helper
        self._inbox: deque[tuple[m.HelpMessage, float]] = deque()
        self._lost: set[int] = set()
        self._parts: dict[tuple[int, int], dict[int, tuple[RowBlock, ...]]] = {}
        self._helpees: tuple[int, ...] = ()
        self._reported = self._closed = False
        network.join(worker, self)
        self._thread = threading.Thread(target=self._help_others, name=f"plink-helper-{worker}", daemon=True)
        self._thread.start()

    @property
    def moved(self) -> tuple[int, int]:
        """Return how many grains of this worker's helpers have done, and how many there were."""
        return self._helpee.moved, self._helpee.total

    @property
    def helped(self) -> tuple[int, dict[int, int]]:
        """Return how many grains the latest clock had, and how many each helper did."""
        return self._helpee.grains, self._helpee.helped

    def set_helpees(self, workers: Sequence[int]) -> None:
        """Set the workers whom this one may help."""
        self._helpees = tuple(workers)

    def close(self) -> None:
        """End helping; requests that others have sent are not answered."""
        self._network.leave(self.worker, self)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._store.give_up()

    def received(self, message: m.HelpMessage) -> None:
        """Take a message of another worker."""
        with self._changed:
            if isinstance(message, m.HelpRequest | m.HelpCancelled | m.ReturnRequest):
                messages = self._helper.received(message)
            else:
                messages = []
                self._inbox.append((message, time.monotonic()))
            self._changed.notify_all()
        self._send(messages)

    def drop(self, workers: Collection[int]) -> None:
        """Drop the requests of workers that are on other hosts now, and what was given to them."""
        with self._changed:
            messages = self._helper.drop(workers)
            self._lost.update(workers)
            self._changed.notify_all()
        self._send(messages)

    def result_part(self, part: HelpResult) -> None:
        """Take what a helper adds to a partition, if it counts."""
        with self._changed:
            if self._helpee.counts(part.helper, part.id, (part.clock, part.generation)):
                self._parts.setdefault((part.helper, part.id), {})[part.partition] = part.blocks

    def lost(self, worker: int) -> None:
        """Note that a worker could not be reached."""
        with self._changed:
            self._lost.add(worker)
            self._changed.notify_all()

    # The worker's own work.

    def work_off(self, work: ClockWork[Any], client: Client) -> None:
        """Work on the grains of a clock until all are done, here or by helpers; errors as :meth:`ClockWork.work_off`.

        :raises AppError: with what a helper adds a sum is too large.
        """
        client.waiting = self._slot.released
        work.ask_costs()
        with self._changed:
            self._parts.clear()
            messages = self._helpee.begin(work, client.now, client.generation, client.needed_state)
            self._helper.at(client.now, client.generation, finished=False)
            self._reported = False
        self._send(messages)
        while True:
            self._check(work, client)
            if len(work):
                self._work_next(work)
            elif not self._helpee.waits:
                break
            else:
                self._wait(work)
        with self._changed:
            self._helper.at(client.now, client.generation, finished=True)
            self._changed.notify_all()

    def _work_next(self, work: ClockWork[Any]) -> None:
        with self._slot.worker():
            begun, waited_s = time.perf_counter(), self._slot.waited_s
            grain = work.work_next()
            seconds = time.perf_counter() - begun - (self._slot.waited_s - waited_s)
        with self._changed:
            self._helpee.worked(max(0.0, seconds), work.cost(grain))

    def _check(self, work: ClockWork[Any], client: Client) -> None:
        """Handle messages, give work away, and report progress once a clock."""
        messages: list[Outgoing] = []
        results: list[tuple[m.HelpCompleted, dict[int, tuple[RowBlock, ...]]]] = []
        with self._changed:
            for worker in self._lost:
                self._helpee.lost(worker)
            self._lost.clear()
            while self._inbox:
                message, received_s = self._inbox.popleft()
                if isinstance(message, m.HelpCompleted):
                    parts = self._parts.pop((message.sender, message.id), {})
                    counts, more = self._helpee.accept(message, received_s)
                    if counts:
                        results.append((message, parts))
                    messages += more
                else:
                    messages += self._helpee.received(message, received_s)
            messages += self._helpee.check(time.monotonic())
            done = self._helpee.done
        for message, parts in results:
            self._merge(message, parts, work, client)
        if not self._reported and done >= self._settings.report:
            self._reported = True
            report = m.ProgressReport(self.worker, client.generation, client.now, done)
            messages += [(helpee, report) for helpee in self._helpees]
        self._send(messages)

    def _merge(
        self, message: m.HelpCompleted, parts: dict[int, tuple[RowBlock, ...]], work: ClockWork[Any], client: Client
    ) -> None:
        layout = client.layout
        try:
            for partition, blocks in sorted(parts.items()):
                for block in blocks:
                    rows = layout.rows_of(partition, block.rows)
                    client.update(layout.tables[block.table].name, rows, block.values)
        except InputError as error:
            raise AppError(
                f"app {self._loaded.app.name}: what worker {message.sender} did for another: {error}"
            ) from None
        work.scores += [Objective(total, weight) for total, weight in message.scores]

    def _wait(self, work: ClockWork[Any]) -> None:
        """Wait for results, or take work back; others may be helped meanwhile."""
        with self._changed:
            if self._inbox or self._lost:
                return
            messages, wait_s = self._helpee.wait(time.monotonic())
        self._send(messages)
        with self._changed:
            if len(work) or self._inbox or self._lost:
                return
            self._helper.at(*self._position, finished=True)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._inbox or self._lost or self._closed, wait_s)
            self._helper.at(*self._position, finished=False)

    @property
    def _position(self) -> tuple[int, int]:
        return self._helpee.position

    # Help for others.

    def _have(self, shards: set[int]) -> bool:
        return shards <= set(self._loaded.here())

    def _help_others(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._helper.can_begin)
                if self._closed:
                    break
            with self._slot.helper():
                while (session := self._begin_next()) is not None:
                    self._do(session)
        self._store.close()

    def _begin_next(self) -> HelpSession | None:
        with self._changed:
            session, messages = (None, []) if self._closed else self._helper.begin_next()
        self._send(messages)
        return session

    def _do(self, session: HelpSession) -> None:
        """Do a request. An error of the program here is left to the helpee, which does the same grains again."""
        request = session.request
        work = ClockWork(
            self._loaded, self._store, dict.fromkeys((shard for shard, _ in request.grains), request.clock), ()
        )
        try:
            self._store.begin(request.sender, request.clock, request.generation, request.state)
            while (grain := self._next_grain(session)) is not None:
                work.take_back([grain])
                work.work_next()
        except Exception:
            scores = None
        else:
            scores = tuple((float(score.total), float(score.weight)) for score in work.scores)
        with self._changed:
            messages = self._helper.end(session, scores)
        blocks = self._store.take()
        for receiver, message in messages:
            self._network.send(receiver, message, blocks if isinstance(message, m.HelpCompleted) else None)

    def _next_grain(self, session: HelpSession) -> Grain | None:
        with self._changed:
            return None if self._closed else session.next()

    def _send(self, messages: Sequence[Outgoing]) -> None:
        for receiver, message in messages:
            self._network.send(receiver, message)
