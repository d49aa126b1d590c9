"""Helping, of one worker: its own grains between two checks of messages, and a thread that helps others.

The thread computes while the worker waits for servers or results, or before the worker's own work where a helpee is at
an earlier clock; the worker's slot has one of the two at a time.
"""

import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

from plink.elastic.app_error import AppError
from plink.elastic.objective import Objective
from plink.errors import InputError
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.helping import messages as m
from plink.runtime.elastic.helping.help_network import HelpNetwork
from plink.runtime.elastic.helping.help_store import HelpStore
from plink.runtime.elastic.helping.helpee import Helpee, Outgoing
from plink.runtime.elastic.helping.helper import Helper, HelpSession
from plink.runtime.elastic.helping.settings import Rebalance
from plink.runtime.elastic.helping.slot import ComputeSlot
from plink.runtime.elastic.transport.messages import HelpResult
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.clock_work import ClockWork, Grain
from plink.runtime.elastic.worker.loaded_shards import LoadedShards


class Rebalancer:
    """Helping, of one worker; :meth:`work_off` is for its thread, the rest for any.

    :param store: for what is done for others.
    """

    def __init__(
        self, worker: int, loaded: LoadedShards[Any], store: HelpStore, network: HelpNetwork, settings: Rebalance
    ) -> None:
        self.worker, self._loaded, self._store, self._network, self._settings = (
            worker, loaded, store, network, settings
        )  # fmt: skip
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
