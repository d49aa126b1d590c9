"""What an order is searched for, and what was found."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solvers.costs.fabric import Fabric
from solvers.ordering.seats import Seats, Wishes
from solvers.schedules.catalogue import Options

Order = npt.NDArray[np.intp]
RINGS = ("ring", "ring-chunked", "gloo", "nccl-ring", "openmpi-ring")
OBJECTIVES = ("auto", "time", "sum", "bottleneck")


@dataclass(frozen=True)
class Task:
    """What is wanted.

    ``given``, shape (N,): the host at each rank; a host with several ranks keeps them together. ``objective``: ``time``
    is the model's price; ``sum`` and ``bottleneck`` are for rings under ``latency``: the sum of the hops, or the
    longest hop first and their sum second; ``auto`` is ``sum`` there and else ``time``.
    """

    fabric: Fabric
    given: Order
    algo: str
    options: Options
    size_bytes: float
    model: str
    objective: str = "auto"
    wishes: Wishes = field(default_factory=Wishes)

    @property
    def hosts(self) -> Order:
        """Those that have ranks, as they follow each other in the given order."""
        return self.given[np.sort(np.unique(self.given, return_index=True)[1])]

    @cached_property
    def seats(self) -> Seats:
        """Who may sit where.

        :raises UsageError, NoAnswer: as :class:`solvers.ordering.seats.Seats`.
        """
        return Seats(self.given, self.fabric.names, self.wishes)

    @property
    def by_hops(self) -> bool:
        """Whether only the round trips of a ring count: what :mod:`solvers.ordering.ring` is for."""
        return self.model == "latency" and self.algo in RINGS


@dataclass(frozen=True)
class Found:
    """The order, shape (N,): the host at each rank; its cost; a lower bound of any order's (None: none is known) and
    ``bound_by``: what says so; the cost of the given order and the median of random ones; ``moves``: how many were
    tried. All in microseconds of the ``objective``; ``also``: the same order by other objectives."""

    order: Order
    cost: float
    lower_bound: float | None
    bound_by: str | None
    given: float
    random_median: float
    moves: int
    objective: str = "time"
    also: dict[str, float] = field(default_factory=dict)

    @property
    def gap(self) -> float | None:
        """How much dearer than the best order this one can be at most: 0.02 is 2 %; None: not known."""
        if self.lower_bound is None or (self.lower_bound <= 0 < self.cost):
            return None
        return max(0.0, self.cost / self.lower_bound - 1) if self.cost > 0 else 0.0


def with_slots(hosts: Order, slots: npt.NDArray[np.intp]) -> Order:
    """The order of ranks that an order of hosts makes, each with its slots."""
    return np.repeat(hosts, slots[hosts])
