"""Collective engine of one rank: all-reduces in their order, each over parallel channels with a thread for each."""

import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

import torch

from plink.model.schedule import Schedule
from plink.runtime.allreduce.aggregation import Aggregation
from plink.runtime.allreduce.algorithm_selection import NEVER, AllReduce
from plink.runtime.allreduce.channel import DataChannel, run_channel
from plink.runtime.allreduce.eager import MAX_BYTES, EagerTransport
from plink.runtime.allreduce.hub_announcements import HubAnnouncer
from plink.runtime.allreduce.program import Program, compile_program
from plink.runtime.allreduce.reductions import GLOO_SUM_DTYPES, Combine, Reduction
from plink.runtime.allreduce.secondary_group import SecondaryGroup
from plink.runtime.allreduce.segmentation import segment
from plink.runtime.allreduce.transport import TAGS, Transport
from plink.runtime.allreduce.tuner import RankTuner
from plink.runtime.allreduce.watchdog import AggregationError, Watchdog

_JOIN_TIMEOUT_S = 3.0
_STORE_LINGER_S = 1.0
_MEASUREMENT_TAG = TAGS - 2
_MAX_AGREED_SIGNATURES = 4096  # cached
_MAX_CACHED_PROGRAMS = 64  # a model has a program for each size of its buckets, far fewer than this


@dataclass
class Collective:
    """State of one all-reduce. ``on_done(error)`` is called once, when every channel has finished or one has failed."""

    number: int
    flat: torch.Tensor
    schedule: Schedule | None
    reduction: Reduction
    tag: int
    on_done: Callable[[str | None], None]
    pending_channels: int
    wait_ready: Callable[[], None] | None = None  # returns when the vector is in host memory
    lock: threading.Lock = field(default_factory=threading.Lock)
    failed: bool = False
    program: Program | None = None  # set when it starts: until then its schedule may be replaced
    delegate: AllReduce | None = None  # set when it starts, where Gloo does it: the thresholds may change until then


class Engine:
    """Executor of schedules for one rank, in the order of submission, which all ranks share.

    From ``delegation_min_bytes`` on, a Gloo group with its ranks in another order does all-reduces instead.
    """

    def __init__(
        self,
        aggregation: Aggregation,
        rank: int,
        transport: Transport,
        watchdog: Watchdog,
        eager: EagerTransport | None = None,
        announcer: HubAnnouncer | None = None,
    ) -> None:
        """:param eager: transport of short vectors, on all ranks or on none. :param announcer: on rank 0, with hubs."""
        self.aggregation = aggregation
        self._rank, self._transport, self._eager, self._watchdog = rank, transport, eager, watchdog
        self._announcer = announcer
        self._ranks = aggregation.ranks or 0
        self._count = 0
        self._queues: list[SimpleQueue[Collective | None]] = [SimpleQueue() for _ in range(aggregation.channels)]
        self._channels = [DataChannel(number) for number in range(aggregation.channels)]
        self._programs: OrderedDict[tuple[int, int, int], tuple[Schedule, Program]] = OrderedDict()
        self._submit_lock, self._compile_lock, self._state_lock = threading.Lock(), threading.Lock(), threading.Lock()
        self._unfinished = 0
        self._error: str | None = None
        self._tuner: RankTuner | None = None
        self._secondaries: list[SecondaryGroup] = []
        self._delegate: SecondaryGroup | None = None
        self.delegation_min_bytes = NEVER
        self._agreed: set[tuple[int, torch.dtype, str]] = set()
        watchdog.on_failure = self.stop
        self._threads = [self._new_thread(channel) for channel in range(aggregation.channels)]
        for thread in self._threads:
            thread.start()

    def _new_thread(self, channel: int) -> threading.Thread:
        return threading.Thread(target=self._run, args=(channel,), name=f"plink-channel-{channel}", daemon=True)

    def attach_tuner(self, tuner: RankTuner, secondary: SecondaryGroup | None = None) -> None:
        """Let Autotune replace schedules from now on. All ranks call this between the same two all-reduces.

        :param secondary: the group that does small all-reduces meanwhile.
        """
        self._secondaries += [] if secondary is None else [secondary]
        tuner.start(self._count, self._all_reduce_alone)
        self._tuner = tuner

    def delegate_above(self, min_bytes: int, delegate: SecondaryGroup | None) -> None:
        """Delegate all-reduces of this size and larger to a Gloo group whose ranks are in another order.

        All ranks call this between the same two all-reduces.
        """
        self._secondaries = [] if delegate is None else [delegate]
        self._delegate, self.delegation_min_bytes = delegate, min_bytes

    def submit(
        self,
        flat: torch.Tensor,
        schedule: Schedule | None,
        reduction: Reduction,
        on_done: Callable[[str | None], None],
        wait_ready: Callable[[], None] | None = None,
        blocking: bool = False,
    ) -> None:
        """All-reduce a vector in place.

        :param flat: contiguous, of one dimension, not empty.
        :param schedule: None where it is delegated for its size.
        :param on_done: called once with an error or None, from a thread of the engine or the caller's.
        :param wait_ready: returns when the vector is in host memory; every channel calls it. None: it is there.
        :param blocking: the caller waits for the result. What one channel does alone then runs in the caller's
            thread: a small message takes less time than a change of threads.
        """
        self._hand_over()
        with self._submit_lock:
            collective = self._begin(flat, schedule, reduction, on_done, wait_ready)
            if blocking and self._can_run_inline(collective):
                collective.pending_channels = 1
                self._process(collective, 0)
                return
            for queue in self._queues:
                queue.put(collective)

    def _hand_over(self) -> None:
        """Leave this thread's channel, if it has one, to another thread: a callback of an all-reduce that submits the
        next one, as PowerSGD's, may wait for it."""
        thread = threading.current_thread()
        if thread in self._threads:
            channel = self._threads.index(thread)
            self._threads[channel] = self._new_thread(channel)
            self._threads[channel].start()

    def _can_run_inline(self, collective: Collective) -> bool:
        """Return whether nothing precedes it, and the first channel does it alone or its preparation failed."""
        if self._unfinished > 1:
            return False
        if self._attempt(lambda: self._prepare(collective, 0)) is not None or collective.delegate is not None:
            return True
        return collective.program is not None and not any(collective.program.channels[1:])

    def _begin(
        self,
        flat: torch.Tensor,
        schedule: Schedule | None,
        reduction: Reduction,
        on_done: Callable[[str | None], None],
        wait_ready: Callable[[], None] | None = None,
    ) -> Collective:
        if self._error is not None:
            raise AggregationError(f"plink: {self._error}")
        self._count += 1
        if self._announcer is not None:
            self._announcer.announce(self._count, flat, reduction)
        # What must be the same on all ranks: operation, number of elements and type.
        signature = f"{reduction.name} of {flat.numel()} x {str(flat.dtype).removeprefix('torch.')}"
        tag = zlib.crc32(f"{self._count} {signature}".encode()) % TAGS
        with self._state_lock:
            self._unfinished += 1
        self._watchdog.begin(self._count, signature)
        return Collective(self._count, flat, schedule, reduction, tag, on_done, self.aggregation.channels, wait_ready)

    def stop(self, error: str) -> None:
        """Abort all all-reduces in progress, and fail all later ones with this error."""
        with self._state_lock:
            is_first, self._error = self._error is None, self._error or error
        if is_first:
            if self._tuner is not None:
                self._tuner.stop(error)
            self._transport.close()
            if self._eager is not None:
                self._eager.close()
            for secondary in self._secondaries:
                secondary.close()
            if self._watchdog.hosts_store:  # other ranks must read the error before the store ends with this process
                time.sleep(_STORE_LINGER_S)

    def close(self, timeout_s: float) -> None:
        """End the channels' threads; an all-reduce still in progress after the time-out fails.

        Python must not exit while a thread is inside Gloo.
        """
        if self._announcer is not None:
            self._announcer.end(self._count + 1)
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join(timeout_s)
        if any(thread.is_alive() for thread in self._threads):
            self.stop("the group was closed")
            for thread in self._threads:
                thread.join(_JOIN_TIMEOUT_S)
        if self._tuner is not None:
            self._tuner.close()
        for secondary in self._secondaries:
            secondary.shutdown()
        if self._eager is not None:
            self._eager.release()
        self._watchdog.close()
        self._watchdog.on_failure = lambda error: None  # no reference cycle: connections end with the last reference

    def current(self) -> Aggregation:
        """Return the aggregation with the schedules that are in use now."""
        if self._tuner is None:
            return self.aggregation
        tuner = self._tuner
        return replace(
            self.aggregation,
            classes=tuple(
                entry if entry.schedule is None else replace(entry, schedule=tuner.schedule(entry.schedule))
                for entry in self.aggregation.classes
            ),
        )

    @property
    def eager_max_bytes(self) -> int | None:
        """Return the size up to which vectors use the eager protocol; None: none do."""
        return None if self._eager is None else MAX_BYTES

    @property
    def error(self) -> str | None:
        """Return the error that ended the engine, if any."""
        return self._error

    def _prepare(self, collective: Collective, channel: int) -> Program | None:
        """Select the algorithm when the all-reduce starts; None where it is delegated."""
        if self._tuner is not None:
            self._tuner.before(collective.number, channel, collective.flat.nbytes)
        with collective.lock:
            if collective.program is None and collective.delegate is None:
                collective.delegate = self._delegate_for(collective)
                if collective.delegate is not None:
                    return None
                assert collective.schedule is not None
                schedule = collective.schedule if self._tuner is None else self._tuner.schedule(collective.schedule)
                with self._compile_lock:  # channels may be at different all-reduces
                    flat = collective.flat
                    collective.program = self._compile(schedule, flat.numel(), flat.element_size())
            return collective.program

    def _delegate_for(self, collective: Collective) -> AllReduce | None:
        """Return what does the all-reduce instead of a schedule: the same on all ranks."""
        flat = collective.flat
        if flat.dtype not in GLOO_SUM_DTYPES:
            return None
        threshold = None if self._tuner is None else self._tuner.threshold
        if threshold is not None and flat.nbytes < threshold.min_bytes:
            return threshold.gloo
        if self._delegate is not None and flat.nbytes >= self.delegation_min_bytes:
            return self._delegate.all_reduce
        return None

    def _compile(self, schedule: Schedule, elements: int, item_bytes: int) -> Program:
        key = (id(schedule), elements, item_bytes)
        if key not in self._programs:
            segments = segment(elements, item_bytes, schedule.chunks, self.aggregation.segmentation_of(schedule))
            program = compile_program(schedule, self._rank, segments, self.aggregation.channels)
            self._programs[key] = schedule, program  # a reference to the schedule keeps its id unique
            if len(self._programs) > _MAX_CACHED_PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return self._programs[key][1]

    def _run(self, channel: int) -> None:
        queue, thread = self._queues[channel], threading.current_thread()
        while self._threads[channel] is thread and (collective := queue.get()) is not None:
            self._process(collective, channel)

    def _process(self, collective: Collective, channel: int) -> None:
        """Do a channel's part, and report the result if it was the last part or the first to fail."""
        error = self._error or self._attempt(lambda: self._run_part(collective, channel))
        with collective.lock:
            collective.pending_channels -= 1
            is_last = collective.pending_channels == 0
            was_failed, collective.failed = collective.failed, collective.failed or error is not None
        if is_last:
            with self._state_lock:
                self._unfinished -= 1
        if error is not None and not was_failed:
            self._watchdog.end(collective.number)
            collective.on_done(error)
        elif is_last and not collective.failed:
            collective.on_done(self._finish(collective))

    def _run_part(self, collective: Collective, channel: int) -> None:
        if collective.wait_ready is not None:
            collective.wait_ready()
        program = self._prepare(collective, channel)
        if program is None:
            if channel == 0 and collective.delegate is not None:
                self._run_delegate(collective, collective.delegate)
            return
        self._execute(program, channel, collective.flat, collective.reduction.combine, collective.tag)

    def _run_delegate(self, collective: Collective, all_reduce: AllReduce) -> None:
        """Let Gloo do the all-reduce, and check for large ones that all ranks have the same signature.

        Gloo adds up numbers of any types of equal length, and ends the process where lengths differ. So one element
        goes by a schedule, which completes only if the signatures match: before Gloo's all-reduce the first time,
        beside it when all ranks have used this signature before.
        """
        key = collective.flat.numel(), collective.flat.dtype, collective.reduction.name
        needs_check = collective.flat.nbytes >= self.delegation_min_bytes
        if needs_check and key not in self._agreed:
            self._check_signature(collective)
        work = all_reduce(collective.flat, collective.reduction.gloo_op)
        if needs_check and key in self._agreed:
            self._check_signature(collective)
        try:
            work.wait()
        except RuntimeError:
            if needs_check and self._delegate is not None:
                self._delegate.close()  # other ranks may wait there for ranks that are alive
                self._check_signature(collective)  # its error names the lost rank, Gloo's does not
            raise
        if len(self._agreed) >= _MAX_AGREED_SIGNATURES:
            self._agreed.clear()
        self._agreed.add(key)

    def _check_signature(self, collective: Collective) -> None:
        """Return once all ranks have submitted an all-reduce of the same signature."""
        schedule = next(entry.schedule for entry in self.aggregation.classes if entry.schedule is not None)
        self._execute_on_first_channel(collective.flat.new_zeros(1), schedule, collective.tag)

    def _all_reduce_alone(self, flat: torch.Tensor, schedule: Schedule) -> None:
        """Run the all-reduce of a vector of one segment in the calling thread, which is the first channel's."""
        self._execute_on_first_channel(flat, schedule, _MEASUREMENT_TAG)

    def _execute_on_first_channel(self, flat: torch.Tensor, schedule: Schedule, tag: int) -> None:
        with self._compile_lock:
            program = self._compile(schedule, flat.numel(), flat.element_size())
        self._execute(program, 0, flat, torch.Tensor.add_, tag)

    def _execute(self, program: Program, channel: int, flat: torch.Tensor, combine: Combine, tag: int) -> None:
        transport = self._transport if self._eager is None or flat.nbytes > MAX_BYTES else self._eager
        run_channel(self._channels[channel], program.channels[channel], flat, combine, transport, tag)

    def _attempt(self, action: Callable[[], object]) -> str | None:
        """Call ``action``, and return its error, if any, after stopping the engine."""
        try:
            action()
        except Exception as error:
            # Publish the error first: other ranks must be able to read it before they lose their connections.
            self.stop(self._error or self._watchdog.publish(str(error)))
            return self._error
        return None

    def _finish(self, collective: Collective) -> str | None:
        self._watchdog.end(collective.number)
        try:
            if collective.reduction.finish is not None:
                collective.reduction.finish(collective.flat, self._ranks)
        except Exception as error:
            return f"{collective.reduction.name}: {error}"
        return None
