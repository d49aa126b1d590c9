"""Which algorithm, in which order, is the fastest for which size on a measured network."""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from plink.argument_checks import check_argument
from plink.errors import NoAnswer, UsageError
from plink.features.advise.request import ALL_ALGORITHMS, AdviseRequest
from plink.features.order.algorithms import (
    fabric_from,
    links_of,
    options_of,
    order_from,
    rank_groups,
)
from plink.features.order.hubs import hubs_limited_by_cores, sizes_for, with_hubs
from plink.features.order.interfaces import fabric_of_algorithm, interface_topology, own_options, unmeasured_notes
from plink.model.advice import AdvisedRange, LineInSize, SizeChoice, StatedAdvice
from plink.model.document import UNSET
from plink.model.network import Network
from plink.model.units import format_bytes, format_us
from solvers.advice import (
    CostLine,
    Order,
    PricedAlgorithm,
    SimulatedLine,
    SizeInterval,
    cost_lines,
    envelope,
    fastest_lines,
    simulated_envelope,
    simulated_line,
)
from solvers.compilation import search_clock
from solvers.costs.by_name import (
    CONTENTION,
    SIMULATED,
    engine_slices,
    misranking_warning,
    model_for,
    prediction_interval,
    priced_options,
    search_model_for,
    time_in_slices,
)
from solvers.costs.fabric import Fabric
from solvers.costs.least_time import least_time_on
from solvers.ordering.bounds import link_bound
from solvers.ordering.interfaces import BCube
from solvers.ordering.problem import OrderingProblem, SearchBudget
from solvers.ordering.ring import search_ring
from solvers.schedules.catalogue import HUB_ALGORITHMS, HUBS, Options
from solvers.schedules.segmentation import options_at
from solvers.simulation.cost import SimulatedCost
from solvers.spanning.least_time import LeastTime

ALL_INTERFACES = ("bml", "multi-ring")  # where interfaces form a BCube
_SEARCH_S = 5.0
_SIMULATION_S = 30.0
_CONTENTION_S = 5.0
_USUAL_OVERHEAD_US = 5.0  # of a message over TCP, sender and receiver together
_NOTABLE = 1.05  # times as long
_SAME = 1e-3  # of a time: costs that differ by less are ties
_SIMULATED_EACH = 3  # of the fastest by the fast model, at each size
_EVALUATIONS_PER_HOST = 1000
_FAR = 10.0  # times the longest round trip: of a pair that was not measured
_log = logging.getLogger("plink.advise")


@dataclass(frozen=True)
class Advice:
    """Advice for a network. ``lines``: what each algorithm costs in each order that was tried; ``stretches``: the
    fastest of them from size to size; ``left_out``: algorithms without a cost, and why. ``model``: the model of
    their costs; ``fabric``: what they rest on; ``orders``: the order of each family, shape (N,). ``least``: the least
    possible time of an all-reduce, None where it is not known."""

    request: AdviseRequest
    network: Network
    model: str
    fabric: Fabric
    lines: tuple[CostLine, ...]
    stretches: tuple[SizeInterval, ...]
    left_out: dict[str, str]
    orders: Mapping[str, Order] = field(default_factory=dict)
    least: LeastTime | None = None

    def best(self, size_bytes: float, algo: str | None = None) -> CostLine:
        """Return the fastest line at this size; of one algorithm, in the best of its orders.

        :raises UsageError: for a size that is no number above 0, or an algorithm without a line.
        """
        check_argument("size_bytes", size_bytes, float)
        if not 0 < size_bytes < math.inf:
            raise UsageError(f"size_bytes {size_bytes:g}: give a number of bytes above 0")
        if algo is not None and all(line.algo != algo for line in self.lines):
            raise UsageError(f"algorithm {algo!r}: {self.left_out.get(algo, 'it is none of those compared')}")
        return min((line for line in self.lines if algo in (None, line.algo)), key=lambda line: line.at(size_bytes))

    def interval_us(self, line: CostLine, size_bytes: float) -> tuple[float, float] | None:
        """Return where a library's time is with a probability of 90 %; None for a model that was not calibrated."""
        return prediction_interval(line.at(size_bytes), line.algo, size_bytes, self.model, self.fabric)

    @property
    def sizes(self) -> list[float]:
        """Round sizes from the smallest to the largest: 1, 4, 16, ... times the first."""
        return _sizes_of(self.request)

    def stated(self) -> StatedAdvice:
        """Return the document ``plink.advice/1``."""
        return StatedAdvice(
            model=self.model,
            capacities=self.fabric.capacities,
            network=self.network.fingerprint(),
            best=tuple(
                AdvisedRange(from_bytes=round(each.from_bytes), to_bytes=round(each.to_bytes), **_line(each.line))
                for each in self.stretches
            ),
            lines=tuple(LineInSize(**_line(line)) for line in self.lines),
            sizes=tuple(
                SizeChoice(
                    size_bytes=round(size),
                    time_us=round(line.at(size), 3),
                    least_time_us=UNSET if self.least is None else round(self.least.us_per_byte * size, 3),
                    interval_us=self.interval_us(line, size),
                    **_line(line, size),
                )
                for size in self.sizes
                for line in (self.best(size),)
            ),
            limited_by=UNSET if self.least is None else self.least.limited_by,
            orders={
                family: tuple(self.fabric.names[host] for host in dict.fromkeys(order.tolist()))
                for family, order in self.orders.items()
            },
            left_out=self.left_out,
            smoothed=self.request.smooth_latencies or UNSET,
            predicted_pairs=UNSET if self.request.smooth_latencies else self.network.predicted_pairs or UNSET,
        )


def advise(network: Network, request: AdviseRequest | None = None) -> Advice:
    """Price the algorithms in the given order, with groups kept together, and in the best ring that a search of five
    seconds at most finds.

    :raises UsageError: for a request that cannot be met. :raises NoAnswer: when a pair that all need was not measured.
    """
    request = request or AdviseRequest()
    if bcube_of(network) is not None and request.algorithms == ALL_ALGORITHMS:
        request = replace(request, algorithms=(*ALL_ALGORITHMS, *ALL_INTERFACES))
    if network.hosts.hubs and not set(HUB_ALGORITHMS) & set(request.algorithms):
        request = replace(request, algorithms=(*request.algorithms, *HUB_ALGORITHMS))
    fabric = fabric_from(network, request.smooth_latencies)
    for note in unmeasured_notes(network, fabric, request.algorithms, request.smooth_latencies):
        _log.info("%s", note)
    for line in hubs_limited_by_cores(network, fabric):
        _log.warning("%s", line)
    stated_model = model_for(request.model, fabric, timed=True)
    if stated_model == "latency":
        stated_model = CONTENTION
        _log.info("no rates were measured; capacities are %s", fabric.capacities)
    elif stated_model in (CONTENTION, SIMULATED) and not fabric.measured:
        _log.info("shared capacities were not measured; they are %s", fabric.capacities)
    if network.hosts.hubs and (warning := misranking_warning(HUB_ALGORITHMS[0], stated_model)):
        _log.warning("%s", warning)
    model = search_model_for(stated_model, fabric)
    cost_lines_of_all: list[CostLine] = []
    left_out: dict[str, str] = {}
    unmeasured: NoAnswer | None = None
    orders = _orders(network, fabric, order_from(network, None), request.seed)
    for family, order in orders.items():
        for algo in request.algorithms:
            if algo == HUBS and family != next(iter(orders)):
                continue  # made for the order: all cost the same
            try:
                joined, options = order_and_options(network, request, fabric, algo, order)
                own_fabric = fabric_of_algorithm(network, fabric, algo)
                priced = priced_options(options, algo, math.sqrt(request.min_bytes * request.max_bytes), model)
                new_lines, without_cost = cost_lines(own_fabric, {family: joined}, {algo: priced}, model)
            except UsageError as error:  # hubs that do not fit, or links that are not known
                if algo not in (*HUB_ALGORITHMS, HUBS):
                    raise
                new_lines, without_cost = [], {algo: str(error)}
            except NoAnswer as error:  # a pair that this algorithm uses in this order
                new_lines, without_cost, unmeasured = [], {algo: str(error)}, error
            cost_lines_of_all += new_lines
            left_out |= without_cost
    costed_algorithms = {line.algo for line in cost_lines_of_all}
    left_out = {algo: reason for algo, reason in left_out.items() if algo not in costed_algorithms}
    if not cost_lines_of_all:
        raise unmeasured or UsageError(f"none of the algorithms fits: {next(iter(left_out.values()))}")
    if stated_model in (CONTENTION, SIMULATED):
        lines = _simulated_lines(network, request, fabric, orders, cost_lines_of_all, stated_model)
        left_out |= dict.fromkeys(
            sorted(costed_algorithms - {line.algo for line in lines}),
            f"not simulated: not among the fastest by {model}, too large, or no time was left",
        )
        intervals = simulated_envelope(lines, request.min_bytes, request.max_bytes)
        # Hubs of Parameter Hub help, which no other algorithm can.
        least = None if network.hosts.hubs else _least_time(network, request, fabric, next(iter(orders.values())))
        advice = Advice(request, network, stated_model, fabric, tuple(lines), tuple(intervals), left_out, orders, least)
        _say_what_may_be_faster(advice)
        return _checked_for_messages(advice)
    stretches = envelope(cost_lines_of_all, request.min_bytes, request.max_bytes)
    if costed_algorithms & set(HUB_ALGORITHMS):  # whose costs, in slices, are no lines
        sizes = _several(sizes_for(costed_algorithms, _sizes_of(request), fabric.rate_gbps))
        bent = [
            replace(simulated_line(line.algo, line.family, line.at, sizes), messages=line.messages)
            for line in cost_lines_of_all
        ]
        cost_lines_of_all, stretches = [*bent], simulated_envelope(bent, request.min_bytes, request.max_bytes)
    return _checked_for_messages(
        Advice(request, network, model, fabric, tuple(cost_lines_of_all), tuple(stretches), left_out, orders)
    )


def _least_time(network: Network, request: AdviseRequest, fabric: Fabric, order: Order) -> LeastTime | None:
    """Return the least possible time on the links as any of the algorithms has them: NCCL's ranks have other costs of
    their own than others."""
    fabrics = {id(own): own for own in (fabric_of_algorithm(network, fabric, algo) for algo in request.algorithms)}
    times = (least_time_on(own, order) for own in fabrics.values())
    return min(filter(None, times), key=lambda least: least.us_per_byte, default=None)


def _say_what_may_be_faster(advice: Advice) -> None:
    """Say of the largest size which algorithms other orders may make the fastest, by their bounds on links, where the
    fastest of all is not near the least possible time."""
    size = advice.sizes[-1]
    least_us = math.inf if advice.least is None else advice.least.us_per_byte * size
    fastest_us = advice.best(size).at(size) / _NOTABLE
    if fastest_us <= least_us:
        return
    order, may_be = next(iter(advice.orders.values())), []
    for algo in dict.fromkeys(line.algo for line in advice.lines if line.algo not in (*HUB_ALGORITHMS, HUBS, "flat")):
        fabric = fabric_of_algorithm(advice.network, advice.fabric, algo)
        fabric = fabric.with_farthest_for_unknown(np.isnan(fabric.rtt_us))
        _, options = order_and_options(advice.network, advice.request, fabric, algo, order)
        bound_us = link_bound(OrderingProblem(fabric, order, algo, options, size, SIMULATED))
        if bound_us is not None and bound_us < fastest_us:
            may_be.append(f"{algo} ({format_us(bound_us)} at least)")
    if may_be:
        _log.info(
            "at %s others may be faster in orders of their own, which were not searched: %s; `plink reorder --algo NAME"
            " --size %s` searches one, `plink cost --order FILE` prices it",
            format_bytes(size),
            ", ".join(may_be),
            format_bytes(size).replace(" ", ""),
        )


def _checked_for_messages(advice: Advice) -> Advice:
    """Return the advice, having said for which sizes it rests on messages that take no time of their hosts."""
    if advice.fabric.overhead_us:
        return advice

    segments = advice.request.options.get("segments")

    def usual_us(line: CostLine) -> float:
        """At least, in slices; of the vector whole exactly."""
        slices = 1 if segments else engine_slices(line.algo, Options(), advice.fabric, size)
        messages_us = line.messages.us(_USUAL_OVERHEAD_US)
        of_hosts_us = time_in_slices(messages_us.rounds, 0.0, 0.0, slices, messages_us)
        return max(line.at(size) + messages_us.rounds / slices, of_hosts_us)

    differing = []
    for size in advice.sizes:
        best, other = advice.best(size), min(advice.lines, key=usual_us)
        if usual_us(best) > _NOTABLE * usual_us(other) and best.algo != other.algo:
            differing.append((usual_us(best) / usual_us(other), best, other, size))
    if differing:
        last, (_, best, other, size) = differing[-1][-1], max(differing, key=lambda each: each[0])
        _log.info(
            "what hosts take for a message was not timed and counts as none, which decides up to %s: at %.0f us each, "
            "%s would take %s at %s, and %s %s (`plink check --measure --calibrate` times it)",
            format_bytes(last),
            _USUAL_OVERHEAD_US,
            best.algo,
            format_us(usual_us(best)),
            format_bytes(size),
            other.algo,
            format_us(usual_us(other)),
        )
    return advice


def _sizes_of(request: AdviseRequest) -> list[float]:
    low, high = request.min_bytes, request.max_bytes
    number = math.floor(math.log(high / low, 4) + 1e-9) + 1
    sizes = [low * 4**k for k in range(number)]
    return sizes if math.isclose(sizes[-1], high) else [*sizes, high]


def _ranked_by(lines: Sequence[CostLine], sizes: Sequence[float]) -> list[CostLine]:
    """Return the lines that are among the three fastest of some size; those first that are so most often."""
    best = [sorted(lines, key=lambda line, size=size: line.at(size))[:_SIMULATED_EACH] for size in sizes]  # type: ignore[misc]
    return [line for line, _ in Counter(line for row in best for line in row).most_common()]


def _several(sizes: list[float]) -> list[float]:
    """Return two sizes or more, as lines between costs need them."""
    return sizes if len(sizes) > 1 else [sizes[0], 2 * sizes[0]]


def _simulated_lines(
    network: Network,
    request: AdviseRequest,
    fabric: Fabric,
    orders: Mapping[str, Order],
    fast_lines: Sequence[CostLine],
    model: str,
) -> list[SimulatedLine]:
    """Simulate, as long as there is time, what may be the fastest.

    :param fast_lines: of all algorithms in all orders, by rounds.
    :raises NoAnswer: when none can be simulated, as all are too large.
    """
    started, algorithms = search_clock(), {line.algo for line in fast_lines}
    sizes = _several(sizes_for(algorithms, _sizes_of(request), fabric.rate_gbps))
    costs: dict[CostLine, SizedCost] = {}
    for fast in fast_lines:
        order, options = order_and_options(network, request, fabric, fast.algo, orders[fast.family])
        costs[fast] = SizedCost(model, fast.algo, options, fabric_of_algorithm(network, fabric, fast.algo), order)
    by_rounds = model == CONTENTION
    lines, late = (_contending_lines if by_rounds else _lines_by_simulation_alone)(costs, sizes, started)
    for k, line in enumerate(lines):  # of orders that cost the same the first is taken
        same = (
            other
            for other in lines[:k]
            if other.algo == line.algo and np.allclose(other.times_us, line.times_us, _SAME)
        )
        if (other := next(same, None)) is not None:
            lines[k] = replace(other, family=line.family)
    if late:
        outcome = "counted round by round at some sizes (~)" if by_rounds else "left out"
        seconds = search_clock() - started
        _log.info("%d of %d costs are %s: simulating others took %.0f s", late, len(costs), outcome, seconds)
    return lines


def _contending_lines(
    costs: "Mapping[CostLine, SizedCost]", sizes: Sequence[float], started: float
) -> tuple[list[SimulatedLine], int]:
    """Return the lines of all, and how many of them have times by rounds, as they are too large or it got too late:
    first what may be the fastest, by what its busiest link works, is simulated, and then all else, the smallest
    collectives first."""
    simulated: set[tuple[CostLine, float]] = set()

    @cache
    def cost_of(fast: CostLine, size_bytes: float) -> float:
        sized = costs[fast]
        if search_clock() > started + _SIMULATION_S:
            return fast.at(size_bytes)
        if not sized.prepared(size_bytes).is_closed_form:
            simulated.add((fast, size_bytes))
        return sized(size_bytes)

    largest = sizes[-1]
    lines = fastest_lines(
        [
            PricedAlgorithm(
                fast.algo,
                fast.family,
                partial(cost_of, fast),
                sized.prepared(largest).busiest_us(sized.order) / largest,
                fast,
            )
            for fast, sized in costs.items()
        ],
        sizes,
    )
    for k, (fast, _) in sorted(enumerate(costs.items()), key=lambda each: each[1][1].prepared(largest).transfers):
        times = dict(zip(sizes, lines[k].times_us, strict=True))
        for size in sizes:
            if search_clock() > started + _CONTENTION_S:
                break
            times[size] = cost_of(fast, size)
        line = simulated_line(fast.algo, fast.family, times.__getitem__, sizes)
        rounds_at = tuple(size for size in sizes if (fast, size) not in simulated)
        lines[k] = replace(line, messages=fast.messages, rounds_at=rounds_at)
    return lines, sum(line.is_by_rounds() for line in lines)


def _lines_by_simulation_alone(
    costs: "Mapping[CostLine, SizedCost]", sizes: Sequence[float], started: float
) -> tuple[list[SimulatedLine], int]:
    """Return the lines of what is among the three fastest of some size by rounds, those first that are so most often,
    as far as there is time, but of one in any case; and how many are left out.

    :raises NoAnswer: when all are too large.
    """
    lines: list[SimulatedLine] = []
    late, failure = 0, None
    for fast in _ranked_by(tuple(costs), sizes):
        if lines and search_clock() > started + _SIMULATION_S:
            late += 1
            continue
        try:
            line = simulated_line(fast.algo, fast.family, costs[fast], sizes)
        except NoAnswer as error:
            failure = error
        else:
            lines.append(replace(line, messages=fast.messages))
    if failure is not None and not lines:
        raise failure
    return lines, late


@dataclass(frozen=True)
class SizedCost:
    """Cost of an algorithm in an order by the size, microseconds; prepared once for each number of segments."""

    model: str
    algo: str
    options: Options
    fabric: Fabric
    order: Order
    by_segments: dict[int | None, SimulatedCost] = field(default_factory=dict)

    def prepared(self, size_bytes: float) -> SimulatedCost:
        """Return the cost function of a size.

        :raises NoAnswer: for more transfers than can be simulated.
        """
        segments = options_at(self.options, self.algo, size_bytes).segments
        if segments not in self.by_segments:
            self.by_segments[segments] = SimulatedCost.of(
                self.algo, len(self.order), self.options, self.fabric, size_bytes, self.model
            )
        return replace(self.by_segments[segments], size_bytes=size_bytes)

    def __call__(self, size_bytes: float) -> float:
        return self.prepared(size_bytes)(self.order)


def bcube_of(network: Network) -> BCube | None:
    """Return the BCube that hosts' interfaces form; None for other hosts."""
    topology = interface_topology(network)
    return topology.shape if topology is not None and isinstance(topology.shape, BCube) else None


def order_and_options(
    network: Network, request: AdviseRequest, fabric: Fabric, algo: str, order: Order
) -> tuple[Order, Options]:
    """Return an order, with hubs behind it where the algorithm uses them, and the algorithm's options: those of the
    request, else the base of the hosts' interfaces.

    :raises UsageError: for hubs that do not fit.
    """
    values = dict(request.options)
    if "base" not in values and "levels" not in values:
        values |= own_options(network, algo, len(order))
    groups = rank_groups(fabric, order)
    tree = links_of(algo, fabric_of_algorithm(network, fabric, algo), order)
    options = options_of(values, request.algorithms, groups, tree, order)
    if algo == "ps" and options.colocated and not options.sharded and "root" not in values:
        rates = np.minimum(fabric.host_out_gbps, fabric.host_in_gbps)
        options = replace(options, root=int(np.argmax(rates[order])))
    if algo not in HUB_ALGORITHMS:
        return order, options
    joined = with_hubs(network, fabric, algo, order, options)
    return joined.order, joined.options


def _orders(network: Network, fabric: Fabric, baseline: Order, seed: int) -> dict[str, Order]:
    """Return the orders to compare: as given, by the digits of a BCube, groups kept together, and the best ring of a
    short search."""
    orders = {"given": baseline}
    shape = bcube_of(network)
    if shape is not None and len(shape.digits) == len(baseline):
        orders["digits"] = np.array(shape.rank_order(), dtype=np.intp)
    if len(set(fabric.group_of.tolist())) > 1:
        orders["grouped"] = baseline[np.lexsort([tier.group_of[baseline] for tier in fabric.tiers])]
    between = fabric.rtt_us[np.ix_(baseline, baseline)]  # hubs are in no order
    between = np.where(np.isfinite(between), between, _FAR * np.nanmax(between))  # no ring needs what was not measured
    if len(set(baseline.tolist())) == len(baseline):
        deadline = search_clock() + _SEARCH_S
        budget = SearchBudget(
            _EVALUATIONS_PER_HOST * len(baseline), lambda progress: search_clock() < deadline, exhaustive=False
        )
        orders["ring"] = baseline[search_ring(between, seed, budget).order]
    return orders


def _line(line: CostLine, size_bytes: float | None = None) -> dict[str, Any]:
    return {
        "by_rounds": line.is_by_rounds(size_bytes) or UNSET,
        "algo": line.algo,
        "order": line.family,
        "start_us": round(line.start_us, 3),
        "us_per_mb": round(line.us_per_byte * 1e6, 3),
    }
