"""Estimate how much of a pair's change is noise, from the samples of both files and from the other pairs."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.changes.aligned import Mask, Side
from solvers.changes.causes import Pairs
from solvers.ordering.cross_validation import students_quantile

FALSE_ALARMS = 0.01  # probability that a comparison names an unchanged pair, if noise is normal
_SIMILAR_FRACTION = 8  # one in so many pairs, the nearest in round trip, are similar to a pair
_MIN_SIMILAR_PAIRS = 32  # pooled at least
_NORMAL_FROM_FREEDOM = 100  # degrees of freedom: above, the normal distribution replaces Student's
_QUANTILES = (0.2, 0.5)
_SIGMAS = tuple(NormalDist().inv_cdf((1 + quantile) / 2) for quantile in _QUANTILES)
_MAX_INDEPENDENT_PAIRS = 4  # errors of one cause's pairs are dependent: their median counts as one of so many
_MEDIAN_OVER_MEAN_ERROR = math.sqrt(math.pi / 2)  # a median's standard error over a mean's, of a normal distribution

_Sigma = TypeVar("_Sigma", float, Matrix)


@dataclass(frozen=True)
class Noise:
    """The standard error of each pair's change, and the limit of noise.

    ``sigma``: standard errors of the changes' logarithms, shape (N, N). ``times``: a change beyond so many of them is
    significant, corrected for the number of pairs.
    """

    sigma: Matrix
    times: float

    def beyond(self, change: Matrix) -> Mask:
        """Return which pairs' changes are beyond noise in either direction, shape (N, N)."""
        return np.asarray(np.abs(change) > self.times * self.sigma)

    def holds(self, change: Matrix, pairs: Pairs) -> bool:
        """Return whether the median change of these pairs is beyond noise."""
        reach = self._reach(float(np.median(self.sigma[pairs])), len(pairs[0]))
        return bool(abs(float(np.median(change[pairs]))) > reach)

    def signs(self, change: Matrix, least: float) -> Mask:
        """Return which pairs show a sign of a change, shape (N, N): at least half of the smallest one of a cause.

        A cause of many pairs is tested by the median of its pairs, so a single pair is only a sign of it.

        :param least: the smallest change worth naming.
        """
        return np.asarray(change > np.maximum(least, self._reach(self.sigma, _MAX_INDEPENDENT_PAIRS)) / 2)

    def _reach(self, sigma: _Sigma, pairs: int) -> _Sigma:
        """Return the limit of noise for the median change of so many pairs."""
        return sigma * (self.times * _MEDIAN_OVER_MEAN_ERROR / math.sqrt(min(pairs, _MAX_INDEPENDENT_PAIRS)))


def noise(change: Matrix, measured: Mask, level: Matrix, sides: tuple[Side, ...], max_drift: float) -> Noise:
    """Return the larger of each pair's own noise and of the drift of unchanged pairs between two probes.

    Samples of one probe are taken within seconds, so their halves do not show how far a round trip drifts in a day.
    The other pairs do, as most of them did not change: the drift is the spread of the smallest changes (Efron 2004: an
    empirical null distribution). Where all pairs change that spread is no noise, so ``max_drift`` limits it.

    :param change: logarithms, shape (N, N), the shift of the whole network taken out.
    :param level: round trips, shape (N, N): pairs of like ones have like noise.
    :param sides: files whose halves count; none where there are no samples.
    """
    upper = np.triu(measured, 1)
    count = int(upper.sum())
    spread = np.sort(np.abs(change[upper]))
    drift = 0.0
    if count:
        nearest = [float(spread[int(quantile * (count - 1))]) for quantile in _QUANTILES]
        drift = max(value / sigma for value, sigma in zip(nearest, _SIGMAS, strict=True))
    own = own_noise(measured, level, sides)
    return Noise(np.maximum(own.sigma, min(drift, max_drift)), own.times)


def own_noise(measured: Mask, level: Matrix, sides: tuple[Side, ...]) -> Noise:
    """Return the noise of the samples alone, the only reference for a change of all pairs.

    :param level, sides: as of :func:`noise`.
    """
    count = int(np.triu(measured, 1).sum())
    return Noise(_own(measured, level, sides), chance(count, freedom=max(4, 2 * ((count - 1) // 2))))


def chance(count: int, freedom: int = _NORMAL_FROM_FREEDOM) -> float:
    """Return how many standard errors a change must exceed so that none of ``count`` does by chance.

    The family-wise error rate is :data:`FALSE_ALARMS` (Bonferroni). Student's distribution is used where the standard
    errors have few degrees of freedom.
    """
    share = 1 - FALSE_ALARMS / 2 / max(1, count)
    return NormalDist().inv_cdf(share) if freedom >= _NORMAL_FROM_FREEDOM else students_quantile(freedom, share)


def _own(measured: Mask, level: Matrix, sides: tuple[Side, ...]) -> Matrix:
    """Return standard errors from the halves of the samples of both files, shape (N, N); 0 where there are none.

    Half the difference of two halves estimates the error of their mean. A pair has only four such differences (two
    files, two directions), so its variance is averaged with that of similar pairs (as Smyth 2004 does for genes), and
    is never below theirs.
    """
    n = len(measured)
    squares = np.zeros((n, n))
    counted = np.zeros((n, n), dtype=np.intp)
    for side in sides:
        halves = side.halves()
        if halves is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            square = (np.log(halves[0] / halves[1]) / 2) ** 2
        for item in (square, square.T):
            has_value = np.isfinite(item) & measured
            squares += np.where(has_value, item, 0.0)
            counted += has_value
    has = counted > 0
    # A change is a difference (twice the variance of one value) of means over two directions (half of it).
    own = np.where(has, squares / np.maximum(counted, 1), 0.0)
    upper = np.triu(has, 1)
    if not upper.any():
        return own
    pooled = np.zeros((n, n))
    pooled[upper] = _pooled_variance(level[upper], own[upper])
    pooled += pooled.T
    return np.asarray(np.sqrt(np.maximum(pooled, (pooled + own) / 2)))


def _pooled_variance(level: npt.NDArray[np.float64], variance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean variance of the pairs nearest in round trip, shape (P,)."""
    order = np.argsort(level, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(variance[order])])
    width = min(len(order), max(_MIN_SIMILAR_PAIRS, len(order) // _SIMILAR_FRACTION))
    first = np.clip(np.arange(len(order)) - width // 2, 0, len(order) - width)
    result = np.empty(len(order))
    result[order] = (sums[first + width] - sums[first]) / width
    return result
