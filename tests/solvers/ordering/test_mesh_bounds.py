"""Bounds of meshes: never above the cheapest of all orders, by rounds and as simulated; exact where hosts are alike."""

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.model.mesh import make_mesh
from solvers.costs.by_name import cost_function_for
from solvers.costs.fabric import Fabric, TierLinks
from solvers.ordering.bounds import CUTS, link_bound
from solvers.ordering.exact import ExactBudget, solve_exactly
from solvers.ordering.mesh_bounds import ASSIGNMENT, assignment_bound
from solvers.ordering.problem import OrderingProblem, SearchBudget
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import SimulatedCost

MESHES = (
    ("pp=2,dp=3", "pp=p2p:16MB*8", "dp=all-reduce:300MB"),
    ("pp=3,dp=2", "pp=p2p:64MB*8", "dp=reduce-scatter:100MB,all-gather:100MB*2"),
    ("dp=3,ep=2", "ep=all-to-all:64MB*4", "dp=all-reduce/tree:100MB", "dp+ep=ring:8MB"),
    ("edp=2,cp=3", "cp=ring:32MB*2", "edp=all-reduce/halving-doubling:100MB@0.5"),
)
RACKS = ((3, 3), (2, 4), (1, 2, 3), (2, 2, 2), (6,))


def fabric_of_racks(sizes: tuple[int, ...], seed: int, alike: bool = False, pods: bool = False) -> Fabric:
    """Racks of these sizes whose links are oversubscribed at random; unless ``alike``, hosts' rates and round trips
    differ. ``pods``: the first rack is one, the others are another."""
    rng, n = np.random.default_rng(seed), sum(sizes)
    rack_of = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    pod_of = (rack_of > 0).astype(np.intp)
    tier = np.where(rack_of[:, None] == rack_of, 30.0, np.where(pod_of[:, None] == pod_of, 90.0, 150.0))
    rtt = np.triu(tier * (1.0 if alike else rng.uniform(0.8, 1.3, (n, n))), 1)
    out, into = (np.full(n, 10.0) if alike else rng.uniform(8, 12, n) for _ in range(2))
    rack_out, rack_in = (np.bincount(rack_of) * 10 / rng.uniform(1.5, 6, len(sizes)) for _ in range(2))
    outer = (TierLinks(pod_of, *(np.bincount(pod_of) * rng.uniform(2, 6, pod_of.max() + 1) for _ in range(2))),)
    names = tuple(f"h{k}" for k in range(n))
    tiers = outer if pods else ()
    return Fabric(names, rtt + rtt.T, None, out, into, rack_of, rack_out, rack_in, "measured", outer_tiers=tiers)


def problem_of(words: tuple[str, ...], fabric: Fabric, slots: int = 1) -> OrderingProblem:
    options = Options(mesh=make_mesh(words[0], words[1:]))
    baseline = np.repeat(np.arange(len(fabric.names)), slots)
    return OrderingProblem(fabric, baseline, "mesh", options, 1.0, "contention")


def keep_going() -> bool:
    return True


@settings(max_examples=25)
@given(st.sampled_from(MESHES), st.sampled_from(RACKS), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_no_bound_is_above_the_cheapest_of_all_orders(
    words: tuple[str, ...], racks: tuple[int, ...], seed: int, alike: bool, pods: bool
) -> None:
    problem = problem_of(words, fabric_of_racks(racks, seed, alike, pods))
    orders = [np.array(order) for order in itertools.permutations(range(6))]
    for model in ("contention", "alpha-beta"):
        task = replace(problem, model=model)
        cost_of = cost_function_for("mesh", 6, task.options, task.fabric, 1.0, model)
        best = min(map(cost_of, orders))
        quick = link_bound(task)
        assert quick is not None
        assert 0 < quick <= best
        assert search(task, 0, SearchBudget(1000)).cost == pytest.approx(best)
        if model == "contention":
            bound = assignment_bound(task, best, None, keep_going)
            assert quick <= bound * (1 + 1e-9)
            assert bound <= best * (1 + 1e-9)
            if alike:  # all hosts of a rack are alike: their assignment is all that counts
                assert bound == pytest.approx(best)


@pytest.mark.extended
@pytest.mark.parametrize("words", MESHES)
@pytest.mark.parametrize("racks", RACKS)
def test_no_bound_is_above_the_cheapest_simulation(words: tuple[str, ...], racks: tuple[int, ...]) -> None:
    problem = replace(problem_of(words, fabric_of_racks(racks, len(racks), pods=True)), model="simulated")
    cost_of = SimulatedCost.of("mesh", 6, problem.options, problem.fabric, 1.0)
    best = min(cost_of(np.array(order)) for order in itertools.permutations(range(6)))
    quick, bound = link_bound(problem), assignment_bound(problem, best, None, keep_going)
    assert quick is not None
    assert 0 < quick <= bound * (1 + 1e-9)
    assert bound <= best * (1 + 1e-9)
    if not any("tree" in word for word in words):  # that messages of trees wait for each other is not counted
        assert bound >= 0.85 * best


def test_search_for_assignments_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(MESHES[0], fabric_of_racks((1, 2, 3), 1, pods=True))
    whole = assignment_bound(problem, np.inf, None, keep_going)
    monkeypatch.setattr("solvers.ordering.mesh_bounds._SLICE_STEPS", 1)
    assert assignment_bound(problem, np.inf, None, keep_going) == 0  # the work that it may do is not enough
    assert assignment_bound(problem, np.inf, 60.0, keep_going) == whole > 0
    assert assignment_bound(problem, whole / 2, 60.0, keep_going) == whole / 2


def test_sets_of_many_blocks_are_bounded_by_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, words in enumerate(MESHES):
        problem = problem_of(words, fabric_of_racks((2, 4), number, pods=True))
        exact = link_bound(problem)
        with monkeypatch.context() as patch:
            patch.setattr("solvers.ordering.mesh_bounds._MAX_CUT_STEPS", 0)
            clusters = link_bound(problem)
        assert exact is not None
        assert clusters is not None
        assert 0 < clusters <= exact * (1 + 1e-9)


def test_several_ranks_a_host_have_the_bound_of_their_blocks() -> None:
    fabric = fabric_of_racks((2, 4), 3)
    words = ("pp=2,dp=3,tp=2", "pp=p2p:16MB*8", "dp=all-reduce:300MB", "tp=all-reduce:1GB")
    bounds = [link_bound(problem_of(words, fabric, slots)) for slots in (1, 2)]
    assert bounds[0] is not None
    assert bounds[0] == pytest.approx(bounds[1])


def test_mesh_within_hosts_costs_nothing() -> None:
    problem = problem_of(("dp=6,tp=2", "tp=all-reduce:1GB"), fabric_of_racks((2, 4), 3))
    assert link_bound(problem) == 0


def test_searched_order_is_proven_by_assignments() -> None:
    words = ("pp=3,dp=2,ep=2", "pp=p2p:16MB*8", "dp=all-reduce:300MB", "ep=all-to-all:64MB*4")
    problem = problem_of(words, fabric_of_racks((3, 4, 5), 4, alike=True))
    result = search(problem, 0, SearchBudget(20_000))
    assert result.bound_by in (CUTS, "rounds")
    proven = solve_exactly(problem, result, 0, ExactBudget(20.0, keep_going))
    assert (proven.is_optimal, proven.bound_by, proven.cost) == (True, ASSIGNMENT, result.cost)


def test_proof_ends_when_it_is_stopped() -> None:
    words = ("pp=4,dp=4,cp=2", "pp=p2p:16MB*8", "dp=all-reduce:300MB", "cp=ring:32MB")
    problem = problem_of(words, fabric_of_racks((5, 7, 9, 11), 5, pods=True))
    result = search(problem, 0, SearchBudget(100))
    request = 0

    def stops_at_once() -> bool:
        nonlocal request
        request += 1
        return request <= 2

    began = time.monotonic()
    stopped = solve_exactly(problem, result, 0, ExactBudget(600.0, stops_at_once))
    assert (stopped.cost, stopped.lower_bound) == (result.cost, result.lower_bound)
    assert time.monotonic() - began < 100
