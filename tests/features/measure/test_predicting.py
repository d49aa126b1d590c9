"""Predictions of adaptive probing: the better of two methods, and the pairs that the best ring would use."""

import itertools

import numpy as np
import pytest

from benchmarks.clouds import three_tier
from plink.features.measure.predicting import predict_pairs, unmeasured_ring_pairs
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix
from probes.measurements import Measurements


def wide_area(n: int, seed: int) -> Matrix:
    """Round trips between hosts in twelve cities, microseconds, with an access link each."""
    rng = np.random.default_rng(seed)
    places = 3 * rng.normal(size=(12, 3))[rng.integers(12, size=n)] + 0.3 * rng.normal(size=(n, 3))
    access = rng.uniform(100, 2000, n)
    rtt = 5000 * np.linalg.norm(places[:, None] - places[None], axis=2) + access[:, None] + access[None, :]
    np.fill_diagonal(rtt, 0.0)
    return np.asarray(rtt)


def sparse(rtt_us: Matrix, share: float, seed: int) -> Matrix:
    """The same with few pairs measured."""
    keep = np.triu(np.random.default_rng(seed).random(rtt_us.shape) < share, 1)
    return np.where(keep | keep.T | np.eye(len(rtt_us), dtype=bool), rtt_us, np.nan)


def pairs_of(latency_us: Matrix, count: int) -> np.ndarray:
    """Measured pairs to judge by."""
    return np.argwhere(np.triu(np.isfinite(latency_us), 1))[:: max(1, int(np.isfinite(latency_us).sum() / 2 / count))]


def median_error(predicted: Matrix, truth: Matrix, latency: Matrix) -> float:
    unseen = np.isnan(latency)
    return float(np.median(np.abs(predicted[unseen] - truth[unseen]) / truth[unseen]))


@pytest.mark.extended
@pytest.mark.parametrize("seed", [1, 2])
def test_wide_area_is_predicted_by_coordinates(seed: int) -> None:
    truth = wide_area(120, seed)
    latency = sparse(truth, 0.2, seed)
    quick = predict_pairs(latency, pairs_of(latency, 100), seed, quick=True)
    best = predict_pairs(latency, pairs_of(latency, 100), seed)
    assert (quick.method, best.method) == ("tiers", "embedding")
    assert best.held_out_error < quick.held_out_error
    assert median_error(best.rtt_us, truth, latency) < 0.6 * median_error(quick.rtt_us, truth, latency)


def test_data_centre_is_predicted_as_well_as_by_groups() -> None:
    truth = three_tier(96, seed=4).network(np.random.default_rng(1)).rtt_us
    latency = sparse(truth, 0.25, 1)
    quick = predict_pairs(latency, pairs_of(latency, 100), 1, quick=True)
    best = predict_pairs(latency, pairs_of(latency, 100), 1)
    assert median_error(best.rtt_us, truth, latency) <= 1.1 * median_error(quick.rtt_us, truth, latency)


def test_no_validation_pairs_gives_groups() -> None:
    latency = sparse(wide_area(20, 1), 0.5, 1)
    prediction = predict_pairs(latency, np.zeros((0, 2), dtype=np.intp), 1)
    assert prediction.method == "tiers"
    assert prediction.details()["held_out_error"] is None


def test_pairs_of_the_best_ring_are_measured_in_disjoint_rounds() -> None:
    n, truth = 40, wide_area(40, 3)
    measurements = Measurements(Hosts(tuple(Host(f"h{k}", f"10.0.0.{k}") for k in range(n))))
    measurements.latency[:] = sparse(truth, 0.3, 3)
    failed = tuple(np.argwhere(np.triu(np.isnan(measurements.latency), 1))[0].tolist())
    measurements.record_error(*failed, "refused")
    for _ in range(6):
        prediction = predict_pairs(measurements.latency, pairs_of(measurements.latency, 60), 3, quick=True)
        rounds = unmeasured_ring_pairs(measurements, prediction, 3)
        for pairs in rounds:
            hosts = list(itertools.chain(*pairs))
            assert len(hosts) == len(set(hosts))
            for i, j in pairs:
                assert (i, j) != failed
                assert np.isnan(measurements.latency[i, j])
                measurements.latency[i, j] = measurements.latency[j, i] = truth[i, j]
        if not rounds:
            break
    assert sum(len(pairs) for pairs in rounds) < n / 4, "the ring uses fewer and fewer pairs that are not measured"
