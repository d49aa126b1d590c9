"""Workers of a simulated host: clock after clock, without threads."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plink.model.consistency import Rule
from plink.model.elastic.codec import encode_message
from plink.model.elastic.reports import ClockDone, Failed, WorkerFinished
from plink.model.rules.dssp import DSSP
from plink.model.transfers.arbiter import ASSUMED_BYTES_S
from plink.runtime.elastic.arrays.layout import run_of
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.transport.messages import Announce, Message, Read, RowRequest, ServerAnswer
from plink.runtime.elastic.worker.primaries import PrimaryAddress, RolledBack
from plink.runtime.elastic.worker.worker import RELEASED, Assigned
from plink.runtime.elastic.worker.worker_threads import WorkerThreads, _Running
from tests.runners.elastic.simulated_help import SimulatedHelping, SimulatedRebalancer
from tests.runners.elastic.simulated_server import SeenUpdate

if TYPE_CHECKING:
    from tests.runners.elastic.simulated_host import SimulatedHost


class _Blocked(Exception):
    """Somebody would have to wait."""


class Unlocked:
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

    def __init__(self, worker: int, primaries: dict[int, PrimaryAddress], clock: int, generation: int) -> None:
        self.worker = worker
        self.primaries, self.now, self.generation, self.given_up = dict(primaries), clock, generation, False
        self.needed_state = -1

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
        self._shards: tuple[int, ...] | None = None
        self._step = 0
        self._left: set[int] = set()
        self._does = self._begin
        self._worked_s = 0.0
        self._forget_answer()
        self._seen: dict[int, tuple[int, int]] = {}  # of partitions: their version, and how many updates they have
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
            self._client.needed_state = -1
            self._forget_answer()
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
        changed = not set(shards) <= set(self._shards or ())
        self._client.needed_state = max(self._client.needed_state, now - 1 if changed else self._needs(now))
        self._shards, self._left, self._does, self._step = shards, set(range(app.partitions)), self._read, 0
        self._host.begun(self.number, now, self._client.generation, shards, self._running.until is None)
        self._soon(0.0)

    def _needs(self, clock: int) -> int:
        """The clock that a read waits for: by the rule, or as DSSP draws it."""
        rule: Rule = self._host.app.rule
        if isinstance(rule, DSSP):
            return clock - 1 - int(self._host.net.delay(rule.lower, rule.upper + 0.999))
        return rule.needs(clock)

    def _read(self) -> None:
        now = self._client.now
        for partition in sorted(self._left) if now else ():
            rows = range(self._host.app.shards)
            wanted = RowRequest(0, rows)
            generation = self._client.generation
            word = Read(
                partition,
                worker=self.number,
                generation=generation,
                clock=now,
                state=self._client.needed_state,
                wanted=(wanted, RowRequest(1, range(1))) if self._host.app.drops else (wanted,),
            )
            if (answer := self._ask(word)) is not None:
                self._left.discard(partition)
                if self._host.app.drops:
                    self._seen[partition] = answer.version, int(answer.blocks[1].values.item())
                if not self._may_see(answer) and not self._done_by_all(now):
                    raise AssertionError(f"partition {partition} at clock {now}: {answer.blocks[0].values.ravel()}")
        if now and self._left:
            self._soon(0.02)
            return
        self._left, self._does = set(range(self._host.app.partitions)), self._announce
        if (helping := self._helping) is not None:
            assert self._shards is not None
            helping.begin(self._shards, self._client)
            self._does = self._work
            self._soon(0.0)
            return
        self._work_on_step()

    def _work_on_step(self) -> None:
        assert self._shards is not None
        self._worked_s = self._host.seconds_of_work(self._client.now, len(self._shards))
        self._soon(self._worked_s)

    def _may_see(self, answer: ServerAnswer) -> bool:
        """Whether it sees all that it must, nothing that is too new, and its own shards as it left them."""
        app, now, values = self._host.app, self._client.now, answer.blocks[0].values.ravel()
        own, own_values = app.units(now - 1), values[list(self._shards or ())]
        newest = app.units(now + app.rule.apart) if app.rule.sees_ahead else own
        included = app.units(now) if answer.included or app.rule.steps else own
        if answer.included and self._running.until is not None:
            included = newest  # its predecessor may have done clocks after this one
        bounds = ((values, app.units(self._client.needed_state), newest), (own_values, own, included))
        return all(((least <= some) & (some <= most)).all() for some, least, most in bounds)

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

    def _forget_answer(self) -> None:
        """Nothing is known of the next step yet."""
        self._is_dropped = self._is_left = False
        self._group, self._missing, self._patience = (0, 0, 0), 0, 0
        self._others: list[dict[int, tuple[int, int]]] = []
        self._travels_s = 0.0

    def _announce(self) -> None:
        """Wait until the step may be sent, or may not, where that is asked."""
        if self._client.now and self._host.app.asks:
            size, (version, _) = int(10 ** self._host.net.delay(6, 9)), self._seen.get(0, (0, 0))
            word = Announce(
                0,
                worker=self.number,
                generation=self._client.generation,
                clock=self._client.now,
                step=self._step,
                version=version,
                size=size,
                text=f"{self._host.address} 0",
            )
            answer = self._ask(word)
            if answer is None:
                self._soon(0.02)
                return
            self._is_dropped = answer.dropped
            self._is_left = answer.grouped
            self._group, self._missing = (answer.generation, answer.term, answer.transfer), answer.others
            self._patience, self._travels_s = 40, size / ASSUMED_BYTES_S * (not (answer.dropped or answer.grouped))
        self._does = self._join
        self._join()

    def _join(self) -> None:
        """Wait for those whose updates this worker sends; not for ever."""
        if self._missing > len(self._host.groups.get(self._group, ())) and self._patience:
            self._patience -= 1
            self._soon(0.01)
            return
        self._others = self._host.groups.pop(self._group, []) if self._missing else []
        self._missing, self._does = 0, self._update
        self._soon(self._travels_s)

    def _update(self) -> None:
        """A step; some partitions at a time: another host may be lost, or this one, before all have it."""
        assert self._shards is not None
        last = self._step == self._host.app.steps(self._client.now) - 1
        some = sorted(self._left, key=lambda number: (not number, self._host.net.delay(0.0, 1.0)))
        for partition in some[: 1 + int(self._host.net.delay(0, len(some)))]:
            rows = run_of(np.array(sorted(self._shards), dtype=np.uint32))
            block = RowBlock(0, rows, self._host.app.added(self._client.now).repeat(len(rows), 0))
            if (helping := self._helping) is not None:
                block = helping.added(partition, self._shards)
            now = self._client.now
            others = [each.get(partition, (0, 0)) for each in self._others]
            version, seen = map(min, zip(self._seen.get(partition, (0, 0)), *others, strict=True))
            sends = self._host.app.drops and not self._is_dropped and not self._is_left
            update = (RowBlock(1, range(1), np.array([[1 + len(others)]])),) if sends else ()
            word = SeenUpdate(
                partition,
                worker=self.number,
                generation=self._client.generation,
                clock=now,
                step=self._step,
                last=last,
                unsent=self._is_dropped,
                blocks=(block, *update) if len(block.rows) else update,
                version=version,
                others=len(others),
                text=str(seen) if update else "",
            )
            unheard = self._host.app.rule.steps and self._host.net.hurdle()  # a step is then sent again
            if self._ask(word) is not None and not unheard:
                self._left.discard(partition)
        if self._left:
            self._soon(self._host.net.delay(0.001, 0.02))
            return
        self._host.net.summed += len(self._others)
        if self._is_left:
            self._host.net.left += 1
            self._host.groups.setdefault(self._group, []).append(dict(self._seen))
        self._forget_answer()
        if not last:
            self._step, self._left = self._step + 1, set(range(self._host.app.partitions))
            if self._host.app.drops:  # as of what every worker has sent by now
                self._does = self._read
                self._soon(0.0)
            else:
                self._work_on_step()
            return
        now = self._client.now
        self._client.now, self._does = now + 1, self._begin
        self._host.workers._done(
            self._running,
            ClockDone(
                now,
                now - 1,
                1,
                0.1,
                0 in self._shards,
                now - 2,
                None,
                self._client.generation,
                self.number,
                len(self._shards),
                compute_s=self._worked_s,
            ),
        )
        self._soon(0.0)

    def _ask(self, word: Message) -> Any:
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
        assigned._changed = Unlocked()  # type: ignore[assignment]
        running = _Running(self._client(number, clock, generation), assigned, shards, until)
        self._running[number] = running
        if self._helping is not None and until is None:
            self._helping.start(number, running.client.primaries)
        SimulatedWorker(self._host, number, running)
