"""Steady state of a ring all-reduce: its time without its 2N(N-1) transfers, which are too many for large rings."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from solvers.simulation.job import Integers, Resources, Tasks, amounts_moved
from solvers.simulation.network import SimulatedNetwork, resources_between

if TYPE_CHECKING:
    from solvers.simulation.engine import Timeline


@dataclass(frozen=True)
class SteadyRing:
    """Ring of N ranks in its steady state. ``source``, ``target``, shape (N,): the ranks of each connection, and
    ``connection``, shape (N,), that of each transfer of a round.

    N blocks go round. Each is passed on 2(N-1) times, and no connection works on two at once. So a round takes, on
    average, the longer of two times: the one that the busiest resource needs for all the blocks that cross it (a
    connection that is slow by itself is one), and the mean, over the ring, of the time from one rank to the next of a
    block that waits for nothing (the two kinds of cycles of the event graph; Baccelli, Cohen, Olsder and Quadrat,
    Synchronization and Linearity, 1992, 2.5.3). What flows lose to each other is left out where both are about equal.
    docs/cost-models.md compares it with simulations.
    """

    ranks: int
    source: Integers
    target: Integers
    connection: Integers = field(repr=False)

    @classmethod
    def of(cls, ranks: int, step: int) -> "SteadyRing":
        """Prepare the ring in which each rank sends to rank + ``step``."""
        rank = np.arange(ranks, dtype=np.int64)
        return cls(ranks, rank, (rank + step) % ranks, rank)

    def job(self, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float) -> tuple[Resources, Tasks]:
        """Return what one round moves, as tasks that wait for nothing.

        :raises NoAnswer: when a round trip that is used is not known.
        """
        source, target = order[self.source], order[self.target]
        resources, route, latency = resources_between(network, source, target)
        amount = np.where(source == target, 0.0, size_bytes / self.ranks)
        nothing = np.zeros(self.ranks + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        round_of = np.zeros(self.ranks, dtype=np.int64)
        return resources, Tasks(
            route,
            amount,
            np.zeros(self.ranks),
            latency + network.overhead_us,
            nothing,
            self.connection,
            round_of,
            "hop {}".format,
        )

    def run(self, network: SimulatedNetwork, order: npt.NDArray[np.intp], size_bytes: float) -> "Timeline":
        """Return the ring's time, and begin and end of each connection's first block when it waits for nothing.

        :raises NoAnswer: as :meth:`job`.
        """
        from solvers.simulation.engine import Timeline  # compiled, and imported, only when it is used

        resources, tasks = self.job(network, order, size_bytes)
        moved = amounts_moved(resources, tasks)
        used = resources.routes[tasks.route]
        rates = np.where(used >= 0, resources.capacity[used], np.inf).min(axis=1)
        hop_us = tasks.lag_us + tasks.amount / np.minimum(rates, resources.limit[tasks.route])
        rounds = 2 * (self.ranks - 1)
        pairs_us = tasks.amount / resources.limit[tasks.route]  # a connection has one block at a time
        busiest_us = max(float((moved / resources.capacity).max()), float(pairs_us.max()))
        makespan_us = rounds * max(busiest_us, float(hop_us.mean()))
        return Timeline(np.zeros(self.ranks), hop_us, makespan_us, rounds * moved)
