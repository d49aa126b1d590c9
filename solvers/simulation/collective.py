"""A collective's schedule as a job of transfers on a network."""

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.schedule import Schedule, dependencies
from solvers.simulation.engine import Timeline, simulate
from solvers.simulation.job import Integers, Resources, Tasks
from solvers.simulation.network import SimulatedNetwork, resources_between


def collective_job(
    schedule: Schedule, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float,
    lockstep: bool = False,
) -> tuple[Resources, Tasks]:  # fmt: skip
    """The transfers of a schedule as tasks, one each, in the schedule's order.

    A transfer waits for those that wrote what it carries; two transfers of one connection (source, target) follow each
    other. Each takes half a round trip longer than its bytes.

    :param order: shape (N,), the host at each rank; ranks of one host exchange for nothing.
    :param lockstep: a rank begins a round only when all that it sent and received in the round before is done, as with
        blocking ``MPI_Sendrecv``.
    :raises UsageError: for another number of ranks, or a size that is not positive.
    :raises NoAnswer: when a round trip that is used is not known.
    """
    if len(order) != schedule.ranks:
        raise UsageError(f"the order has {len(order)} ranks, the schedule {schedule.ranks}")
    if not 0 < size_bytes < float("inf"):
        raise UsageError(f"--size {size_bytes:g}: give more than 0 bytes")
    source, target = order[schedule.source], order[schedule.target]
    resources, route, latency = resources_between(network, source, target)
    amount = np.where(source == target, 0.0, schedule.count * (size_bytes / schedule.chunks))
    offsets, needed = (part.astype(np.int64) for part in dependencies(schedule))
    if lockstep:
        offsets, needed = _joined(len(schedule), (offsets, needed), _previous_rounds(schedule))
    _, queue = np.unique(schedule.source.astype(np.int64) * schedule.ranks + schedule.target, return_inverse=True)
    nothing = np.zeros(len(schedule))
    tasks = Tasks(
        route, amount, nothing, latency, (offsets, needed), queue.astype(np.int64), schedule.round.astype(np.int64)
    )
    return resources, tasks


def simulate_collective(
    schedule: Schedule, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float,
    lockstep: bool = False,
) -> Timeline:  # fmt: skip
    """Run one collective; parameters and errors as :func:`collective_job`."""
    return simulate(*collective_job(schedule, network, order, size_bytes, lockstep))


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
