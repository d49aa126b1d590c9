"""Lower bounds of patterns: no order costs less; written out a second time round by round, host by host."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.model.schedule import dependencies
from solvers.costs.by_name import cost_function_for, pattern_for
from solvers.costs.evaluator import MODELS, reduce_phase
from solvers.costs.fabric import BYTES_PER_US, Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.bounds import hypercube_bound, pattern_bound
from solvers.schedules.catalogue import Options, schedule_for
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.instances import alike
from tests.solvers.synthetic import Matrix, racks, random_costs

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


def test_racks_that_blocks_fit_into_are_crossed_only_by_the_other_rounds() -> None:
    """Two rounds inside racks of four at 40 us, one between them at 90; racks of six hold one round only."""
    assert hypercube_bound(racks([4, 4], 1)[0], 2, 3) == 40 + 40 + 90
    assert hypercube_bound(racks([6, 2], 1)[0], 2, 3) == 40 + 90 + 90
    assert hypercube_bound(racks([3, 3, 3], 1)[0], 3, 2) == 40 + 90


def partners(pattern: Pattern, number: int) -> list[int]:
    """How many other ranks each rank exchanges with in a round."""
    with_whom: list[set[int]] = [set() for _ in range(pattern.ranks)]
    for when, a, b in zip(pattern.round.tolist(), pattern.source.tolist(), pattern.target.tolist(), strict=True):
        if when == number:
            with_whom[a].add(b)
            with_whom[b].add(a)
    return [len(others) for others in with_whom]


def longest_hops(pattern: Pattern, rtt: Matrix) -> list[float]:
    """At least, of every round: where all ranks are busy the host worst off has its nearest ones as partners; else the
    busiest rank has a host that at best is the one with the nearest."""
    near = [sorted(row[k] for k in range(len(rtt)) if k != host) for host, row in enumerate(rtt.tolist())]
    result = []
    for number in range(len(pattern.repeat)):
        many = partners(pattern, number)
        if min(many):
            result.append(max(row[min(many) - 1] for row in near))
        else:
            result.append(min(row[max(many) - 1] for row in near) if max(many) else 0.0)
    return result


def busiest(pattern: Pattern, out: list[float], into: list[float]) -> list[float]:
    """At least, of every round, microseconds: the most that a rank moves at the fastest host's rate, the second most at
    the second fastest's and so on."""
    result = []
    for number in range(len(pattern.repeat)):
        worst = 0.0
        for ends, rates in ((pattern.source, out), (pattern.target, into)):
            moved = [0.0] * pattern.ranks
            for when, rank, share in zip(pattern.round.tolist(), ends.tolist(), pattern.share.tolist(), strict=True):
                moved[rank] += share * SIZE * (when == number)
            slowest = [a / (b * BYTES_PER_US) for a, b in zip(sorted(moved), sorted(rates), strict=True)]
            worst = max(worst, *slowest)
        result.append(worst)
    return result


def some_of(result: Fabric, n: int, seed: int) -> list[int]:
    """Hosts that have ranks, of more that do not."""
    hosts: list[int] = np.random.default_rng(seed).permutation(len(result.names))[:n].tolist()
    return hosts


@pytest.mark.parametrize(
    ("algo", "model", "pairs"),
    [
        ("halving-doubling", "latency", False),
        ("bml", "latency", True),
        ("halving-doubling", "alpha-beta", True),
        ("bml", "alpha-beta", False),
        ("double-binary-tree", "alpha-beta", True),
        ("2lha", "alpha-beta", True),
        ("2lha", "contention", True),
        ("double-binary-tree", "contention", False),
    ],
)
def test_rounds_take_half_a_round_trip_and_what_the_busiest_host_moves(algo: str, model: str, pairs: bool) -> None:
    """Only the hosts that have ranks count, and of a pair's rate each way the best that a host has with one of them.
    Six ranks fold first: some of them idle."""
    for n, seed in ((8, 1), (4 if algo in ("bcube", "bml") else 6, 2), (16, 3)):
        result = fabric(n + 3, seed, pairs=pairs)
        hosts = some_of(result, n, seed)
        pattern = pattern_for(algo, n, Options(groups=[list(range(3)), list(range(3, n))]))
        out, into = result.host_out_gbps[hosts].tolist(), result.host_in_gbps[hosts].tolist()
        if model == "alpha-beta" and result.pair_gbps is not None:
            out = [max(result.pair_gbps[a, b] for b in hosts if b != a) for a in hosts]
            into = [max(result.pair_gbps[b, a] for b in hosts if b != a) for a in hosts]
        rtt = result.rtt_us[np.ix_(hosts, hosts)]
        rounds = zip(pattern.repeat.tolist(), longest_hops(pattern, rtt), busiest(pattern, out, into), strict=True)
        expected = sum(often * (hop / 2 + busy) for often, hop, busy in rounds)
        if model == "latency":  # the way there, and nothing but round trips
            hops = longest_hops(pattern, rtt)
            expected = sum(often * hop for often, hop in zip(pattern.reduce_repeat.tolist(), hops, strict=True))
        assert pattern_bound(pattern, result, SIZE, model, np.array(hosts)) == pytest.approx(expected, rel=1e-12)


def deepest(algo: str, ranks: int) -> int:
    """How many transfers of the way there update_chain each other."""
    schedule = schedule_for(algo, ranks, Options())
    offsets, needed = dependencies(schedule)
    depth: list[int] = []
    for k in range(reduce_phase(schedule).stop):
        depth.append(1 + max((depth[m] for m in needed[offsets[k] : offsets[k + 1]].tolist()), default=0))
    return max(depth)


@pytest.mark.parametrize("algo", ["tree", "double-binary-tree"])
def test_chain_bound_is_nearest_hops_or_one_long_hop(algo: str) -> None:
    for n in (2, 3, 5, 7, 12):
        pattern = pattern_for(algo, n, Options())
        apart = 10.0 * ~np.eye(n, dtype=bool)
        result = dataclasses.replace(fabric(n), rtt_us=apart)
        assert pattern_bound(pattern, result, SIZE, "latency", np.arange(n)) == 10.0 * deepest(algo, n)
        # One pair is near: what is sure is as many hops of that length, or a round's longest one.
        apart[0, 1] = apart[1, 0] = 1.0
        longest = max(longest_hops(pattern, apart))
        bound = pattern_bound(pattern, result, SIZE, "latency", np.arange(n))
        assert bound == max(longest, deepest(algo, n) * 1.0)


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
