"""How much of a pair's change is noise: what the samples of both files say of it, and what the other pairs do."""

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

FALSE_ALARMS = 0.01  # how often a comparison may name a pair that did not change, if noise is normal
_ALIKE = 8  # a pair's own noise is held against that of one in so many others, the nearest in round trip
_FEWEST = 32  # but of so many at least
_MANY = 100  # degrees of freedom from which on Student's distribution is as good as Gauss's
_QUANTILES = (0.2, 0.5)
_SIGMAS = tuple(NormalDist().inv_cdf((1 + quantile) / 2) for quantile in _QUANTILES)
_AVERAGED = 4  # errors of one cause's pairs are not independent: their median counts as that of so many at most
_MEDIAN = math.sqrt(math.pi / 2)  # a median's standard error over a mean's, of a normal distribution

_Sigma = TypeVar("_Sigma", float, Matrix)


@dataclass(frozen=True)
class Noise:
    """``sigma``, shape (N, N): standard error of each pair's change (of its logarithm); ``times``: beyond how many of
    these a change is none of noise, so many pairs having been looked at."""

    sigma: Matrix
    times: float

    def beyond(self, change: Matrix) -> Mask:
        """Which pairs' changes, shape (N, N), are more than noise, either way."""
        return np.asarray(np.abs(change) > self.times * self.sigma)

    def holds(self, change: Matrix, pairs: Pairs) -> bool:
        """Whether the median change of these pairs is more than noise."""
        reach = self._reach(float(np.median(self.sigma[pairs])), len(pairs[0]))
        return bool(abs(float(np.median(change[pairs]))) > reach)

    def signs(self, change: Matrix, least: float) -> Mask:
        """Which pairs, shape (N, N), are nearer to having the smallest change that a cause of many pairs can be named
        for than to having none: such a cause stands by the median of its pairs, so each of them is but a sign of it.

        :param least: the smallest change worth naming.
        """
        return np.asarray(change > np.maximum(least, self._reach(self.sigma, _AVERAGED)) / 2)

    def _reach(self, sigma: _Sigma, pairs: int) -> _Sigma:
        """What the median change of so many pairs must be more than."""
        return sigma * (self.times * _MEDIAN / math.sqrt(min(pairs, _AVERAGED)))


def noise(change: Matrix, measured: Mask, level: Matrix, sides: tuple[Side, ...], most_wander: float) -> Noise:
    """The larger of a pair's own noise and of what unchanged pairs wander from one probe to the next.

    Samples of one probe are taken within seconds, so their halves cannot tell how far a round trip wanders in a day.
    Other pairs can, most of which did not change: the spread of the changes nearest to none (Efron 2004: an empirical
    null distribution). Where all pairs change that spread is no noise, so it counts up to ``most_wander`` only.

    :param change: logarithms, shape (N, N), the shift of the whole network taken out.
    :param level: round trips, shape (N, N): pairs of like ones have like noise.
    :param sides: files whose halves count; none where there are no samples.
    """
    upper = np.triu(measured, 1)
    count = int(upper.sum())
    spread = np.sort(np.abs(change[upper]))
    wander = 0.0
    if count:
        nearest = [float(spread[int(quantile * (count - 1))]) for quantile in _QUANTILES]
        wander = max(value / sigma for value, sigma in zip(nearest, _SIGMAS, strict=True))
    own = own_noise(measured, level, sides)
    return Noise(np.maximum(own.sigma, min(wander, most_wander)), own.times)


def own_noise(measured: Mask, level: Matrix, sides: tuple[Side, ...]) -> Noise:
    """What the samples alone say, whatever the pairs did: all that a change of all pairs can be held against.

    :param level, sides: as of :func:`noise`.
    """
    count = int(np.triu(measured, 1).sum())
    return Noise(_own(measured, level, sides), chance(count, freedom=max(4, 2 * ((count - 1) // 2))))


def chance(count: int, freedom: int = _MANY) -> float:
    """Beyond how many standard errors none of so many changes comes by chance, more often than :data:`FALSE_ALARMS`
    (Bonferroni); of Student's distribution where the errors themselves are known from few."""
    share = 1 - FALSE_ALARMS / 2 / max(1, count)
    return NormalDist().inv_cdf(share) if freedom >= _MANY else students_quantile(freedom, share)


def _own(measured: Mask, level: Matrix, sides: tuple[Side, ...]) -> Matrix:
    """Standard errors from the halves of the samples of both files, shape (N, N); 0 where there are none.

    Half the difference of two halves is what both together are off by. Four such differences (two files, two
    directions) say little of one pair, so they are moderated by those of pairs like it (as Smyth 2004 does for genes),
    and never below these.
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
            there = np.isfinite(item) & measured
            squares += np.where(there, item, 0.0)
            counted += there
    has = counted > 0
    # A change is a difference (twice the variance of one figure) of means over two directions (half of it).
    own = np.where(has, squares / np.maximum(counted, 1), 0.0)
    upper = np.triu(has, 1)
    if not upper.any():
        return own
    pooled = np.zeros((n, n))
    pooled[upper] = _like(level[upper], own[upper])
    pooled += pooled.T
    return np.asarray(np.sqrt(np.maximum(pooled, (pooled + own) / 2)))


def _like(level: npt.NDArray[np.float64], variance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The mean variance of the pairs nearest in round trip, shape (P,)."""
    order = np.argsort(level, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(variance[order])])
    width = min(len(order), max(_FEWEST, len(order) // _ALIKE))
    first = np.clip(np.arange(len(order)) - width // 2, 0, len(order) - width)
    result = np.empty(len(order))
    result[order] = (sums[first + width] - sums[first]) / width
    return result
