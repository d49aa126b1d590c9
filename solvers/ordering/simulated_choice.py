"""Choose among the best orders of a search by an accurate cost (``--model simulated`` and ``contention``).

A search evaluates millions of orders, and a simulation takes milliseconds or seconds. So the search goes by a closed
form; then its best orders, those of other searches, the start orders and the baseline are simulated, and the cheapest
of them is taken. Under ``contention`` costs are those of an estimate of the simulation, and where simulations take no
more than seconds they still decide. Before, the best orders are improved by that estimate
(:mod:`solvers.ordering.estimated_descent`).
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plink.errors import NoAnswer
from solvers.costs.by_name import parts_of, pattern_for
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.cross_validation import ValidatedGain
from solvers.ordering.estimated_descent import descend
from solvers.ordering.initial import initial_orders
from solvers.ordering.problem import Order, OrderingProblem, OrderingResult, expand_slots
from solvers.ordering.progress import SearchBudget
from solvers.ordering.search import search
from solvers.ordering.unknown_capacities import cheapest_on_average
from solvers.simulation.contention import MAX_ESTIMATED_TRANSFERS, ContentionCost
from solvers.simulation.cost import SimulatedCost, compile_simulator

MAX_CANDIDATES = 8
_RANDOM_ORDERS = 11
_DESCENTS = 3
_MORE_DESCENTS, _MORE_DESCENTS_SEED = 2, 101  # from the fastest order; other exchanges than in the first ones
_DESCENT_SEGMENTS = 12
_MAX_SIMULATED_TRANSFERS = 20_000  # of all orders together: some 2 s
_OTHER_SEARCH_SHARE = 4  # another search has one of so many parts of the moves

AccurateCost = SimulatedCost | ContentionCost


@dataclass(frozen=True)
class SimulatedChoice:
    """Result of the choice among simulated orders.

    ``result``: the chosen order with costs by the model that was asked for, without a bound. ``simulated`` of
    ``candidates`` orders were simulated before the time was over. ``search_model``: the model of the search.
    ``decided_by``: the cost by which the order is the cheapest, a simulation where ``result`` has estimates;
    ``decided``: the result with its cost and the baseline's by it.
    """

    result: OrderingResult
    simulated: int
    candidates: int
    search_model: str
    decided_by: AccurateCost
    decided: OrderingResult

    @property
    def is_against_estimate(self) -> bool:
        """Whether the result has a higher cost than the baseline, though it is faster."""
        return self.result.cost > self.result.baseline_cost and self.decided.cost < self.decided.baseline_cost


def candidate_orders(problem: OrderingProblem, result: OrderingResult, seed: int, budget: SearchBudget) -> list[Order]:
    """Return up to 8 different feasible orders.

    The result, the baseline, the results of another seed and of the model ``latency``, then the start orders.

    :param problem: by the model that the search went by, ``result``: of that search. :param budget: of the
        first search.
    """
    feasible = problem.feasible
    orders = [result.order]
    if np.array_equal(feasible.materialise(problem.hosts.tolist()), problem.baseline):
        orders.append(problem.baseline)
    other_budget = replace(budget, max_moves=max(1, budget.max_moves // _OTHER_SEARCH_SHARE), exhaustive=False)
    orders.append(search(problem, seed + 1, other_budget).order)
    orders.append(search(replace(problem, model="latency"), seed, other_budget).order)
    for start in initial_orders(problem.fabric, problem.baseline):
        orders.append(feasible.materialise(list(dict.fromkeys(start.tolist()))))
    return list({order.tobytes(): order for order in orders}.values())[:MAX_CANDIDATES]


def improved_candidates(
    problem: OrderingProblem, orders: Sequence[Order], cost_of: AccurateCost, seed: int, keep_going: Callable[[], bool]
) -> list[Order]:
    """Return the orders to choose among, by the estimate of ``contention``.

    With measured capacities: the cheapest ones after a descent, and all. Without: the one that is cheapest on average
    over capacities that groups' links may have (:mod:`solvers.ordering.unknown_capacities`), then the baseline.

    :param keep_going: whether there is time for one more estimate.
    """
    estimate = ContentionCost(cost_of.parts, problem.fabric, cost_of.size_bytes)
    if problem.fabric.measured:
        estimate = _in_fewer_segments(problem, estimate)
        if estimate.transfers > MAX_ESTIMATED_TRANSFERS:
            return list(orders)
        starts = sorted(orders, key=estimate)[:_DESCENTS]
        descended = [descend(start, problem.feasible, estimate, seed, keep_going) for start in starts]
        return list({order.tobytes(): order for order in (*descended, *orders)}.values())[:MAX_CANDIDATES]
    if isinstance(cost_of, SimulatedCost):
        return list(orders)
    cheapest = cheapest_on_average(problem, orders, estimate, seed, keep_going)
    return [cheapest, *_equal_to(problem.baseline, orders)]


def _equal_to(baseline: Order, orders: Sequence[Order]) -> list[Order]:
    return [order for order in orders if np.array_equal(order, baseline)]


def _quick_simulation(
    problem: OrderingProblem, orders: Sequence[Order], cost_of: AccurateCost
) -> tuple[SimulatedCost | None, list[Order]]:
    """Return what decides instead of an estimate of measured capacities, and which orders it simulates within seconds.

    These are the first, which are the best ones, and the baseline where it is among them. None where even two take
    longer.
    """
    simulation, number = _own_simulation(problem, cost_of)
    if simulation is None:
        return None, list(orders)
    return simulation, [*orders[:number], *_equal_to(problem.baseline, orders[number:])]


def _own_simulation(problem: OrderingProblem, cost_of: AccurateCost) -> tuple[SimulatedCost | None, int]:
    """Return what decides instead of an estimate, and how many orders beside the baseline it simulates in seconds."""
    if isinstance(cost_of, SimulatedCost) or not problem.fabric.measured:
        return None, 0
    parts = [(weight, name, part) for weight, name, part in cost_of.parts if not isinstance(part, Pattern)]
    number = _MAX_SIMULATED_TRANSFERS // max(1, cost_of.transfers) - 1
    if len(parts) < len(cost_of.parts) or number < 1:
        return None, 0
    return SimulatedCost(tuple(parts), cost_of.fabric, cost_of.size_bytes), number


def compile_own_simulation(problem: OrderingProblem, cost_of: AccurateCost) -> None:
    """Compile the simulator before the search where it will decide, so that simulations have all of their time."""
    if _own_simulation(problem, cost_of)[0] is not None:
        compile_simulator()


def _in_fewer_segments(problem: OrderingProblem, estimate: ContentionCost) -> ContentionCost:
    """Return the estimate of a pipelined tree's first segments alone, which ranks its orders as that of all does."""
    options, names = problem.priced_options, [name for _, name in parts_of(problem.algo, problem.size_bytes)]
    segments, ranks = options.segments or 1, len(problem.baseline)
    if segments <= _DESCENT_SEGMENTS or any(pattern_for(name, ranks, options).timing != "chain" for name in names):
        return estimate
    size_bytes = estimate.size_bytes * _DESCENT_SEGMENTS / segments
    shorter = replace(options, segments=_DESCENT_SEGMENTS)
    return ContentionCost.of(problem.algo, ranks, shorter, estimate.fabric, size_bytes)


def choose_by_simulation(
    problem: OrderingProblem, result: OrderingResult, orders: Sequence[Order], cost_of: AccurateCost, seed: int,
    keep_going: Callable[[], bool],
) -> SimulatedChoice:  # fmt: skip
    """Simulate the orders and return the cheapest; of equal ones the first.

    Where the cost is an estimate of measured capacities, simulations decide, if they take no more than seconds:
    exchanges by the estimate end at orders that it takes for faster than they are, by up to 12 %. So two more rounds of
    exchanges begin at the fastest order, and the result of each is simulated too. The first order and
    the baseline are simulated whatever the time; then the others, then random orders for their median, of which at
    least one is. Where an order is not done within the longest simulated time, estimates decide.

    :param cost_of: of its fabric are the costs in the result. That of the problem, by which orders are chosen, may make
        some pairs expensive. :param keep_going: whether there is time for one more. :raises NoAnswer: as ``cost_of``.
    """
    shown_cost, has_avoided_pairs = cost_of, cost_of.fabric is not problem.fabric
    if has_avoided_pairs:
        cost_of = replace(cost_of, fabric=problem.fabric)
    simulation, simulated_orders = _quick_simulation(problem, orders, cost_of) if keep_going() else (None, orders)
    try:
        decision = _cheapest(problem, simulated_orders, simulation or cost_of, keep_going)
    except NoAnswer:
        if simulation is None:
            raise
        simulation, decision = None, _cheapest(problem, orders, cost_of, keep_going)  # nobody asked for a simulation
    chosen, chosen_cost, costs, simulated = decision
    baseline_cost = costs[problem.baseline.tobytes()]
    if simulation is not None and isinstance(cost_of, ContentionCost):
        left = _MAX_SIMULATED_TRANSFERS // max(1, cost_of.transfers) - len(costs)
        chosen, chosen_cost = _exchanged_again(problem, chosen, (cost_of, simulation), seed, keep_going, left)
    decides = simulation or cost_of
    if has_avoided_pairs:
        decides = replace(decides, fabric=shown_cost.fabric)
        chosen_cost, baseline_cost = decides(chosen), decides(problem.baseline)
    slots = np.bincount(problem.baseline, minlength=len(problem.fabric.names))
    rng, random_costs = np.random.default_rng(seed), []
    for k in range(_RANDOM_ORDERS):
        if k and not keep_going():
            break
        random_costs.append(shown_cost(expand_slots(rng.permutation(problem.hosts), slots)))
    decided = replace(
        result, order=chosen, cost=chosen_cost, lower_bound=None, bound_by=None, metrics={},
        baseline_cost=baseline_cost, random_median=float(np.median(random_costs)),
    )  # fmt: skip
    shown = decided if simulation is None else replace(
        decided, cost=shown_cost(chosen), baseline_cost=shown_cost(problem.baseline)
    )  # fmt: skip
    return SimulatedChoice(shown, simulated, len(orders), problem.model, decides, decided)


def _cheapest(
    problem: OrderingProblem, orders: Sequence[Order], decided_by: AccurateCost, keep_going: Callable[[], bool]
) -> tuple[Order, float, dict[bytes, float], int]:
    """Return the cheapest order, its cost, those of all that were priced, and of how many of ``orders``."""
    costs = {problem.baseline.tobytes(): decided_by(problem.baseline)}
    chosen, chosen_cost, priced = problem.baseline, np.inf, 0
    for k, order in enumerate(orders):
        key = order.tobytes()
        if key not in costs:
            if k and not keep_going():
                continue
            costs[key] = decided_by(order)
        priced += 1
        if costs[key] < chosen_cost:
            chosen, chosen_cost = order, costs[key]
    return chosen, chosen_cost, costs, priced


def _exchanged_again(
    problem: OrderingProblem, order: Order, costs: tuple[ContentionCost, SimulatedCost], seed: int,
    keep_going: Callable[[], bool], rounds: int,
) -> tuple[Order, float]:  # fmt: skip
    """Return the fastest of an order and of what at most so many rounds of exchanges by the estimate make of it, and
    its simulated cost. ``costs``: the estimate and the simulation. An order that is not done within the longest
    simulated time is slower."""
    estimate, simulation = costs
    fastest, fastest_us = order, simulation(order)
    for k in range(min(_MORE_DESCENTS, rounds)):
        if not keep_going():
            break
        descended = descend(fastest, problem.feasible, estimate, seed + _MORE_DESCENTS_SEED + k, keep_going)
        with contextlib.suppress(NoAnswer):
            if (cost_us := simulation(descended)) < fastest_us:
                fastest, fastest_us = descended, cost_us
    return fastest, fastest_us


def simulated_gain(
    result: OrderingResult, baseline: Order, cost_of: AccurateCost, held_out: Fabric, searched: ValidatedGain
) -> ValidatedGain:
    """Return the gain of a simulated order on the held-out round trips.

    The interval's width is that of the search's model (``searched``): hundreds of draws are too many to simulate. Where
    an order is not done within the longest simulated time, the gain is by that model too.
    """
    if np.array_equal(result.order, baseline):
        return searched
    validated = replace(cost_of, fabric=held_out)
    try:
        baseline_us, order_us = validated(baseline), validated(result.order)
    except NoAnswer:
        return searched
    gain = 1 - order_us / baseline_us if baseline_us > 0 else 0.0
    predicted = 1 - result.cost / result.baseline_cost if result.baseline_cost > 0 else 0.0
    half_width = searched.high - searched.gain
    low = gain - half_width
    return ValidatedGain(gain, low if searched.pairs else min(0.0, low), gain + half_width, predicted, searched.pairs)
