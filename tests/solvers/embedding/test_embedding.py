"""Hosts placed by equation 4.1: what is known is found again, noise is seen through, and what cannot be is said."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.clouds import Cloud, three_tier
from plink.errors import NoAnswer, UsageError
from plink.model.embedding import SmoothingVerdict
from plink.model.network import Matrix, symmetrised
from solvers.affinity import paia
from solvers.embedding.embed import embed, triangle_violations
from solvers.embedding.pairs import EmbeddingConstraints, folds, reachable
from solvers.embedding.verdict import validate_halves, validate_held_out
from solvers.prediction.observed import by_neighbours


def points(n: int, dimension: int, alpha: float = 1.0, seed: int = 0) -> Matrix:
    """Distances to the power ``alpha`` of hosts at random places."""
    place = np.random.default_rng(seed).uniform(0, 10, (n, dimension))
    return np.linalg.norm(place[:, None] - place, axis=2) ** alpha


def without(rtt: Matrix, share: float, seed: int = 0) -> tuple[Matrix, np.ndarray]:
    """The same with a share of the pairs unmeasured, and which."""
    gone = np.triu(np.random.default_rng(seed).random(rtt.shape) < share, 1)
    gone |= gone.T
    return np.where(gone, np.nan, rtt), gone


def off(fitted: Matrix, true: Matrix) -> float:
    """The median error relative to the median distance."""
    upper = np.triu_indices(len(true), 1)
    return float(np.median(np.abs(fitted - true)[upper]) / np.median(true[upper]))


@pytest.mark.parametrize(("dimension", "alpha", "relative"), [(2, 1.0, False), (3, 1.5, True), (3, 2.0, False)])
def test_noiseless_distances_are_recovered(dimension: int, alpha: float, relative: bool) -> None:
    true = points(24, dimension, alpha)
    result = embed(true, EmbeddingConstraints(dimension, alpha, heights=False, relative=relative))
    assert off(result.fitted_us, true) < 0.03
    assert (result.dimension, result.alpha, result.tried, result.left_out) == (dimension, alpha, 1, ())
    assert result.coordinates.shape == (24, dimension)


def test_fitted_distances_are_those_of_the_coordinates_and_heights() -> None:
    result = embed(points(16, 2) + 1, EmbeddingConstraints(alpha=1.5, heights=True))
    apart = np.linalg.norm(result.coordinates[:, None] - result.coordinates, axis=2) ** 1.5
    expected = apart + result.heights_us[:, None] + result.heights_us
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(result.fitted_us, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result.coordinates.mean(axis=0), 0, atol=1e-9)


def test_heights_are_found() -> None:
    heights = np.zeros(30)
    heights[[3, 17]] = 6, 3
    rtt = points(30, 2) + heights[:, None] + heights
    np.fill_diagonal(rtt, 0)
    result = embed(rtt, EmbeddingConstraints(dimension=2, alpha=1.0, heights=True)).heights_us
    assert result[3] == pytest.approx(6, abs=0.5)
    assert result[17] == pytest.approx(3, abs=0.5)
    assert (np.delete(result, [3, 17]) < 0.5).all()
    assert (result >= 0).all()


def test_the_better_setting_is_chosen() -> None:
    """What is the square of distances in a plane is fitted best as such."""
    flat, squared = points(32, 2), points(32, 2, alpha=2.0)
    plain = embed(flat, EmbeddingConstraints(heights=False))
    assert plain.alpha == 1.0
    assert not plain.heights_us.any()
    assert embed(squared, EmbeddingConstraints(heights=False)).alpha == 2.0


@pytest.mark.extended
def test_one_direction_is_enough_and_the_worse_one_counts() -> None:
    true = points(16, 2)
    upper = np.where(np.tri(16, dtype=bool), np.nan, true)
    both = np.where(np.tri(16, dtype=bool), true / 2, true)
    constraints = EmbeddingConstraints(dimension=2, heights=False)
    np.testing.assert_array_equal(embed(upper, constraints).fitted_us, embed(true, constraints).fitted_us)
    np.testing.assert_array_equal(embed(both, constraints).fitted_us, embed(true, constraints).fitted_us)


def test_the_seed_decides_everything() -> None:
    noisy = points(16, 2) * np.random.default_rng(0).lognormal(0, 0.2, (16, 16))
    first, again, other = (embed(noisy, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.coordinates, again.coordinates)
    assert first.held_out_error == again.held_out_error
    assert (first.coordinates.shape != other.coordinates.shape) or (first.coordinates != other.coordinates).any()


def test_noise_is_seen_through() -> None:
    cloud = three_tier(32, 0, "uneven", noise_sigma=0.0, sample_sigma=0.7)
    raw = symmetrised(cloud.sample(np.random.default_rng(0)))
    truth = cloud.rtt_us
    before = paia(raw, truth)
    assert before < 0.9
    assert paia(embed(raw).fitted_us, truth) > before + 0.08


def test_a_host_of_which_nothing_is_known_is_left_out() -> None:
    rtt = points(12, 2)
    rtt[5] = rtt[:, 5] = np.nan
    result = embed(rtt, EmbeddingConstraints(dimension=2, heights=False))
    assert result.left_out == (5,)
    assert np.isnan(result.coordinates[5]).all()
    assert np.isnan(result.fitted_us[5]).all()
    assert np.isfinite(np.delete(np.delete(result.fitted_us, 5, 0), 5, 1)).all()


def test_three_hosts_are_too_few() -> None:
    for n in (0, 2, 3):
        with pytest.raises(NoAnswer, match=f"4 hosts .* {n} "):
            embed(points(n, 2))
    with pytest.raises(NoAnswer, match=r"0 \(of 8\)"):
        embed(np.full((8, 8), np.nan))


def test_parts_with_nothing_between_them_are_no_answer() -> None:
    rtt = points(9, 2)
    rtt[:2, 2:] = rtt[2:, :2] = np.nan
    with pytest.raises(NoAnswer, match=r"2 parts .* one is host 0, host 1: probe"):
        embed(rtt)
    with pytest.raises(NoAnswer, match="one is a, b: probe"):
        embed(rtt, names=list("abcdefghi"))


def test_pairs_that_form_a_tree_are_no_answer() -> None:
    rtt = np.full((5, 5), np.nan)
    for k in range(4):
        rtt[k, k + 1] = 10.0
    with pytest.raises(NoAnswer, match="without a loop"):
        embed(rtt)


@pytest.mark.parametrize("device", ["abacus", "meta"])
def test_a_device_that_cannot_be_used_is_named(device: str) -> None:
    with pytest.raises(UsageError, match=f"device '{device}'"):
        embed(points(8, 2), device=device)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_distances() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    true = points(24, 2)
    assert off(embed(true, EmbeddingConstraints(2, 1.0, heights=False), device="cuda").fitted_us, true) < 0.03


@given(n=st.integers(4, 40), share=st.floats(0, 0.9), seed=st.integers(0, 1000))
@settings(max_examples=40)
def test_what_is_left_to_fit_still_joins_all_hosts(n: int, share: float, seed: int) -> None:
    measured, _ = without(points(n, 2, seed=seed), share, seed)
    try:
        pairs = reachable(measured).pairs
        held_out = folds(pairs, np.random.default_rng(seed))
    except NoAnswer:
        return
    assert len({len(fold) for fold in held_out}) == 1
    together = np.concatenate(held_out)
    assert len(np.unique(together)) == len(together)
    for fold in held_out:
        left = np.full((pairs.n, pairs.n), np.nan)
        remaining = np.setdiff1d(np.arange(len(pairs)), fold)
        left[pairs.i[remaining], pairs.j[remaining]] = 1.0
        assert len(reachable(left).hosts) == pairs.n


@given(n=st.integers(3, 12), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_detours_are_counted_as_one_would(n: int, seed: int) -> None:
    rtt = np.random.default_rng(seed).integers(1, 10, (n, n)).astype(float)
    rtt = np.maximum(rtt, rtt.T)
    triples = [(i, j, k) for i in range(n) for j in range(i) for k in range(n) if k not in (i, j)]
    worse = sum(rtt[i, j] > rtt[i, k] + rtt[k, j] for i, j, k in triples)
    assert triangle_violations(rtt) == pytest.approx(worse / len(triples))


def test_fitting_helps_where_noise_is_large_and_hurts_where_it_is_small() -> None:
    noisy = three_tier(64, 0, "powers", noise_sigma=0.0, sample_sigma=0.6)
    quiet = three_tier(24, 0, "powers", noise_sigma=0.4, sample_sigma=0.01)
    constraints = EmbeddingConstraints(8, 1.0, heights=False, relative=True)

    def validated(cloud: Cloud) -> SmoothingVerdict:
        halves = cloud.halves(np.random.default_rng(1))
        return validate_halves(halves, embed(np.sqrt(halves[0] * halves[1]), constraints))

    helps, hurts = validated(noisy), validated(quiet)
    assert (helps.word, helps.basis, helps.pairs) == ("helps", "halves", 64 * 63 // 2)
    assert hurts.word == "hurts"
    assert hurts.raw_error < 0.05 < hurts.fitted_error


@pytest.mark.parametrize("kind", ["places", "routes"])
def test_unmeasured_pairs_are_predicted_by_what_is_nearer(kind: str) -> None:
    """Sites whose round trips to each other are random are no places: their hosts predict each other better."""
    rng, n, sites = np.random.default_rng(1), 60, 6
    site = np.repeat(np.arange(sites), n // sites)
    if kind == "places":
        true = points(n, 2)
    else:
        route_us = symmetrised(rng.lognormal(4, 1, (sites, sites)))
        np.fill_diagonal(route_us, 3.0)
        true = symmetrised(route_us[np.ix_(site, site)] * rng.lognormal(0, 0.2, (n, n)))
    np.fill_diagonal(true, 0.0)
    measured, gone = without(true, 0.2)
    result = embed(measured, EmbeddingConstraints(dimension=2, alpha=1.0, heights=False))
    i, j = np.nonzero(np.triu(gone))
    by_fit = np.linalg.norm(result.coordinates[i] - result.coordinates[j], axis=1)
    near = by_neighbours(measured, i, j)

    def error(predicted: np.ndarray) -> float:
        return float(np.abs(np.log(predicted / true[i, j])).mean())

    assert result.unmeasured_by == ("fit" if kind == "places" else "neighbours")
    assert error(result.fitted_us[i, j]) <= 1.05 * min(error(by_fit), error(near))
    measured_pairs = np.triu(~gone, 1)
    apart = np.linalg.norm(result.coordinates[:, None] - result.coordinates, axis=2)
    assert np.allclose(result.fitted_us[measured_pairs], apart[measured_pairs], rtol=1e-3)


def test_errors_by_halves_are_those_to_the_truth() -> None:
    """Of all samples together, and of one half; the fit of a half is a little worse than that of the whole."""
    true = three_tier(48, 3, "powers", noise_sigma=0.2).rtt_us
    rng = np.random.default_rng(2)
    noise = [np.triu(rng.normal(0, 0.2, true.shape), 1) for _ in range(2)]  # the same in both directions
    halves = true * np.exp(noise[0] + noise[0].T), true * np.exp(noise[1] + noise[1].T)
    both = np.sqrt(halves[0] * halves[1])
    result = embed(both, EmbeddingConstraints(8, 1.0, heights=False, relative=True))
    upper = np.triu_indices(48, 1)

    def off(message: Matrix) -> float:
        return float(np.sqrt((np.log(message[upper] / true[upper]) ** 2).mean()))

    verdict, of_half = validate_halves(halves, result), validate_halves(halves, result, whole=False)
    assert verdict.raw_error == pytest.approx(off(both), rel=0.15)
    assert of_half.raw_error == pytest.approx(off(halves[0]), rel=0.15)
    assert off(result.fitted_us) * 0.9 < verdict.fitted_error < off(result.fitted_us) * 1.6


@pytest.mark.extended
def test_held_out_errors_are_those_of_the_fit() -> None:
    """Root mean squares: in a plane, where nothing is noise, next to none; else what the measurements are off by."""
    true, constraints = points(32, 2), EmbeddingConstraints(dimension=2, alpha=1.0, heights=False)
    verdict = validate_held_out(true, embed(true, constraints))
    assert verdict.fitted_error < 0.02 < verdict.raw_error < 0.6
    noise = np.triu(np.random.default_rng(3).normal(0, 0.2, true.shape), 1)
    measured = true * np.exp(noise + noise.T)
    assert 0.15 < validate_held_out(measured, embed(measured, constraints)).fitted_error < 0.35


@pytest.mark.extended
def test_without_halves_pairs_are_held_out() -> None:
    true = points(24, 2)
    verdict = validate_held_out(true, embed(true, EmbeddingConstraints(dimension=2, alpha=1.0, heights=False)))
    assert (verdict.word, verdict.basis) == ("helps", "held-out")
    alike = np.full((24, 24), 60.0) * np.random.default_rng(0).lognormal(0, 0.1, (24, 24))
    assert (
        validate_held_out(alike, embed(alike, EmbeddingConstraints(dimension=8, alpha=2.0, heights=False))).word
        != "helps"
    )
