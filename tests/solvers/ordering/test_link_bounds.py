"""Bounds by links: no order is faster, whatever executes it; and what meets them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from solvers.costs.by_name import NAMES, SIMULATED, cost_function_for, parts_of, pattern_for
from solvers.costs.fabric import BYTES_PER_US, Fabric, TierLinks
from solvers.ordering.bounds import LINKS, least_leaving, link_bound
from solvers.ordering.problem import Order, OrderingProblem, SearchBudget, expand_slots
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.segmentation import options_at
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.cost import cost_by_model
from solvers.simulation.job import CapacityChanges
from tests.solvers.costs.test_cost_models import fabric, fitting, options_for
from tests.solvers.costs.test_interfaces import GBPS, bcube
from tests.solvers.simulation.collectives import simulate_collective
from tests.solvers.simulation.jobs import Task, plain_ends

ORDERS = 6


def some_network(algo: str, seed: int) -> tuple[OrderingProblem, list[Order]]:
    """2 to 7 hosts, some with several slots, under one or two tiers or with two interfaces each, and their orders."""
    rng = np.random.default_rng((seed, NAMES.index(algo)))
    hosts = int(rng.integers(2, 8))
    if rng.random() < 0.2:
        hosts, result = 4, bcube(2, 2)
    else:
        result = fabric(hosts, seed, int(rng.integers(1, 4)), pairs=rng.random() < 0.4)
        above = rng.integers(0, 2, len(result.group_out_gbps))[result.group_of]
        tier = TierLinks(above, rng.uniform(1, 10, 2), rng.uniform(1, 10, 2))
        result = replace(result, outer_tiers=(tier,) if rng.random() < 0.5 else ())
    slots = rng.integers(1, 4, hosts) if rng.random() < 0.3 else np.full(hosts, int(rng.integers(1, 3)))
    while fitting(algo, int(slots.sum())) != slots.sum():  # a power of two
        slots[rng.choice(np.flatnonzero(slots == slots.min()))] += 1
    result = replace(result, overhead_us=float(rng.choice([0.0, 50.0])))
    ranks = int(slots.sum())
    problem = OrderingProblem(
        result, expand_slots(np.arange(hosts), slots), algo, options_for(algo, ranks, seed),
        float(rng.choice([1e3, 1e5, 1e7, 1e8])), SIMULATED,
    )  # fmt: skip
    all_orders = list(itertools.permutations(range(hosts)))
    chosen = rng.choice(len(all_orders), min(ORDERS, len(all_orders)), replace=False)
    return problem, [expand_slots(np.array(all_orders[k], dtype=np.intp), slots) for k in chosen]


@pytest.mark.parametrize("algo", NAMES)
@pytest.mark.parametrize("seed", range(20))
def test_no_order_is_faster(algo: str, seed: int) -> None:
    """By rounds, one port, the simulation, and that of ranks that send as soon as their data are there."""
    problem, orders = some_network(algo, seed)
    args = algo, len(problem.baseline), problem.options, problem.fabric, problem.size_bytes
    options = options_at(problem.options, algo, problem.size_bytes)
    parts = [
        (weight, schedule_for(name, args[1], options))
        for weight, name in parts_of(algo, problem.size_bytes, problem.fabric)
    ]

    def eagerly(order: Order) -> float:
        args = problem.fabric, order, problem.size_bytes
        return sum(weight * simulate_collective(part, *args, lockstep=False).makespan_us for weight, part in parts)

    executions = {
        "alpha-beta": [cost_function_for(*args, "alpha-beta")],
        "contention": [cost_function_for(*args, "contention")],
        SIMULATED: [cost_by_model(*args, SIMULATED), eagerly],
    }
    for model, costs in executions.items():
        bound = link_bound(replace(problem, model=model))
        assert bound is not None
        assert 0 < bound <= min(cost(order) for cost in costs for order in orders)


@pytest.mark.parametrize("seed", range(8))
def test_a_plain_simulator_is_not_faster(seed: int) -> None:
    for algo in ("ring", "halving-doubling", "tree", "2lha"):
        problem, orders = some_network(algo, seed)
        schedule = schedule_for(algo, len(orders[0]), options_at(problem.options, algo, problem.size_bytes))
        resources, tasks = PreparedCollective.of(schedule, lockstep=False).job(
            problem.fabric, orders[0], problem.size_bytes
        )
        offsets, needed = tasks.after
        rows = [
            Task(int(tasks.route[k]), float(tasks.amount[k]), float(tasks.lead_us[k]), float(tasks.lag_us[k]),
                 needed[offsets[k] : offsets[k + 1]].tolist(), int(tasks.queue[k]), int(tasks.priority[k]))
            for k in range(min(len(tasks), 150))
        ]  # fmt: skip
        if len(rows) == len(tasks):
            bound = link_bound(problem)
            assert bound is not None
            assert bound <= max(plain_ends(resources, rows, CapacityChanges()))


def slow_groups(hosts: int, groups: int, host_gbps: float, group_gbps: float) -> Fabric:
    """Equal groups of hosts, without round trips."""
    rates, links, names = np.full(hosts, host_gbps), np.full(groups, group_gbps), tuple(map(str, range(hosts)))
    group_of = np.arange(hosts) * groups // hosts
    return Fabric(names, np.zeros((hosts, hosts)), None, rates, rates, group_of, links, links, "measured")


@pytest.mark.parametrize(
    ("algo", "hosts", "groups", "crossing"),
    [("ring", 12, 4, 2 * 11 / 12), ("gloo", 12, 3, 2 * 11 / 12), ("flat", 12, 4, 2 * 9 * 3 / 12),
     ("halving-doubling", 16, 4, 2 * 4 * (1 / 8 + 1 / 16)), ("halving-doubling", 16, 2, 1.0),
     ("recursive-doubling", 16, 4, 8.0), ("lightgbm", 16, 4, 2 * 4 * (1 / 8 + 1 / 16)),
     ("bcube", 9, 3, 2 * 3 * 2 / 9), ("2lha", 12, 3, 2 * 2 / 3), ("tree", 15, 1, 0.0), ("ps", 12, 4, 2 * 9 * 3 / 12)],
)  # fmt: skip
@pytest.mark.parametrize("model", ["contention", SIMULATED])
def test_links_of_groups_are_what_the_best_order_needs(
    algo: str, hosts: int, groups: int, crossing: float, model: str
) -> None:
    """Hosts so fast that only the links of groups take time: an order by groups takes what the bound says.

    ``crossing``: how often the vector leaves a group at least, worked out by hand.
    """
    options = Options(base=3, groups=np.arange(hosts).reshape(groups, -1).tolist())
    result = slow_groups(hosts, groups, 1e7, 1.0)
    problem = OrderingProblem(result, np.arange(hosts), algo, options, 1e6, model)
    bound = link_bound(problem)
    assert bound == pytest.approx(crossing * 1e6 / BYTES_PER_US, rel=1e-3, abs=1.0)
    cost = cost_by_model(algo, hosts, options, result, 1e6, SIMULATED)
    in_blocks = np.arange(hosts).reshape(groups, -1)  # or, where far ranks exchange most, every other rank
    assert bound <= min(cost(in_blocks.ravel()), cost(in_blocks.T.ravel())) <= bound * 1.001 + 5


def test_hosts_that_send_least_may_be_the_slowest() -> None:
    """Parameter servers apart: a worker sends and receives the vector once, each of two servers that of three."""
    options, rates = Options(colocated=False, servers=2), np.array([1.0, 3.0, 2.0, 1.5, 1.2])
    result = replace(slow_groups(5, 1, 1.0, np.inf), host_out_gbps=rates, host_in_gbps=rates)
    problem = OrderingProblem(result, np.arange(5), "ps", options, 1e6, SIMULATED)
    # The servers, ranks 3 and 4, are the fastest hosts: 1.5 vectors at 2 Gbit/s; a worker's at 1 Gbit/s takes longer.
    assert link_bound(problem) == pytest.approx(1e6 / BYTES_PER_US)
    slower = replace(result, host_out_gbps=rates - 0.9, host_in_gbps=rates)
    assert link_bound(replace(problem, fabric=slower)) == pytest.approx(1e6 / 0.1 / BYTES_PER_US)


@pytest.mark.parametrize("model", ["alpha-beta", "contention", SIMULATED])
def test_ring_of_equal_hosts_meets_its_bound(model: str) -> None:
    """2(N-1) messages of 1/N of the vector, each half a round trip: no bandwidth is shared."""
    result = replace(slow_groups(6, 1, 1.0, np.inf), rtt_us=100.0 * ~np.eye(6, dtype=bool))
    problem = OrderingProblem(result, np.arange(6), "nccl-ring", Options(), 1e6, model)
    expected = 10 * (50 + 1e6 / 6 / BYTES_PER_US)
    assert cost_by_model("nccl-ring", 6, Options(), result, 1e6, model)(np.arange(6)) == pytest.approx(expected)
    assert link_bound(problem) == pytest.approx(expected)
    if model == SIMULATED:  # in three slices
        in_slices = 10 * (50 / 3 + 1e6 / 6 / BYTES_PER_US)
        assert cost_by_model("ring", 6, Options(), result, 1e6, model)(np.arange(6)) == pytest.approx(in_slices)
        assert link_bound(replace(problem, algo="ring")) == pytest.approx(in_slices)


def test_ring_by_rounds_is_proven_by_links_and_latencies() -> None:
    """Racks one after the other, each of which is left once; all round trips are the same."""
    result = slow_groups(12, 3, 10.0, np.inf)
    result = replace(result, rtt_us=50.0 * ~np.eye(12, dtype=bool), group_out_gbps=np.array([5.0, 1.0, 5.0]))
    scattered = np.random.default_rng(0).permutation(12)
    problem = OrderingProblem(result, scattered, "ring", Options(), 1e6, "contention")
    best = search(problem, 0, SearchBudget(20_000, lambda _: True))
    assert (best.is_optimal, best.bound_by) == (True, LINKS)


def test_ring_has_a_slow_hop_into_each_group() -> None:
    """Pairs of different groups get a tenth: some hop of any ring is one, and carries nearly the vector twice."""
    result = slow_groups(6, 2, 10.0, np.inf)
    pairs = np.where(result.group_of[:, None] == result.group_of, 10.0, 1.0)
    problem = OrderingProblem(replace(result, pair_gbps=pairs), np.arange(6), "ring", Options(), 1e6, SIMULATED)
    assert link_bound(problem) == pytest.approx(10 / 6 * 1e6 / BYTES_PER_US)


def test_interfaces_of_a_bcube_meet_the_bound() -> None:
    result = bcube(3, 2)
    problem = OrderingProblem(replace(result, rtt_us=0 * result.rtt_us), np.arange(9), "bml", Options(base=3), 1e6,
                              SIMULATED)  # fmt: skip
    expected = 2 * 8 / 9 / 2 * 1e6 / (GBPS * BYTES_PER_US)  # all of what a host sends, over both of its interfaces
    assert link_bound(problem) == pytest.approx(expected)
    cost = cost_by_model("bml", 9, Options(base=3), problem.fabric, 1e6, SIMULATED)(np.arange(9))
    assert cost == pytest.approx(expected)


def leaving(sent: np.ndarray) -> list[float]:
    """The least that leaves sets of 0, 1, 2, ... units, by trying all of them."""
    n = len(sent)
    sets = [np.array(which) for which in itertools.product([False, True], repeat=n)]
    return [min(sent[np.ix_(which, ~which)].sum() for which in sets if which.sum() == k) for k in range(n + 1)]


@pytest.mark.parametrize(
    ("algo", "ranks", "options"),
    [("ring", 10, {}), ("halving-doubling", 8, {}), ("recursive-doubling", 8, {}), ("lightgbm", 8, {}),
     ("flat", 9, {}), ("ps", 9, {"sharded": False}), ("ps", 9, {"colocated": False, "servers": 3})],
)  # fmt: skip
def test_least_that_leaves_a_set_of_ranks(algo: str, ranks: int, options: dict[str, object]) -> None:
    pattern = pattern_for(algo, ranks, Options(**options))  # type: ignore[arg-type]
    sent = np.zeros((ranks, ranks))
    if pattern.all_to_all_share:
        sent += 2 * pattern.all_to_all_share * ~np.eye(ranks, dtype=bool)
    np.add.at(sent, (pattern.source, pattern.target), pattern.share * pattern.repeat[pattern.round])
    source, target = np.nonzero(sent)
    least = least_leaving((source, target, sent[source, target]), ranks, 1.0)
    assert least == pytest.approx(leaving(sent))


@pytest.mark.parametrize("seed", range(10))
def test_no_set_of_ranks_sends_less(seed: int) -> None:
    """Whatever a schedule sends, as long as every rank's sums reach all others."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    sent = rng.uniform(1, 5, (n, n)) * (rng.random((n, n)) < 0.5)
    sent[np.arange(n), np.roll(np.arange(n), 1)] += 1.0  # a ring: something of each chunk leaves every set
    np.fill_diagonal(sent, 0.0)
    source, target = np.nonzero(sent)
    least = least_leaving((source, target, sent[source, target]), n, 1.0)
    assert (least <= np.array(leaving(sent)) + 1e-9).all()
