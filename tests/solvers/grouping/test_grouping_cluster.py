"""From round trips to groups and tiers: few hosts, hosts all alike, hosts that nobody measured, racks in noise."""

from dataclasses import replace

import numpy as np
import pytest

from plink.errors import NoAnswer, UsageError
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network, to_rows
from solvers.grouping.cluster import cluster
from tests.networks import details_from
from tests.solvers.synthetic import racks, random_costs


def alike(n: int, us: float) -> Matrix:
    rtt = np.full((n, n), us)
    np.fill_diagonal(rtt, 0.0)
    return rtt


def of(rtt: Matrix, *halves: Matrix) -> Network:
    """A network of these round trips."""
    hosts = Hosts(tuple(Host(f"h{k}", "127.0.0.1") for k in range(len(rtt))))
    return Network(hosts, rtt, None, details_from({"halves_us": [to_rows(half) for half in halves]} if halves else {}))


@pytest.mark.parametrize("us", [0.0, 50.0])
def test_few_hosts_and_hosts_all_alike(us: float) -> None:
    for n, sizes in ((1, [1]), (2, [2]), (3, [1, 2]), (4, [2, 2]), (5, [2, 3])):
        result = cluster(of(alike(n, us)))
        assert sorted(len(group) for group in result.groups) == sizes
        assert sorted(host for group in result.groups for host in group) == list(range(n))
        assert (result.tiers, result.left_out) == ([], ())
        assert np.isnan(result.rtt.within_us) == (n == 1)
        if n > 2:
            assert result.rtt.within_us == result.rtt.across_us == us


def test_near_hosts_are_together_though_they_cannot_be_embedded() -> None:
    rtt = np.array([[0, 90, 10], [90, 0, 90], [10, 90, 0.0]])
    result = cluster(of(rtt))
    assert sorted(result.groups) == [[0, 2], [1]]
    assert (result.runs, result.method) == (1, "hierarchy")
    assert result.tiers == [[[0, 2], [1]]]


def test_racks_are_groups_and_a_tier() -> None:
    rtt, rack_of = racks([4, 4, 4, 4], seed=2)
    result = cluster(of(rtt * np.random.default_rng(0).uniform(0.95, 1.05, rtt.shape)), seed=1)
    assert {tuple(group) for group in result.groups} == {
        tuple(np.flatnonzero(rack_of == rack).tolist()) for rack in range(4)
    }
    assert result.tiers == [result.groups]
    assert result.agreement == 1.0
    assert 38 < result.rtt.within_us < 43
    assert 85 < result.rtt.across_us < 95
    assert result.rtt.within_us < result.random.within_us < result.rtt.across_us
    (tier,) = result.hierarchy
    assert tier.within_us == pytest.approx(41, abs=2)
    assert tier.next_us == pytest.approx(91, abs=3)


def test_hosts_without_measurements_are_left_out() -> None:
    rtt, _ = racks([4, 4], seed=5)
    whole = np.full((10, 10), np.nan)
    there = [0, 1, 2, 4, 5, 6, 8, 9]
    whole[np.ix_(there, there)] = rtt
    result = cluster(of(whole), 2)
    assert result.left_out == (3, 7)
    assert sorted(host for group in result.groups for host in group) == there
    assert sorted(host for group in result.tiers[0] for host in group) == there
    with pytest.raises(UsageError, match="1 to 8 groups can be made of 8 hosts"):
        cluster(of(whole), 9)


def test_pairs_may_be_missing() -> None:
    rtt, rack_of = racks([6, 6], seed=4)
    rtt[0, 1:5] = rtt[1:5, 0] = np.nan
    rtt[2, 7] = np.nan  # one direction is enough
    result = cluster(of(rtt), 2)
    assert all(len(set(rack_of[group].tolist())) == 1 for group in result.groups)


def test_far_pairs_that_are_rarely_measured_count_as_much() -> None:
    """Random groups are as far apart as all pairs are, predicted ones too, and no nearer than the pairs measured."""
    rtt, _ = racks([10] * 4, seed=4)
    mean_us = rtt[np.triu_indices(40, 1)].mean()
    far = np.triu((rtt > 60) & (np.random.default_rng(0).random(rtt.shape) < 0.8), 1)
    result = cluster(of(np.where(far | far.T, np.nan, rtt)), 4)
    assert result.predicted_pairs == far.sum()
    assert result.random.within_us == pytest.approx(mean_us, rel=0.1)
    for members, (mean, longest) in zip(result.groups, result.within_us, strict=True):
        within = rtt[np.ix_(members, members)][~np.eye(len(members), dtype=bool)]
        assert (mean, longest) == (pytest.approx(within.mean(), rel=0.02), pytest.approx(within.max(), rel=0.05))


def test_predictions_of_the_file_stand_for_what_was_not_measured() -> None:
    rtt, rack_of = racks([5, 5, 5], seed=3)
    ring = np.abs(np.subtract.outer(np.arange(15), np.arange(15)))
    measured = np.where((ring <= 1) | (ring == 14), rtt, np.nan)
    network = replace(of(measured), details=details_from({"predicted_us": to_rows(rtt)}))
    result = cluster(network, 3)
    assert all(len(set(rack_of[group].tolist())) == 1 for group in result.groups)
    assert result.predicted_pairs == 15 * 14 // 2 - 15
    within = rtt[(rack_of[:, None] == rack_of) & ~np.eye(15, dtype=bool)]
    assert result.rtt.within_us == pytest.approx(within.mean())


def test_predictions_join_measurements_that_fall_apart() -> None:
    rtt, rack_of = racks([6, 6], seed=0)
    measured = np.where(rack_of[:, None] == rack_of, rtt, np.nan)
    network = replace(of(measured), details=details_from({"predicted_us": to_rows(rtt), "predicted_by": "tiers"}))
    groups = cluster(network, 2).groups
    assert [len(group) for group in groups] == [6, 6]
    assert all(len(set(rack_of[group].tolist())) == 1 for group in groups)


def test_measurements_that_fall_apart_have_no_answer() -> None:
    rtt = alike(8, 50.0)
    rtt[:4, 4:] = rtt[4:, :4] = np.nan
    with pytest.raises(NoAnswer, match="fall into 2 parts"):
        cluster(of(rtt))
    with pytest.raises(NoAnswer, match="nothing was measured between any two hosts"):
        cluster(of(np.where(np.eye(3, dtype=bool), 0.0, np.nan)))


def test_elasticity_out_of_range_is_refused_before_anything_else() -> None:
    with pytest.raises(UsageError, match="elasticity"):
        cluster(of(np.full((3, 3), np.nan)), elasticity=2.5)


def test_who_sets_no_limit_gets_all_the_work() -> None:
    """An embedding that is cut short makes groups that are farther apart inside."""
    rtt, _ = racks([5, 6, 7], seed=0)
    rtt *= np.random.default_rng(0).lognormal(0, 0.05, rtt.shape)
    short = cluster(of(rtt), 3, seed=1, keep_going=lambda: False)
    assert cluster(of(rtt), 3, seed=1).rtt.within_us < short.rtt.within_us


def test_random_groups_are_as_far_apart_inside_as_all_hosts_are() -> None:
    rtt = random_costs(12, 1, low=500, high=1000)
    mean = rtt[np.triu_indices(12, 1)].mean()
    result = cluster(of(rtt), 3, keep_going=lambda: False).random
    assert (result.within_us, result.across_us) == pytest.approx((mean, mean))


def test_tiers_must_be_distinct_in_both_halves() -> None:
    """Of three hosts, of which two are near each other; a pair that a half lacks is as in the whole."""
    rtt = np.array([[0, 10, 90], [10, 0, 90], [90, 90, 0.0]])
    assert cluster(of(rtt, rtt, rtt), 2).tiers == [[[0, 1], [2]]]
    assert cluster(of(rtt, *[alike(3, 60.0)] * 2), 2).tiers == []
    gap = rtt.copy()
    gap[0, 1] = gap[1, 0] = np.nan
    (tier,) = cluster(of(rtt, gap, gap), 2).hierarchy
    assert tier.label.tolist() == [0, 0, 1]
    assert tier.confidence == 1.0
