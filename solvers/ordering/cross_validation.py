"""Cross-validation of an order's gain: fitted on one half of the samples, validated on the other, with an interval.

The cheapest of many orders looks cheap on the samples it was chosen by because their noise favoured it (the winner's
curse). The other half favours no order. Given the true round trips, the gain on the held-out half and the gain on
fresh samples of the same kind are drawn alike and independently; hence their difference is symmetric about zero,
whatever the objective (also where a longest hop counts, which noise inflates: it does so on both sides). So the
interval is the validated gain plus and minus a quantile of that difference, and only the quantile has to be estimated.

It is estimated by drawing noise around the held-out round trips. ``log(fit / held out)`` is the difference of two
halves' errors, so over sqrt(2) it is the error of one half. It is taken from all pairs: those that the order uses were
chosen for being fitted low, and without them the rest would seem less noisy than all are. A pair draws from pairs of
about its length, for noise may grow with distance; these are few, which widens the interval as Student's t does.
Held-out values spread more than true ones, so that where longest hops count the interval is rather too wide than too
narrow. Noise that both halves share (a slow hour) is not seen. Where the noise is rare large delays, an interval of
95 % may hold 85 % only: half of a difference has another shape. Rates and shared capacities have no halves: all are
drawn with the noise between probes, and the two half widths add as independent errors do.

An order fitted on all samples saves more than the validated one, by 0.1 to 0.3 % of the baseline's cost at a noise of
2 % and by 2 to 5 % at one of 20 % (simulated). So the gain of the validated one is rather below that of the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.closed_forms import CostFunction, closed_form
from solvers.costs.fabric import Fabric, Vector
from solvers.costs.patterns import Pattern

Order = npt.NDArray[np.intp]
_DRAWS = 300
_MIN_RATE_DRAWS, _MAX_RATE_DRAWS = 60, 300  # of all rates and capacities
_MAX_RATE_EDGES = 1 << 20  # of all these draws
_MAX_SAMPLED_PAIRS = 1 << 16  # for the noise: more would not change the estimate
_NEIGHBOUR_FRACTION = 8  # a pair draws from one in so many of the sampled pairs on either side, the nearest in length
_MIN_NEIGHBOURS = 32  # fewer do not give the size of the noise
_MAX_NUMBERS_AT_ONCE = 1 << 22
_PER_MILLE = 1000


@dataclass(frozen=True)
class ValidatedGain:
    """The share of the baseline's cost that an order saves; 0.2 is a fifth.

    ``gain``: on the held-out samples. ``low``, ``high``: confidence interval of the gain on fresh samples of the same
    kind. ``predicted``: on the samples it was fitted on. ``pairs``: how many pairs that either order uses have held-out
    samples; the others count as they were fitted.
    """

    gain: float
    low: float
    high: float
    predicted: float
    pairs: int

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval excludes no gain."""
        return self.low > 0

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high), rounded outwards to a tenth of a percent: no model of a network is more precise than that."""
        return math.floor(self.low * _PER_MILLE) / _PER_MILLE, math.ceil(self.high * _PER_MILLE) / _PER_MILLE


def split_halves(halves_us: Sequence[Matrix], rtt_us: Matrix) -> tuple[Matrix, Matrix] | None:
    """Return the round trips to fit an order on, and those to validate it on; None when no pair has both.

    :param halves_us: two, shape (N, N), symmetric, NaN where missing: each pair's round trip by half of the samples.
    :param rtt_us: shape (N, N), symmetric: by all samples, or a prediction.
    :returns: (fit, held out), shape (N, N), symmetric. Where a half is missing ``fit`` is ``rtt_us`` and ``held out``
        is NaN: such a pair is not validated, and :func:`cross_validate` takes its fitted value.
    """
    first, second = halves_us
    both = (first > 0) & (second > 0)
    np.fill_diagonal(both, False)
    if not both.any():
        return None
    held_out = np.where(both, second, np.nan)
    np.fill_diagonal(held_out, 0.0)
    return np.where(both, first, rtt_us), held_out


class CostModel(NamedTuple):
    """Cost model of an order: ``patterns``, (weight, pattern) of each part of the algorithm, on a ``fabric``.

    The order was fitted on the fabric's ``rtt_us``. ``draws``: of the noise, at most.
    """

    patterns: Sequence[tuple[float, Pattern]]
    fabric: Fabric
    size_bytes: float
    model: str
    draws: int = _DRAWS


def cross_validate(
    cost_model: CostModel, order: Order, baseline: Order, held_out_us: Matrix, seed: int, confidence: float = 0.95
) -> ValidatedGain:
    """Estimate the gain of ``order`` over ``baseline`` on samples that it was not fitted on.

    Where the order uses no pair that can be validated the interval includes 0.

    :param order: shape (N,), the host at each rank, of the same hosts as ``baseline``.
    :param held_out_us: shape (H, H), symmetric, as from :func:`split_halves`.
    :param confidence: how often the interval holds the gain on fresh samples.
    :raises UsageError: for an unknown model or a size that is not positive.
    :raises NoAnswer: when a pair that is used has no round trip.
    """
    patterns, fabric, size_bytes, model, number = cost_model
    n, scratch = len(fabric.names), np.ascontiguousarray(fabric.rtt_us).copy()
    drawn = replace(fabric, rtt_us=scratch)
    parts = [(weight, closed_form(pattern, drawn, size_bytes, model)) for weight, pattern in patterns]
    ends = [(ranks[pattern.source], ranks[pattern.target]) for _, pattern in patterns for ranks in (baseline, order)]
    used_pairs = np.unique(np.concatenate([np.minimum(a, b) * n + np.maximum(a, b) for a, b in ends]))
    rows, columns = used_pairs // n, used_pairs % n
    fit, held_out = fabric.rtt_us[rows, columns], held_out_us[rows, columns]
    is_validated = held_out > 0
    held_out = np.where(is_validated, held_out, fit)

    def gain_by(rtt_us: Vector) -> float:
        """Return the gain by round trips of the pairs that are used; costs read them where they are written."""
        scratch[rows, columns] = scratch[columns, rows] = rtt_us
        return _gain(parts, order, baseline)

    predicted, gain, pairs = gain_by(fit), gain_by(held_out), int(is_validated.sum())
    if np.array_equal(order, baseline) or all(pattern.all_to_all_share for _, pattern in patterns):
        return ValidatedGain(0.0, 0.0, 0.0, 0.0, pairs)
    rng = np.random.default_rng(seed)
    noise = _Noise(fabric.rtt_us, held_out_us, rng)
    batch = max(1, min(number, _MAX_NUMBERS_AT_ONCE // sum(len(a) for a, _ in ends)))
    draws = (noise.factors(held_out, min(batch, number - begin), rng) for begin in range(0, number, batch))
    drawn_gains = np.array([gain_by(held_out * factors) for some in draws for factors in some])
    half_width = _difference_quantile(drawn_gains, confidence) * noise.few_pairs_factor(confidence)
    if model != "latency":
        validated = np.where(held_out_us > 0, held_out_us, fabric.rtt_us)
        rate_gains = _gains_by_rates(cost_model, replace(fabric, rtt_us=validated), order, baseline, rng)
        half_width = float(np.hypot(half_width, _difference_quantile(rate_gains, confidence)))
    low = gain - half_width
    return ValidatedGain(gain, low if pairs else min(0.0, low), gain + half_width, predicted, pairs)


def _gain(parts: Sequence[tuple[float, CostFunction]], order: Order, baseline: Order) -> float:
    baseline_us, order_us = (sum(weight * cost_of(ranks) for weight, cost_of in parts) for ranks in (baseline, order))
    return 1 - order_us / baseline_us if baseline_us > 0 else 0.0


def _difference_quantile(values: Vector, confidence: float) -> float:
    """Return the quantile of the differences between two of the values, shape (D,)."""
    differences = np.abs(values[:, None] - values[None, :])[np.triu_indices(len(values), 1)]
    return float(np.quantile(differences, confidence))


def _gains_by_rates(
    cost_model: CostModel, fabric: Fabric, order: Order, baseline: Order, rng: np.random.Generator
) -> Vector:
    """Return the gains, shape (D,), by draws of the fabric's rates and shared capacities."""
    edges = sum(len(pattern.source) for _, pattern in cost_model.patterns)
    number = int(np.clip(_MAX_RATE_EDGES // max(1, 2 * edges), _MIN_RATE_DRAWS, _MAX_RATE_DRAWS))
    gains = np.zeros(min(number, cost_model.draws))
    for draw in range(len(gains)):
        drawn = fabric.with_rate_noise(rng)
        parts = [
            (weight, closed_form(pattern, drawn, cost_model.size_bytes, cost_model.model))
            for weight, pattern in cost_model.patterns
        ]
        gains[draw] = _gain(parts, order, baseline)
    return gains


class _Noise:
    """Relative error of a half of the samples, from up to 65,536 pairs, nearest first."""

    def __init__(self, fit_us: Matrix, held_out_us: Matrix, rng: np.random.Generator) -> None:
        n = len(fit_us)
        if n * (n - 1) // 2 <= _MAX_SAMPLED_PAIRS:
            a, b = np.triu_indices(n, 1)
        else:
            a, b = rng.integers(n, size=(2, _MAX_SAMPLED_PAIRS))
            a, b = np.minimum(a, b)[a != b], np.maximum(a, b)[a != b]
        keys = a * n + b
        keys = keys[(held_out_us.take(keys) > 0) & (fit_us.take(keys) > 0)]
        fit, held_out = np.log(fit_us.take(keys)), np.log(held_out_us.take(keys))
        level = (fit + held_out) / 2
        nearest_first = np.argsort(level)
        self._level = level[nearest_first]
        self._log_error = ((fit - held_out) / np.sqrt(2))[nearest_first]
        self._neighbours = min(max(_MIN_NEIGHBOURS, len(keys) // _NEIGHBOUR_FRACTION), max(1, len(keys) // 2))

    def few_pairs_factor(self, confidence: float) -> float:
        """Return how much wider an interval is because few pairs give the noise: Student's quantile over Gauss's."""
        from scipy.special import stdtrit  # loads sooner than all of scipy.stats

        half = (1 + confidence) / 2
        return float(stdtrit(2 * self._neighbours, half)) / NormalDist().inv_cdf(half)

    def factors(self, rtt_us: Vector, draws: int, rng: np.random.Generator) -> Vector:
        """Draw factors of P round trips, shape (draws, P)."""
        sampled, width = len(self._log_error), 2 * self._neighbours
        if not sampled:
            return np.ones((draws, len(rtt_us)))
        position = np.searchsorted(self._level, np.log(np.where(rtt_us > 0, rtt_us, 1.0)))
        first = np.clip(position - self._neighbours, 0, max(0, sampled - width))
        drawn = first + rng.integers(min(width, sampled), size=(draws, len(rtt_us)))
        sign = rng.integers(2, size=drawn.shape) * 2 - 1
        factors: Vector = np.exp(self._log_error[drawn] * sign)
        return factors
