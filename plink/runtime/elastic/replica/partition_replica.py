"""One partition at one server, and the thread that it belongs to: no other changes its state (tall aggregation; Luo et
al., PHub, SoCC 2018, 4.2). While that thread is idle, threads that read do so in its place."""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs

from plink.errors import PlinkError
from plink.model.elastic.fields import UpdateCounts
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.partition.serialization import begun, take, update_part
from plink.runtime.elastic.replica.arbitration import Arbitration
from plink.runtime.elastic.replica.mailbox import ActorThread, RaisedResult, ReplyBox, Result
from plink.runtime.elastic.replica.outgoing import BeginOrder
from plink.runtime.elastic.replica.replica_state import ReplicaState
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.transport import messages as m
from plink.runtime.elastic.transport.connection import StoreConfig

MOVER_BITS = 40  # attempts to bring a partition are numbered in these; the bits above tell who numbers


@dataclass(frozen=True)
class _Waiting:
    """A read whose state is not there yet, or an announcement that is not decided."""

    message: m.Read | m.Announce
    box: ReplyBox
    until: float


class PartitionReplica(ReplicaState):
    """Actor of one partition at one server: its thread, and its answers to messages.

    Parameters as of :class:`ReplicaState`, and:

    :param read_wait_s: how long a read waits before it is told to ask again; so that one who asks can tell a server
        that waits from one that is gone.
    :param arbiter: makes an arbiter, at a time, if updates are announced to this partition.
    :ivar now: the time in seconds, monotonic.
    :ivar updates: applied and dropped here, for any thread.
    """

    def __init__(
        self,
        config: StoreConfig,
        number: int,
        advanced: Callable[[Collection[str]], None],
        least_generation: int = 0,
        *,
        read_wait_s: float,
        arbiter: Callable[[float], Arbitration] | None = None,
    ) -> None:
        super().__init__(config, number, advanced, least_generation)
        self._new_arbiter, self._max_delay, self._read_wait_s = arbiter, config.max_delay, read_wait_s
        self.updates = UpdateCounts()
        self._waiting: list[_Waiting] = []
        self.thread = ActorThread(f"plink-partition-{number}", self._do, self._due, self.answer_waiting, self._ended)

    now = staticmethod(time.monotonic)

    def ask(self, message: m.Message) -> m.ServerAnswer:
        """Handle a message of a client or another server, from any thread; returns when it is done."""
        at_once = self.thread.run_inline(self._answer_read, message) if isinstance(message, m.Read) else None
        answer: m.ServerAnswer = at_once or self.thread.ask(message)
        return answer

    def call(self, function: Callable[[], Result]) -> Result:
        """Run something in the partition's thread. :raises PlinkError: what it raises."""
        result: Result = self.thread.ask(function)
        return result

    def close(self) -> None:
        """End the thread; what is in its queue is answered first."""
        self.thread.close()

    # From here on everything runs in the partition's thread, but for reads, or while that waits for its turn.

    def answer_waiting(self) -> None:
        """Answer the reads that can be answered now, and those that have waited for too long."""
        now = self.now()
        if self._arbiter is not None:
            self._arbiter.tick(self.partition.version, now)
        waiting, self._waiting = self._waiting, []
        for read in waiting:
            self._read(read.message, read.box, read.until, now)

    def _read(self, message: m.Read | m.Announce, box: ReplyBox, until: float, now: float) -> None:
        """Answer a read, or let it wait."""
        answer = self._answer_read(message)
        if answer is None and now < until:
            self._waiting.append(_Waiting(message, box, until))
        else:
            stragglers = [] if self._partition is None else self._partition.stragglers()
            box.put(answer or self._answer_with(m.Status.WAITING, ", ".join(map(str, stragglers))))

    def _answer_read(self, message: m.Read | m.Announce) -> m.ServerAnswer | None:
        """Answer a read or an announcement; None: it has to wait. One that fails does not harm others."""
        try:
            stopped = self._stopped(message.generation, Role.SERVING)
            return stopped or (self._granted(message) if isinstance(message, m.Announce) else self._state_for(message))
        except Exception as error:
            return self._answer_with(m.Status.REFUSED, str(error) if isinstance(error, PlinkError) else _named(error))

    def _granted(self, message: m.Announce) -> m.ServerAnswer | None:
        now = self.now()
        if self._arbiter is None:
            if self._new_arbiter is None:
                raise RejectedRequest(f"updates of partition {self.number} are not announced")
            self._arbiter = self._new_arbiter(now)
        grant = self._arbiter.decision(message, self.partition.version, now)
        clock = self.partition.clock
        return grant and structs.replace(grant, generation=self.generation, term=self.term, clock=clock)

    def _state_for(self, message: m.Read) -> m.ServerAnswer | None:
        self.partition.check()
        if self.partition.clock < message.state:
            return None
        member = self.partition.members.get(message.worker)
        is_reread = member is not None and message.clock <= member.finished
        clock = self.partition.clock
        if is_reread and not self._config.sees_ahead:  # a successor sees what its predecessor saw
            # What is not kept all have gone beyond: the update that it is for counts nowhere any more.
            clock = max(message.state, self.partition.earliest)
        blocks = tuple(
            RowBlock(wanted.table, wanted.rows, self.partition.read(wanted.table, wanted.rows, clock))
            for wanted in message.wanted
        )
        answer = self._answer_with(m.Status.OK, clock=clock)
        included = is_reread and self._config.sees_ahead
        return structs.replace(answer, version=self.partition.version, included=included, blocks=blocks)

    def _due(self) -> float | None:
        tick_s = math.inf if self._arbiter is None else self._arbiter.tick_s
        due_s = min(tick_s, self._waiting[0].until if self._waiting else math.inf)
        return due_s - self.now() if due_s < math.inf else None

    def _ended(self) -> None:
        for read in self._waiting:
            read.box.put(RaisedResult(RejectedRequest("the server is closed")))

    def _do(self, request: m.Message | Callable[[], Any], box: ReplyBox) -> None:
        try:
            if isinstance(request, m.Read | m.Announce):
                now = self.now()
                self._read(request, box, now + self._read_wait_s, now)
                if isinstance(request, m.Announce):
                    self.answer_waiting()  # it may decide others, too
                return
            try:
                result = request() if callable(request) else self._answer(request)
            finally:
                self.publish()  # before anybody is notified
            box.put(result)
        except RejectedRequest as error:
            box.put(RaisedResult(error) if callable(request) else self._answer_with(m.Status.REFUSED, str(error)))
        except BaseException as error:
            if callable(request) or isinstance(error, PlinkError):
                box.put(RaisedResult(error))
            else:
                box.put(self._answer_with(m.Status.REFUSED, _named(error)))

    def _answer_with(self, status: m.Status, text: str = "", clock: int | None = None) -> m.ServerAnswer:
        if clock is None:
            clock = -1 if self._partition is None else self._partition.clock
        return m.ServerAnswer(self.number, status, self.generation, self.term, clock, text)

    def _stopped(self, generation: int, role: Role) -> m.ServerAnswer | None:
        """Return the answer to a message that cannot be taken in this role or generation."""
        if self.role in (Role.MOVED, Role.IN_DOUBT) or (self.role is not role and self.address):
            return self._answer_with(m.Status.ELSEWHERE, self.address)
        if self.role is not role:
            return self._answer_with(m.Status.ABSENT)
        if generation < self.generation:
            return self._answer_with(m.Status.ROLLED_BACK, clock=self.generation_clock)
        if generation > self.generation:
            return self._answer_with(m.Status.BEHIND)
        return None

    def _answer(self, message: m.Message) -> m.ServerAnswer:
        match message:
            case m.Update():
                return self._stopped(message.generation, Role.SERVING) or self._update(message)
            case m.ReplicationDelta():
                return self._stopped(message.generation, Role.REPLICA) or self._apply(message)
            case m.PartitionPart():
                return self._take_part(message)
            case m.Activate():
                return self._activate(message)
        raise RejectedRequest(f"{type(message).__name__} is no request")

    def _delay(self, message: m.Update) -> int | None:
        """Return how many updates were applied between the read that one was computed from and itself; None where
        nothing bounds or counts that, as of first values and of what has nothing for the program's tables."""
        if self._max_delay is None or not message.clock or not self.partition.changes_program(message.blocks):
            return None
        return self.partition.version + message.others - message.version  # of the last that it adds up, at most

    def _update(self, message: m.Update) -> m.ServerAnswer:
        members = 1 + message.others
        if members > max(1, len(self.partition.members)):
            raise RejectedRequest(f"a sum of {members} updates, of {len(self.partition.members)} workers")
        delay, dropped = self._delay(message), False
        if delay is not None and self._max_delay is not None and not 0 <= delay <= self._max_delay:
            # The step counts all the same, and what plink itself notes with it: only the program's part is left out.
            reserved, dropped = self._config.layout.reserved, True
            blocks = tuple(block for block in message.blocks if block.table in reserved)
            message = structs.replace(message, blocks=blocks)
        queued = update_part(message) if self.outgoing is not None and not self.outgoing.drains else None
        before, version = self.partition.clock, self.partition.version
        step = message.worker, message.clock, message.step, message.last
        taken = self.partition.update(*step, message.blocks, members)
        if taken and queued and self.outgoing:
            self.outgoing.add([queued])
        if taken and delay is not None:
            for later in range(members):  # `delay` is the last one's
                self.updates = self.updates.with_one(None if dropped else delay - later)
        if taken and message.unsent:
            self.updates += UpdateCounts(unsent=1)
        if self._arbiter is not None:
            counts = self._arbiter.arrived(message, self.partition.version - version, version, self.now())
            if counts is not None:
                self.updates += counts
                self.answer_waiting()
        if self.partition.clock > before or self.partition.overflow:
            self.changed()
        self.partition.check()
        steps, finished = self.partition.steps_of(message.worker, message.clock)
        answer = m.UpdateAnswer(
            self.number,
            m.Status.OK,
            self.generation,
            self.term,
            self.partition.clock,
            version=self.partition.version,
            steps=steps,
            finished=finished,
            latest_finished=self.partition.latest_finished,
            dropped=taken and dropped,
        )
        after = message.worker, message.generation, message.clock + 1, message.state
        read = self._answer_read(m.Read(self.number, *after, message.wanted)) if message.wanted else None
        if read is None or read.status is not m.Status.OK:
            return answer  # it does not wait: other updates follow on the same connection
        return structs.replace(answer, clock=read.clock, included=read.included, blocks=read.blocks)

    def _apply(self, message: m.ReplicationDelta) -> m.ServerAnswer:
        if message.term < self.term:
            raise RejectedRequest(f"partition {self.number} is pushed by its primary of term {self.term}")
        self.term = message.term
        if self.partition.apply_delta(message):
            self.ended = message.last  # a push after the last one: the drain did not succeed
        return self._answer_with(m.Status.OK)

    def _take_part(self, message: m.PartitionPart) -> m.ServerAnswer:
        if self.role is Role.SERVING:
            raise RejectedRequest(f"partition {self.number} is served here already")
        self._in_time(message.generation)
        is_state = message.kind is m.PartKind.STATE
        if self.role is Role.REPLICA and (
            message.generation < self.generation or (not is_state and message.generation != self.generation)
        ):
            raise RejectedRequest(
                f"partition {self.number} is in generation {self.generation} here, not {message.generation}"
            )
        if is_state or message.kind is m.PartKind.NUMBERS:
            self._begin_attempt(message)
        elif message.attempt != self._attempt:
            raise RejectedRequest(f"partition {self.number} is not being brought by attempt {message.attempt}")
        if is_state:  # a new beginning, whatever was here
            self._partition = begun(self._config.layout, message, sees_ahead=self._config.sees_ahead)
            self.role, self.ended, self.in_doubt = Role.ARRIVING, False, None
            self.generation, self.generation_clock = message.generation, message.generation_clock
        else:
            take(self.partition, message)
        return self._answer_with(m.Status.OK)

    def _begin_attempt(self, message: m.PartitionPart) -> None:
        same_mover = message.attempt >> MOVER_BITS == self._last_attempt >> MOVER_BITS
        late = message.attempt <= self._last_attempt if same_mover else message.term < self.arriving_term
        if late or message.term < self.term:
            raise RejectedRequest(f"partition {self.number} was brought later than that, in term {self.term}")
        if message.term in self.cancelled:
            raise RejectedRequest(f"the move of partition {self.number} in term {message.term} was cancelled")
        self._attempt = self._last_attempt = message.attempt
        self._attempt_term = message.term

    def _in_time(self, generation: int) -> None:
        if generation < self.least_generation:
            raise RejectedRequest(
                f"partition {self.number} is of generation {generation}, and was rolled back in {self.least_generation}"
            )

    def _activate(self, message: m.Activate) -> m.ServerAnswer:
        if message.attempt == self._begun:
            return self._answer_with(m.Status.OK)  # a repeat
        self._in_time(message.generation)
        if self.role not in (Role.ARRIVING, Role.REPLICA):
            raise RejectedRequest(f"partition {self.number} has not arrived here")
        if message.attempt != self._attempt:
            raise RejectedRequest(f"partition {self.number} was not brought by attempt {message.attempt}")
        try:
            order = msgspec.json.decode(message.text, type=BeginOrder)
        except msgspec.DecodeError:
            raise RejectedRequest("an order to begin that cannot be read") from None
        serves = order.role is Role.SERVING
        if serves and message.term <= self.term:
            raise RejectedRequest(f"partition {self.number} is in term {self.term} already")
        self.partition.delta_sequence = max(self.partition.delta_sequence, order.delta_sequence)
        self.partition.replicas = order.replicas
        if serves:
            self._bound_divergence()
            if self.partition.distances is not None:
                self.partition.distances.unconfirmed = {to: {*clocks} for to, clocks in order.unconfirmed.items()}
            self.partition.advance()  # a sum that was too large where it was before is so here
        # Nothing before this reported that it has begun: it may lack memory for that, and be ordered again.
        self._attempt, self._begun = None, message.attempt
        if serves:
            self.completed_moves.add(message.term)
        self.address = ""
        self.place(self.partition, order.role, message.term)
        return self._answer_with(m.Status.OK)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
