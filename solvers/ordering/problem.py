"""The rank ordering problem and its solution; the progress that a search reports, and the budget that ends it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.by_name import parts_of, pattern_for, priced_options
from solvers.costs.fabric import Fabric
from solvers.ordering.constraints import FeasibleOrders, PlacementConstraints
from solvers.schedules.catalogue import Options

Order = npt.NDArray[np.intp]
RINGS = ("ring", "ring-chunked", "gloo", "nccl-ring", "openmpi-ring")
OBJECTIVES = ("auto", "time", "sum", "bottleneck")
RANDOM_ORDERS, _LEAST_RANDOM_ORDERS = 201, 11
_MAX_SIMULATED_TRANSFERS = 150_000
_COSTED_HOPS, _LEAST_COSTED_ORDERS = 20_000_000, 5  # they take a second or two
_OPTIMALITY_TOLERANCE = 1e-6  # gap up to which an order counts as optimal


@dataclass(frozen=True)
class SearchProgress:
    """State of a running search: cost of the best order so far, lower bound (None: unknown), number of moves tried."""

    cost: float
    lower_bound: float | None
    moves: int


ProgressCallback = Callable[[SearchProgress], bool]


"""Called several times a second with the progress; returns False to end the search with the best order so far."""


class RingEngine(Protocol):
    """A search for a ring that runs beside plink's own until a deadline."""

    def tour(self, keep_going: Callable[[], bool]) -> npt.NDArray[np.int64] | None:
        """Wait for the tour, shape (N,); None where there is none, or ``keep_going`` ends the wait."""

    def end(self) -> None:
        """End the search, if it still runs."""


StartRingEngine = Callable[[Matrix, float], RingEngine]


"""Starts an engine for costs, shape (N, N), symmetric, complete, with a deadline by ``time.monotonic()``."""


@dataclass(frozen=True)
class SearchBudget:
    """Stopping criteria of a search.

    It ends after ``max_moves``, or when ``keep_going`` returns False. Unless it is ``exhaustive`` it also ends when it
    has not improved for long. ``deadline``, by ``time.monotonic()``: when ``keep_going`` does so, where the limit is a
    time and not a number of moves. Then ``ring_engine``, if any, takes part, which ends by the clock. ``stopped``:
    whether the user stopped the search, so that it does not even begin what a deadline would have it complete.
    """

    max_moves: int
    keep_going: ProgressCallback = lambda _: True
    exhaustive: bool = True
    deadline: float | None = None
    ring_engine: StartRingEngine | None = None
    stopped: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class OrderingProblem:
    """An algorithm on a network, whose cheapest rank order is to be found.

    ``baseline``, shape (N,): the host at each rank today; the ranks of a host are consecutive. ``objective``: ``time``
    is the cost model's time; ``sum`` and ``bottleneck`` are for rings under ``latency``: the sum of the hops, or the
    longest hop first and their sum second; ``auto`` is ``sum`` for these and ``time`` for all others. ``slices``: into
    how many AggEngine cuts the vector, where a simulation in slices then chooses among orders; 1: rounds decide.
    """

    fabric: Fabric
    baseline: Order
    algo: str
    options: Options
    size_bytes: float
    model: str
    objective: str = "auto"
    constraints: PlacementConstraints = field(default_factory=PlacementConstraints)
    slices: int = 1

    @property
    def hosts(self) -> Order:
        """The hosts that have ranks, in the order of the baseline."""
        return self.baseline[np.sort(np.unique(self.baseline, return_index=True)[1])]

    @cached_property
    def feasible(self) -> FeasibleOrders:
        """The orders that the constraints allow.

        :raises UsageError, NoAnswer: as :class:`solvers.ordering.constraints.FeasibleOrders`.
        """
        return FeasibleOrders(self.baseline, self.fabric.names, self.constraints)

    @property
    def priced_options(self) -> Options:
        """The options, with the segments by which the model prices the size."""
        return priced_options(self.options, self.algo, self.size_bytes, self.model)

    @cached_property
    def hops(self) -> int:
        """How many transfers one cost looks at."""
        parts = parts_of(self.algo, self.size_bytes, self.fabric)
        return sum(len(pattern_for(name, len(self.baseline), self.priced_options).source) for _, name in parts)

    @property
    def overhead_us(self) -> float:
        """What hosts take for messages in any order, microseconds; see :mod:`solvers.costs.evaluator`."""
        if not self.fabric.overhead_us or self.model == "latency":
            return 0.0
        parts, ranks = parts_of(self.algo, self.size_bytes, self.fabric), len(self.baseline)
        number = sum(weight * pattern_for(name, ranks, self.priced_options).messages.rounds for weight, name in parts)
        return self.fabric.overhead_us * number

    def without_overhead(self) -> "OrderingProblem":
        """Return the problem as searches take it: what all orders cost alike is left out."""
        return replace(self, fabric=replace(self.fabric, overhead_us=0.0))

    @property
    def is_latency_ring(self) -> bool:
        """Whether the cost depends on a ring's round trips alone, so that :mod:`solvers.ordering.ring` applies."""
        return self.model == "latency" and self.algo in RINGS


@dataclass(frozen=True)
class OrderingResult:
    """The best order of a search and its cost.

    ``order``, shape (N,): the host at each rank. ``lower_bound``: no order costs less (None: unknown); ``bound_by``
    names the method that gave it. ``baseline_cost`` and ``random_median``: costs of the baseline and of random orders
    (None: of too few).
    ``moves``: how many moves were tried. Costs are microseconds by ``objective``; ``metrics`` has other objectives'.
    """

    order: Order
    cost: float
    lower_bound: float | None
    bound_by: str | None
    baseline_cost: float
    random_median: float | None
    moves: int
    objective: str = "time"
    metrics: dict[str, float] = field(default_factory=dict)

    def plus(self, overhead_us: float) -> "OrderingResult":
        """Return the result with so much added to every cost."""
        if not overhead_us:
            return self
        return replace(
            self,
            cost=self.cost + overhead_us,
            lower_bound=None if self.lower_bound is None else self.lower_bound + overhead_us,
            baseline_cost=self.baseline_cost + overhead_us,
            random_median=None if self.random_median is None else self.random_median + overhead_us,
        )

    def with_bound(self, lower_bound: float | None, bound_by: str) -> "OrderingResult":
        """Return the result with this lower bound where it is greater than its own; None: there is none."""
        if lower_bound is None or (self.lower_bound is not None and lower_bound <= self.lower_bound):
            return self
        return replace(self, lower_bound=lower_bound, bound_by=bound_by)

    @property
    def gap(self) -> float | None:
        """Optimality gap: the cost over the lower bound, less 1 (0.02 is 2 %); None: unknown."""
        if self.lower_bound is None or (self.lower_bound <= 0 < self.cost):
            return None
        return max(0.0, self.cost / self.lower_bound - 1) if self.cost > 0 else 0.0

    @property
    def is_optimal(self) -> bool:
        """Whether no order costs less by more than a millionth."""
        return self.gap is not None and self.gap <= _OPTIMALITY_TOLERANCE


def expand_slots(hosts: Order, slots: npt.NDArray[np.intp]) -> Order:
    """Return the rank order, shape (N,), in which each of ``hosts`` has as many consecutive ranks as it has slots."""
    return np.repeat(hosts, slots[hosts])


def random_orders(hosts: Order, slots: npt.NDArray[np.intp], seed: int) -> Iterator[Order]:
    """Random rank orders without end, in which the ranks of a host are consecutive: of a seed always the same."""
    rng = np.random.default_rng(seed)
    while True:
        yield expand_slots(rng.permutation(hosts), slots)


def median_cost(costs: Sequence[float]) -> float | None:
    """Return the median cost of random orders; None of fewer than five, which do not show what is usual."""
    return float(np.median(costs)) if len(costs) >= _LEAST_COSTED_ORDERS else None


def affordable_orders(wanted: int, hops: int) -> int:
    """Return how many orders are costed by formulas where one cost looks at so many transfers: as many as are wanted,
    or as take a second or two."""
    return min(wanted, max(_LEAST_COSTED_ORDERS, _COSTED_HOPS // max(1, hops)))


def number_of_random_orders(transfers: int) -> int:
    """Return how many random orders show what is usual, where one takes so many transfers to simulate: 201, fewer where
    that is many, 11 at least."""
    return max(_LEAST_RANDOM_ORDERS, min(RANDOM_ORDERS, _MAX_SIMULATED_TRANSFERS // max(1, transfers)))
