"""A collective's schedule as a job of transfers on a network."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.schedule import Schedule, dependencies
from solvers.costs.host_costs import message_places
from solvers.simulation.job import Integers, Resources, Tasks, amounts_moved, dependents_of
from solvers.simulation.network import SimulatedNetwork, resources_between

if TYPE_CHECKING:
    from solvers.simulation.engine import Timeline

# A collective of few rounds with many transfers each (2LHA, flat): its flows end one by one, and each end changes the
# rates of thousands. With more rounds small delays would add up, and which transfers overlap would depend on them.
_WIDE_ROUNDS, _WIDE_TRANSFERS, _WIDE_TOLERANCE = 8, 10_000, 0.005
MAX_SIMULATED_US = 86_400e6  # a day: no collective that anybody waits for takes longer


@dataclass(frozen=True)
class PreparedCollective:
    """What of a collective's job does not depend on the order: ``after``, the transfers that each one waits for, as
    (offsets of shape (M + 1,), transfers); ``source``, ``target``, shape (C,): the ranks of each connection;
    ``connection``, shape (M,): that of each transfer."""

    schedule: Schedule
    after: tuple[Integers, Integers]
    source: Integers
    target: Integers
    connection: Integers

    @classmethod
    def of(cls, schedule: Schedule, lockstep: bool = False) -> "PreparedCollective":
        """Prepare a schedule.

        :param lockstep: a rank begins a round only when all that it sent and received in the round before is done, as
            with blocking ``MPI_Sendrecv``.
        :raises UsageError: for a transfer from or to a rank that does not exist.
        """
        for ends in (schedule.source, schedule.target):
            strange = np.flatnonzero((ends < 0) | (ends >= schedule.ranks))
            if len(strange):
                reason = f"there are ranks 0 to {schedule.ranks - 1}"
                raise UsageError(f"{schedule.describe(int(strange[0]))}: {reason}")
        offsets, needed = (part.astype(np.int64) for part in dependencies(schedule))
        if schedule.after is not None:
            listed_offsets, listed = schedule.after
            if len(listed) and not 0 <= listed.min() <= listed.max() < len(schedule):
                raise UsageError(f"{schedule.algo}: a transfer waits for one that does not exist")
            later = np.repeat(np.arange(len(schedule)), np.diff(listed_offsets))
            offsets, needed = _joined(len(schedule), (offsets, needed), (later, listed.astype(np.int64)))
        if lockstep:
            offsets, needed = _joined(len(schedule), (offsets, needed), _previous_rounds(schedule))
        keys, connection = np.unique(
            schedule.source.astype(np.int64) * schedule.ranks + schedule.target, return_inverse=True
        )
        return cls(
            schedule, (offsets, needed), keys // schedule.ranks, keys % schedule.ranks, connection.astype(np.int64)
        )

    def job(self, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float) -> tuple[Resources, Tasks]:
        """Return the transfers as tasks, one each, in the schedule's order; see :func:`collective_job`."""
        schedule, hosts = self.schedule, len(network.names)
        if len(order) != schedule.ranks:
            raise UsageError(f"the order has {len(order)} ranks, the schedule {schedule.ranks}")
        if len(order) and not 0 <= order.min() <= order.max() < hosts:
            rank = int(np.argmax((order < 0) | (order >= hosts)))
            raise UsageError(f"the order has host {order[rank]} at rank {rank}; there are hosts 0 to {hosts - 1}")
        if not 0 < size_bytes < float("inf"):
            raise UsageError(f"--size {size_bytes:g}: give more than 0 bytes")
        source, target = order[self.source], order[self.target]
        resources, route, latency = resources_between(network, source, target)
        within_host = (source == target)[self.connection]
        amount = np.where(within_host, 0.0, schedule.count * (size_bytes / schedule.chunks))
        lead_us, lag_us = np.zeros(len(schedule)), latency[self.connection]
        if network.overhead_us:
            ends = schedule.source.astype(np.int64), schedule.target.astype(np.int64)
            place, begins = message_places(schedule.round.astype(np.int64), *ends)
            lead_us, lag_us = network.overhead_us * np.where(begins, place, 0.0), lag_us + network.overhead_us
        tasks = Tasks(
            route[self.connection], amount, lead_us, lag_us, self.after,
            self.connection, schedule.round.astype(np.int64), schedule.describe,
        )  # fmt: skip
        return resources, tasks

    def run(
        self, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float, tolerance: float | None = None
    ) -> "Timeline":
        """Simulate the collective in an order.

        :param tolerance: relative error of its time that is allowed for speed: rates are out of date for at most this
            share of the least time that the busiest resource needs, divided by the longest chain of transfers. By
            default 0.5 % for few rounds of very many transfers, else none.
        :raises UsageError, NoAnswer: as :func:`collective_job` and :func:`solvers.simulation.engine.simulate`; also
            when it takes more than a day of simulated time.
        """
        from solvers.simulation.engine import longest_chain, simulate  # compiled, and imported, only when it is used

        resources, tasks = self.job(network, order, size_bytes)
        refresh_us = 0.0
        if tolerance is None:
            is_wide = len(tasks) >= _WIDE_TRANSFERS and self.schedule.rounds <= _WIDE_ROUNDS
            tolerance = _WIDE_TOLERANCE if is_wide else 0.0
        if tolerance > 0:
            least_us = float((amounts_moved(resources, tasks) / resources.capacity).max(initial=0.0))
            refresh_us = tolerance * least_us / longest_chain(tasks)
        return simulate(resources, tasks, limit_us=MAX_SIMULATED_US, refresh_us=refresh_us)

    def estimate_us(self, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float) -> float:
        """Return about how long the collective takes in an order, microseconds.

        :raises UsageError, NoAnswer: as :func:`collective_job` and
            :func:`solvers.simulation.coarse_steps.estimate_us`.
        """
        from solvers.simulation.coarse_steps import estimate_us  # compiled, and imported, only when it is used

        return estimate_us(*self.job(network, order, size_bytes), self._dependents, self.schedule.rounds)

    @cached_property
    def _dependents(self) -> tuple[Integers, Integers]:
        return dependents_of(self.after)


def collective_job(
    schedule: Schedule, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float,
    lockstep: bool = False,
) -> tuple[Resources, Tasks]:  # fmt: skip
    """The transfers of a schedule as tasks, one each, in the schedule's order.

    A transfer waits for those that wrote what it carries, and for those that its file lists; two transfers of one
    connection (source, target) follow each other. Each takes half a round trip longer than its bytes.

    :param order: shape (N,), the host at each rank; ranks of one host exchange for nothing.
    :param lockstep: as for :meth:`PreparedCollective.of`.
    :raises UsageError: for another number of ranks, unknown ranks or hosts, or a size that is not positive.
    :raises NoAnswer: when a round trip that is used is not known.
    """
    return PreparedCollective.of(schedule, lockstep).job(network, order, size_bytes)


def simulate_collective(
    schedule: Schedule, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float,
    lockstep: bool = False,
) -> "Timeline":  # fmt: skip
    """Run one collective; parameters and errors as :func:`collective_job` and :meth:`PreparedCollective.run`."""
    return PreparedCollective.of(schedule, lockstep).run(network, order, size_bytes)


def _previous_rounds(schedule: Schedule) -> tuple[Integers, Integers]:
    """Pairs (transfer, transfer that its source sent or received in its latest round before)."""
    m = len(schedule)
    rank = np.concatenate([schedule.source, schedule.target]).astype(np.int64)
    rounds = np.concatenate([schedule.round, schedule.round]).astype(np.int64)
    transfer = np.concatenate([np.arange(m), np.arange(m)])
    span = schedule.rounds + 1
    key = rank * span + rounds
    order = np.argsort(key, kind="stable")
    key, transfer = key[order], transfer[order]
    values, begin = np.unique(key, return_index=True)
    end = np.append(begin[1:], len(key))
    at = np.searchsorted(values, schedule.source.astype(np.int64) * span + schedule.round) - 1
    has = (at >= 0) & (values[np.maximum(at, 0)] // span == schedule.source)
    lengths = np.where(has, end[at] - begin[at], 0)
    later = np.repeat(np.arange(m), lengths)
    within = np.arange(len(later)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return later, transfer[np.repeat(begin[at], lengths) + within]


def _joined(m: int, after: tuple[Integers, Integers], more: tuple[Integers, Integers]) -> tuple[Integers, Integers]:
    """Dependencies with more (later, sooner) pairs."""
    offsets, needed = after
    later = np.concatenate([np.repeat(np.arange(m), np.diff(offsets)), more[0]])
    pairs = np.unique(later * m + np.concatenate([needed, more[1]]))
    return np.searchsorted(pairs // m, np.arange(m + 1)).astype(np.int64), pairs % m
