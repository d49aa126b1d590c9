"""The engine of one rank: all-reduces one after the other, each cut over lanes, a thread a lane."""

import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

import torch

from plink.model.schedule import Schedule
from plink.runtime.aggengine.aggregation import Aggregation
from plink.runtime.aggengine.aside import Aside
from plink.runtime.aggengine.crossover import NEVER, AllReduce
from plink.runtime.aggengine.cut import cut
from plink.runtime.aggengine.eager import MOST_BYTES, EagerTransport
from plink.runtime.aggengine.failures import AggregationError, Watch
from plink.runtime.aggengine.lane import Lane, run_lane
from plink.runtime.aggengine.program import Program, compile_program
from plink.runtime.aggengine.reductions import GLOO_SUMS, Combine, Reduction
from plink.runtime.aggengine.transport import SIGNATURES, Transport
from plink.runtime.aggengine.tuning import Tuning

_END_S = 3.0
_LINGER_S = 1.0
_MEASURED = SIGNATURES - 2
_MEANINGS = 4096  # kept of those that all ranks have agreed on
_PROGRAMS = 64  # kept a rank: a model has as many sizes of buckets as it has, and a thousand is not one of a model


@dataclass
class Job:
    """One all-reduce. ``done(error)`` is called once, when every lane is through or one has failed."""

    number: int
    flat: torch.Tensor
    schedule: Schedule | None
    reduction: Reduction
    signature: int
    done: Callable[[str | None], None]
    left: int
    ready: Callable[[], None] | None = None  # comes back when the vector is there
    lock: threading.Lock = field(default_factory=threading.Lock)
    failed: bool = False
    program: Program | None = None  # once it begins: until then its schedule may be replaced
    gloo: AllReduce | None = None  # what does it instead, found then: the sizes that go to Gloo may change


class Engine:
    """Executes schedules for one rank; jobs in the order in which they were submitted, which all ranks share.
    ``handed_from``: from which size on Gloo in another order does them instead, bytes."""

    def __init__(
        self,
        aggregation: Aggregation,
        rank: int,
        transport: Transport,
        watch: Watch,
        eager: EagerTransport | None = None,
    ) -> None:
        """:param eager: for short vectors, on all ranks or on none."""
        self.aggregation = aggregation
        self._rank, self._transport, self._eager, self._watch = rank, transport, eager, watch
        self._ranks = aggregation.ranks or 0
        self._count = 0
        self._queues: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(aggregation.lanes)]
        self._lanes = [Lane(number) for number in range(aggregation.lanes)]
        self._programs: OrderedDict[tuple[int, int, int], tuple[Schedule, Program]] = OrderedDict()
        self._submitting, self._compiling = threading.Lock(), threading.Lock()
        self._pending = 0
        self._broken: str | None = None
        self._breaking = threading.Lock()
        self._tuning: Tuning | None = None
        self._asides: list[Aside] = []
        self._ordered: Aside | None = None
        self.handed_from = NEVER
        self._agreed: set[tuple[int, torch.dtype, str]] = set()
        watch.stop = self.stop
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"plink-lane-{lane}", daemon=True)
            for lane in range(aggregation.lanes)
        ]
        for thread in self._threads:
            thread.start()

    def tune(self, tuning: Tuning, aside: Aside | None = None) -> None:
        """From now on, which is between the same two all-reduces on all ranks, schedules may be replaced. ``aside``:
        what does what is small meanwhile."""
        self._asides += [] if aside is None else [aside]
        tuning.start(self._count, self._alone)
        self._tuning = tuning

    def hand_over(self, smallest_bytes: int, to: Aside | None) -> None:
        """From now on, which is between the same two all-reduces on all ranks, Gloo in another order does what is so
        large."""
        self._asides = [] if to is None else [to]
        self._ordered, self.handed_from = to, smallest_bytes

    def submit(
        self,
        flat: torch.Tensor,
        schedule: Schedule | None,
        reduction: Reduction,
        done: Callable[[str | None], None],
        ready: Callable[[], None] | None = None,
        waits: bool = False,
    ) -> None:
        """All-reduce in place by a schedule.

        :param flat: contiguous, of one dimension, not empty.
        :param schedule: None: there is none, and it is handed over for its size.
        :param done: is called once, from a thread of the engine or this one, with what went wrong or None.
        :param ready: comes back when the vector is there; None: it is. Every lane calls it.
        :param waits: whether the caller does nothing before it is done: what one lane does alone, it does in the
            caller's thread then, for a small message is over sooner than two threads have changed places.
        """
        with self._submitting:
            job = self._begin(flat, schedule, reduction, done, ready)
            if waits and self._may_do_here(job):
                job.left = 1
                self._take(job, 0)
                return
            for queue in self._queues:
                queue.put(job)

    def _may_do_here(self, job: Job) -> bool:
        """Whether nothing is before it, and the first lane does it alone, or it fails."""
        why = None if self._pending > 1 else self._try(lambda: self._prepare(job, 0))
        return why is not None or job.gloo is not None or (job.program is not None and not any(job.program.lanes[1:]))

    def _begin(
        self,
        flat: torch.Tensor,
        schedule: Schedule | None,
        reduction: Reduction,
        done: Callable[[str | None], None],
        ready: Callable[[], None] | None = None,
    ) -> Job:
        if self._broken is not None:
            raise AggregationError(f"plink: {self._broken}")
        self._count += 1
        meaning = f"{reduction.name} of {flat.numel()} x {str(flat.dtype).removeprefix('torch.')}"
        signature = zlib.crc32(f"{self._count} {meaning}".encode()) % SIGNATURES
        with self._breaking:
            self._pending += 1
        self._watch.begin(self._count, meaning)
        return Job(self._count, flat, schedule, reduction, signature, done, self.aggregation.lanes, ready)

    def stop(self, why: str) -> None:
        """End all that is under way, and fail all that comes."""
        with self._breaking:
            first, self._broken = self._broken is None, self._broken or why
        if first:
            if self._tuning is not None:
                self._tuning.stop(why)
            self._transport.close()
            if self._eager is not None:
                self._eager.close()
            for aside in self._asides:
                aside.close()
            if self._watch.keeps_store:  # it goes with it before the others have read why
                time.sleep(_LINGER_S)

    def close(self, patience_s: float) -> None:
        """End the lanes; what is still under way after so long fails. Python must not end while they are in Gloo."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join(patience_s)
        if any(thread.is_alive() for thread in self._threads):
            self.stop("the group was closed")
            for thread in self._threads:
                thread.join(_END_S)
        if self._tuning is not None:
            self._tuning.close()
        for aside in self._asides:
            aside.shutdown()
        if self._eager is not None:
            self._eager.release()
        self._watch.close()
        self._watch.stop = lambda why: None  # no circle of the two, so that connections go with the last reference

    def current(self) -> Aggregation:
        """What a group that is made now goes by: the schedules in use."""
        if self._tuning is None:
            return self.aggregation
        tuning = self._tuning
        return replace(
            self.aggregation,
            classes=tuple(
                entry if entry.schedule is None else replace(entry, schedule=tuning.schedule(entry.schedule))
                for entry in self.aggregation.classes
            ),
        )

    @property
    def short_bytes(self) -> int | None:
        """Up to which size vectors go over sockets of the engine's own; None: none do."""
        return None if self._eager is None else MOST_BYTES

    @property
    def broken(self) -> str | None:
        """Why there will be no more sums."""
        return self._broken

    def _prepare(self, job: Job, lane: int) -> Program | None:
        """What the job does, by the schedule that holds when it begins; None where Gloo does it."""
        if self._tuning is not None:
            self._tuning.before(job.number, lane, job.flat.nbytes)
        with job.lock:
            if job.program is None and job.gloo is None:
                job.gloo = self._gloo_for(job)
                if job.gloo is not None:
                    return None
                assert job.schedule is not None
                schedule = job.schedule if self._tuning is None else self._tuning.schedule(job.schedule)
                with self._compiling:  # lanes may be at different jobs
                    job.program = self._compile(schedule, job.flat.numel(), job.flat.element_size())
            return job.program

    def _gloo_for(self, job: Job) -> AllReduce | None:
        """What does the job instead of a schedule: the same on all ranks for the same all-reduce."""
        if job.flat.dtype not in GLOO_SUMS:
            return None
        crossover = None if self._tuning is None else self._tuning.crossover
        if crossover is not None and job.flat.nbytes < crossover.smallest:
            return crossover.gloo
        if self._ordered is not None and job.flat.nbytes >= self.handed_from:
            return self._ordered.all_reduce
        return None

    def _compile(self, schedule: Schedule, elements: int, item_bytes: int) -> Program:
        key = (id(schedule), elements, item_bytes)
        if key not in self._programs:
            cells = cut(elements, item_bytes, schedule.chunks, self.aggregation.cutting)
            program = compile_program(schedule, self._rank, cells, self.aggregation.lanes)
            self._programs[key] = schedule, program  # with the schedule: its id stays its own
            if len(self._programs) > _PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return self._programs[key][1]

    def _work(self, lane: int) -> None:
        queue = self._queues[lane]
        while (job := queue.get()) is not None:
            self._take(job, lane)

    def _take(self, job: Job, lane: int) -> None:
        """Do the lane's part of a job, and tell when it was the last or the first to fail."""
        why = self._broken or self._try(lambda: self._run_lane(job, lane))
        with job.lock:
            job.left -= 1
            told, job.failed = job.failed, job.failed or why is not None
            last = job.left == 0
        if last:
            with self._breaking:
                self._pending -= 1
        if why is not None and not told:
            self._watch.end(job.number)
            job.done(why)
        elif last and not job.failed:
            job.done(self._finish(job))

    def _run_lane(self, job: Job, lane: int) -> None:
        if job.ready is not None:
            job.ready()
        program = self._prepare(job, lane)
        if program is None:
            if lane == 0 and job.gloo is not None:
                self._by_gloo(job, job.gloo)
            return
        self._execute(program, lane, job.flat, job.reduction.combine, job.signature)

    def _by_gloo(self, job: Job, all_reduce: AllReduce) -> None:
        """Let Gloo do it. Where it is large, one number goes by a schedule, too, which comes out only where all ranks
        mean the same: Gloo itself would add up numbers of any types that are as long, and ends the process where they
        are not. Before Gloo's the first time, beside it when all have meant it before."""
        meaning = job.flat.numel(), job.flat.dtype, job.reduction.name
        asks = job.flat.nbytes >= self.handed_from
        if asks and meaning not in self._agreed:
            self._agree(job)
        work = all_reduce(job.flat, job.reduction.kind)
        if asks and meaning in self._agreed:
            self._agree(job)
        try:
            work.wait()
        except RuntimeError:
            if asks and self._ordered is not None:
                self._ordered.close()  # others may wait there for ranks that are still here
                self._agree(job)  # which tells who is lost, where Gloo does not
            raise
        if len(self._agreed) >= _MEANINGS:
            self._agreed.clear()
        self._agreed.add(meaning)

    def _agree(self, job: Job) -> None:
        """Come back when all ranks have come with what the job means."""
        schedule = next(entry.schedule for entry in self.aggregation.classes if entry.schedule is not None)
        self._in_one_piece(job.flat.new_zeros(1), schedule, job.signature)

    def _alone(self, flat: torch.Tensor, schedule: Schedule) -> None:
        """Sum up a vector of one piece in the calling thread, which is the one that does what the first lane does."""
        self._in_one_piece(flat, schedule, _MEASURED)

    def _in_one_piece(self, flat: torch.Tensor, schedule: Schedule, signature: int) -> None:
        with self._compiling:
            program = self._compile(schedule, flat.numel(), flat.element_size())
        self._execute(program, 0, flat, torch.Tensor.add_, signature)

    def _execute(self, program: Program, lane: int, flat: torch.Tensor, combine: Combine, signature: int) -> None:
        transport = self._transport if self._eager is None or flat.nbytes > MOST_BYTES else self._eager
        run_lane(self._lanes[lane], program.lanes[lane], flat, combine, transport, signature)

    def _try(self, do: Callable[[], object]) -> str | None:
        """Do it; what went wrong, if anything did, which ends all."""
        try:
            do()
        except Exception as error:
            # Others must be able to read why before they lose their connections.
            self.stop(self._broken or self._watch.explain(str(error)))
            return self._broken
        return None

    def _finish(self, job: Job) -> str | None:
        self._watch.end(job.number)
        try:
            if job.reduction.finish is not None:
                job.reduction.finish(job.flat, self._ranks)
        except Exception as error:
            return f"{job.reduction.name}: {error}"
        return None
