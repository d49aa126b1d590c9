"""Cost of an order by simulation: the models ``contention`` and ``simulated``.

Ranks play the schedule round by round, as libraries do (:mod:`solvers.simulation.collective`), over links that their
flows share max-min fairly. A simulation takes milliseconds to seconds where a closed form takes
microseconds. So searches and bounds go by the closed form of ``contention``, which adds up rounds by the busiest link
of each as if all ranks waited for each other; simulations judge the orders that a search found, and are what commands
print.

A large ring has its steady state instead (:class:`SteadyRing`): its 2N(N-1) transfers are too many.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.mesh import Mesh
from solvers.costs.by_name import (
    CONTENTION,
    SIMULATED,
    closed_form_in_slices,
    cost_function_for,
    engine_slices,
    parts_of,
    pattern_for,
    time_in_slices,
)
from solvers.costs.closed_forms import CostFunction, Order
from solvers.costs.evaluator import CostBreakdown, Messages
from solvers.costs.fabric import Fabric, alike_hosts
from solvers.costs.least_time import links_for_masters
from solvers.costs.mesh_patterns import traffic_pattern, weight_of
from solvers.costs.patterns import Pattern
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.segmentation import options_at
from solvers.simulation.collective import WIDE_ROUNDS, PreparedCollective
from solvers.simulation.job import (
    Integers,
    Resources,
    Tasks,
    amounts_moved,
    busiest_us,
    resources_between,
)
from solvers.simulation.mesh_job import PreparedTraffic

if TYPE_CHECKING:
    from solvers.simulation.engine import Timeline

MAX_SIMULATED_TRANSFERS = 4_000_000  # about 1 GB
_MAX_TRANSFERS = 150_000  # under ``contention``, by the closed form above; a second or two
_MAX_WIDE_TRANSFERS = 500_000  # in few rounds, whose rates are worked out seldom: up to 4 s
_MAX_FLOWS_AT_ONCE = 20_000  # where all ranks exchange with all: 100 ranks
_LIMITING = 0.98  # of the time
_STEADY_RINGS = {"ring": 1, "nccl-ring": 1, "openmpi-ring": 1, "gloo": -1}  # the step to the next rank
_STEADY_RING_MIN_RANKS = (
    257  # 256 ranks in a random order take 2 to 5 s; four times as many take a hundred times as long
)


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

    def job(self, fabric: Fabric, order: npt.NDArray[np.intp], size_bytes: float) -> tuple[Resources, Tasks]:
        """Return what one round moves, as tasks that wait for nothing.

        :raises NoAnswer: when a round trip that is used is not known.
        """
        source, target = order[self.source], order[self.target]
        resources, route, latency = resources_between(fabric, source, target)
        amount = np.where(source == target, 0.0, size_bytes / self.ranks)
        nothing = np.zeros(self.ranks + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        round_of = np.zeros(self.ranks, dtype=np.int64)
        return resources, Tasks(
            route,
            amount,
            np.zeros(self.ranks),
            latency + fabric.overhead_us,
            nothing,
            self.connection,
            round_of,
            "hop {}".format,
        )

    def run(self, fabric: Fabric, order: npt.NDArray[np.intp], size_bytes: float, *, slices: int = 1) -> "Timeline":
        """Return the ring's time, and begin and end of each connection's first block when it waits for nothing.

        :param slices: as of :meth:`solvers.simulation.collective.PreparedCollective.run`.

        :raises NoAnswer: as :meth:`job`.
        """
        from solvers.simulation.engine import Timeline  # compiled, and imported, only when it is used

        resources, tasks = self.job(fabric, order, size_bytes)
        moved = amounts_moved(resources, tasks)
        used = resources.routes[tasks.route]
        rates = np.where(used >= 0, resources.capacity[used], np.inf).min(axis=1)
        hop_us = tasks.lag_us + tasks.amount / np.minimum(rates, resources.limit[tasks.route])
        rounds = 2 * (self.ranks - 1)
        busy_us = busiest_us(resources, tasks)  # a connection has one block at a time
        whole_us, latency_us = max(busy_us, float(hop_us.mean())), float(tasks.lag_us.mean())
        messages_us = Messages(1.0, 1.0).us(fabric.overhead_us)
        makespan_us = rounds * time_in_slices(whole_us, busy_us, latency_us, slices, messages_us)
        return Timeline(np.zeros(self.ranks), hop_us, makespan_us, rounds * moved)


@dataclass(frozen=True)
class SimulatedCost:
    """Cost function of an algorithm by simulation: the simulated time, microseconds, of an order (the host at each
    rank, shape (N,)). Times are kept, for searches come back to their orders.

    ``parts``: what the algorithm is made of, as (weight, name, job); each is simulated by itself, and their times are
    weighted. A ring of more than 256 ranks is no job but a :class:`SteadyRing`. A :class:`Pattern` is priced by the
    closed form, as there is too much to simulate. :func:`dataclasses.replace` gives the costs on another fabric, or of
    another size in as many segments.
    """

    parts: tuple[tuple[float, str, PreparedCollective | SteadyRing | Pattern], ...]
    fabric: Fabric
    size_bytes: float
    options: Options = field(default_factory=Options)
    _times_us: dict[bytes, float] = field(init=False, repr=False, compare=False, default_factory=dict)

    @classmethod
    def of(
        cls, algo: str, ranks: int, options: Options, fabric: Fabric, size_bytes: float, model: str = SIMULATED
    ) -> "SimulatedCost":
        """Return the cost function of an algorithm by its name, in the segments that its library takes for the size.

        :param model: ``simulated`` or ``contention``, which has the closed form for what is too large.
        :raises UsageError: for unknown names and what does not fit.
        :raises NoAnswer: for more transfers than can be simulated, under ``simulated``.
        """
        options = options_at(options, algo, size_bytes)
        parts: Sequence[tuple[float, str, PreparedCollective | SteadyRing | Pattern]]
        if options.mesh is not None:
            parts = _mesh_parts(options.mesh, ranks, model)
        else:
            named = parts_of(algo, size_bytes, fabric)
            parts = [(weight, name, _prepared(name, ranks, options, model)) for weight, name in named]
        if not all(isinstance(part, Pattern) for _, _, part in parts):
            compile_simulator()  # not in the time that simulations may take
        return cls(tuple(parts), fabric, size_bytes, options)

    @classmethod
    def by_rounds(cls, algo: str, ranks: int, options: Options, fabric: Fabric, size_bytes: float) -> "SimulatedCost":
        """Return the cost function by the closed form alone. :raises UsageError: as :meth:`of`."""
        options = options_at(options, algo, size_bytes)
        named = parts_of(algo, size_bytes, fabric)
        parts = tuple((weight, name, pattern_for(name, ranks, options)) for weight, name in named)
        return cls(parts, fabric, size_bytes, options)

    def __call__(self, order: Order) -> float:
        """Return the simulated time of an order.

        :raises UsageError: for a size that is not positive. :raises NoAnswer: for an order that uses a pair which was
            not measured, or a collective that does not end.
        """
        key = order.astype(np.intp).tobytes()
        if key not in self._times_us:
            self._times_us[key] = sum(weight * cost_us for weight, _, cost_us in self.part_costs(order))
        return self._times_us[key]

    @property
    def is_closed_form(self) -> bool:
        """Whether the closed form prices all parts, so that a search's costs are these."""
        return all(isinstance(part, Pattern) for _, _, part in self.parts)

    @property
    def transfers(self) -> int:
        """Number of transfers that one cost simulates; rings of many ranks, and closed forms, have none."""
        return sum(len(part.schedule) for _, _, part in self.parts if isinstance(part, PreparedCollective))

    def busiest_us(self, order: Order) -> float:
        """Return for how long the busiest resource works, without libraries' own costs: no more than :meth:`__call__`.
        0 for rings of many ranks and closed forms, whose costs take no longer to compute.

        :raises UsageError, NoAnswer: as :meth:`__call__`.
        """
        jobs = [
            (weight, part.job(self.fabric, order, self.size_bytes))
            for weight, _, part in self._parts_for(order)
            if isinstance(part, PreparedCollective)
        ]
        return sum(weight * busiest_us(*job) for weight, job in jobs)

    def limits(self, order: Order) -> tuple[str, ...]:
        """Return the hosts and groups whose links work nearly all of the time; none where latencies or closed forms
        decide.

        :raises UsageError, NoAnswer: as :meth:`__call__`.
        """
        names = dict[str, None]()
        for _, name, part in self._parts_for(order):
            if not isinstance(part, Pattern):
                timeline = self._run(name, part, order)
                resources, _ = part.job(self.fabric, order, self.size_bytes)
                busy = np.flatnonzero(timeline.moved >= _LIMITING * timeline.makespan_us * resources.capacity)
                names |= dict.fromkeys(resources.name(k).rsplit(", ", 1)[0] for k in busy.tolist())
        return tuple(names)

    def part_costs(self, order: Order) -> list[tuple[float, str, float]]:
        """Return what the algorithm is made of, as (weight, name, microseconds)."""
        return [
            (
                weight,
                name,
                self.fabric.with_library_us(
                    name,
                    self.size_bytes,
                    closed_form_in_slices(part, self._slices(name), self.fabric, self.size_bytes, CONTENTION)(order)
                    if isinstance(part, Pattern)
                    else self._run(name, part, order).makespan_us,
                ),
            )
            for weight, name, part in self._parts_for(order)
        ]

    def breakdowns(self, order: Order) -> list[tuple[float, str, CostBreakdown]]:
        """Return what the algorithm is made of, as (weight, name, cost with its bottleneck), without closed forms."""
        return [
            (weight, name, self._breakdown(part, self._run(name, part, order), order))
            for weight, name, part in self._parts_for(order)
            if not isinstance(part, Pattern)
        ]

    def _parts_for(self, order: Order) -> Sequence[tuple[float, str, PreparedCollective | SteadyRing | Pattern]]:
        """Return the parts, with the masters of two-level aggregation made for the order."""
        if self.options.tree is None:
            return self.parts
        return [
            (weight, name, part if name != "2lha" else self._two_level(part, order))
            for weight, name, part in self.parts
        ]

    def _two_level(self, part: PreparedCollective | SteadyRing | Pattern, order: Order) -> PreparedCollective | Pattern:
        options = replace(self.options, tree=links_for_masters(self.fabric, order))
        if isinstance(part, Pattern):
            return pattern_for("2lha", len(order), options)
        return PreparedCollective.of(schedule_for("2lha", len(order), options))

    def _run(self, name: str, part: PreparedCollective | SteadyRing, order: Order) -> "Timeline":
        return part.run(self.fabric, order, self.size_bytes, slices=self._slices(name))

    def _slices(self, name: str) -> int:
        return engine_slices(name, self.options, self.fabric, self.size_bytes)

    def _breakdown(self, part: PreparedCollective | SteadyRing, timeline: "Timeline", order: Order) -> CostBreakdown:
        slowest = int(part.connection[np.argmax(timeline.end_us - timeline.begin_us)])
        names = self.fabric.names
        ends = names[int(order[part.source[slowest]])], names[int(order[part.target[slowest]])]
        resources, _ = part.job(self.fabric, order, self.size_bytes)
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


def _mesh_parts(mesh: Mesh, blocks: int, model: str) -> list[tuple[float, str, PreparedCollective | Pattern]]:
    """Return a mesh's traffic, that which leaves blocks of ranks."""
    parts = list[tuple[float, str, PreparedCollective | Pattern]]()
    for traffic in mesh.traffic:
        pattern = traffic_pattern(mesh, traffic, blocks)
        if len(pattern.repeat) and weight_of(traffic) > 0:
            if not (model == CONTENTION and needs_closed_form(pattern)):
                check_transfers(traffic.label, pattern)
                parts.append((weight_of(traffic), traffic.label, PreparedTraffic.of_traffic(mesh, traffic, blocks)))
            else:
                parts.append((weight_of(traffic), traffic.label, pattern))
    return parts


def _prepared(name: str, ranks: int, options: Options, model: str) -> PreparedCollective | SteadyRing | Pattern:
    ring = steady_ring(name, ranks)
    if ring is not None:
        return ring
    pattern = pattern_for(name, ranks, options)
    if model == CONTENTION and needs_closed_form(pattern):
        return pattern
    check_transfers(name, pattern)
    return PreparedCollective.of(schedule_for(name, ranks, options))


def needs_closed_form(pattern: Pattern) -> bool:
    """Return whether ``contention`` prices a pattern by rounds, as there is too much to simulate."""
    if pattern.all_to_all_share:
        return transfers_of(pattern) > _MAX_FLOWS_AT_ONCE
    return transfers_of(pattern) > (_MAX_WIDE_TRANSFERS if pattern.repeat.sum() <= WIDE_ROUNDS else _MAX_TRANSFERS)


@functools.cache
def compile_simulator() -> None:
    """Simulate two ranks: the first simulation of an installation takes seconds longer than others."""
    PreparedCollective.of(schedule_for("ring", 2)).run(alike_hosts("ab", 1.0), np.arange(2), 1.0)


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


def cost_by_model(
    algo: str, ranks: int, options: Options, fabric: Fabric, size_bytes: float, model: str
) -> CostFunction:
    """Return the cost function of an algorithm by any model.

    :raises UsageError, NoAnswer: as :class:`SimulatedCost` and :func:`solvers.costs.by_name.cost_function_for`.
    """
    if model in (CONTENTION, SIMULATED):
        return SimulatedCost.of(algo, ranks, options, fabric, size_bytes, model)
    if model == "latency" or not fabric.library_costs:
        return cost_function_for(algo, ranks, options, fabric, size_bytes, model)
    parts = [
        (weight, name, cost_function_for(name, ranks, options, fabric, size_bytes, model))
        for weight, name in parts_of(algo, size_bytes, fabric)
    ]
    return lambda order: sum(
        weight * fabric.with_library_us(name, size_bytes, cost_of(order)) for weight, name, cost_of in parts
    )
