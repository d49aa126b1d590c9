"""Orders under constraints: pins, groups and hosts' blocks hold, and the result is the best of all allowed orders."""

import itertools

import numpy as np
import pytest

from plink.errors import UsageError
from solvers.costs.by_name import MIXED, cost_function_for
from solvers.costs.evaluator import MODELS
from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.problem import RINGS, OrderingProblem, SearchBudget
from solvers.ordering.ring import longest_hop
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.instances import alike, allowed_orders, given_order, is_allowed
from tests.solvers.synthetic import racks

ALGORITHMS = ["ring", "halving-doubling", "tree", "double-binary-tree", "nccl", "flat"]
SIZE = 4e6
MOVES = 60_000
PAIRS = [[0, 3], [1, 4], [2, 5]]
# Slots of the hosts, and what is wished.
EVEN = [
    ([1] * 6, PlacementConstraints({2: 0})),
    ([1] * 6, PlacementConstraints({4: 3})),
    ([1] * 6, PlacementConstraints({4: 0, 1: 5, 3: 2})),
    ([1] * 6, PlacementConstraints({}, PAIRS)),
    ([1] * 6, PlacementConstraints({}, [[5, 0, 2], [1, 3, 4]])),
    ([1] * 6, PlacementConstraints({}, [[0, 1, 2, 3, 4, 5]])),
    ([1] * 4, PlacementConstraints({}, [[k] for k in range(4)])),
    ([1] * 6, PlacementConstraints({4: 2}, PAIRS)),
    ([1] * 6, PlacementConstraints({4: 2, 1: 3, 0: 5}, PAIRS)),
    ([1] * 6, PlacementConstraints({5: 0}, [[0, 1, 2, 3, 4, 5]])),
    ([1] * 3, PlacementConstraints({0: 1, 1: 2, 2: 0})),
]
SLOTS = [
    ([2] * 5, PlacementConstraints()),
    ([2] * 5, PlacementConstraints({1: 4})),
    ([2] * 4, PlacementConstraints({1: 4, 0: 2})),
    ([3] * 4, PlacementConstraints({}, [[0, 2], [1, 3]])),
    ([2] * 4, PlacementConstraints({3: 2}, [[0, 2], [1, 3]])),
    ([2], PlacementConstraints({0: 0})),
]
UNEVEN = [
    ([3, 1, 2, 2, 1], PlacementConstraints()),
    ([3, 1, 2, 2, 1], PlacementConstraints({2: 0})),
    ([1, 2, 1, 2, 1, 1], PlacementConstraints({}, [[0, 1, 2], [3, 4, 5]])),
    ([1, 3, 2, 2], PlacementConstraints({}, [[0, 1], [2, 3]])),
    ([1, 3, 2, 2], PlacementConstraints({1: 0}, [[0, 1], [2, 3]])),
    ([1] * 6, PlacementConstraints({}, [[0, 4], [1, 2, 3], [5]])),
    ([1] * 6, PlacementConstraints({0: 0}, [[0, 1], [2, 3, 4], [5]])),
    ([1] * 6, PlacementConstraints({0: 0}, [[0], [1, 2, 3], [4], [5]])),
    ([1, 1, 1, 1, 2], PlacementConstraints({}, [[4, 0], [1, 2, 3]])),
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_best_of_all_that_are_allowed_is_found(algo: str, model: str) -> None:
    for k, (slots, constraints) in enumerate([*EVEN, *SLOTS]):
        if (k + len(algo) + len(model)) % 2:  # every algorithm under every model with half of the constraints
            continue
        results, values = fabric(len(slots), k), given_order(slots, k)
        cost_of = cost_function_for(algo, len(values), Options(), results, SIZE, model)
        costs = {order.tobytes(): cost_of(order) for order in allowed_orders(slots, constraints)}
        best = min(costs.values())
        result = search(
            OrderingProblem(results, values, algo, Options(), SIZE, model, constraints=constraints),
            k,
            SearchBudget(MOVES),
        )
        assert result.order.tobytes() in costs
        assert result.cost == pytest.approx(cost_of(result.order), rel=1e-9)
        assert result.baseline_cost == cost_of(values)
        assert result.lower_bound is None or result.lower_bound <= best * (1 + 1e-12)
        if values.tobytes() in costs:
            assert result.cost <= result.baseline_cost
        if algo not in MIXED:  # these take the best ring as it can be turned
            assert result.cost == pytest.approx(best)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("algo", "model"),
    [
        ("ring", "latency"),
        ("ring", "contention"),
        ("halving-doubling", "alpha-beta"),
        ("tree", "latency"),
        ("double-binary-tree", "contention"),
        ("nccl", "latency"),
        ("flat", "alpha-beta"),
    ],
)
def test_uneven_hosts_and_groups_keep_together_too(algo: str, model: str) -> None:
    """Not all of these orders are searched: which ranks make a host or a group hardly changes."""
    for k, (slots, constraints) in enumerate(UNEVEN):
        results, values = fabric(len(slots), k), given_order(slots, k)
        cost_of = cost_function_for(algo, len(values), Options(), results, SIZE, model)
        best = min(cost_of(order) for order in allowed_orders(slots, constraints))
        result = search(
            OrderingProblem(results, values, algo, Options(), SIZE, model, constraints=constraints),
            k,
            SearchBudget(5000),
        )
        assert is_allowed(result.order, slots, constraints)
        assert result.cost == pytest.approx(cost_of(result.order), rel=1e-9)
        assert best <= result.cost * (1 + 1e-9)
        assert result.lower_bound is None or result.lower_bound <= best * (1 + 1e-12)
        if is_allowed(values, slots, constraints):
            assert result.cost <= result.baseline_cost
        if algo in RINGS and model == "latency" and not constraints.pinned_ranks:
            assert result.cost == pytest.approx(best)


def test_the_shortest_longest_hop_under_constraints() -> None:
    """A ring can be turned to one pin; more is refused."""
    for slots, constraints in (*EVEN, *SLOTS, *UNEVEN):
        results, values = fabric(len(slots), 5), given_order(slots, 5)
        task = OrderingProblem(results, values, "ring", Options(), SIZE, "latency", "bottleneck", constraints)
        even = len(set(slots)) == 1
        apart = constraints.host_groups is not None and len(constraints.host_groups) > 1
        if len(slots) > 1 and (
            apart or len(constraints.pinned_ranks) > even or (constraints.pinned_ranks and constraints.host_groups)
        ):
            with pytest.raises(UsageError, match="--objective bottleneck"):
                search(task, 1, SearchBudget(MOVES))
            continue
        result = search(task, 1, SearchBudget(MOVES))
        assert is_allowed(result.order, slots, constraints)
        best = min(longest_hop(results.rtt_us, order) for order in allowed_orders(slots, constraints))
        assert result.cost == longest_hop(results.rtt_us, result.order) == best
        assert result.lower_bound is None or result.lower_bound <= best


@pytest.mark.extended
@pytest.mark.parametrize("algo", ["ring", "halving-doubling"])
def test_satisfied_constraints_cost_nothing(algo: str) -> None:
    """Racks as groups: the order without constraints would keep them together too."""
    rtt, rack_of = racks([8] * 4, 6)
    groups = [np.flatnonzero(rack_of == rack).tolist() for rack in range(4)]
    free, grouped, both = (
        search(
            OrderingProblem(alike(rtt), np.arange(32), algo, Options(), SIZE, "latency", constraints=constraints),
            1,
            SearchBudget(200_000),
        )
        for constraints in (
            PlacementConstraints(),
            PlacementConstraints({}, groups),
            PlacementConstraints({groups[2][0]: 0}, groups),
        )
    )
    assert free.cost == grouped.cost == both.cost
    assert is_allowed(both.order, [1] * 32, PlacementConstraints({groups[2][0]: 0}, groups))


@pytest.mark.extended
def test_a_ring_of_many_groups_enters_each_once() -> None:
    """Groups across racks, which a ring without constraints would not keep together."""
    rtt, _ = racks([15] * 4, 3)
    groups = [list(range(k, k + 5)) for k in range(0, 60, 5)]
    for slots in ([1] * 60, [1 + k % 3 for k in range(60)]):
        values = np.repeat(np.arange(60), slots)
        task = OrderingProblem(
            alike(rtt), values, "ring", Options(), SIZE, "latency", constraints=PlacementConstraints({}, groups)
        )
        result = search(task, 1, SearchBudget(20_000))
        assert is_allowed(result.order, slots, task.constraints)
        assert result.lower_bound is not None
        assert result.lower_bound <= result.cost < result.baseline_cost


def test_constraints_are_met_without_time() -> None:
    groups = [list(range(k, 40, 4)) for k in range(4)]
    for algo in ("ring", "tree", "nccl"):
        for constraints in (
            PlacementConstraints({}, groups),
            PlacementConstraints({7: 12}),
            PlacementConstraints({7: 12, 3: 4}),
            PlacementConstraints({7: 12}, groups),
        ):
            task = OrderingProblem(
                fabric(40, 2), np.arange(40), algo, Options(), SIZE, "latency", constraints=constraints
            )
            assert is_allowed(search(task, 1, SearchBudget(10**9, lambda _: False)).order, [1] * 40, constraints)


@pytest.mark.extended
@pytest.mark.parametrize("algo", ["halving-doubling", "tree"])
def test_groups_of_different_sizes_are_searched_in_any_sequence(algo: str) -> None:
    """Eight hosts in groups of 4, 2, 1 and 1: what the best of all sequences costs is found."""
    groups = [[0, 1, 2, 3], [4, 5], [6], [7]]
    values, options = fabric(8, 5), Options()
    problem = OrderingProblem(
        values, np.arange(8), algo, options, SIZE, "contention", constraints=PlacementConstraints({}, groups)
    )
    cost_of = cost_function_for(algo, 8, options, values, SIZE, "contention")
    costs: dict[tuple[int, ...], float] = {}
    for sequence in itertools.permutations(groups):
        orders = itertools.product(*(itertools.permutations(group) for group in sequence))
        cheapest = min(cost_of(np.array([host for group in order for host in group])) for order in orders)
        sizes = tuple(map(len, sequence))
        costs[sizes] = min(cheapest, costs.get(sizes, np.inf))
    result = search(problem, 0, SearchBudget(MOVES))
    assert result.cost == pytest.approx(min(costs.values()))
    assert result.cost == pytest.approx(cost_of(result.order))
    assert result.cost < costs[4, 2, 1, 1]
    assert result.baseline_cost == pytest.approx(cost_of(np.arange(8)))


def test_the_mix_keeps_to_its_moves() -> None:
    values = fabric(12, 3)
    problem = OrderingProblem(values, np.arange(12), "nccl", Options(), SIZE, "contention")
    for moves in (1, 30, 400):
        assert search(problem, 0, SearchBudget(moves)).moves <= max(2, moves)
