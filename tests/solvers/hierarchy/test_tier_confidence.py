"""How sure tiers are: near 1 where noise is small, lower where it blurs them, and unknown without halves."""

import numpy as np
import pytest

from plink.model.network import Matrix
from solvers.hierarchy.shared_tiers import TierConfidence, tier_confidences

RACKS = [list(range(8 * k, 8 * k + 8)) for k in range(8)]
PODS = [list(range(16 * k, 16 * k + 16)) for k in range(4)]
ZONES = [list(range(32 * k, 32 * k + 32)) for k in range(2)]


def halves(times_us: tuple[float, ...], sigma: float, seed: int) -> tuple[Matrix, Matrix]:
    """64 hosts: round trips in a rack, a pod, a zone and beyond, by either half of the samples."""
    host = np.arange(64)
    apart = [host[:, None] // size != host // size for size in (8, 16, 32)]
    rtt = np.select(apart[::-1], times_us[:0:-1], times_us[0])
    rng = np.random.default_rng(seed)
    first, second = (rtt * rng.lognormal(0, sigma, rtt.shape) for _ in range(2))
    for half in (first, second):
        np.fill_diagonal(half, 0.0)
    return first, second


def confidences(
    times_us: tuple[float, ...], sigma: float, tiers: list[list[list[int]]], seed: int = 0
) -> list[TierConfidence]:
    """Of the tiers of these round trips."""
    first, second = halves(times_us, sigma, seed)
    return tier_confidences(np.sqrt(first * second), (first, second), tiers)


def test_tiers_beyond_the_noise_are_certain() -> None:
    for confidence in confidences((40.0, 80.0, 140.0, 250.0), 0.08, [RACKS, PODS, ZONES]):
        assert confidence.tier == 1.0
        assert set(confidence.groups) == {1.0}


def test_blurred_tiers_are_less_certain_the_more_they_are_blurred() -> None:
    """Racks of 40 us, other racks a fifth farther."""
    shares = [confidences((40.0, 48.0, 48.0, 48.0), sigma, [RACKS])[0].tier for sigma in (0.05, 0.2, 0.4)]
    assert shares[0] > 0.95
    assert shares[0] > shares[1] + 0.2
    assert shares[2] < 0.1


def test_a_blurred_tier_leaves_the_one_below_certain() -> None:
    racks, pods = confidences((40.0, 180.0, 183.0, 183.0), 0.2, [RACKS, PODS])
    assert racks.tier > 0.95
    assert pods.tier < 0.5


def test_only_the_groups_that_may_be_others_are_uncertain() -> None:
    """A host of the first rack is almost as near to the second: whether it is in either changes with the samples."""
    first, second = halves((40.0, 80.0, 140.0, 250.0), 0.02, 1)
    for half, us in ((first, 45.0), (second, 75.0)):
        half[0, 8:16] = half[8:16, 0] = us
        half[0, 1:8] = half[1:8, 0] = 120.0 - us
    (racks,) = tier_confidences(np.sqrt(first * second), (first, second), [RACKS])
    assert min(racks.groups[2:]) == 1.0
    assert max(racks.groups[:2]) < 0.95
    assert racks.tier <= min(racks.groups)


def test_hosts_in_no_group_do_not_count() -> None:
    """One that never answered."""
    first, second = halves((40.0, 80.0, 140.0, 250.0), 0.08, 2)
    for half in (first, second):
        half[63, :63] = half[:63, 63] = np.nan
    tiers = [[*RACKS[:-1], RACKS[-1][:-1]], [*PODS[:-1], PODS[-1][:-1]]]
    assert [row.tier for row in tier_confidences(np.sqrt(first * second), (first, second), tiers)] == [1.0, 1.0]


def test_without_halves_nothing_is_known_of_the_noise() -> None:
    first, second = halves((40.0, 80.0, 140.0, 250.0), 0.08, 3)
    unknown = np.full_like(first, np.nan)
    assert tier_confidences(first, (first, unknown), [RACKS]) == []
    assert tier_confidences(first, (), [RACKS]) == []
    assert tier_confidences(first, (first, second), []) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_the_groups_may_be_found_in_another_way(seed: int) -> None:
    """As where most pairs are unmeasured; which hosts are nearest says whether they are in one rack."""
    first, second = halves((40.0, 80.0, 140.0, 250.0), 0.05, seed)

    def by_first_hosts(latency_us: Matrix) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        return np.argmin(latency_us[:, ::8] + np.where(np.eye(64)[:, ::8], -1.0, 0.0), axis=1)

    (racks,) = tier_confidences(np.sqrt(first * second), (first, second), [RACKS], by_first_hosts)
    assert racks.tier == 1.0
