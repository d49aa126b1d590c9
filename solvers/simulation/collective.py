"""A collective's schedule as a job of transfers on a fabric."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.schedule import Schedule, dependencies
from solvers.costs.by_name import time_in_slices
from solvers.costs.evaluator import NO_MESSAGES, Messages, message_places, timing_of
from solvers.costs.fabric import Fabric, Vector
from solvers.simulation.job import (
    Integers,
    Resources,
    Tasks,
    amounts_moved,
    busiest_us,
    resources_between,
)

if TYPE_CHECKING:
    from solvers.simulation.engine import Timeline

# A collective of few rounds with many transfers each (2LHA, flat): its flows end one by one, and each end changes the
# rates of thousands. With more rounds small delays would add up, and which transfers overlap would depend on them.
WIDE_ROUNDS, _WIDE_TRANSFERS, _WIDE_TOLERANCE = 8, 10_000, 0.005
# Libraries send messages up to so many bytes without asking whether they are awaited: Open MPI's btl_tcp_eager_limit,
# SimGrid's smpi/send-is-detached-thresh; MPICH's limits are of that size.
EAGER_BYTES = 65_536
MAX_SIMULATED_US = 100 * 365 * 86_400e6  # a hundred years; a pair to be avoided may cost many times an order's time


@dataclass(frozen=True)
class PreparedCollective:
    """What of a collective's job does not depend on the order.

    ``source``, ``target``, shape (C,): the ranks of each connection; ``connection``, shape (M,): that of each transfer.
    The first M tasks are the transfers. In lockstep, the others are one for each rank and round in which it sends or
    receives: its end. ``waits``: what tasks wait for, ``later`` rising.
    """

    schedule: Schedule
    source: Integers
    target: Integers
    connection: Integers
    tasks: int
    waits: "Waits"

    @classmethod
    def of(cls, schedule: Schedule, lockstep: bool = True) -> "PreparedCollective":
        """Prepare a schedule.

        :param lockstep: ranks play it round by round, as libraries do: a transfer begins when its sender has sent and
            received all of its round before, and so has its receiver, but for messages of up to 64 KiB and for what is
            pipelined, for which libraries receive ahead. Trees play their ways up and down beside each other. Else a
            transfer begins when its data are there, whatever else its ranks are doing.
        :raises UsageError: for a transfer from or to a rank that does not exist.
        """
        for ends in (schedule.source, schedule.target):
            strange = np.flatnonzero((ends < 0) | (ends >= schedule.ranks))
            if len(strange):
                reason = f"there are ranks 0 to {schedule.ranks - 1}"
                raise UsageError(f"{schedule.describe(int(strange[0]))}: {reason}")
        m, waits = len(schedule), list[Waits]()
        if schedule.after is not None:
            listed_offsets, listed = schedule.after
            if len(listed) and not 0 <= listed.min() <= listed.max() < m:
                raise UsageError(f"{schedule.algo}: a transfer waits for one that does not exist")
            waits.append(Waits.of(np.repeat(np.arange(m), np.diff(listed_offsets)), listed))
        tasks, is_tree = m, timing_of(schedule) == "chain"
        if lockstep:
            number, of_rounds = _wait_for_rounds(schedule, is_tree)
            tasks, waits = m + number, [*waits, *of_rounds]
        if is_tree or not lockstep:
            offsets, needed = dependencies(schedule)
            waits.append(Waits.of(np.repeat(np.arange(m), np.diff(offsets)), needed))
        keys, connection = np.unique(
            schedule.source.astype(np.int64) * schedule.ranks + schedule.target, return_inverse=True
        )
        source, target = keys // schedule.ranks, keys % schedule.ranks
        return cls(schedule, source, target, connection.astype(np.int64), tasks, Waits.joined(waits))

    def job(self, fabric: Fabric, order: npt.NDArray[np.intp], size_bytes: float) -> tuple[Resources, Tasks]:
        """Return the transfers as tasks, in the schedule's order, and after them the ends of rounds.

        Two transfers of one connection follow each other. Each takes half a round trip longer than its bytes.

        :param order: shape (N,), the host at each rank; ranks of one host exchange for nothing.
        :raises UsageError: for another number of ranks, unknown hosts, or a size that is not positive.
        :raises NoAnswer: when a round trip that is used is not known.
        """
        schedule, hosts = self.schedule, len(fabric.names)
        if len(order) != schedule.ranks:
            raise UsageError(f"the order has {len(order)} ranks, the schedule {schedule.ranks}")
        if len(order) and not 0 <= order.min() <= order.max() < hosts:
            rank = int(np.argmax((order < 0) | (order >= hosts)))
            raise UsageError(f"the order has host {order[rank]} at rank {rank}; there are hosts 0 to {hosts - 1}")
        if not 0 < size_bytes < float("inf"):
            raise UsageError(f"--size {size_bytes:g}: give more than 0 bytes")
        source, target = order[self.source], order[self.target]
        resources, route, latency = resources_between(fabric, source, target)
        within_host = (source == target)[self.connection]
        amount = np.where(within_host, 0.0, self.bytes_moved(size_bytes))
        lead_us, lag_us = np.zeros(len(schedule)), latency[self.connection]
        if fabric.overhead_us:
            ends = schedule.source.astype(np.int64), schedule.target.astype(np.int64)
            place, begins = message_places(schedule.round.astype(np.int64), *ends)
            lead_us, lag_us = fabric.overhead_us * np.where(begins, place, 0.0), lag_us + fabric.overhead_us
        none = np.zeros(self.tasks - len(schedule), dtype=np.int64)  # of what ends of rounds move
        waits = self.waits.without_those_for_receivers(np.append(amount <= EAGER_BYTES, none == 0))
        tasks = Tasks(
            np.append(route[self.connection], none),
            np.append(amount, none),
            np.append(lead_us, none),
            np.append(lag_us, none),
            waits.by_task(self.tasks),
            np.append(self.connection, none - 1),
            np.append(schedule.round.astype(np.int64), none),
            self._describe,
            waits.before_lag,
        )
        return resources, tasks

    def bytes_moved(self, size_bytes: float) -> Vector:
        """Return the bytes of each transfer, shape (M,)."""
        return np.asarray(self.schedule.count * (size_bytes / self.schedule.chunks))

    def _describe(self, task: int) -> str:
        return self.schedule.describe(task) if task < len(self.schedule) else "the end of a rank's round"

    def run(
        self,
        fabric: Fabric,
        order: npt.NDArray[np.intp],
        size_bytes: float,
        tolerance: float | None = None,
        slices: int = 1,
    ) -> "Timeline":
        """Simulate the collective in an order; begins and ends are those of its transfers.

        In slices its time is that of :func:`solvers.costs.by_name.time_in_slices`.

        :param tolerance: relative error of its time that is allowed for speed: rates are out of date for at most this
            share of the least time that the busiest resource needs, divided by the number of rounds. By default 0.5 %
            for few rounds of very many transfers, else none.
        :param slices: P, into which the vector is cut; begins and ends are those of the whole.
        :raises UsageError, NoAnswer: as :meth:`job` and :func:`solvers.simulation.engine.simulate`; also
            when it takes more than a hundred years of simulated time.
        """
        from solvers.simulation.engine import simulate  # compiled, and imported, only when it is used

        resources, tasks = self.job(fabric, order, size_bytes)
        refresh_us, m, rounds = 0.0, len(self.schedule), self.schedule.rounds
        if tolerance is None:
            tolerance = _WIDE_TOLERANCE if m >= _WIDE_TRANSFERS and rounds <= WIDE_ROUNDS else 0.0
        if tolerance > 0:
            least_us = float((amounts_moved(resources, tasks) / resources.capacity).max(initial=0.0))
            refresh_us = tolerance * least_us / rounds
        timeline = simulate(resources, tasks, limit_us=MAX_SIMULATED_US, refresh_us=refresh_us)
        timeline = replace(timeline, begin_us=timeline.begin_us[:m], end_us=timeline.end_us[:m])
        if slices == 1 or not m:
            return timeline
        of_rounds = np.zeros(rounds)
        np.maximum.at(of_rounds, tasks.priority[:m], tasks.lag_us[:m])
        times_us = timeline.makespan_us, busiest_us(resources, tasks), float(of_rounds.sum())
        messages_us = self.messages.us(fabric.overhead_us) if fabric.overhead_us else NO_MESSAGES
        return replace(timeline, makespan_us=time_in_slices(*times_us, slices, messages_us))

    @cached_property
    def messages(self) -> Messages:
        """The messages that are worked on one after the other."""
        schedule, once = self.schedule, np.ones(self.schedule.rounds)
        columns = (column.astype(np.int64) for column in (schedule.round, schedule.source, schedule.target))
        return Messages.of(once, *columns)


class Waits(NamedTuple):
    """Which task waits for which, shapes (E,): ``later`` for ``sooner``; ``before_lag``: only until that has left;
    ``for_receiver``: as its receiver is not ready before."""

    later: Integers
    sooner: Integers
    before_lag: npt.NDArray[np.bool_]
    for_receiver: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, later: Integers, sooner: npt.NDArray[np.integer[Any]], before_lag: bool = False, for_receiver: bool = False
    ) -> "Waits":
        flags = (np.full(len(later), flag) for flag in (before_lag, for_receiver))
        return cls(later.astype(np.int64), sooner.astype(np.int64), *flags)

    @classmethod
    def joined(cls, parts: "Sequence[Waits]") -> "Waits":
        """Return all, ``later`` rising, and each pair once: for the lag if any is."""
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        later, sooner, before_lag, for_receiver = columns
        order = np.lexsort((for_receiver, before_lag, sooner, later))
        waits = cls(later[order], sooner[order], before_lag[order], for_receiver[order])
        return waits.those((np.diff(waits.later, prepend=-1) != 0) | (np.diff(waits.sooner, prepend=-1) != 0))

    def those(self, chosen: npt.NDArray[np.bool_]) -> "Waits":
        later, sooner, before_lag, for_receiver = self
        return Waits(later[chosen], sooner[chosen], before_lag[chosen], for_receiver[chosen])

    def without_those_for_receivers(self, eager: npt.NDArray[np.bool_]) -> "Waits":
        """Return what is left for tasks that do not wait for their receivers. ``eager``: of each task."""
        left_out = self.for_receiver & eager[self.later]
        return self.those(~left_out) if left_out.any() else self

    def by_task(self, tasks: int) -> tuple[Integers, Integers]:
        return np.searchsorted(self.later, np.arange(tasks + 1)).astype(np.int64), self.sooner


def _wait_for_rounds(schedule: Schedule, is_tree: bool) -> tuple[int, list[Waits]]:
    """Return the number of ends of rounds, which are the tasks from M on, what they wait for, and what for them."""
    m, span = len(schedule), schedule.rounds + 1
    way = schedule.copies if is_tree else np.zeros(m, dtype=np.bool_)
    source, target = (2 * ends.astype(np.int64) + way for ends in (schedule.source, schedule.target))
    transfers, keys = np.arange(m), [source * span + schedule.round, target * span + schedule.round]
    rounds, place = np.unique(np.concatenate(keys), return_inverse=True)
    of_source, of_target = place[:m], place[m:]
    waits = [Waits.of(m + of_source, transfers, before_lag=True), Waits.of(m + of_target, transfers)]
    later = np.flatnonzero(rounds[1:] // span == rounds[:-1] // span) + 1  # of one rank, also where it only receives
    waits.append(Waits.of(m + later, m + later - 1))
    is_pipelined = len(np.unique(source * 2 * schedule.ranks + target)) < m
    receives_ahead = timing_of(schedule) == "pipeline" or (is_tree and is_pipelined)
    for own, for_receiver in ((of_source, False), *([] if receives_ahead else [(of_target, True)])):
        goes_on = (own > 0) & (rounds[own - 1] // span == rounds[own] // span)
        waits.append(Waits.of(transfers[goes_on], m + own[goes_on] - 1, for_receiver=for_receiver))
    return len(rounds), waits
