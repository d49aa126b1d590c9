"""How much of a change is noise: by hand, and against the same worked out pair by pair."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import t as student

from plink.model.network import Matrix, to_rows
from solvers.changes.noise import FALSE_ALARMS, Mask, Noise, Side, align, noise, own_noise
from tests.solvers.changes.files import flat, named

HOSTS = "abcdefghijklmnopqrstuvwxyz"
WIDE = 1e9  # a limit of the drift that is none


def changes(n: int, *values: float) -> Matrix:
    """Symmetric, from the pairs' values in the order of the upper triangle."""
    result = np.zeros((n, n))
    result[np.triu_indices(n, 1)] = values
    return result + result.T


def off(n: int) -> Mask:
    return ~np.eye(n, dtype=bool)


def test_change_beyond_noise_exceeds_the_standard_errors() -> None:
    result = Noise(np.array([[0.5, 0.5], [0.5, 0.25]]), 4.0).beyond(np.array([[2.0, 2.1], [-2.1, -1.5]]))
    assert result.tolist() == [[False, True], [True, True]]


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_cause_s_median_counts_as_that_of_four_pairs_at_most(count: int) -> None:
    """A median's standard error is sqrt(pi / 2) of a mean's, which is one error over the root of the number."""
    sigma, times = 0.3, 2.0
    reach = times * math.sqrt(math.pi / 2) * sigma / math.sqrt(min(count, 4))
    pairs = (np.zeros(count, dtype=np.intp), np.arange(1, count + 1))
    item = Noise(np.full((10, 10), sigma), times)
    for sign in (1, -1):
        assert item.holds(np.full((10, 10), sign * reach * 1.001), pairs)
        assert not item.holds(np.full((10, 10), sign * reach * 0.999), pairs)


def test_of_a_cause_the_median_change_is_held_against_the_median_noise() -> None:
    """Of five pairs two are wild in change and two others in noise."""
    pairs = (np.zeros(5, dtype=np.intp), np.arange(1, 6))
    sigma, change = np.ones((6, 6)), np.full((6, 6), 2.6)
    sigma[0, 1:3], change[0, 4:6] = 50.0, 0.0
    assert Noise(sigma, 4.0).holds(change, pairs)  # 4 sqrt(pi / 2) / 2 = 2.507
    assert not Noise(sigma, 4.2).holds(change, pairs)  # 2.632
    assert not Noise(sigma, 4.0).holds(np.where(np.arange(6) == 3, 0.0, change), pairs)


def test_drift_is_estimated_from_the_smallest_changes() -> None:
    """Of six changes the one at a fifth of the way up is 2 % (a fifth of normal ones is within 0.2533 sigma), that in
    the middle 3 % (half of them within 0.6745); the larger estimate counts, whatever the sign of the changes is."""
    result = noise(changes(4, 0.01, -0.9, 0.02, 0.7, -0.03, 0.8), off(4), own_noise(off(4), flat(4), ()), WIDE)
    assert result.sigma == pytest.approx(np.full((4, 4), 0.02 / NormalDist().inv_cdf(0.6)))
    result = noise(changes(4, 0.01, -0.9, 0.02, 0.7, -0.3, 0.8), off(4), own_noise(off(4), flat(4), ()), WIDE)
    assert result.sigma == pytest.approx(np.full((4, 4), 0.3 / NormalDist().inv_cdf(0.75)))


def test_drift_is_limited_and_of_measured_pairs() -> None:
    change = changes(4, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2)
    assert noise(change, off(4), own_noise(off(4), flat(4), ()), 0.1).sigma == pytest.approx(np.full((4, 4), 0.1))
    measured = off(4)
    measured[0, 1:], measured[1:, 0] = False, False
    change[0], change[:, 0] = 0.0, 0.0
    assert noise(change, measured, own_noise(measured, flat(4), ()), WIDE).sigma[0, 1] == pytest.approx(
        0.2 / NormalDist().inv_cdf(0.6)
    )


@pytest.mark.parametrize(("hosts", "freedom"), [(2, 4), (5, 8), (14, 90)])
def test_the_noise_limit_depends_on_the_number_of_changes(hosts: int, freedom: int) -> None:
    """One degree of freedom less than pairs, an even number of them, four at least; Student's distribution."""
    pairs = hosts * (hosts - 1) // 2
    result = noise(np.zeros((hosts, hosts)), off(hosts), own_noise(off(hosts), flat(hosts), ()), WIDE)
    assert result.times == pytest.approx(student.ppf(1 - FALSE_ALARMS / 2 / pairs, freedom), rel=1e-3)


# A pair's own noise


def with_halves(n: int, first: Matrix, second: Matrix) -> Side:
    """One file whose samples' halves say this."""
    return align(named(HOSTS[:n], halves_us=[to_rows(first), to_rows(second)]), named(HOSTS[:n])).old


def by_hand(measured: Mask, level: Matrix, halves: list[tuple[Matrix, Matrix]]) -> Matrix:
    """Half the logarithm of one half over the other, squared: the mean over files and directions; with it that of the
    pairs nearest in round trip, an eighth of them and 32 at least; their mean, but not below the latter."""
    n = len(measured)
    own, pairs = np.zeros((n, n)), []
    for i in range(n):
        for j in range(i + 1, n):
            result = [
                (math.log(item[p] / other[p]) / 2) ** 2
                for item, other in halves for p in ((i, j), (j, i))
                if measured[i, j] and math.isfinite(item[p] / other[p])
            ]  # fmt: skip
            if result:
                own[i, j] = sum(result) / len(result)
                pairs.append((i, j))
    pairs.sort(key=lambda pair: level[pair])
    width = min(len(pairs), max(32, len(pairs) // 8))
    sigma = np.zeros((n, n))
    for place, (i, j) in enumerate(pairs):
        first = min(max(0, place - width // 2), len(pairs) - width)
        pooled = sum(own[pair] for pair in pairs[first : first + width]) / width
        sigma[i, j] = sigma[j, i] = math.sqrt(max(pooled, (pooled + own[i, j]) / 2))
    return sigma


@pytest.mark.parametrize(("n", "share"), [(2, 1.0), (10, 0.8), (24, 0.5)])
def test_a_pair_s_own_noise_is_that_of_the_halves_held_against_pairs_like_it(n: int, share: float) -> None:
    rng = np.random.default_rng(n)
    level = changes(n, *rng.permutation(n * (n - 1) // 2) + 1.0)
    sides, halves = [], []
    for _ in range(2):
        first, second = (np.round(rng.lognormal(4, 0.3, (n, n)), 1) for _ in range(2))
        first[rng.random((n, n)) > share] = np.nan
        second[rng.random((n, n)) > share] = np.nan
        sides.append(with_halves(n, first, second))
        halves.append((first, second))
    measured = np.triu(rng.random((n, n)) < share, 1)
    measured |= measured.T
    without = align(named(HOSTS[:n]), named(HOSTS[:n])).old
    result = noise(np.zeros((n, n)), measured, own_noise(measured, level, (sides[0], without, sides[1])), WIDE).sigma
    assert result[off(n)] == pytest.approx(by_hand(measured, level, halves)[off(n)])


def test_noise_is_the_larger_of_own_noise_and_drift() -> None:
    """Halves that are e^0.2 apart are 0.1 off; and each pair changed by 0.05, which is a drift of 0.197."""
    first = flat(4, 100.0)
    sides = (with_halves(4, first, first * math.exp(0.2)),)
    change = flat(4, 0.05)
    drift = 0.05 / NormalDist().inv_cdf(0.6)
    assert noise(change, off(4), own_noise(off(4), flat(4), sides), WIDE).sigma[0, 1] == pytest.approx(drift)
    assert noise(change, off(4), own_noise(off(4), flat(4), sides), 0.04).sigma[0, 1] == pytest.approx(0.1, rel=1e-4)
