"""Unmeasured pairs: the tree of few pairs, the tiers in it, host offsets, and what is predicted from all three."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import squareform

from benchmarks.fabric import three_tier
from plink.model.network import Matrix
from probes.round_robin import RoundRobin
from solvers.prediction.observed import ObservedPairs, observed
from solvers.prediction.tiered import host_offsets_us, innermost_tier_us, merge_tree, predict_tiered


def some_rounds(n: int, seed: int, rounds: int, **more: float) -> tuple[Matrix, np.ndarray]:
    """The matrix after random rounds on a fabric, and the racks."""
    fabric, circle = three_tier(n, seed, **more), RoundRobin(n, seed)  # type: ignore[arg-type]
    measured = np.full((n, n), np.nan)
    for k in range(rounds):
        i, j = circle[k].T
        measured[i, j], measured[j, i] = fabric.rtt_us(i, j), fabric.rtt_us(j, i)
    return measured, fabric.rack


@settings(deadline=None)
@given(n=st.integers(2, 25), seed=st.integers(0, 2**32 - 1))
def test_complete_measurements_give_the_tree_of_average_linkage(n: int, seed: int) -> None:
    """Cophenetic distances as SciPy has them."""
    full = np.triu(np.random.default_rng(seed).uniform(10, 100, (n, n)), 1)
    full += full.T
    pairs = observed(full)
    expected = squareform(cophenet(linkage(squareform(full), "average")))
    assert merge_tree(pairs).highest_us(pairs.i, pairs.j) == pytest.approx(expected[pairs.i, pairs.j])


@settings(deadline=None)
@given(n=st.integers(1, 30), seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1))
def test_a_tree_has_every_host_however_little_is_known(n: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    measured = np.where(rng.random((n, n)) < share, rng.uniform(10, 100, (n, n)), np.nan)
    tree = merge_tree(observed(measured))
    assert sorted(tree.order.tolist()) == list(range(n))
    assert tree.height_us.shape == (n - 1,)
    assert len(set(tree.cut(-1.0).tolist())) == n
    assert len(set(tree.cut(1e9).tolist())) == 1


@settings(max_examples=50)
@given(
    hnp.arrays(
        np.float64, st.integers(1, 12).map(lambda n: (n, n)), elements=st.just(np.nan) | st.floats(0, 1e6, width=32)
    )
)
def test_a_prediction_is_whole_and_symmetric_whatever_is_measured(measured: Matrix) -> None:
    """Zeros, ties, nothing at all: every pair gets a finite time, the same both ways, 0 to itself."""
    n = len(measured)
    prediction = predict_tiered(measured)
    rtt = prediction.rtt_us(np.arange(n))
    assert rtt.shape == (n, n)
    assert np.isfinite(rtt).all()
    assert rtt == pytest.approx(rtt.T)
    assert not np.diagonal(rtt).any()
    assert prediction.groups.shape == (n,)


def test_an_unmeasured_pair_of_one_rack_takes_what_the_others_there_take() -> None:
    """Whatever the tree says of pairs of racks."""
    rack = np.repeat(np.arange(3), 4)
    measured = np.where(rack[:, None] == rack, 20.0, np.where(rack[:, None] + rack == 1, 100.0, 160.0))
    measured[0, 1] = measured[1, 0] = np.nan
    assert predict_tiered(measured).rtt_us(np.array([0]))[0].tolist() == [0.0] + [20.0] * 3 + [100.0] * 4 + [160.0] * 4


@pytest.mark.parametrize("seed", range(3))
def test_tree_weight_depends_on_the_source_of_variance(seed: int) -> None:
    """Times that differ from what the tree says by a fifth: by the racks, by the pairs, by both."""
    rng, rack = np.random.default_rng(seed), np.repeat(np.arange(8), 4)

    def spread(n: int) -> Matrix:
        drawn = np.triu(rng.uniform(0.8, 1.2, (n, n)), 1)
        return drawn + drawn.T

    def prior(factor: Matrix) -> float:
        return predict_tiered(np.where(rack[:, None] == rack, 20.0, 100.0 * factor)).prior

    by_racks, by_pairs = spread(8)[rack][:, rack], spread(32)
    assert prior(by_racks) == 1.0
    assert prior(by_pairs) > 20.0
    assert 1.0 < prior(by_racks * by_pairs) < 5.0


def test_tiers_are_separated_at_the_valley() -> None:
    """The first valley, not the deepest; none in a single tier, in too few pairs, or in nothing."""
    rng = np.random.default_rng(1)
    tiers = [rng.lognormal(np.log(us), 0.05, 400) for us in (30, 60, 600)]
    assert 35 < innermost_tier_us(np.concatenate(tiers)) < 52
    assert innermost_tier_us(tiers[0]) == 0.0
    assert 70 < innermost_tier_us(np.concatenate([[20.0, 21.0], *tiers[1:], [3000.0]])) < 520
    assert innermost_tier_us(np.concatenate([tiers[0], [900.0]])) == 0.0
    assert innermost_tier_us(np.zeros(0)) == 0.0
    assert innermost_tier_us(np.zeros(5)) == 0.0


def test_offsets_are_found_where_there_are_any() -> None:
    """Within a fifth of their spread; none are made up from noise."""
    rng = np.random.default_rng(3)
    i, j = np.triu_indices(60, 1)
    offset = rng.exponential(10.0, 60)
    noise = rng.lognormal(0, 0.1, len(i))
    nothing = host_offsets_us(ObservedPairs(60, i, j, 100.0 * noise), np.full(len(i), 100.0))
    result = host_offsets_us(ObservedPairs(60, i, j, (100.0 + offset[i] + offset[j]) * noise), np.full(len(i), 120.0))
    assert np.std(result - offset) < 0.2 * np.std(offset)
    assert np.std(nothing) < 0.1 * np.std(offset)


@pytest.mark.parametrize("offset_us", [0.0, 5.0])
def test_far_pairs_are_predicted_from_a_few_random_rounds(offset_us: float) -> None:
    """A tenth of the pairs of 256 hosts: unmeasured pairs within 6 % (median) of what is typical for them."""
    measured, _ = some_rounds(256, 4, 25, offset_us=offset_us)
    fabric = three_tier(256, 4, offset_us=offset_us)
    i, j = np.nonzero(np.triu(np.isnan(measured), 1))
    predicted = predict_tiered(measured).rtt_us(np.arange(256))[i, j]
    assert np.median(np.abs(predicted / fabric.true_us(i, j) - 1)) <= 0.06


def test_groups_are_the_racks_once_all_is_measured() -> None:
    measured, rack = some_rounds(48, 5, 47, uneven=True)
    groups = predict_tiered(measured).groups
    assert ((groups[:, None] == groups) == (rack[:, None] == rack)).all()
