"""The parts of a prediction against slower ones: trees walked pair by pair, dense equations, variances by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from plink.model.network import Matrix
from solvers.prediction.observed import ObservedPairs, observed
from solvers.prediction.tiered import ClusterTree, TieredPrediction, host_offsets_us, merge_tree, predict_tiered

NAN = float("nan")


def racks_and_pods() -> Matrix:
    """Twelve hosts, three a rack, two racks a pod: 10, 30 and 80 us."""
    host = np.arange(12)
    rack, pod = host // 3, host // 6
    return np.where(rack[:, None] == rack, 10.0, np.where(pod[:, None] == pod, 30.0, 80.0))


@given(st.integers(2, 40), st.integers(0, 999))
def test_two_hosts_merge_at_the_maximum_between_them(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = ClusterTree(rng.permutation(n), rng.integers(0, 1000, n - 1).astype(float))
    i, j = np.triu_indices(n, 1)
    place = {int(host): at for at, host in enumerate(tree.order)}
    expected = [max(tree.height_us[min(place[a], place[b]) : max(place[a], place[b])])
                for a, b in zip(i.tolist(), j.tolist(), strict=True)]  # fmt: skip
    assert tree.highest_us(i, j).tolist() == tree.highest_us(j, i).tolist() == expected


@given(st.integers(1, 20), st.integers(0, 999), st.integers(0, 10))
def test_cut_hosts_are_together_where_no_higher_place_is_between_them(n: int, seed: int, height: int) -> None:
    """At the height itself they are."""
    rng = np.random.default_rng(seed)
    tree = ClusterTree(rng.permutation(n), rng.integers(0, 10, n - 1).astype(float))
    label, group = tree.cut(height), 0
    for at, host in enumerate(tree.order):
        group += at > 0 and tree.height_us[at - 1] > height
        assert label[host] == group


def test_unconnected_hosts_merge_at_the_farthest_pair() -> None:
    rtt = np.full((6, 6), NAN)
    rtt[0, 4], rtt[1, 5], rtt[4, 2] = 7.0, 50.0, 20.0
    tree = merge_tree(observed(rtt))
    pairs = [(0, 4, 7), (1, 5, 50), (2, 4, 20), (0, 2, 20), (0, 1, 50), (3, 5, 50), (3, 0, 50)]
    i, j, expected = (np.array(some) for some in zip(*pairs, strict=True))
    assert tree.highest_us(i, j).tolist() == expected.tolist()
    assert merge_tree(observed(np.full((3, 3), NAN))).height_us.tolist() == [0, 0]


def offsets_by_equations(pairs: ObservedPairs, expected: np.ndarray) -> np.ndarray:
    """The ridge regression's normal equations, solved densely; its penalty by the method of moments."""
    weight = np.zeros((pairs.n, pairs.n))
    residual = np.zeros((pairs.n, pairs.n))
    for i, j, rtt, us in zip(pairs.i, pairs.j, pairs.rtt_us, expected, strict=True):
        weight[i, j] = weight[j, i] = 1 / us**2
        residual[i, j] = residual[j, i] = rtt - us
    mass, pull = weight.sum(axis=1), (weight * residual).sum(axis=1)
    noise = (weight * residual**2).sum() / (weight > 0).sum()
    seen = mass > 0
    own = np.var(pull[seen] / mass[seen]) - np.mean(noise / mass[seen])
    if own <= 0:
        return np.zeros(pairs.n)
    result = np.linalg.solve(np.diag(mass + noise / own) + weight, pull)
    return np.asarray(result - result.mean())


@pytest.mark.parametrize("seed", range(4))
def test_offsets_are_what_the_equations_give(seed: int) -> None:
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(14, 1)
    remaining = (rng.random(len(i)) < 0.8) & (i != 3) & (j != 3) if seed % 2 else np.ones(len(i), dtype=bool)
    i, j = i[remaining], j[remaining]
    expected = rng.uniform(50, 200, len(i))
    offset = rng.exponential(40.0, 14)
    offset -= offset.mean()
    pairs = ObservedPairs(14, i, j, expected * rng.lognormal(0, 0.05, len(i)) + offset[i] + offset[j])
    result = host_offsets_us(pairs, expected)
    assert result == pytest.approx(offsets_by_equations(pairs, expected), abs=0.01)
    assert abs(result.mean()) < 1e-9
    assert result.std() > 5
    # Without the hosts' own part there is none.
    noise = ObservedPairs(14, i, j, expected * rng.lognormal(0, 0.05, len(i)))
    assert host_offsets_us(noise, expected) == pytest.approx(offsets_by_equations(noise, expected), abs=0.01)


def blocks(count: Matrix, mean: Matrix, heights: list[float], prior: float) -> TieredPrediction:
    """One host a group, but for group 0, which has two."""
    groups = np.array([0, *range(len(count))])
    return TieredPrediction(
        groups, np.array(heights), csr_array(count * mean), csr_array(count), np.zeros(len(groups)), prior
    )


def test_group_distance_is_by_pairs_and_merge_height() -> None:
    """Each pair of four groups by hand: c pairs of mean m, and the tree's word h for p pairs: (c m + p h) / (c + p)."""
    heights, prior = [30.0, 90.0, 50.0], 2.0
    count = np.array([[1, 0, 2, 0], [0, 0, 3, 1], [2, 3, 0, 0], [0, 1, 0, 0]], dtype=float)
    mean = np.array([[8, 0, 70, 0], [0, 0, 95, 60], [70, 95, 0, 0], [0, 60, 0, 0]], dtype=float)
    result = blocks(count, mean, heights, prior)
    everyone = np.arange(5)
    for expected_doubt, rows in ((0.0, result.rtt_us(everyone)), (0.3, result.lower_bound_us(everyone))):
        for a in range(5):
            for b in range(5):
                g, h = max(a - 1, 0), max(b - 1, 0)
                if a == b:
                    expected = 0.0
                elif g == h:
                    expected = 8.0
                else:
                    highest = max(heights[min(g, h) : max(g, h)])
                    expected = (count[g, h] * mean[g, h] + prior * highest) / (count[g, h] + prior)
                assert rows[a, b] == pytest.approx(expected * (1 - expected_doubt / (1 + count[g, h])))


def test_a_slow_host_is_slow_to_those_it_was_not_measured_with() -> None:
    """Two racks, 20 and 100 us, and one host that adds 60 to everyone, of which a third is seen at least: unmeasured
    pairs of others are predicted within a twentieth, those of that host within a third, and slower than others."""
    rng = np.random.default_rng(0)
    rack = np.repeat(np.arange(4), 6)
    bare = np.where(rack[:, None] == rack, 20.0, 100.0)
    offset = np.zeros(24)
    offset[7] = 60.0
    true = bare + offset[:, None] + offset
    gone = np.triu(rng.random((24, 24)) < 0.2, 1)
    gone |= gone.T
    result = predict_tiered(np.where(gone, NAN, true))
    assert result.offset_us.argmax() == 7
    assert 20 < result.offset_us[7] - np.median(result.offset_us) < 66
    off = np.abs(result.rtt_us(np.arange(24)) / true - 1)
    assert off[7][gone[7]].max() < 0.34
    assert np.median(np.delete(off, 7, 0)[np.delete(gone, 7, 0)]) < 0.05
    assert (result.rtt_us(np.array([7]))[0] > bare[7])[gone[7]].all()


def test_a_network_without_noise_is_predicted_as_it_is() -> None:
    """Also where only some of the racks' pairs are known; sums and numbers of pairs are those of the groups."""
    full = racks_and_pods()
    measured = full.copy()
    for i, j in ((0, 1), (0, 4), (2, 9), (6, 11), (3, 8)):
        measured[i, j] = measured[j, i] = NAN
    result = predict_tiered(measured)
    np.fill_diagonal(full, 0.0)
    assert result.rtt_us(np.arange(12)) == pytest.approx(full)
    assert (result.groups[:, None] == result.groups).tolist() == (full <= 10.0).tolist()
    assert not result.offset_us.any()
    assert sorted(result.height_us.tolist()) == [30, 30, 80]
    of = {int(result.groups[3 * rack]): rack for rack in range(4)}
    count = result.count.toarray()
    order = [k for k, _ in sorted(of.items(), key=lambda pair: pair[1])]
    assert count[np.ix_(order, order)].tolist() == [[4, 8, 9, 8], [8, 6, 8, 9], [9, 8, 6, 8], [8, 9, 8, 6]]
    between = full[np.ix_([0, 3, 6, 9], [1, 4, 7, 10])]
    assert result.total_us.toarray()[np.ix_(order, order)] == pytest.approx(count[np.ix_(order, order)] * between)
