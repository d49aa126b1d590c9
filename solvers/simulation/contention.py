"""Cost of an order by the model ``contention``: an estimate of what a simulation would say.

The closed form of ``contention`` adds up rounds as if all ranks waited for each other after each, by the busiest link
of each. That is right for equal hosts and near it for good orders, and incremental, so searches and bounds go by it.
Between other orders it ranks poorly (docs/results/simulation.md): a flow that one link holds back leaves room on
another, and a rank goes on when its own data have come. So what a command prints, and the choice among the orders that
a search found, go by :mod:`solvers.simulation.coarse_steps`.
"""

from dataclasses import dataclass

from solvers.costs.by_name import SIMULATED, cost_function_for, parts_of, pattern_for
from solvers.costs.closed_forms import CostFunction, Order, closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.segmentation import options_at
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.cost import SimulatedCost, steady_ring, transfers_of
from solvers.simulation.network import SimulatedNetwork
from solvers.simulation.steady_ring import SteadyRing

CONTENTION = "contention"
MAX_ESTIMATED_TRANSFERS = 150_000
MAX_FLOWS_AT_ONCE = 20_000  # where all ranks exchange with all: 100 ranks
MAX_ESTIMATED_RANKS = 1024  # a schedule's dependencies take seconds from there on


@dataclass(frozen=True)
class ContentionCost:
    """Cost function of an algorithm under ``contention``: microseconds of an order (the host at each rank, shape (N,)).

    ``parts``: what the algorithm is made of, as (weight, name, prepared). A ring of more than 256 ranks is a
    :class:`SteadyRing`. A :class:`Pattern` is priced by the closed form, where there are too many transfers.
    :func:`dataclasses.replace` gives the costs on another fabric, or of another size in as many segments.
    """

    parts: tuple[tuple[float, str, PreparedCollective | SteadyRing | Pattern], ...]
    fabric: Fabric
    size_bytes: float

    @classmethod
    def of(cls, algo: str, ranks: int, options: Options, fabric: Fabric, size_bytes: float) -> "ContentionCost":
        """Return the cost function of an algorithm by its name, in the segments that its library takes for the size.

        :raises UsageError: for unknown names and what does not fit.
        """
        options = options_at(options, algo, size_bytes)
        parts = [(weight, name, _prepared(name, ranks, options)) for weight, name in parts_of(algo, size_bytes)]
        return cls(tuple(parts), fabric, size_bytes)

    def __call__(self, order: Order) -> float:
        """Return the cost of an order.

        :raises UsageError: for a size that is not positive. :raises NoAnswer: for an order that uses a pair which was
            not measured.
        """
        return sum(weight * cost_us for weight, _, cost_us in self.part_costs(order))

    @property
    def is_closed_form(self) -> bool:
        """Whether the closed form prices all parts, so that a search's costs are these."""
        return all(isinstance(part, Pattern) for _, _, part in self.parts)

    @property
    def transfers(self) -> int:
        """Number of transfers that one estimate runs; rings of many ranks, and closed forms, have none."""
        return sum(len(part.schedule) for _, _, part in self.parts if isinstance(part, PreparedCollective))

    def part_costs(self, order: Order) -> list[tuple[float, str, float]]:
        """Return what the algorithm is made of, as (weight, name, microseconds)."""
        return [(weight, name, self._cost(part, order)) for weight, name, part in self.parts]

    def _cost(self, part: PreparedCollective | SteadyRing | Pattern, order: Order) -> float:
        if isinstance(part, Pattern):
            return closed_form(part, self.fabric, self.size_bytes, CONTENTION)(order)
        network = SimulatedNetwork.of(self.fabric)
        if isinstance(part, SteadyRing):
            return part.run(network, order, self.size_bytes).makespan_us
        return part.estimate_us(network, order, self.size_bytes)


def _prepared(name: str, ranks: int, options: Options) -> PreparedCollective | SteadyRing | Pattern:
    ring = steady_ring(name, ranks)
    if ring is not None:
        return ring
    pattern = pattern_for(name, ranks, options)
    if needs_closed_form(pattern):
        return pattern
    return PreparedCollective.of(schedule_for(name, ranks, options))


def needs_closed_form(pattern: Pattern) -> bool:
    """Return whether ``contention`` prices a pattern by rounds, as there is too much to estimate."""
    most = MAX_FLOWS_AT_ONCE if pattern.all_to_all_share else MAX_ESTIMATED_TRANSFERS
    return pattern.ranks > MAX_ESTIMATED_RANKS or transfers_of(pattern) > most


def cost_by_model(
    algo: str, ranks: int, options: Options, fabric: Fabric, size_bytes: float, model: str
) -> CostFunction:
    """Return the cost function of an algorithm by any model.

    :raises UsageError, NoAnswer: as :class:`ContentionCost`, :class:`SimulatedCost` and
        :func:`solvers.costs.by_name.cost_function_for`.
    """
    if model == SIMULATED:
        return SimulatedCost.of(algo, ranks, options, fabric, size_bytes)
    if model == CONTENTION:
        return ContentionCost.of(algo, ranks, options, fabric, size_bytes)
    return cost_function_for(algo, ranks, options, fabric, size_bytes, model)
