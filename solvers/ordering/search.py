"""Search for the cheapest rank order of any algorithm under any cost model.

:func:`search` picks the method. Few hosts: all orders, one by one or by branch and bound. Rings under ``latency``: a
travelling salesman's tour. All else: simulated annealing from several start orders. Each method comes with a lower
bound where there is one.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from plink.errors import UsageError, no_choice
from plink.model.network import Matrix
from solvers.costs.by_name import MIXED, cost_function_for, parts_of, pattern_for
from solvers.costs.closed_forms import CostFunction
from solvers.costs.mesh_patterns import axis_sequences
from solvers.costs.patterns import Pattern, in_slices, steady_state
from solvers.latency import require_complete
from solvers.ordering.annealing import Annealer, initial_orders, sorted_by_group
from solvers.ordering.bounds import hypercube_bound, pattern_bound, with_link_bound
from solvers.ordering.branch_and_bound import cheapest_order
from solvers.ordering.constraints import moves_of
from solvers.ordering.problem import (
    OBJECTIVES,
    RANDOM_ORDERS,
    RINGS,
    Order,
    OrderingProblem,
    OrderingResult,
    SearchBudget,
    SearchProgress,
    affordable_orders,
    expand_slots,
    median_cost,
    random_orders,
)
from solvers.ordering.ring import (
    is_rotation_enough,
    longest_hop,
    penalised_costs,
    ring_lower_bound,
    search_bottleneck,
    search_ring,
    search_ring_order,
)

_HYPERCUBES = ("halving-doubling", "bcube", "openmpi-rabenseifner", "recursive-doubling", "openmpi-recursive-doubling")
_EXHAUSTIVE_SEARCH_MAX_HOSTS = 10
_TRIED_MAX_HOSTS = 7  # without compiled code, which takes half a second to load
_TRIED_MAX_RANKS = 64  # with more of them on few hosts one evaluation takes long
_MAX_EXCHANGES, _EXCHANGES_BETWEEN_CHECKS = 20_000, 256
_MIN_EVALUATED_ROTATIONS = 1024  # even after the deadline
_START_PERTURBATIONS_PER_HOST = 100  # for a ring that only is a start order
_BOUND_SHARE = 0.25  # of the time with a deadline: what the bounds before the search may take
_EPSILON = 1e-9
SAME_COST = "all orders cost the same"
_MAX_SIZE_SEQUENCES = 12  # of groups of different sizes, tried by a short search each
_PERMUTED_GROUPS, _DRAWN_SEQUENCES = 6, 60  # of more groups, random sequences
_SEQUENCE_MOVES, _SEQUENCE_SHARE = 20_000, 4  # of a short search at most; all together have one part in four


def search(problem: OrderingProblem, seed: int, budget: SearchBudget) -> OrderingResult:
    """Search for the cheapest feasible order; the result is never worse than a feasible baseline.

    Groups of different sizes may follow each other in any sequence: short searches choose one of up to 12 sequences of
    sizes. Two-level aggregation keeps the baseline's, because its groups are groups of ranks.

    :raises UsageError: for an unknown algorithm, model or objective, or options that exclude each other.
    :raises NoAnswer: for a pair that was not measured, or constraints that no order meets.
    """
    return _search(problem.without_overhead(), seed, budget).plus(problem.overhead_us)


def or_cheaper(problem: OrderingProblem, result: OrderingResult, order: Order) -> OrderingResult:
    """Return the result of a search with this feasible order in it, where that costs less."""
    cost = _cost_function(problem, result.objective)(order)
    if cost >= result.cost * (1 - _EPSILON):
        return result
    others = {"bottleneck": longest_hop(problem.fabric.rtt_us, order), "sum": _cost_function(problem, "sum")(order)}
    metrics = {name: others.get(name, value) for name, value in result.metrics.items()}  # the rest are bounds
    return replace(result, order=order, cost=cost, metrics=metrics)


def _search(problem: OrderingProblem, seed: int, budget: SearchBudget) -> OrderingResult:
    baselines = _baselines_by_size_sequence(problem, seed)
    if len(baselines) == 1:
        return _search_in_sequence(problem, seed, budget)
    moves = max(1, min(_SEQUENCE_MOVES, budget.max_moves // (_SEQUENCE_SHARE * len(baselines))))
    short = SearchBudget(moves, budget.keep_going, exhaustive=False, stopped=budget.stopped)
    problems = [replace(problem, baseline=baseline) for baseline in baselines]
    tried = [_search_in_sequence(candidate, seed, short) for candidate in problems]
    best = int(np.argmin([result.cost for result in tried]))
    result, total = tried[best], sum(candidate.moves for candidate in tried)
    left = replace(budget, max_moves=max(1, budget.max_moves - total))
    longer = _search_in_sequence(problems[best], seed, left)
    total += longer.moves
    is_better = longer.cost <= result.cost
    result = longer if is_better else replace(result, lower_bound=longer.lower_bound, bound_by=longer.bound_by)
    start = tried[0]  # of the baseline's own sequence
    result = replace(result, baseline_cost=start.baseline_cost, random_median=start.random_median, moves=total)
    is_feasible = np.array_equal(problem.feasible.materialise(problem.hosts.tolist()), problem.baseline)
    if is_feasible and result.cost >= start.baseline_cost * (1 - _EPSILON):
        return replace(result, order=problem.baseline, cost=start.baseline_cost)
    return result


def _baselines_by_size_sequence(problem: OrderingProblem, seed: int) -> list[Order]:
    """Return the baseline, and feasible orders in which groups of other sizes come first, for up to 12 sequences."""
    feasible, algos = problem.feasible, [name for _, name in parts_of(problem.algo, problem.size_bytes, problem.fabric)]
    groups = feasible.host_groups
    is_ring = problem.is_latency_ring and is_rotation_enough(feasible)
    few = len(problem.hosts) <= _EXHAUSTIVE_SEARCH_MAX_HOSTS
    if groups is None or feasible.has_equal_groups or feasible.pinned_ranks or is_ring or "2lha" in algos or few:
        return [problem.baseline]
    sizes = [int(feasible.slots[group].sum()) for group in groups]
    baseline_groups = list(dict.fromkeys(feasible.group_of[host] for host in feasible.hosts))
    rng = np.random.default_rng(seed)
    few = len(groups) <= _PERMUTED_GROUPS
    others = (
        itertools.permutations(baseline_groups)
        if few
        else (rng.permutation(baseline_groups).tolist() for _ in range(_DRAWN_SEQUENCES))
    )
    sequences = {tuple(sizes[group] for group in baseline_groups): problem.baseline}
    for sequence in others:
        key = tuple(sizes[group] for group in sequence)
        if key not in sequences:
            members = [host for group in sequence for host in feasible.hosts if feasible.group_of[host] == group]
            sequences[key] = expand_slots(np.array(members, dtype=np.intp), feasible.slots)
        if len(sequences) == _MAX_SIZE_SEQUENCES:
            break
    return list(sequences.values())


def _search_in_sequence(problem: OrderingProblem, seed: int, budget: SearchBudget) -> OrderingResult:
    """Search in which groups of different sizes keep the baseline's sequence of sizes; see :func:`search`."""
    objective = _resolve_objective(problem)
    feasible, hosts, baseline = problem.feasible, problem.hosts, problem.baseline
    require_complete(problem.fabric.rtt_us[np.ix_(hosts, hosts)], [problem.fabric.names[i] for i in hosts.tolist()])
    cost_of = _cost_function(problem, objective)
    baseline_cost = cost_of(baseline)
    median = median_of_random(problem, cost_of, seed, budget.stopped)
    start = OrderingResult(baseline, baseline_cost, None, None, baseline_cost, median, 0, objective)
    as_ring = problem.is_latency_ring and (feasible.unconstrained or is_rotation_enough(feasible))
    if len(hosts) <= _EXHAUSTIVE_SEARCH_MAX_HOSTS and not as_ring and objective != "bottleneck":
        result = _search_exhaustively(problem, start, cost_of)
        if result is not None:
            return result
    if not budget.stopped():
        start = with_link_bound(start, problem, _share_of(budget.deadline, _BOUND_SHARE))
    if budget.stopped():
        order = feasible.materialise(hosts.tolist())
        return replace(start, order=order, cost=cost_of(order))
    if problem.algo in MIXED:
        return _search_mixed(problem, start, cost_of, seed, budget)
    pattern = pattern_for(problem.algo, len(baseline), problem.priced_options)
    if len(hosts) < 2 or (pattern.all_to_all_share and feasible.unconstrained):
        one_rank_each = len(hosts) == len(baseline)
        return replace(start, lower_bound=baseline_cost, bound_by=SAME_COST) if one_rank_each else start
    if as_ring:
        return search_ring_order(problem, start, cost_of, seed, budget)
    if pattern.all_to_all_share:
        order = feasible.materialise(hosts.tolist())
        return replace(start, order=order, cost=cost_of(order), lower_bound=baseline_cost, bound_by=SAME_COST)
    if objective == "bottleneck":
        raise UsageError(
            "--objective bottleneck: allows at most one --pin, and none where hosts have different numbers of slots"
        )
    return _anneal(problem, pattern, start, cost_of, seed, budget)


def _share_of(deadline: float | None, share: float) -> Callable[[], bool]:
    """Return whether there is time, of which only so much may be used; always where there is no deadline."""
    now = time.monotonic()
    end = np.inf if deadline is None else now + share * (deadline - now)
    return lambda: time.monotonic() < end


def _search_exhaustively(
    problem: OrderingProblem, start: OrderingResult, cost_of: CostFunction
) -> OrderingResult | None:
    """Return the cheapest of all feasible orders of few hosts, the baseline if it is as cheap; None: that takes long.

    No clock ends it, so that it is found however busy the machine is.
    """
    feasible, few_hosts = problem.feasible, problem.hosts.tolist()
    nearest = feasible.materialise(few_hosts)
    is_feasible = np.array_equal(nearest, problem.baseline)
    few = len(few_hosts) <= _TRIED_MAX_HOSTS and len(nearest) <= _TRIED_MAX_RANKS
    if few and feasible.has_equal_groups:
        orders = {order.tobytes(): order for order in map(feasible.materialise, itertools.permutations(few_hosts))}
        costs = [cost_of(order) for order in orders.values()]
        best, moves = list(orders.values())[int(np.argmin(costs))], len(costs)
    else:
        names = [name for _, name in parts_of(problem.algo, problem.size_bytes, problem.fabric)]
        if any(pattern_for(name, len(nearest), problem.priced_options).all_to_all_share for name in names):
            return None
        cheapest = cheapest_order(problem, nearest, cost_of(nearest))
        if not cheapest.is_optimal:
            return None
        best, moves = cheapest.order, cheapest.moves
    cost = cost_of(best)
    bound = cost
    if is_feasible and start.baseline_cost <= cost * (1 + _EPSILON):
        best, cost = problem.baseline, start.baseline_cost
    result = replace(start, order=best, cost=cost, moves=moves)
    if "2lha" in problem.algo and not feasible.has_equal_groups:  # the baseline's sequence of sizes alone was tried
        return with_link_bound(result, problem)
    return replace(result, lower_bound=bound, bound_by="all orders")


def median_of_random(
    problem: OrderingProblem, cost_of: CostFunction, seed: int, stopped: Callable[[], bool] = lambda: False
) -> float | None:
    """Return the median cost of 201 random orders; of fewer where they take seconds, or the search is stopped."""
    slots = np.bincount(problem.baseline, minlength=len(problem.fabric.names))
    number = affordable_orders(RANDOM_ORDERS, problem.hops)
    orders = itertools.islice(random_orders(np.sort(problem.hosts), slots, seed), number)
    return median_cost([cost_of(order) for order in itertools.takewhile(lambda _: not stopped(), orders)])


def _resolve_objective(problem: OrderingProblem) -> str:
    objective = problem.objective
    if objective not in OBJECTIVES:
        raise no_choice("--objective", objective, OBJECTIVES)
    if objective in ("sum", "bottleneck"):
        if problem.algo not in RINGS:
            raise UsageError(f"--objective {objective} is for rings ({', '.join(RINGS)}), not for {problem.algo}")
        if problem.model != "latency":
            raise UsageError(f"--objective {objective} uses round trips only; omit --model {problem.model}")
        return objective
    return "sum" if objective == "auto" and problem.is_latency_ring else "time"


def _cost_function(problem: OrderingProblem, objective: str) -> CostFunction:
    fabric = problem.fabric
    if objective == "bottleneck":
        return lambda order: longest_hop(fabric.rtt_us, order)
    return cost_function_for(
        problem.algo, len(problem.baseline), problem.options, fabric, problem.size_bytes, problem.model
    )


def _search_mixed(
    problem: OrderingProblem, start: OrderingResult, cost_of: CostFunction, seed: int, budget: SearchBudget
) -> OrderingResult:
    """Search for the order of an algorithm that uses a tree for small and a ring for large messages.

    Where only one of them has a weight, the search is for that one. Else the best order of each is a candidate, and so
    are the rotations and reflections of the ring, which cost the ring the same and the tree not; the candidate of the
    lowest cost of both together is improved by exchanges of two hosts.
    """
    names = [name for _, name in parts_of(problem.algo, problem.size_bytes, problem.fabric)]
    if len(names) == 1:
        return replace(search(replace(problem, algo=names[0]), seed, budget), objective=start.objective)
    each = replace(budget, max_moves=max(1, budget.max_moves // (len(names) + 1)))  # the rest is for what follows
    results = [search(replace(problem, algo=name), seed, each) for name in names]
    moves, materialise = sum(result.moves for result in results), problem.feasible.materialise
    ring = np.array(list(dict.fromkeys(results[-1].order.tolist())), dtype=np.intp)
    rotations = [np.roll(direction, -k) for direction in (ring, ring[::-1]) for k in range(len(ring))]
    best = materialise(problem.hosts.tolist())
    best_cost = cost_of(best)
    orders = [result.order for result in reversed(results)]
    searched = moves
    for k, order in enumerate((*orders, *(materialise(rotation.tolist()) for rotation in rotations))):
        if k >= len(orders):
            if moves >= budget.max_moves or budget.stopped():
                break
            moves = searched + k - len(orders) + 1
        # The searches may have used all the time; a second for the rotations is worth it.
        if k >= _MIN_EVALUATED_ROTATIONS and not budget.keep_going(SearchProgress(best_cost, None, moves)):
            break
        cost = cost_of(order)
        if cost < best_cost:
            best, best_cost = order, cost
    if problem.feasible.unconstrained and len(problem.hosts) == len(best):
        best, best_cost, tried = _exchanged(
            best, best_cost, cost_of, replace(budget, max_moves=budget.max_moves - moves)
        )
        moves += tried
    return replace(start, order=best, cost=best_cost, moves=moves)


def _exchanged(order: Order, cost: float, cost_of: CostFunction, budget: SearchBudget) -> tuple[Order, float, int]:
    """Exchange pairs of hosts as long as that lowers the cost, with a bounded number of evaluations; return the order,
    its cost and that number."""
    pairs, most, done = list(itertools.combinations(range(len(order)), 2)), min(_MAX_EXCHANGES, budget.max_moves), 0
    improved = True
    while improved:
        improved = False
        for a, b in pairs:
            is_checked = done % _EXCHANGES_BETWEEN_CHECKS == 0
            if done >= most or (is_checked and not budget.keep_going(SearchProgress(cost, None, done))):
                return order, cost, done
            done += 1
            candidate = order.copy()
            candidate[[a, b]] = candidate[[b, a]]
            candidate_cost = cost_of(candidate)
            if candidate_cost < cost * (1 - _EPSILON):
                order, cost, improved = candidate, candidate_cost, True
    return order, cost, done


def _anneal(
    problem: OrderingProblem,
    pattern: Pattern,
    start: OrderingResult,
    cost_of: CostFunction,
    seed: int,
    budget: SearchBudget,
) -> OrderingResult:
    """Search by simulated annealing from several start orders."""
    bound_by = "1-tree" if problem.is_latency_ring else "rounds"
    start = start.with_bound(_lower_bound(problem, pattern), bound_by)
    starts = _start_orders(problem, cost_of, seed, budget)
    # A pipeline's steady state ranks its orders as all of its rounds do, which are eight times as many hops.
    searched = pattern if problem.model == "latency" else in_slices(steady_state(pattern), problem.slices)
    annealer = Annealer(searched, problem.fabric, problem.size_bytes, problem.model)
    ranked_by = cost_of if problem.slices == 1 else annealer.cost_of
    # Moves exchange blocks of ranks: only orders whose hosts and groups begin at the same ranks can share them.
    classes = problem.feasible.exchange_classes(min(starts, key=cost_of))
    same_blocks = [order for order in starts if problem.feasible.exchange_classes(order) == classes]
    target = start.lower_bound if searched is pattern else None
    annealed = annealer.search(same_blocks, moves_of(classes, len(problem.baseline)), seed, budget, target)
    order = annealed.order if searched is pattern else min((annealed.order, *same_blocks), key=ranked_by)
    baseline_cost = ranked_by(problem.baseline)
    is_feasible = np.array_equal(starts[0], problem.baseline)
    if is_feasible and ranked_by(order) >= baseline_cost - _EPSILON * abs(baseline_cost):
        order = problem.baseline
    return replace(start, order=order, cost=cost_of(order), moves=annealed.moves)


def _start_orders(problem: OrderingProblem, cost_of: CostFunction, seed: int, budget: SearchBudget) -> list[Order]:
    """Return different feasible start orders; first the feasible order that is nearest to the baseline."""
    feasible, hosts = problem.feasible, problem.hosts
    preferences = [list(dict.fromkeys(order.tolist())) for order in initial_orders(problem.fabric, problem.baseline)]
    if problem.algo in RINGS and not budget.stopped():
        short = SearchBudget(_START_PERTURBATIONS_PER_HOST * len(hosts), budget.keep_going)
        rings = [search_ring(penalised_costs(problem)[0], seed, short).order]
        slowness = _slowness(problem)
        if (
            slowness is not None and not budget.stopped()
        ):  # the slowest hop counts, and single swaps do not find a ring without slow hops
            rings.append(search_bottleneck(slowness, seed, short).order)
        directions = [direction for ring in rings for direction in (hosts[ring].tolist(), hosts[ring].tolist()[::-1])]
        if feasible.pinned_ranks:  # the two rotations that cost least once pinned hosts are in place
            rotations = [ring[k:] + ring[:k] for ring in directions for k in range(len(ring))]
            directions = sorted(rotations, key=lambda ring: cost_of(feasible.materialise(ring)))[:2]
        preferences += directions
    if problem.options.mesh is not None:
        hosts_by_group = sorted_by_group(problem.fabric, problem.baseline)
        for sequence in axis_sequences(problem.options.mesh, len(problem.baseline)):
            preferences.append(hosts_by_group[np.argsort(sequence)].tolist())
    orders = [feasible.materialise(preference) for preference in preferences]
    return list({order.tobytes(): order for order in orders}.values())


def _slowness(problem: OrderingProblem) -> Matrix | None:
    """Return the time per byte between hosts, both directions added, shape (H, H); None without rates of all pairs."""
    rates, hosts = problem.fabric.pair_gbps, problem.hosts
    if problem.model != "alpha-beta" or rates is None:
        return None
    rates = np.where(np.eye(len(hosts), dtype=bool), np.inf, rates[np.ix_(hosts, hosts)])
    return 1 / rates + 1 / rates.T if (rates > 0).all() else None


def _lower_bound(problem: OrderingProblem, pattern: Pattern) -> float | None:
    """Return a lower bound of every order's cost; None where hosts have several ranks, but for rings."""
    baseline, fabric = problem.baseline, problem.fabric
    ranks = len(baseline)
    if problem.is_latency_ring:
        return ring_lower_bound(problem)
    if len(problem.hosts) < ranks:
        return None
    bound = pattern_bound(pattern, fabric, problem.size_bytes, problem.model, baseline)
    base = problem.options.base if problem.algo == "bcube" else 2
    rounds = round(np.log(ranks) / np.log(base))
    if problem.model == "latency" and problem.algo in _HYPERCUBES and base**rounds == ranks:
        bound = max(bound, hypercube_bound(fabric.rtt_us[np.ix_(baseline, baseline)], base, rounds))
    return bound
