"""Judging an order: the interval holds what fresh samples show, noise alone is no gain, what is not judged is said."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from benchmarks.clouds import Cloud, alike, three_tier
from plink.errors import NoAnswer
from plink.network import Matrix
from solvers.costs.by_name import NAMES, parts_of, pattern_for, pricing_for
from solvers.costs.fabric import Fabric
from solvers.costs.latency import symmetrised
from solvers.costs.patterns import Pattern
from solvers.ordering.judging import Judgement, judge, split, students_quantile
from solvers.schedules.catalogue import Options

Order = npt.NDArray[np.intp]
_SIZE = 4e6  # nccl: tree and ring together


def _patterns(algo: str, ranks: int) -> list[tuple[float, Pattern]]:
    return [(weight, pattern_for(name, ranks, Options())) for weight, name in parts_of(algo, _SIZE)]


def _fabric(rtt_us: Matrix, rack_of: Order) -> Fabric:
    """Hosts of 10 Gbit/s, racks that share 10."""
    racks, rates = int(rack_of.max()) + 1, np.full(len(rtt_us), 10.0)
    shared = np.full(racks, 10.0)
    return Fabric(tuple(map(str, range(len(rtt_us)))), rtt_us, None, rates, rates, rack_of, shared, shared, "measured")


def _halves(cloud: Cloud, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    parts = split(cloud.halves(rng), cloud.rtt_us)
    assert parts is not None
    return parts


def _by_rack(cloud: Cloud) -> Order:
    return np.lexsort((cloud.rack_of, cloud.pod_of))


def _greedy(rtt_us: Matrix) -> Order:
    """Always on to the nearest: an order that the noise of what it is fitted on has a say in."""
    left, order = set(range(1, len(rtt_us))), [0]
    while left:
        order.append(min(left, key=lambda host: float(rtt_us[order[-1], host])))
        left.remove(order[-1])
    return np.array(order)


def _judged(cloud: Cloud, algo: str, seed: int) -> tuple[Judgement, float]:
    """What is said of a greedy order, and what it gains on fresh samples."""
    rng, n = np.random.default_rng(seed), len(cloud)
    fit, held_out = _halves(cloud, rng)
    fabric, order = _fabric(fit, cloud.rack_of), _greedy(fit)
    said = judge(_patterns(algo, n), fabric, _SIZE, "latency", order, np.arange(n), held_out, seed)
    fresh = replace(fabric, rtt_us=symmetrised(cloud.halves(rng)[0]))
    price = pricing_for(algo, n, Options(), fresh, _SIZE, "latency")
    return said, 1 - price(order) / price(np.arange(n))


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "double-binary-tree", "nccl"])
def test_intervals_hold_the_gain_of_fresh_samples_as_often_as_they_say(algo: str) -> None:
    found = [_judged(three_tier(16, seed), algo, seed) for seed in range(300)]
    assert sum(said.low <= fresh <= said.high for said, fresh in found) >= 270
    # Right for being wide would be no use.
    assert np.mean([said.high - said.low for said, _ in found]) < 6 * np.std(
        [fresh - said.gain for said, fresh in found]
    )


def test_orders_of_alike_hosts_are_within_the_noise_whatever_was_predicted() -> None:
    found = [_judged(alike(24, seed), "ring", seed)[0] for seed in range(100)]
    assert sum(said.within_noise for said in found) >= 95
    assert np.mean([said.predicted for said in found]) > 0.05
    assert abs(np.mean([said.gain for said in found])) < 0.01


@pytest.mark.parametrize("model", ["latency", "alpha-beta", "contention"])
@pytest.mark.parametrize("algo", NAMES)
def test_gains_are_those_of_the_prices(algo: str, model: str) -> None:
    n = 8
    cloud = three_tier(n, 1)
    fit, held_out = _halves(cloud, np.random.default_rng(1))
    fabric, order, given_order = _fabric(fit, cloud.rack_of), _by_rack(cloud), np.arange(n)
    options = Options(groups=[[0, 1, 2, 3], [4, 5, 6, 7]])
    patterns = [(weight, pattern_for(name, n, options)) for weight, name in parts_of(algo, _SIZE)]
    said = judge(patterns, fabric, _SIZE, model, order, given_order, held_out, 0)
    for rtt_us, gain in ((fit, said.predicted), (held_out, said.gain)):
        price = pricing_for(algo, n, options, replace(fabric, rtt_us=rtt_us), _SIZE, model)
        assert gain == pytest.approx(1 - price(order) / price(given_order), abs=1e-9)
    assert said.low <= said.gain <= said.high


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 9), st.integers(0, 2**32 - 1), st.floats(0.0, 0.5))
def test_intervals_are_in_order_and_the_same_for_the_same_seed(n: int, seed: int, sigma: float) -> None:
    cloud = three_tier(n, seed, sample_sigma=sigma)
    rng = np.random.default_rng(seed)
    fit, held_out = _halves(cloud, rng)
    fabric, order = _fabric(fit, cloud.rack_of), rng.permutation(n)
    levels = [
        judge(_patterns("nccl", n), fabric, _SIZE, "latency", order, np.arange(n), held_out, seed, confidence)
        for confidence in (0.5, 0.95, 0.95)
    ]
    for narrow, wide in pairwise(levels):
        assert wide.low <= narrow.low <= narrow.gain <= narrow.high <= wide.high
    assert levels[1] == levels[2]


def test_the_given_order_gains_nothing() -> None:
    cloud = three_tier(12, 0)
    fit, held_out = _halves(cloud, np.random.default_rng(0))
    said = judge(
        _patterns("ring", 12), _fabric(fit, cloud.rack_of), _SIZE, "latency", np.arange(12), np.arange(12), held_out, 0
    )
    assert (said.gain, said.low, said.high, said.predicted, said.within_noise) == (0.0, 0.0, 0.0, 0.0, True)


def test_no_order_matters_to_everyone_to_everyone() -> None:
    cloud = three_tier(12, 0)
    fit, held_out = _halves(cloud, np.random.default_rng(0))
    said = judge(
        _patterns("flat", 12),
        _fabric(fit, cloud.rack_of),
        _SIZE,
        "latency",
        _by_rack(cloud),
        np.arange(12),
        held_out,
        0,
    )
    assert (said.low, said.high) == (0.0, 0.0)


def test_without_noise_the_interval_is_the_gain() -> None:
    cloud = three_tier(20, 3, sample_sigma=0.0)
    fit, held_out = _halves(cloud, np.random.default_rng(0))
    said = judge(
        _patterns("ring", 20),
        _fabric(fit, cloud.rack_of),
        _SIZE,
        "latency",
        _by_rack(cloud),
        np.arange(20),
        held_out,
        0,
    )
    assert said.low == pytest.approx(said.gain)
    assert said.high == pytest.approx(said.predicted)
    assert said.gain > 0.1


def test_ranks_of_one_host_cost_nothing_between_them() -> None:
    cloud = three_tier(6, 1)
    fit, held_out = _halves(cloud, np.random.default_rng(0))
    order, before = np.repeat(_by_rack(cloud), 2), np.repeat(np.arange(6), 2)
    said = judge(_patterns("ring", 12), _fabric(fit, cloud.rack_of), _SIZE, "latency", order, before, held_out, 0)
    assert np.isfinite([said.low, said.gain, said.high]).all()
    assert 6 <= said.pairs <= 12


def test_pairs_without_both_halves_are_as_fitted_and_not_counted() -> None:
    cloud, n = three_tier(8, 2), 8
    first, second = cloud.halves(np.random.default_rng(0))
    second[0, :] = second[:, 0] = np.nan
    first[1, 2] = first[2, 1] = np.nan
    parts = split((first, second), cloud.rtt_us)
    assert parts is not None
    fit, held_out = parts
    assert np.array_equal(fit[0], cloud.rtt_us[0])
    assert fit[1, 2] == cloud.rtt_us[1, 2]
    assert np.isnan(held_out[0, 1:]).all()
    fabric, order, given_order = _fabric(fit, cloud.rack_of), np.array([0, 2, 4, 6, 1, 3, 5, 7]), np.arange(n)
    said = judge(_patterns("ring", n), fabric, _SIZE, "latency", order, given_order, held_out, 0)
    used = {frozenset(pair) for ring in (order, given_order) for pair in zip(ring, np.roll(ring, -1), strict=True)}
    assert said.pairs == sum(0 not in pair and pair != {1, 2} for pair in used)


def test_one_direction_is_enough_for_a_half() -> None:
    first, second = three_tier(5, 2).halves(np.random.default_rng(0))
    first[0, 1] = second[1, 0] = np.nan
    parts = split((first, second), np.full((5, 5), np.nan))
    assert parts is not None
    assert (parts[0][0, 1], parts[1][0, 1]) == (first[1, 0], second[0, 1])


def test_nothing_is_judged_without_halves() -> None:
    cloud = three_tier(5, 0)
    nothing = np.full((5, 5), np.nan)
    np.fill_diagonal(nothing, 0.0)
    assert split((nothing, cloud.rtt_us), cloud.rtt_us) is None


def test_an_order_of_which_no_pair_was_judged_is_within_the_noise() -> None:
    cloud, ring = three_tier(8, 2), np.arange(8)
    fit, held_out = _halves(cloud, np.random.default_rng(0))
    order = ring * 3 % 8
    for tour in (ring, order):
        held_out[tour, np.roll(tour, 1)] = held_out[np.roll(tour, 1), tour] = np.nan
    fit[order, np.roll(order, 1)] = fit[np.roll(order, 1), order] = 1.0
    said = judge(_patterns("ring", 8), _fabric(fit, cloud.rack_of), _SIZE, "latency", order, ring, held_out, 0)
    assert said.pairs == 0
    assert said.gain > 0.9
    assert said.within_noise


@pytest.mark.parametrize("freedom", [2, 4, 6, 64, 500, 16384])
@pytest.mark.parametrize("share", [0.6, 0.9, 0.975, 0.99995])
def test_students_quantile_is_that_of_scipy(freedom: int, share: float) -> None:
    assert students_quantile(freedom, share) == pytest.approx(stdtrit(freedom, share), rel=1e-9)


def test_an_unknown_pair_that_is_used_is_refused() -> None:
    cloud = three_tier(6, 2)
    fit, held_out = _halves(cloud, np.random.default_rng(0))
    fit[0, 1] = fit[1, 0] = held_out[0, 1] = held_out[1, 0] = np.nan
    with pytest.raises(NoAnswer, match="was not measured"):
        judge(_patterns("ring", 6), _fabric(fit, cloud.rack_of), _SIZE, "latency",
              _by_rack(cloud), np.arange(6), held_out, 0)  # fmt: skip
