"""Groups of a network: what they are chosen from, and the round trips within and across them counted pair by pair."""

import itertools
import math

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score

from plink.network import Matrix
from solvers.grouping.balanced import (
    agreement,
    balanced_groups,
    by_appearance,
    clustering,
    effort,
    evidence_us,
    k_means,
    random_groups,
)
from solvers.grouping.cluster import _random, apart, cluster, heard
from solvers.grouping.even import even_groups
from solvers.grouping.exchanges import refined
from solvers.grouping.sizes import Sizes, sizes_for
from tests.solvers.synthetic import racks, random_costs

NAN = math.nan


def places(n: int, seed: int) -> tuple[Matrix, Matrix]:
    """In a plane, and their squared distances."""
    place = np.random.default_rng(seed).normal(size=(n, 2))
    return place, ((place[:, None] - place) ** 2).sum(axis=2)


def test_the_more_hosts_the_fewer_clusterings_and_starts() -> None:
    """Ten of ten up to 256 hosts (docs/grouping.md), fewer beyond, and fewer still beyond 1,024."""
    assert effort(1) == effort(256) == (10, 10)
    assert effort(257) == effort(1024) < effort(256)
    assert effort(1025) == effort(10_000) < effort(1024)
    assert min(effort(10_000)) >= 1


@pytest.mark.parametrize("seed", [0, 3])
def test_a_clustering_is_the_best_of_its_starts(seed: int) -> None:
    """Each from a seed that no other clustering's start has."""
    place, distances = places(14, seed)
    sizes = sizes_for(14, 4)
    starts = [refined(k_means(place, sizes, 5 * seed + start), distances, sizes) for start in range(5)]
    label, objective = clustering(place, distances, sizes, seed, 5)
    assert objective == min(cost for _, cost in starts)
    assert label.tolist() in [by_appearance(one).tolist() for one, cost in starts if cost == objective]


@pytest.mark.parametrize(("number", "expected"), [(1, [0] * 6), (6, [0, 1, 2, 3, 4, 5])])
def test_where_all_are_one_group_or_each_is_one_there_is_nothing_to_choose(number: int, expected: list[int]) -> None:
    place, distances = places(6, 1)
    label, objective = clustering(place, distances, sizes_for(6, number), 0, 1)
    assert label.tolist() == expected
    assert objective == pytest.approx(np.triu(distances).sum() / 6 if number == 1 else 0.0)


@pytest.mark.parametrize("factor", [1e-6, 3.0, 1e7])
def test_k_means_does_not_know_units_nor_where_the_middle_is(factor: float) -> None:
    """Points so far from the middle as 1e6 of their own size are told apart all the same."""
    rng = np.random.default_rng(2)
    rack = np.repeat(np.arange(4), 4)
    place = np.array([[0, 0], [9, 0], [0, 9], [9, 9.0]])[rack] + rng.normal(0, 0.2, (16, 2))
    for shift in (0.0, 30.0):
        label = k_means(factor * (place + shift), sizes_for(16, 4), 0)
        assert by_appearance(label).tolist() == rack.tolist()


def test_agreement_is_the_mean_over_any_two() -> None:
    """Also where some are the same but numbered otherwise."""
    rng = np.random.default_rng(1)
    found = [rng.integers(0, 3, 20) for _ in range(3)]
    found += [(found[0] + 1) % 3, found[1]]
    pairs = itertools.combinations(found, 2)
    assert agreement(found) == pytest.approx(np.mean([adjusted_mutual_info_score(a, b) for a, b in pairs]))
    assert agreement(found) < 1


def test_the_groups_are_those_of_the_best_of_all_clusterings_and_progress_is_told() -> None:
    place, distances = places(18, 5)
    sizes = sizes_for(18, 4, 1.5)
    told: list[tuple[int, int]] = []
    found = balanced_groups(place, distances, sizes, 2, lambda done, total: told.append((done, total)))
    each = [clustering(place, distances, sizes, 2 * 10 + run, 10) for run in range(10)]
    assert told == [(done, 10) for done in range(1, 11)]
    assert found.runs == 10
    assert found.agreement == agreement([label for label, _ in each])

    def rank(label: np.ndarray, objective: float) -> tuple[int, float]:
        return sum(int((label == group).sum()) ** 2 for group in range(4)), objective

    assert rank(found.label, min(c for k, c in each if k.tolist() == found.label.tolist())) == min(
        rank(*one) for one in each
    )


def test_groups_are_numbered_as_they_appear() -> None:
    assert by_appearance(np.array([5, 2, 5, 9, 2])).tolist() == [0, 1, 0, 2, 1]


def test_random_groups_look_at_nothing_and_differ() -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([random_groups(Sizes(7, 3, 2, 3), rng) for _ in range(600)])
    assert (drawn == 0).sum(axis=1).tolist() == [3] * 600
    assert (drawn == 2).sum(axis=1).tolist() == [2] * 600
    assert np.allclose((drawn == 0).mean(axis=0), 3 / 7, atol=0.1)


def test_evidence_is_a_geometric_mean_of_what_is_a_hundredth_of_the_median_at_least() -> None:
    """The median of what is fitted and not nothing: of 100, 200 and 400, each twice."""
    fitted = np.array([[0, 100, 400], [100, 0, 200], [400, 200, 0.0]])
    measured = np.array([[0, 9, 0], [9, 0, NAN], [0, NAN, 0]])
    found = evidence_us(measured, fitted)
    assert found[0] == pytest.approx([0, 30, math.sqrt(400 * 2)])
    assert found[1] == pytest.approx([30, 0, 200])
    assert evidence_us(7 * measured, 7 * fitted) == pytest.approx(7 * found)
    fitted[0, 1] = fitted[1, 0] = 0.5  # less than a hundredth of the median, 200
    assert evidence_us(measured, fitted)[0, 1] == pytest.approx(math.sqrt(9 * 2))
    assert evidence_us(np.zeros((2, 2)), np.zeros((2, 2))).tolist() == [[0, 0.01], [0.01, 0]]


def test_what_is_within_and_across_groups_is_counted_pair_by_pair() -> None:
    rtt = random_costs(7, 3)
    rtt[0, 3] = rtt[3, 0] = rtt[1, 2] = rtt[2, 1] = NAN
    label = np.array([0, 0, 1, 1, 2, 0, 1])
    sides: dict[bool, list[float]] = {True: [], False: []}
    for i, j in itertools.combinations(range(7), 2):
        if not math.isnan(rtt[i, j]):
            sides[bool(label[i] == label[j])].append(rtt[i, j])
    found = apart(rtt, label)
    assert (found.within_us, found.across_us) == pytest.approx((np.mean(sides[True]), np.mean(sides[False])))
    assert math.isnan(apart(rtt, np.arange(7)).within_us)
    assert math.isnan(apart(rtt, np.zeros(7, dtype=np.intp)).across_us)


def test_a_host_is_heard_of_when_a_pair_of_it_was_measured() -> None:
    rtt = np.full((5, 5), NAN)
    np.fill_diagonal(rtt, 0.0)
    assert heard(rtt).tolist() == []
    rtt[1, 4] = rtt[4, 1] = 3.0
    assert heard(rtt).tolist() == [1, 4]
    assert heard(np.zeros((1, 1))).tolist() == [0]
    assert heard(np.full((1, 1), NAN)).tolist() == [0]
    assert heard(np.zeros((0, 0))).tolist() == []
    assert heard(np.array([[0, 1], [1, 0.0]])).tolist() == [0, 1]


@pytest.mark.parametrize("n", [12, 256])
def test_random_groups_are_as_far_apart_inside_as_all_hosts_are(n: int) -> None:
    """In the mean over many draws, within a twentieth; across them too."""
    rtt = random_costs(n, 1, low=500, high=1000)
    mean = rtt[np.triu_indices(n, 1)].mean()
    found = _random(rtt, sizes_for(n, 3), 0)
    assert (found.within_us, found.across_us) == pytest.approx((mean, mean), rel=0.05)
    assert _random(rtt, sizes_for(n, 3), 0) == found
    assert _random(rtt, sizes_for(n, 3), 1) != found


@pytest.mark.parametrize(
    ("n", "method"), [(3, "hierarchy"), (4, "constrained k-means on an embedding, then exchanges")]
)
def test_four_hosts_are_embedded_and_three_are_not(n: int, method: str) -> None:
    assert cluster(racks([n], 0)[0], keep_going=lambda: False).method == method


def test_tiers_have_to_stand_out_in_both_halves_of_the_samples() -> None:
    """Of three hosts, of which two are near each other; a pair that a half lacks is as in the whole."""
    rtt = np.array([[0, 10, 90], [10, 0, 90], [90, 90, 0.0]])
    alike = np.where(np.eye(3, dtype=bool), 0.0, 60.0)
    assert cluster(rtt, 2, halves_us=[rtt, rtt]).tiers == [[[0, 1], [2]]]
    assert cluster(rtt, 2, halves_us=[alike, alike]).tiers == []
    gap = rtt.copy()
    gap[0, 1] = gap[1, 0] = NAN
    (tier,) = cluster(rtt, 2, halves_us=[gap, gap]).hierarchy
    assert tier.label.tolist() == [0, 0, 1]
    assert tier.confidence == 1.0


def test_progress_of_clustering_is_told() -> None:
    told: list[tuple[int, int]] = []
    found = cluster(
        racks([3, 3], 0)[0], 2, keep_going=lambda: False, advance=lambda done, total: told.append((done, total))
    )
    assert told == [(done, found.runs) for done in range(1, found.runs + 1)]


@pytest.mark.parametrize("seed", range(4))
def test_even_groups_are_not_improved_by_any_exchange(seed: int) -> None:
    """The sum over groups of their pairs' times by their size."""
    cost = random_costs(9, seed)

    def objective(groups: list[list[int]]) -> float:
        return sum(float(cost[np.ix_(group, group)].sum()) / 2 / len(group) for group in groups)

    groups = even_groups(cost, 3)
    best = objective(groups)
    for one, other in itertools.combinations(range(3), 2):
        for i, j in itertools.product(groups[one], groups[other]):
            swapped = [[{i: j, j: i}.get(host, host) for host in group] for group in groups]
            assert objective(swapped) >= best - 1e-9
