"""Choose among the best orders of a search by simulation (``--model contention`` and ``simulated``).

A search evaluates millions of orders, and a simulation takes milliseconds or seconds. So the search goes by a closed
form; then its best orders, those of other searches, the start orders and the baseline are simulated, the cheapest are
improved by exchanges of blocks of hosts, and the cheapest of all is taken.

Where nobody measured what groups' links carry, round trips do not show which group has the slow link, and the order
that is cheapest by one assumption may be the worst where that is wrong. So orders are compared by several draws of the
capacities: each cost is over that of the cheapest order by the same draw, and the mean counts (figures are in
docs/results/order-models.md).
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plink.errors import NoAnswer
from solvers.costs.by_name import CONTENTION, cost_function_for
from solvers.costs.fabric import Fabric
from solvers.costs.mesh_patterns import axis_sequences
from solvers.latency import ring_cost
from solvers.ordering.annealing import initial_orders, sorted_by_group
from solvers.ordering.constraints import FeasibleOrders
from solvers.ordering.cross_validation import ValidatedGain
from solvers.ordering.problem import (
    RINGS,
    Order,
    OrderingProblem,
    OrderingResult,
    SearchBudget,
    median_cost,
    number_of_random_orders,
    random_orders,
)
from solvers.ordering.search import search
from solvers.simulation.cost import SimulatedCost

_EVALUATIONS = (100, 400)  # at least, and of small collectives
_SMALL_TRANSFERS = 20_000
_MAX_TRANSFERS = 100_000  # of all evaluations: about a second
_BLOCK_HOSTS = (1, 1, 2, 4, 8)  # hypercubes and trees tie blocks of a power of two
_CAPACITY_DRAWS = 12  # beside the assumed capacities
_LEAST_US = 1e-9
_SAME_TIME = 1e-6  # of a time: two rings that differ by less take as long
_CLEARLY_LESS = 1e-3  # of a time: what a random order has to save, for it was not searched for
MAX_CANDIDATES = 8
_DESCENTS = 2
_TRIED_MAX_HOSTS, _TRIED_MAX_TRANSFERS = 7, 400  # every order of them takes a second or two
_OTHER_SEARCH_SHARE = 4  # another search has one of so many parts of the moves


def descend(
    order: Order, feasible: FeasibleOrders, cost_of: SimulatedCost, seed: int, keep_going: Callable[[], bool]
) -> Order:
    """Return the order after 100 to 400 exchanges of two blocks of hosts, of which those that are cheaper stay.

    :param order: a feasible one. :param keep_going: whether there is time for one more.
    """
    rng, hosts = np.random.default_rng(seed), np.array(list(dict.fromkeys(order.tolist())))
    best, best_cost = order, cost_of(order)
    transfers = max(1, cost_of.transfers)
    for _ in range(min(int(np.clip(_SMALL_TRANSFERS // transfers, *_EVALUATIONS)), _MAX_TRANSFERS // transfers)):
        if not keep_going():
            break
        exchanged = exchange_blocks(hosts, rng)
        candidate = feasible.materialise(exchanged.tolist())
        cost = cost_of(candidate)
        if cost < best_cost:
            best, best_cost, hosts = candidate, cost, exchanged
    return best


def exchange_blocks(hosts: Order, rng: np.random.Generator) -> Order:
    """Return the hosts, two or more, after an exchange of two random blocks of up to 8, which begin at multiples of
    their size."""
    size = int(rng.choice([size for size in _BLOCK_HOSTS if 2 * size <= len(hosts)]))
    first, second = rng.choice(len(hosts) // size, 2, replace=False) * size
    exchanged = hosts.copy()
    exchanged[first : first + size] = hosts[second : second + size]
    exchanged[second : second + size] = hosts[first : first + size]
    return exchanged


def cheapest_on_average(
    problem: OrderingProblem, orders: Sequence[Order], seed: int, keep_going: Callable[[], bool]
) -> Order:
    """Return the order of the least mean cost over drawn capacities.

    :param orders: feasible ones. :param keep_going: whether there is time for one more order.
    """
    rng = np.random.default_rng(seed)
    fabrics = [problem.fabric, *(problem.fabric.with_drawn_links(rng) for _ in range(_CAPACITY_DRAWS))]
    args = problem.algo, len(problem.baseline), problem.options
    cost_functions = [cost_function_for(*args, fabric, problem.size_bytes, CONTENTION) for fabric in fabrics]
    costs = list[list[float]]()
    for order in orders:
        if costs and not keep_going():
            break
        costs.append([cost_of(order) for cost_of in cost_functions])
    of_order = np.array(costs)
    return orders[int(np.argmin((of_order / np.maximum(of_order.min(axis=0), _LEAST_US)).sum(axis=1)))]


@dataclass(frozen=True)
class SimulatedChoice:
    """Result of the choice among simulated orders.

    ``result``: the chosen order with costs by simulation, without a bound. ``simulated`` of ``candidates`` orders were
    simulated before the time was over. ``search_model``: the model of the search. ``cost_of``: the simulation.
    """

    result: OrderingResult
    simulated: int
    candidates: int
    search_model: str
    cost_of: SimulatedCost


def candidate_orders(problem: OrderingProblem, result: OrderingResult, seed: int, budget: SearchBudget) -> list[Order]:
    """Return up to 8 different feasible orders.

    The result, the baseline, the results of another seed, of measured rates of pairs, which ``contention`` leaves out,
    and of the model ``latency``, then the start orders.

    :param problem: by the model that the search went by, ``result``: of that search. :param budget: of the
        first search.
    """
    feasible = problem.feasible
    orders = [result.order]
    if np.array_equal(feasible.materialise(problem.hosts.tolist()), problem.baseline):
        orders.append(problem.baseline)
    other_budget = replace(budget, max_moves=max(1, budget.max_moves // _OTHER_SEARCH_SHARE), exhaustive=False)
    orders.append(search(problem, seed + 1, other_budget).order)
    models = ("latency",) if problem.fabric.pair_gbps is None else ("alpha-beta", "latency")
    orders += [search(replace(problem, model=model), seed, other_budget).order for model in models]
    for start in () if budget.stopped() else initial_orders(problem.fabric, problem.baseline):
        orders.append(feasible.materialise(list(dict.fromkeys(start.tolist()))))
    limit = MAX_CANDIDATES
    if problem.options.mesh is not None:
        by_group = sorted_by_group(problem.fabric, problem.baseline)
        starts = [by_group[np.argsort(s)] for s in axis_sequences(problem.options.mesh, len(problem.baseline))]
        slots = np.bincount(problem.baseline, minlength=len(problem.fabric.names))
        starts += itertools.islice(random_orders(np.sort(problem.hosts), slots, seed), MAX_CANDIDATES)
        orders += [feasible.materialise(list(dict.fromkeys(start.tolist()))) for start in starts]
        limit = len(orders)
    return list({order.tobytes(): order for order in orders}.values())[:limit]


def improved_candidates(
    problem: OrderingProblem, orders: Sequence[Order], cost_of: SimulatedCost, seed: int, keep_going: Callable[[], bool]
) -> list[Order]:
    """Return the orders to choose among.

    With measured capacities, or rates of pairs: the cheapest ones after a descent, and all; of up to 7 hosts the
    cheapest of every order. Without, but for meshes: the one that is cheapest on average over capacities that groups'
    links may have (:mod:`solvers.ordering.simulated_choice`), then the baseline.

    :param keep_going: whether there is time for one more simulation.
    """
    if _is_by_draws(problem):
        cheapest = cheapest_on_average(problem, orders, seed, keep_going)
        return [cheapest, *(order for order in orders if np.array_equal(order, problem.baseline))]
    if len(problem.hosts) <= _TRIED_MAX_HOSTS and cost_of.transfers <= _TRIED_MAX_TRANSFERS:
        tried, cheapest, least = set[bytes](), orders[0], np.inf
        for order in map(problem.feasible.materialise, itertools.permutations(problem.hosts.tolist())):
            if order.tobytes() in tried:
                continue
            if not keep_going():
                break
            tried.add(order.tobytes())
            if (cost := cost_of(order)) < least:
                cheapest, least = order, cost
        return list({order.tobytes(): order for order in (cheapest, *orders)}.values())
    costs = [(cost_of(order), k) for k, order in enumerate(orders) if k == 0 or keep_going()]
    starts = [orders[k] for _, k in sorted(costs)[:_DESCENTS]]
    descended = [descend(start, problem.feasible, cost_of, seed, keep_going) for start in starts]
    return list({order.tobytes(): order for order in (*descended, *orders)}.values())[:MAX_CANDIDATES]


def _is_by_draws(problem: OrderingProblem) -> bool:
    """Whether nobody measured what limits the orders, so that draws of it compare them."""
    return not problem.fabric.measured and problem.fabric.pair_gbps is None and problem.options.mesh is None


def choose_by_simulation(
    problem: OrderingProblem,
    result: OrderingResult,
    orders: Sequence[Order],
    costs_of: tuple[SimulatedCost, SimulatedCost],
    seed: int,
    keep_going: Callable[[], bool],
) -> SimulatedChoice:
    """Simulate the orders and return the cheapest; of equal ones that of the least sum of a ring's round trips, or the
    first.

    The first order and the baseline are simulated whatever the time; then the others, then random orders for their
    median. The cheapest of these is taken where it clearly costs less, on average where draws compare orders.

    :param costs_of: the costs to choose by, by half of the samples, and those to state.
    :param keep_going: whether there is time for one more. :raises NoAnswer: as ``costs_of``.
    """
    cost_of, stated = costs_of
    costs = {problem.baseline.tobytes(): cost_of(problem.baseline)}
    chosen, chosen_cost, simulated = problem.baseline, np.inf, 0
    for k, order in enumerate(orders):
        key = order.tobytes()
        if key not in costs:
            if k and not keep_going():
                continue
            costs[key] = cost_of(order)
        simulated += 1
        is_tie = problem.algo in RINGS and abs(costs[key] - chosen_cost) <= _SAME_TIME * chosen_cost < np.inf
        rtt_us = problem.fabric.rtt_us
        if ring_cost(rtt_us, order) < ring_cost(rtt_us, chosen) if is_tie else costs[key] < chosen_cost:
            chosen, chosen_cost = order, costs[key]
    slots = np.bincount(problem.baseline, minlength=len(problem.fabric.names))
    number = number_of_random_orders(cost_of.transfers)
    drawn = itertools.islice(random_orders(np.sort(problem.hosts), slots, seed), number)
    random_costs = [(stated(order), order) for order in itertools.takewhile(lambda _: keep_going(), drawn)]
    most = (1 - _CLEARLY_LESS) * stated(chosen)
    feasible = [pair for pair in random_costs if pair[0] < most and problem.feasible.allows(pair[1])]
    if feasible:
        _, cheapest = min(feasible, key=lambda pair: pair[0])
        is_cheaper = cost_of(cheapest) < (1 - _CLEARLY_LESS) * chosen_cost
        if is_cheaper and _is_by_draws(problem):
            is_cheaper = cheapest_on_average(problem, [chosen, cheapest], seed, lambda: True) is cheapest
        chosen = cheapest if is_cheaper else chosen
    chosen_result = replace(
        result,
        order=chosen,
        cost=stated(chosen),
        lower_bound=None,
        bound_by=None,
        metrics={},
        baseline_cost=stated(problem.baseline),
        random_median=median_cost([cost for cost, _ in random_costs]),
    )
    return SimulatedChoice(chosen_result, simulated, len(orders), problem.model, cost_of)


def simulated_gain(
    choice: SimulatedChoice, baseline: Order, held_out: Fabric, searched: ValidatedGain
) -> ValidatedGain:
    """Return the gain of a simulated order on the held-out round trips.

    The interval's width is that of the search's model (``searched``): hundreds of draws are too many to simulate. Where
    an order is not done within the longest simulated time, the gain is by that model too.
    """
    result = choice.result
    if np.array_equal(result.order, baseline):
        return searched
    validated = replace(choice.cost_of, fabric=held_out)
    try:
        baseline_us, order_us = validated(baseline), validated(result.order)
    except NoAnswer:
        return searched
    gain = 1 - order_us / baseline_us if baseline_us > 0 else 0.0
    predicted = 1 - result.cost / result.baseline_cost if result.baseline_cost > 0 else 0.0
    half_width = searched.high - searched.gain
    low = gain - half_width
    return ValidatedGain(gain, low if searched.pairs else min(0.0, low), gain + half_width, predicted, searched.pairs)
