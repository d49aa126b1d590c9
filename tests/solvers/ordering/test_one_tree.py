"""The 1-tree bound: never above the cheapest ring, exact where a 1-tree is a ring, and candidates by its alpha."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ordering.one_tree import OneTree, candidates, one_tree
from tests.solvers.synthetic import Matrix, brute_force, random_costs

SEED = st.integers(0, 2**32 - 1)
_ROUNDING = 1e-12
HIGH = st.sampled_from([1, 2, 4, 1000])  # all zero, zeros and ones, many ties, hardly any


def always() -> bool:
    return True


def penalised(cost: Matrix, penalty: np.ndarray) -> Matrix:
    """Both ends pay; the diagonal is no edge."""
    made: Matrix = cost + penalty[:, None] + penalty[None, :]
    np.fill_diagonal(made, np.inf)
    return made


def length_of(edges: set[frozenset[int]], cost: Matrix) -> float:
    return float(sum(cost[tuple(edge)] for edge in edges))


def tree_edges(tree: OneTree) -> set[frozenset[int]]:
    return {frozenset((host, above)) for host, above in enumerate(tree.parent.tolist()) if above >= 0}


def least_tree_with(cost: Matrix, edge: frozenset[int] | None) -> float:
    """Kruskal's spanning tree, of all that contain an edge."""
    n = len(cost)
    pairs = sorted(map(frozenset, itertools.combinations(range(n), 2)), key=lambda pair: float(cost[tuple(pair)]))
    part, total = list(range(n)), 0.0
    for pair in ([edge] if edge is not None else []) + pairs:
        a, b = pair
        if part[a] != part[b]:
            total += float(cost[a, b])
            part = [part[a] if item == part[b] else item for item in part]
    return total


@settings(max_examples=50)
@given(st.integers(3, 8), SEED, HIGH)
def test_no_ring_is_cheaper_than_the_bound(n: int, seed: int, high: int) -> None:
    """Not metric, with ties and hops that cost nothing."""
    cost = random_costs(n, seed, high=high)
    assert 0 <= one_tree(cost, always).bound <= brute_force(cost) + _ROUNDING * cost.max()


@settings(max_examples=30)
@given(st.integers(4, 7), SEED, st.floats(1e-3, 1e6))
def test_nor_when_some_hosts_are_far_or_costs_are_of_another_size(n: int, seed: int, times: float) -> None:
    cost = random_costs(n, seed, 1, 9) * times
    cost[0, :] *= 1000
    cost[:, 0] *= 1000
    assert one_tree(cost, always).bound <= brute_force(cost) + _ROUNDING * cost.max()


@settings(max_examples=40)
@given(st.integers(3, 9), SEED, HIGH)
def test_the_bound_is_what_its_penalties_say(n: int, seed: int, high: int) -> None:
    """A spanning tree that is cheapest under the penalties, one more edge at a leaf, less the penalties twice."""
    cost = random_costs(n, seed, high=high)
    tree = one_tree(cost, always)
    with_penalties = penalised(cost, tree.penalty)
    edges = tree_edges(tree)
    assert sorted(tree.joined.tolist()) == list(range(n))
    assert len(edges) == n - 1
    assert length_of(edges, with_penalties) == pytest.approx(least_tree_with(with_penalties, None), abs=1e-6)
    leaves = [host for host in range(n) if sum(host in edge for edge in edges) == 1]
    extra = max(np.sort(with_penalties[leaf])[1] for leaf in leaves)
    bound = length_of(edges, with_penalties) + extra - 2 * tree.penalty.sum()
    assert tree.bound == pytest.approx(bound, abs=1e-6)


@settings(max_examples=40)
@given(st.integers(3, 9), SEED, HIGH)
def test_a_parent_joins_before_its_children(n: int, seed: int, high: int) -> None:
    tree = one_tree(random_costs(n, seed, high=high), always)
    when = np.argsort(tree.joined)
    root = int(tree.joined[0])
    assert tree.parent[root] == -1
    assert all(when[tree.parent[host]] < when[host] for host in range(n) if host != root)


@pytest.mark.parametrize("n", [3, 50])
def test_the_bound_is_exact_where_a_1_tree_is_a_ring(n: int) -> None:
    """Hosts on a circle, the hops along it cheap: without any penalty."""
    turned = np.random.default_rng(n).permutation(n)
    apart = np.abs(turned[:, None] - turned)
    cost = np.where(np.minimum(apart, n - apart) <= 1, 5.0, 50.0)
    np.fill_diagonal(cost, 0.0)
    assert one_tree(cost, always).bound == pytest.approx(5.0 * n, rel=1e-11)


@settings(max_examples=30)
@given(st.integers(3, 8), SEED, HIGH, st.integers(1, 10))
def test_candidates_cost_least_to_force_into_the_tree(n: int, seed: int, high: int, width: int) -> None:
    """alpha, from its definition: what the cheapest spanning tree costs more with the edge in it."""
    cost = random_costs(n, seed, high=high)
    tree = one_tree(cost, always)
    result = candidates(cost, tree, width)
    width = min(width, n - 1)
    assert result.shape == (n, width)
    with_penalties = penalised(cost, tree.penalty)
    least = least_tree_with(with_penalties, None)
    for host in range(n):
        others = [k for k in range(n) if k != host]
        alpha = {k: least_tree_with(with_penalties, frozenset((host, k))) - least for k in others}
        chosen = result[host].tolist()
        assert len(set(chosen)) == width
        assert host not in chosen
        assert [alpha[k] for k in chosen] == pytest.approx(sorted(alpha.values())[:width], abs=1e-6)
