"""Estimate how much of a pair's change is noise, from the samples of both files and from the other pairs.

Align two network files by the hosts that both have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from plink.errors import InputError
from plink.model.document import UNSET
from plink.model.network import Matrix, Network
from solvers.changes.causes import Pairs

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.intp]
UNKNOWN = ""
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
class Side:
    """One file with H hosts; ``at``: the indices of the N shared hosts in it, shape (N,)."""

    network: Network
    at: Labels

    def cut(self, matrix: Matrix) -> Matrix:
        """Return a matrix of the file, shape (H, H), for the shared hosts only, shape (N, N)."""
        return np.asarray(matrix[np.ix_(self.at, self.at)])

    def latency(self) -> Matrix:
        """Return round trips, microseconds, shape (N, N); NaN where unmeasured and on the diagonal."""
        result = self.cut(self.network.latency_us)
        np.fill_diagonal(result, np.nan)
        return np.where(result > 0, result, np.nan)

    def detail(self, key: str) -> Matrix | None:
        """Return another matrix of the file, shape (N, N).

        :raises InputError: as :meth:`Network.detail`.
        """
        result = self.network.detail(key)
        return None if result is None else self.cut(result)

    def halves(self) -> tuple[Matrix, Matrix] | None:
        """Return the round trips by each half of the samples, two matrices of shape (N, N).

        :raises InputError: as :meth:`Network.halves`.
        """
        halves = self.network.halves()
        return None if halves is None else (self.cut(halves[0]), self.cut(halves[1]))

    def words(self, key: str, used: str) -> npt.NDArray[np.str_] | None:
        """Return by which method or clock each pair was measured, shape (N, N); None where the file does not say.

        :raises InputError: when an index is beyond the list of methods or clocks.
        """
        words, numbers = getattr(self.network.details, key), self.detail(used)
        if not isinstance(words, list) or numbers is None:
            return None
        if np.nan_to_num(numbers).max(initial=0) >= len(words):
            raise InputError(f"{self.network.location}: {used}", f"there are only {len(words)} {key}")
        return np.array([str(word) for word in words])[np.nan_to_num(numbers).astype(np.intp)]


@dataclass(frozen=True)
class Aligned:
    """Two files and their shared hosts.

    ``names``: the N hosts in both files, in the old file's order. ``gone``, ``come``: in the old or the new file only.
    ``moved``: with another address now.
    """

    names: tuple[str, ...]
    gone: tuple[str, ...]
    come: tuple[str, ...]
    moved: tuple[str, ...]
    old: Side
    new: Side


def align(old: Network, new: Network) -> Aligned:
    """Match the hosts of two files by name."""
    before, after = ({name: k for k, name in enumerate(network.hosts.names)} for network in (old, new))
    names = tuple(name for name in before if name in after)
    sides = [
        Side(network, np.array([index[name] for name in names], dtype=np.intp))
        for network, index in ((old, before), (new, after))
    ]
    addresses = [_addresses(side) for side in sides]
    return Aligned(
        names,
        tuple(name for name in before if name not in after),
        tuple(name for name in after if name not in before),
        tuple(name for name, was, now in zip(names, *addresses, strict=True) if was and now and was != now),
        *sides,
    )


def _addresses(side: Side) -> list[str]:
    """Return each host's address, as the host or else the hosts file reports it; a name is not an address."""
    addresses = []
    for k in side.at.tolist():
        host, machine = side.network.hosts.members[k], side.network.machines[k]
        by_machine = machine.address if machine else UNSET
        addresses.append(by_machine or (host.address if host.address != host.name else ""))
    return addresses


def otherwise(aligned: Aligned, key: str, used: str) -> tuple[Mask, str]:
    """Return which round trips of both files were measured by another method, shape (N, N), and the commonest case as
    text."""
    was, now = aligned.old.words(key, used), aligned.new.words(key, used)
    n = len(aligned.names)
    if was is None or now is None:
        return np.zeros((n, n), dtype=bool), ""
    differ = (was != UNKNOWN) & (now != UNKNOWN) & (was != now)
    differ &= np.isfinite(aligned.old.latency()) & np.isfinite(aligned.new.latency())
    ways: Sequence[str] = [f"{a} -> {b}" for a, b in zip(was[differ].tolist(), now[differ].tolist(), strict=True)]
    return np.asarray(differ), max(dict.fromkeys(ways), key=ways.count) if ways else ""


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


@dataclass(frozen=True)
class LossNoise(Noise):
    """Noise of losses: those of pairs are independent, but for bursts, which ``sigma`` has."""

    def holds(self, change: Matrix, pairs: Pairs) -> bool:
        """Return whether the mean change of these pairs is beyond noise: what all lost together is."""
        reach = self.times * math.sqrt(float(np.mean(self.sigma[pairs] ** 2)) / len(pairs[0]))
        return bool(abs(float(np.mean(change[pairs]))) > reach)

    def signs(self, change: Matrix, least: float) -> Mask:
        """Return which pairs show a sign of a change: at least half of the smallest one of all pairs of a host."""
        reach = self.sigma * (self.times / math.sqrt(max(1, len(self.sigma) - 1)))
        return np.asarray(change > np.maximum(least, reach) / 2)


def noise(change: Matrix, measured: Mask, own: Noise, max_drift: float) -> Noise:
    """Return the larger of each pair's own noise and of the drift of unchanged pairs between two probes.

    Samples of one probe are taken within seconds, so their halves do not show how far a round trip drifts in a day.
    The other pairs do, as most of them did not change: the drift is the spread of the smallest changes (Efron 2004: an
    empirical null distribution). Where all pairs change that spread is no noise, so ``max_drift`` limits it.

    :param change: logarithms, shape (N, N), the shift of the whole network taken out.
    :param own: as of :func:`own_noise`.
    """
    upper = np.triu(measured, 1)
    count = int(upper.sum())
    spread = np.sort(np.abs(change[upper]))
    drift = 0.0
    if count:
        nearest = [float(spread[int(quantile * (count - 1))]) for quantile in _QUANTILES]
        drift = max(value / sigma for value, sigma in zip(nearest, _SIGMAS, strict=True))
    return Noise(np.maximum(own.sigma, min(drift, max_drift)), own.times)


def own_noise(measured: Mask, level: Matrix, sides: tuple[Side, ...]) -> Noise:
    """Return the noise of the samples alone, the only reference for a change of all pairs.

    :param level: round trips, shape (N, N): pairs of like ones have like noise.
    :param sides: files whose halves count; none where there are no samples.
    """
    count = int(np.triu(measured, 1).sum())
    return Noise(_own(measured, level, sides), chance(count, freedom=max(4, 2 * ((count - 1) // 2))))


def chance(count: int, freedom: int = _NORMAL_FROM_FREEDOM) -> float:
    """Return how many standard errors a change must exceed so that none of ``count`` does by chance.

    The family-wise error rate is :data:`FALSE_ALARMS` (Bonferroni). Student's distribution is used where the standard
    errors have few degrees of freedom.
    """
    share = 1 - FALSE_ALARMS / 2 / max(1, count)
    if freedom >= _NORMAL_FROM_FREEDOM:
        return NormalDist().inv_cdf(share)
    from scipy.special import stdtrit  # loads sooner than all of scipy.stats

    return float(stdtrit(freedom, share))


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
    pooled[upper] = pooled_variance(level[upper], own[upper])
    pooled += pooled.T
    return np.asarray(np.sqrt(np.maximum(pooled, (pooled + own) / 2)))


def pooled_variance(level: npt.NDArray[np.float64], variance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean variance of the pairs nearest in round trip, shape (P,).

    :param level: round trips, any unit, of shape (P,), and ``variance`` of each.
    """
    order = np.argsort(level, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(variance[order])])
    width = min(len(order), max(_MIN_SIMILAR_PAIRS, len(order) // _SIMILAR_FRACTION))
    first = np.clip(np.arange(len(order)) - width // 2, 0, len(order) - width)
    result = np.empty(len(order))
    result[order] = (sums[first + width] - sums[first]) / width
    return result
