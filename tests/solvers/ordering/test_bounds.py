"""Lower bounds of patterns: no order costs less; written out a second time round by round, host by host."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.costs.by_name import cost_function_for, pattern_for
from solvers.costs.evaluator import MODELS
from solvers.costs.patterns import Pattern
from solvers.ordering.bounds import hypercube_bound, pattern_bound
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.instances import alike
from tests.solvers.synthetic import Matrix, random_costs

SIZE = 1e5


def component_sizes(rtt: Matrix, within: float) -> list[int]:
    """Of the hosts, with only pairs within a threshold joined."""
    left, sizes = set(range(len(rtt))), []
    while left:
        result = [left.pop()]
        for host in result:
            near = {other for other in left if rtt[host, other] <= within}
            left -= near
            result += near
        sizes.append(len(result))
    return sizes


def written_out(rtt: Matrix, base: int, rounds: int) -> float:
    """Of each number of rounds the least threshold that leaves everyone as many partners and every component a
    multiple of the block."""
    total = 0.0
    for j in range(1, rounds + 1):
        for within in sorted(set(rtt[np.triu_indices(len(rtt), 1)].tolist())):
            partners = ((rtt <= within).sum(axis=1) - 1).min()
            if partners >= j * (base - 1) and all(size % base**j == 0 for size in component_sizes(rtt, within)):
                total += within
                break
    return total


SHAPES = st.sampled_from([(2, 1), (2, 2), (2, 3), (3, 1), (4, 1)])


@settings(max_examples=40)
@given(SHAPES | st.sampled_from([(2, 4), (3, 2), (4, 2)]), st.integers(0, 999), st.booleans(), st.booleans())
def test_hypercube_bound_by_partners_and_blocks(shape: tuple[int, int], seed: int, ties: bool, rack: bool) -> None:
    """Few different round trips and many, hosts anywhere and in racks of which some are no multiple of a block."""
    base, rounds = shape
    n = base**rounds
    rtt = random_costs(n, seed, 1, 4 if ties else 1000)
    if rack:
        rack_of = np.random.default_rng(seed).integers(0, 1 + n // 2, n) // base
        rtt = rtt + 2000.0 * (rack_of[:, None] != rack_of[None, :])
    assert hypercube_bound(rtt, base, rounds) == written_out(rtt, base, rounds)


@settings(max_examples=30)
@given(SHAPES, st.integers(0, 999))
def test_no_hypercube_costs_less_than_its_bound(shape: tuple[int, int], seed: int) -> None:
    """All orders of up to eight hosts, with many ties."""
    base, rounds = shape
    n = base**rounds
    rtt = random_costs(n, seed, 1, 6)
    cost_of = cost_function_for(
        "bcube", n, Options(base=base), dataclasses.replace(fabric(n), rtt_us=rtt), 1e6, "latency"
    )
    # Rank 0 may stand anywhere: hosts fixed there lose nothing by symmetry.
    best = min(cost_of(np.array((0, *order))) for order in itertools.permutations(range(1, n)))
    assert hypercube_bound(rtt, base, rounds) <= best + 1e-9


@settings(max_examples=40)
@given(
    st.sampled_from(["halving-doubling", "tree", "double-binary-tree", "nccl-tree", "recursive-doubling"]),
    st.sampled_from(MODELS),
    st.integers(4, 6),
    st.integers(0, 999),
)
def test_no_order_costs_less_than_the_bound_of_its_pattern(algo: str, model: str, n: int, seed: int) -> None:
    """All orders of four to six hosts, with many ties."""
    whole = dataclasses.replace(fabric(n, seed), rtt_us=random_costs(n, seed, 1, 6))
    cost_of = cost_function_for(algo, n, Options(), whole, 1e4, model)
    best = min(cost_of(np.array(order)) for order in itertools.permutations(range(n)))
    assert pattern_bound(pattern_for(algo, n, Options()), whole, 1e4, model, np.arange(n)) <= best * (1 + 1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_bound_of_identical_hosts_is_the_cost(model: str) -> None:
    """Also where ranks idle in some rounds, and where pairs are slower than their hosts."""
    for algo, n in (("halving-doubling", 8), ("bcube", 8), ("bml", 4), ("tree", 7), ("double-binary-tree", 8)):
        for pair_gbps in (None, np.full((n, n), 4.0)):
            result = dataclasses.replace(alike(100.0 * ~np.eye(n, dtype=bool)), pair_gbps=pair_gbps)
            pattern, cost_of = (
                pattern_for(algo, n, Options()),
                cost_function_for(algo, n, Options(), result, 1e6, model),
            )
            assert pattern_bound(pattern, result, 1e6, model, np.arange(n)) == pytest.approx(cost_of(np.arange(n)))


def partners(pattern: Pattern, number: int) -> list[int]:
    """How many other ranks each rank exchanges with in a round."""
    with_whom: list[set[int]] = [set() for _ in range(pattern.ranks)]
    for when, a, b in zip(pattern.round.tolist(), pattern.source.tolist(), pattern.target.tolist(), strict=True):
        if when == number:
            with_whom[a].add(b)
            with_whom[b].add(a)
    return [len(others) for others in with_whom]


@pytest.mark.parametrize("algo", ["halving-doubling", "2lha", "tree"])
def test_diagonal_does_not_count(algo: str) -> None:
    result = fabric(8, 1, pairs=True)
    pattern = pattern_for(algo, 8, Options(groups=[list(range(3)), list(range(3, 8))]))
    bound = pattern_bound(pattern, result, SIZE, "alpha-beta", np.arange(8))
    for itself in (math.nan, 0.0, math.inf, 3.0):
        assert result.pair_gbps is not None
        np.fill_diagonal(result.pair_gbps, itself)
        assert pattern_bound(pattern, result, SIZE, "alpha-beta", np.arange(8)) == bound > 0


def test_a_pair_whose_rate_is_not_known_may_be_fast() -> None:
    """What is sure is what the round trips take, and the hosts all of whose rates are known."""
    result = fabric(4, 1, pairs=True)
    unknown = dataclasses.replace(result, pair_gbps=np.full((4, 4), np.nan))
    pattern = pattern_for("halving-doubling", 4, Options())
    bound = pattern_bound(pattern, unknown, SIZE, "alpha-beta", np.arange(4))
    assert bound == pytest.approx(pattern_bound(pattern, unknown, 0.0, "alpha-beta", np.arange(4)))
