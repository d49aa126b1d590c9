"""Masters in proportion to weights: one in every group, the global one among them; what that costs."""

import itertools
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.schedule import forward_and_reverse
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS, evaluate
from solvers.costs.patterns import masters_pattern, pattern_of, two_level_pattern
from solvers.planning import AllReduce, random_groups_median, two_level_cost
from solvers.schedules.hierarchical import two_level_masters, two_level_reduce_scatter
from solvers.schedules.masters import Weights, check_groups, equal_chunks
from solvers.schedules.verifier import verify
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.simulator import simulate

CALM = settings(max_examples=50, deadline=None)
Groups = list[list[int]]


@st.composite
def cases(draw: Any) -> tuple[Groups, Weights]:
    """Groups of any sizes, ranks in any order, weights that are whole numbers."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) >= 2))
    ranks = draw(st.permutations(range(sum(sizes))))
    ends = np.cumsum([0, *sizes]).tolist()
    groups = [list(ranks[a:b]) for a, b in pairwise(ends)]
    weights = [
        np.array(draw(st.lists(st.integers(1, 40), min_size=n, max_size=n)), dtype=np.float64)
        for n in (len(groups), len(ranks))
    ]
    return groups, Weights(*weights)


def check_masters(groups: Groups, local: Any, global_group: Any) -> None:
    """One local master in each group for every chunk; the global one stands in one of the groups."""
    assert local.shape == (len(global_group), len(groups))
    for g, group in enumerate(groups):
        assert set(local[:, g].tolist()) <= set(group)
    assert set(global_group.tolist()) <= set(range(len(groups)))


def near(count: int, share: Fraction) -> bool:
    """Whether a count is its share rounded down or up."""
    return floor(share) <= count <= ceil(share)


@CALM
@given(cases(), st.integers(1, 120))
def test_equal_chunks_are_within_one_of_the_proportion(case: tuple[Groups, Weights], chunks: int) -> None:
    groups, weights = case
    local, global_group = equal_chunks(groups, chunks, weights)
    check_masters(groups, local, global_group)
    own = np.bincount(global_group, minlength=len(groups)).tolist()
    final = np.bincount(local[np.arange(chunks), global_group], minlength=len(weights.ranks)).tolist()
    for g, group in enumerate(groups):
        assert near(own[g], Fraction(chunks * int(weights.groups[g]), int(weights.groups.sum())))
        total = int(weights.ranks[group].sum())
        for rank in group:
            assert near(int((local[:, g] == rank).sum()), Fraction(chunks * int(weights.ranks[rank]), total))
            assert near(final[rank], Fraction(own[g] * int(weights.ranks[rank]), total))
    again = equal_chunks(groups, chunks, weights)
    assert (again[0] == local).all()
    assert (again[1] == global_group).all()


@CALM
@given(cases())
def test_as_many_chunks_as_ranks_is_one_for_each(case: tuple[Groups, Weights]) -> None:
    groups, _ = case
    ranks = sum(len(group) for group in groups)
    local, global_group = equal_chunks(groups, ranks)
    assert sorted(local[np.arange(ranks), global_group].tolist()) == list(range(ranks))
    assert (local == two_level_masters(groups)[0]).all()


@settings(max_examples=25, deadline=None)
@given(cases(), st.integers(1, 20))
def test_schedule_is_verified_and_costs_as_its_pattern(case: tuple[Groups, Weights], chunks: int) -> None:
    """Hosts take one rank, or several: then two ranks of a group share one."""
    groups, weights = case
    ranks = len(weights.ranks)
    masters = equal_chunks(groups, chunks, weights)
    schedule = forward_and_reverse(two_level_reduce_scatter(groups, *masters))
    assert verify(schedule) == []
    simulate(schedule)
    pattern = masters_pattern(groups, *masters)
    hosts = fabric(max(2, ranks), groups=2)
    for order in (np.arange(ranks), np.sort(np.arange(ranks) // 2)):
        for model in MODELS:
            cost = closed_form(pattern, hosts, 1e6, model)(order)
            assert cost == pytest.approx(evaluate(schedule, hosts, order, 1e6, model).cost_us)
            assert cost == pytest.approx(closed_form(pattern_of(schedule), hosts, 1e6, model)(order))
            if model != "contention":  # an estimate, no closed form
                same = two_level_cost(groups, masters, AllReduce(hosts, order, 1e6, model))
                assert cost == pytest.approx(same)


def test_masters_that_are_balanced_cost_what_they_did() -> None:
    groups = [[0, 1, 2], [3, 4], [5, 6, 7, 8]]
    balanced, plain = masters_pattern(groups, *two_level_masters(groups)), two_level_pattern(groups)
    for name in ("round", "source", "target", "share", "repeat", "reduce_repeat"):
        assert (getattr(balanced, name) == getattr(plain, name)).all()
    schedule = forward_and_reverse(two_level_reduce_scatter(groups, *two_level_masters(groups)))
    assert evaluate(schedule, fabric(9), np.arange(9), 1e6, "contention").cost_us == pytest.approx(
        closed_form(plain, fabric(9), 1e6, "contention")(np.arange(9))
    )


def test_more_chunks_do_not_make_more_transfers() -> None:
    """What a rank masters stays together, so that a schedule's size depends on the ranks."""
    groups = [list(range(4 * g, 4 * g + 4)) for g in range(4)]
    sizes = [len(two_level_reduce_scatter(groups, *equal_chunks(groups, chunks))) for chunks in (16, 160, 16_000)]
    assert sizes == [96, 96, 96]
    uneven = [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]]
    few, many = (len(two_level_reduce_scatter(uneven, *equal_chunks(uneven, chunks))) for chunks in (100, 10_000))
    assert many <= 1.2 * few


def test_groups_at_random_cost_more_than_racks() -> None:
    """Uplinks carry as much as one host."""
    hosts = replace(fabric(12, groups=3), group_out_gbps=np.full(3, 2.0), group_in_gbps=np.full(3, 2.0))
    groups = [np.flatnonzero(hosts.group_of == g).tolist() for g in range(3)]
    order = np.arange(12)
    ours = two_level_cost(groups, equal_chunks(groups, 12), AllReduce(hosts, order, 1e8, "contention"))
    at_random = random_groups_median(groups, 12, "sizes", AllReduce(hosts, order, 1e8, "contention"), seed=1)
    assert at_random is not None
    assert ours < at_random
    assert at_random == random_groups_median(groups, 12, "sizes", AllReduce(hosts, order, 1e8, "contention"), seed=1)


def test_what_is_wrong_is_refused() -> None:
    ones = np.ones(3)
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(UsageError, match="weights: every group and every rank needs a number"):
            Weights(np.ones(2), np.array([1.0, wrong, 1.0]))
    groups = [[0, 1], [2]]
    with pytest.raises(UsageError, match="every group needs a rank"):
        equal_chunks(groups, 4, Weights(np.ones(2), np.array([1.0, 1.0, 0.0])))
    with pytest.raises(UsageError, match="2 groups and 3 ranks need one each"):
        equal_chunks(groups, 4, Weights(ones, ones))
    with pytest.raises(UsageError, match="0 chunks"):
        equal_chunks(groups, 0)
    with pytest.raises(UsageError, match="groups: every rank"):
        equal_chunks([[0, 1], [1]], 4)


@pytest.mark.parametrize(
    ("groups", "chunks", "final"),
    [
        # The first two chunks of either group, then the others: what a rank masters stays together.
        ([[0, 1], [2, 3]], 8, [0, 0, 2, 2, 1, 1, 3, 3]),
        # One rank's two chunks in the middle of the six that the others have.
        ([[0], [1, 2, 3]], 8, [1, 1, 0, 0, 2, 2, 3, 3]),
        # One chunk in the middle of five, of equals the first group first.
        ([[0], [1, 2, 3, 4, 5]], 6, [1, 2, 0, 3, 4, 5]),
        # One chunk goes to the larger group; the other group is global master of none.
        ([[0], [1, 2]], 1, [1]),
    ],
)
def test_chunks_go_round_the_groups(groups: Groups, chunks: int, final: list[int]) -> None:
    """By where the middle of what a rank masters lies among what its group does."""
    local, global_group = equal_chunks(groups, chunks)
    assert local[np.arange(chunks), global_group].tolist() == final
    assert [groups[g].count(rank) for g, rank in zip(global_group.tolist(), final, strict=True)] == [1] * chunks


def test_groups_of_any_shape_are_checked() -> None:
    for groups in ([[0, 1], []], [[], [0, 1]], [[0], [0, 1]], [[0, 2]], [[1, 2]]):
        with pytest.raises(UsageError, match="groups: every rank"):
            check_groups(groups)
    for groups in ([[0]], []):
        with pytest.raises(UsageError, match=f"two ranks or more, not {len(groups)}"):
            check_groups(groups)
    assert check_groups([[1], [0]]) == 2
    assert check_groups([[4, 0], [3, 1, 2]]) == 5


# Groups at random: four hosts dealt to a first and a second group of two.

PAIRS = fabric(4, seed=5, pairs=True)


def ways(slots: int) -> list[float]:
    """What each of the six ways costs, in ascending order; all ranks of a host stand in its group."""
    costs = []
    for first in itertools.combinations(range(4), 2):
        hosts = [first, [host for host in range(4) if host not in first]]
        random_groups = [[slots * host + k for host in some for k in range(slots)] for some in hosts]
        masters = equal_chunks(random_groups, 4 * slots)
        costs.append(
            two_level_cost(random_groups, masters, AllReduce(PAIRS, np.repeat(np.arange(4), slots), 1e6, "alpha-beta"))
        )
    return sorted(costs)


def at_random(slots: int, seed: int, draws: int) -> float:
    """The same by the product."""
    groups = [list(range(2 * slots)), list(range(2 * slots, 4 * slots))]
    order = np.repeat(np.arange(4), slots)
    result = random_groups_median(
        groups, 4 * slots, "sizes", AllReduce(PAIRS, order, 1e6, "alpha-beta"), seed=seed, draws=draws
    )
    assert result is not None
    return result


@pytest.mark.parametrize("slots", [1, 2])
def test_groups_at_random_are_all_the_groups_there_are(slots: int) -> None:
    """Single draws, of which sixty leave out one of six by a chance of less than 1 in 9,000."""
    result = {round(at_random(slots, seed, 1), 6) for seed in range(60)}
    assert result == {round(cost, 6) for cost in ways(slots)}
    assert len(result) > 2


def test_of_many_draws_the_middle_counts() -> None:
    """The median of six costs that are equally likely is the third or the fourth."""
    assert any(at_random(1, 1, 151) == pytest.approx(cost) for cost in ways(1)[2:4])
    assert ways(1)[2] > ways(1)[0]
    assert ways(1)[3] < ways(1)[5]


def test_groups_at_random_take_two_hosts_and_something_measured() -> None:
    hosts, groups = fabric(4, seed=5), [[0], [1]]
    ask = (groups, 2, "sizes")
    assert random_groups_median(*ask, AllReduce(hosts, np.array([0, 0]), 1e6, "contention"), seed=1) is None
    two = random_groups_median(*ask, AllReduce(hosts, np.array([0, 1]), 1e6, "contention"), seed=1)
    assert two == two_level_cost(groups, equal_chunks(groups, 2), AllReduce(hosts, np.array([0, 1]), 1e6, "contention"))
    hosts.rtt_us[:] = np.nan
    assert random_groups_median(*ask, AllReduce(hosts, np.array([0, 1]), 1e6, "contention"), seed=1) is None
