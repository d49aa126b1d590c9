"""Tiers at their limits: the ratio that stands out, what halves have to confirm, medians of what a tier adds."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.network import Matrix
from solvers.grouping.linkage import Tree, average_linkage
from solvers.grouping.tiers import _confidence, _Cut, _latencies, _wanted, adjusted_rand, groupings, nearest_tier, tiers

Labels = npt.NDArray[np.intp]


def nested(members: list[int], times_us: list[float]) -> Matrix:
    """Hosts in a row: so many, one after the other, are in a group of each tier, and as far apart as it says; the last
    group is all hosts."""
    n = members[-1]
    cost = np.zeros((n, n))
    for size, us in reversed(list(zip(members, times_us, strict=True))):
        label = np.arange(n) // size
        cost[label[:, None] == label] = us
    np.fill_diagonal(cost, 0.0)
    return cost


def row(n: int, members: int) -> list[int]:
    return (np.arange(n) // members).tolist()


def cut(label: list[int]) -> _Cut:
    return _Cut(15.0, 2.0, np.array(label))


@pytest.mark.parametrize(("far", "stands_out"), [(13.0, True), (12.99, False)])
def test_a_step_of_thirteen_tenths_is_a_tier(far: float, stands_out: bool) -> None:
    cost = nested([4, 12], [10.0, far])
    assert nearest_tier(cost).tolist() == (row(12, 4) if stands_out else [0] * 12)
    assert [tier.label.tolist() for tier in tiers(cost)] == ([row(12, 4)] if stands_out else [])
    assert [label.tolist() for label in groupings(cost)] == ([row(12, 4)] if stands_out else [])


def test_the_ratio_is_that_of_the_step() -> None:
    (tier,) = tiers(nested([4, 12], [10.0, 25.0]))
    assert (tier.ratio, tier.within_us, tier.next_us, tier.confidence) == (2.5, 10.0, 25.0, 1.0)
    assert tier.groups == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_three_hosts_can_have_a_tier() -> None:
    cost = np.array([[0, 10, 30], [10, 0, 30], [30, 30, 0.0]])
    assert nearest_tier(cost).tolist() == [0, 0, 1]


def test_hosts_without_any_distance_are_one_tier() -> None:
    """What takes no time at all is less than anything."""
    assert nearest_tier(nested([4, 12], [0.0, 5.0])).tolist() == row(12, 4)


@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e5])
def test_units_do_not_matter(factor: float) -> None:
    cost = nested([3, 6, 24], [10.0, 20.0, 90.0])
    found, again = tiers(cost), tiers(cost * factor)
    assert [tier.label.tolist() for tier in found] == [tier.label.tolist() for tier in again]
    assert [tier.within_us * factor for tier in found] == pytest.approx([tier.within_us for tier in again])
    assert [tier.ratio for tier in found] == pytest.approx([tier.ratio for tier in again])


@given(st.integers(0, 999))
def test_the_hosts_may_come_in_any_order(seed: int) -> None:
    cost, order = nested([3, 6, 24], [10.0, 20.0, 90.0]), np.random.default_rng(seed).permutation(24)
    found = nearest_tier(cost[np.ix_(order, order)])
    expected = order // 6
    assert np.array_equal(found[:, None] == found, expected[:, None] == expected)


def test_one_pair_out_of_all_proportion_is_no_tier() -> None:
    """All are 10 apart, but two hosts a million: three times what is usual is as far as anything counts, and
    these are joined last, at (30 + 10 + 10 ...) / 11, which is less than 13."""
    cost = nested([12], [10.0])
    cost[0, 1] = cost[1, 0] = 1e6
    assert set(nearest_tier(cost).tolist()) == {0}
    assert groupings(cost) == []


def test_but_a_host_that_is_far_from_all_is() -> None:
    """What is usual goes by the host that is farthest from the others."""
    cost = nested([12], [10.0])
    cost[0, 1:] = cost[1:, 0] = 500.0
    assert nearest_tier(cost).tolist() == [0] + [1] * 11


def test_four_tiers_at_most_are_told_those_that_stand_out_most() -> None:
    """Of five steps the least one, from 1000 to 1400, is left out; then of three and of two."""
    cost = nested([2, 4, 8, 16, 32, 64], [10.0, 20.0, 60.0, 300.0, 1000.0, 1400.0])
    halves = [cost, cost]
    assert [tier.label.tolist() for tier in tiers(cost, halves)] == [row(64, size) for size in (2, 4, 8, 16)]
    assert [label.tolist() for label in groupings(cost)] == [row(64, size) for size in (4, 8, 16)]
    assert [label.tolist() for label in groupings(cost, 4)] == [row(64, size) for size in (2, 4, 8, 16)]
    assert [label.tolist() for label in groupings(cost, 1)] == [row(64, 8)]


@pytest.mark.parametrize(("alone", "told"), [(4, True), (5, False)])
def test_groupings_leave_no_more_than_half_of_the_hosts_alone(alone: int, told: bool) -> None:
    """Pairs that are near each other, and hosts that are not: at most as many of these as are in pairs."""
    n = 4 + alone
    cost = nested([n], [50.0])
    for a in (0, 2):
        cost[a, a + 1] = cost[a + 1, a] = 10.0
    assert [label.tolist() for label in groupings(cost)] == ([[0, 0, 1, 1, *range(2, 2 + alone)]] if told else [])


@pytest.mark.parametrize(("middle", "innermost"), [(40.0, True), (41.0, False)])
def test_with_halves_the_innermost_tier_that_stands_out_by_half_as_much_is_the_nearest(
    middle: float, innermost: bool
) -> None:
    """By the logarithm of the ratio: steps of 2 and 4, and of 2.0 and 4.1 or so: the root of 4 is 2."""
    cost = nested([3, 12, 48], [20.0, 40.0, 4 * middle])
    assert nearest_tier(cost).tolist() == row(48, 12)
    assert nearest_tier(cost, halves=[cost, cost]).tolist() == row(48, 3 if innermost else 12)


def test_halves_that_tell_another_network_confirm_nothing() -> None:
    cost, other = nested([4, 16], [10.0, 40.0]), nested([16], [40.0])
    order = np.random.default_rng(0).permutation(16)
    mixed = cost[np.ix_(order, order)]
    for half in (other, mixed):
        assert set(nearest_tier(cost, halves=[half, half]).tolist()) == {0}
        assert tiers(cost, [half, half]) == []
    # One half that tells the same and one that does not: half of it is confirmed, which is enough.
    assert nearest_tier(cost, halves=[cost, other]).tolist() == row(16, 4)


def test_a_tier_needs_more_confidence_where_most_hosts_are_alone() -> None:
    """0.9 in the place of 0.5 where more than half of them are."""
    assert _wanted(cut([0, 0, 1, 2])) == 0.5
    assert _wanted(cut([0, 0, 1, 2, 3])) == 0.9
    assert _wanted(cut([0, 1, 2])) == 0.9
    assert _wanted(cut([0, 0, 0])) == 0.5


def test_confidence_is_the_mean_over_all_trials_of_how_well_groups_are_found_again() -> None:
    """Of three trials one tells nothing; by four fifths of the hosts of one after the other as well."""
    same, alike = nested([4, 16], [10.0, 20.0]), nested([16], [20.0])
    label = cut(row(16, 4))
    assert _confidence(label, [same, same, alike], whole=True) == pytest.approx(2 / 3)
    assert _confidence(label, [same], whole=False) == pytest.approx(1.0)
    assert _confidence(label, [same, alike], whole=False) == pytest.approx(1 / 2)
    assert _confidence(label, [alike], whole=False) == pytest.approx(0.0)
    far = nested([4, 16], [15.0, 20.0])  # cut at 15
    assert _confidence(label, [far], whole=True) == pytest.approx(1.0)
    far = nested([4, 16], [15.1, 20.0])
    assert _confidence(label, [far], whole=True) == pytest.approx(0.0)


def test_what_a_tier_adds_is_the_median_of_what_is_in_it_and_not_in_one_inside() -> None:
    """Eight hosts, every pair with a time of its own."""
    cost = np.triu(np.arange(64.0).reshape(8, 8), 1)
    cost += cost.T
    labels = [np.array(row(8, size)) for size in (2, 4)]
    cuts = [_Cut(1.0, 2.0, label) for label in labels]
    pairs = [(i, j) for i in range(8) for j in range(8) if i < j]

    def median(inside: int, outside: int) -> float:
        return float(
            np.median([cost[i, j] for i, j in pairs if i // inside != j // inside and i // outside == j // outside])
        )

    assert _latencies(cost, cuts, 0) == (median(1, 2), median(2, 4))
    assert _latencies(cost, cuts, 1) == (median(2, 4), median(4, 8))
    assert _latencies(cost, cuts[:1], 0) == (median(1, 2), median(2, 8))


def test_where_a_tier_adds_no_pair_there_is_no_median() -> None:
    cuts = [_Cut(1.0, 2.0, np.arange(4)), _Cut(2.0, 2.0, np.zeros(4, dtype=np.intp))]
    cost = nested([4], [7.0])
    assert np.isnan(_latencies(cost, cuts, 0)[0])
    assert _latencies(cost, cuts, 0)[1] == 7.0
    assert np.isnan(_latencies(cost, cuts, 1)[1])


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 999))
def test_groupings_agree_as_counted_pair_by_pair(n: int, groups: int, seed: int) -> None:
    """Pairs together in both, less those that would be by chance, over the most there could be."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, groups, n), rng.integers(0, groups, n)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    of_a, of_b = [a[i] == a[j] for i, j in pairs], [b[i] == b[j] for i, j in pairs]
    both = sum(x and y for x, y in zip(of_a, of_b, strict=True))
    chance = sum(of_a) * sum(of_b) / max(1, len(pairs))
    most = (sum(of_a) + sum(of_b)) / 2
    expected = 1.0 if most == chance else (both - chance) / (most - chance)
    assert adjusted_rand(a, b) == pytest.approx(expected)


def test_a_tree_is_cut_above_the_height_that_is_asked_for() -> None:
    """Merges at exactly the height are made; clusters are numbered by their first host."""
    tree = Tree(np.array([[3, 1], [0, 2], [2, 3]]), np.array([1.0, 2.0, 3.0]))
    assert tree.cut(0.5).tolist() == [0, 1, 2, 3]
    assert tree.cut(1.0).tolist() == [0, 1, 2, 1]
    assert tree.cut(2.5).tolist() == [0, 1, 0, 1]
    assert tree.cut(3.0).tolist() == [0, 0, 0, 0]


def test_clusters_are_as_far_apart_as_their_pairs_in_the_mean() -> None:
    """0 and 1 at 2; then 2 at (6 + 10) / 2; then 3 at (20 + 30 + 40) / 3. The diagonal does not count."""
    cost = np.array([[0, 2, 6, 20], [2, 0, 10, 30], [6, 10, 0, 40], [20, 30, 40, 0.0]])
    for diagonal in (0.0, 1e9):
        np.fill_diagonal(cost, diagonal)
        assert average_linkage(cost).heights.tolist() == [2, 8, 30]
