"""Slow hosts, slow links and lopsided pairs: against the same told host by host and pair by pair."""

import math
from statistics import median

import numpy as np
import numpy.typing as npt
import pytest

from plink.model.network import Matrix
from solvers.diagnosis.latency import (
    DiagnosisThresholds,
    Suspect,
    asymmetric_pairs,
    expected,
    known_good,
    slow_hosts,
    slow_links,
)

Groups = npt.NDArray[np.intp]
SIGMA = 1.4826  # the median distance from the median of a normal distribution goes into its standard deviation so often


def drawn(seed: int) -> tuple[Matrix, Groups]:
    """Symmetric whole numbers, some missing, of three to nine hosts in groups of two or more; ties are likely."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 10))
    cost = np.triu(rng.choice([20.0, 24.0, 30.0, 40.0, 60.0], (n, n)), 1)
    cost[rng.random((n, n)) < rng.choice([0.0, 0.2, 0.7])] = np.nan
    slow = rng.integers(n)
    cost[slow] *= rng.choice([1.0, 1.5, 3.0])
    cost = np.triu(cost, 1)
    cost += cost.T
    np.fill_diagonal(cost, 0.0)
    groups = rng.integers(0, int(rng.integers(1, 5)), n)
    sizes = np.bincount(groups)
    groups[sizes[groups] == 1] = sizes.argmax()
    return cost, np.unique(groups, return_inverse=True)[1].astype(np.intp)


def finite(values: list[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def usual(cost: Matrix, groups: Groups) -> Matrix:
    """The median of the pairs between two groups, or within one; of groups between which nothing was measured: that
    between all other groups, else of everything."""
    n = len(cost)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    standard = math.nan
    for some in ([(i, j) for i, j in pairs if groups[i] != groups[j]], pairs):
        values = finite([cost[pair] for pair in some])
        if values:
            standard = median(values)
            break
    blocks: dict[tuple[int, int], list[float]] = {}
    for i, j in pairs:
        blocks.setdefault((groups[i], groups[j]), []).extend(finite([cost[i, j]]))
    medians = {block: median(values) for block, values in blocks.items() if values}
    result = np.full((n, n), np.nan)
    for i, j in pairs:
        result[i, j] = medians.get((groups[i], groups[j]), standard)
    return result


def test_what_a_pair_usually_takes() -> None:
    for seed in range(40):
        cost, groups = drawn(seed)
        assert np.array_equal(expected(cost, groups), usual(cost, groups), equal_nan=True), seed


def of_hosts(cost: Matrix, groups: Groups, limits: DiagnosisThresholds) -> tuple[list[Suspect], list[float]]:
    n = len(cost)
    takes = usual(cost, groups)
    offsets = []
    for i in range(n):
        excess = finite([cost[i, j] - takes[i, j] for j in range(n) if j != i])
        offsets.append(median(excess) if excess else 0.0)
    spread = SIGMA * median(abs(offset - median(offsets)) for offset in offsets)
    result = []
    for i in range(n):
        row = finite(takes[i].tolist())
        if row and offsets[i] > max(limits.share * median(row), limits.sigmas * spread, limits.floor_us):
            result.append(Suspect((i,), median(row), offsets[i]))
    return sorted(result, key=lambda item: -item.excess_us), offsets


LIMITS = [
    DiagnosisThresholds(),
    DiagnosisThresholds(floor_us=0.0),
    DiagnosisThresholds(0.1, 2.0, 0.5, 4.0),
    DiagnosisThresholds(0.25, 0.5, 0.2, 0.0),
]


@pytest.mark.parametrize("limits", LIMITS)
def test_slow_hosts_are_far_beyond_what_their_pairs_usually_take(limits: DiagnosisThresholds) -> None:
    """With limits of whole shares many hosts stand exactly at one, which is not beyond it."""
    spoke = 0
    for seed in range(40):
        cost, groups = drawn(seed)
        result, offsets = slow_hosts(cost, groups, limits)
        wanted, their_offsets = of_hosts(cost, groups, limits)
        assert result == wanted, seed
        assert offsets.tolist() == pytest.approx(their_offsets)
        spoke += bool(result)
    assert spoke > 1


def of_links(
    cost: Matrix, groups: Groups, offsets: npt.NDArray[np.float64], limits: DiagnosisThresholds
) -> list[Suspect]:
    n = len(cost)
    takes = usual(cost, groups)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    of = {(i, j): takes[i, j] + max(offsets[i], 0.0) + max(offsets[j], 0.0) for i, j in pairs}
    excess = {pair: cost[pair] - of[pair] for pair in pairs if math.isfinite(cost[pair] - of[pair])}
    if not excess:
        return []
    spread = SIGMA * median(abs(value) for value in excess.values())
    share = max(limits.share, limits.sigmas * (SIGMA * median(abs(excess[pair] / of[pair]) for pair in excess)))
    result = [
        Suspect(pair, of[pair], value) for pair, value in excess.items()
        if pair[0] < pair[1] and value > max(share * of[pair], limits.sigmas * spread, limits.floor_us)
    ]  # fmt: skip
    return sorted(result, key=lambda item: -item.excess_us)


@pytest.mark.parametrize("limits", LIMITS)
def test_slow_links_are_far_beyond_what_their_groups_and_hosts_explain(limits: DiagnosisThresholds) -> None:
    spoke = 0
    for seed in range(40):
        cost, groups = drawn(seed)
        offsets = np.random.default_rng(seed).choice([-8.0, 0.0, 4.0], len(cost))
        result = slow_links(cost, groups, offsets, limits)
        assert result == of_links(cost, groups, offsets, limits), seed
        spoke += bool(result)
    assert spoke > 1


@pytest.mark.parametrize("limits", LIMITS)
def test_lopsided_pairs_differ_by_far_more_than_others_and_than_clocks_do(limits: DiagnosisThresholds) -> None:
    spoke = 0
    for seed in range(40):
        cost, _ = drawn(seed)
        rng = np.random.default_rng(seed)
        latency = cost + (cost > 0) * rng.choice([0.0, 4.0, 5.0, 10.0, 40.0], cost.shape, p=[0.4, 0.3, 0.1, 0.1, 0.1])
        latency[rng.random(cost.shape) < 0.1] = np.nan
        n = len(cost)
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        more = {(i, j): latency[i, j] - latency[j, i] for i, j in pairs}
        spread = SIGMA * median(finite([abs(value) for value in more.values()]) or [0.0])
        wanted = [
            (i, j) for i, j in pairs
            if more[i, j] > limits.asymmetry * latency[j, i]
            and more[i, j] > limits.sigmas * spread and more[i, j] > limits.floor_us
        ]  # fmt: skip
        assert asymmetric_pairs(latency, limits) == wanted, seed
        spoke += bool(wanted)
    assert spoke > 1


# Whom to measure a suspect against


def test_suspect_is_remeasured_against_a_near_healthy_host() -> None:
    cost = np.array([
        [0.0, 30.0, 20.0, 20.0, 90.0],
        [30.0, 0.0, 10.0, 10.0, 10.0],
        [20.0, 10.0, 0.0, 10.0, 10.0],
        [20.0, 10.0, 10.0, 0.0, 10.0],
        [90.0, 10.0, 10.0, 10.0, 0.0],
    ])  # fmt: skip
    offsets = np.array([0.0, 0.0, 3.0, 1.0, 0.0])
    assert known_good(cost, offsets, {0}, 0) == 3
    assert known_good(cost, -offsets, {0}, 0) == 2
    assert known_good(cost, offsets, {2, 3}, 0) == 1, "nor is it measured against itself"
    assert known_good(cost, offsets, {0, 1, 2, 3}, 0) == 4
    assert known_good(cost, offsets, {1, 2, 3, 4}, 0) is None
