"""Cost of an order by simulation: the model ``simulated``, beside the closed forms.

A simulation takes milliseconds to seconds where a closed form takes microseconds. So no search goes by it: it judges
the orders that a search by a closed form found.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plink.errors import NoAnswer
from solvers.costs.by_name import SIMULATED, parts_of, pattern_for
from solvers.costs.closed_forms import Order
from solvers.costs.evaluator import CostBreakdown
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.segmentation import options_at
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.network import SimulatedNetwork
from solvers.simulation.steady_ring import SteadyRing

if TYPE_CHECKING:
    from solvers.simulation.engine import Timeline

MAX_SIMULATED_TRANSFERS = 4_000_000  # about 1 GB
_STEADY_RINGS = {"ring": 1, "nccl-ring": 1, "openmpi-ring": 1, "gloo": -1}  # the step to the next rank
_STEADY_RING_MIN_RANKS = (
    257  # 256 ranks in a random order take 2 to 5 s; four times as many take a hundred times as long
)


@dataclass(frozen=True)
class SimulatedCost:
    """Cost function of an algorithm by simulation: the simulated time, microseconds, of an order (the host at each
    rank, shape (N,)).

    ``parts``: what the algorithm is made of, as (weight, name, job); each is simulated by itself, and their times are
    weighted. A ring of more than 256 ranks is no job but a :class:`SteadyRing`. :func:`dataclasses.replace` gives the
    costs on another fabric, or of another size in as many segments.
    """

    parts: tuple[tuple[float, str, PreparedCollective | SteadyRing], ...]
    fabric: Fabric
    size_bytes: float

    @classmethod
    def of(cls, algo: str, ranks: int, options: Options, fabric: Fabric, size_bytes: float) -> "SimulatedCost":
        """Return the cost function of an algorithm by its name, in the segments that its library takes for the size.

        :raises UsageError: for unknown names and what does not fit.
        :raises NoAnswer: for more transfers than can be simulated.
        """
        compile_simulator()  # not in the time that simulations may take
        options, parts = options_at(options, algo, size_bytes), []
        for weight, name in parts_of(algo, size_bytes):
            parts.append((weight, name, _prepared(name, ranks, options)))
        return cls(tuple(parts), fabric, size_bytes)

    def __call__(self, order: Order) -> float:
        """Return the simulated time of an order.

        :raises NoAnswer: for an order that uses a pair which was not measured, or a collective that does not end.
        """
        return sum(weight * self._run(part, order).makespan_us for weight, _, part in self.parts)

    def breakdowns(self, order: Order) -> list[tuple[float, str, CostBreakdown]]:
        """Return what the algorithm is made of, as (weight, name, cost with its bottleneck)."""
        return [
            (weight, name, self._breakdown(part, self._run(part, order), order)) for weight, name, part in self.parts
        ]

    def _run(self, part: PreparedCollective | SteadyRing, order: Order) -> "Timeline":
        return part.run(SimulatedNetwork.of(self.fabric), order, self.size_bytes)

    def _breakdown(self, part: PreparedCollective | SteadyRing, timeline: "Timeline", order: Order) -> CostBreakdown:
        slowest = int(part.connection[np.argmax(timeline.end_us - timeline.begin_us)])
        names = self.fabric.names
        ends = names[int(order[part.source[slowest]])], names[int(order[part.target[slowest]])]
        resources, _ = part.job(SimulatedNetwork.of(self.fabric), order, self.size_bytes)
        busy = np.where(np.isfinite(resources.capacity), timeline.moved / resources.capacity, 0.0)
        busiest = int(np.argmax(busy))
        bottleneck = None
        if busy[busiest] > 0 and timeline.makespan_us > 0:
            bottleneck = resources.name(busiest), min(1.0, float(busy[busiest]) / timeline.makespan_us)
        nothing = np.zeros(0)
        return CostBreakdown(SIMULATED, timeline.makespan_us, nothing, nothing, (), ends, bottleneck)


def steady_ring(name: str, ranks: int) -> SteadyRing | None:
    """Return the steady state of a large ring; None for other algorithms and smaller rings."""
    if name in _STEADY_RINGS and ranks >= _STEADY_RING_MIN_RANKS:
        return SteadyRing.of(ranks, _STEADY_RINGS[name])
    return None


def _prepared(name: str, ranks: int, options: Options) -> PreparedCollective | SteadyRing:
    ring = steady_ring(name, ranks)
    if ring is not None:
        return ring
    check_transfers(name, pattern_for(name, ranks, options))
    return PreparedCollective.of(schedule_for(name, ranks, options))


@functools.cache
def compile_simulator() -> None:
    """Simulate two ranks: the first simulation of an installation takes seconds longer than others."""
    rates, rtt = np.ones(2), np.zeros((2, 2))
    network = SimulatedNetwork(("a", "b"), rtt, None, rates, rates, ())
    PreparedCollective.of(schedule_for("ring", 2)).run(network, np.arange(2), 1.0)


def check_transfers(algo: str, pattern: Pattern) -> None:
    """Refuse a collective that is too large to simulate.

    :raises NoAnswer: saying how large it is, and what to do.
    """
    transfers = transfers_of(pattern)
    if steady_ring(algo, pattern.ranks) is None and transfers > MAX_SIMULATED_TRANSFERS:
        raise NoAnswer(
            f"--model {SIMULATED}: {algo} of {pattern.ranks} ranks has {transfers / 1e6:.1f} million transfers; "
            f"at most {MAX_SIMULATED_TRANSFERS / 1e6:g} million can be simulated; use --model contention"
        )


def transfers_of(pattern: Pattern) -> float:
    """Return how many transfers the schedule of a pattern has (hops are transfers, or more)."""
    hops = np.bincount(pattern.round, minlength=len(pattern.repeat)) if len(pattern.round) else np.zeros(1)
    if pattern.all_to_all_share:
        hops = np.full(len(pattern.repeat), float(pattern.ranks * (pattern.ranks - 1)))
    return float(np.sum(hops * pattern.repeat))
