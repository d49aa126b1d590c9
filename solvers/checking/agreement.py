"""What measured times say of predicted ones (rank correlation, calibration, gain), and whether they got worse."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.check import CostCalibration
from solvers.gain import CONFIDENCE, PairedGain, paired_gain

_DIGITS = 12  # of a correlation; beyond these is what adding up left
MAX_SPEARMAN_LOSS = 0.05
MIN_ORDERS = 4  # for a confidence interval, whose width is proportional to 1 / sqrt(orders - 3)


@dataclass(frozen=True)
class Correlation:
    """Spearman's, of ``orders`` orders; ``low`` and ``high``: its interval of
    :data:`solvers.gain.CONFIDENCE`, None where there are too few orders for one."""

    spearman: float
    low: float | None
    high: float | None
    orders: int


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> Correlation:
    """Whether orders that should be slower are.

    The interval is that of Bonett and Wright (2000, "Sample size requirements for estimating Pearson, Kendall and
    Spearman correlations", Psychometrika 65): Fisher's z with a variance of (1 + r^2 / 2) / (n - 3). A correlation of 1
    has no z: it takes that of the next lower one there is for so many orders (two neighbours changed over), and ends
    at 1.

    :param predicted: shape (N,). :param measured: shape (N,), in the same order.
    :raises NoAnswer: when fewer than two orders were run, or one side is the same for all.
    """
    n = len(predicted)
    if n != len(measured):
        raise ValueError(f"{n} predicted and {len(measured)} measured")
    if n < 2 or len(set(predicted)) == 1 or len(set(measured)) == 1:
        raise NoAnswer("a rank correlation needs two orders or more that differ, in what is predicted and in time")
    from scipy.stats import spearmanr

    # Some perfect rankings come out as 1 - 1e-16, and what is exactly a limit just below it.
    value = round(float(spearmanr(predicted, measured).statistic), _DIGITS)
    if n < MIN_ORDERS:
        return Correlation(value, None, None, n)
    most = 1 - 12 / (n * (n * n - 1))
    inner = max(-most, min(most, value))
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt((1 + inner * inner / 2) / (n - 3))
    z = math.atanh(inner)
    low = -1.0 if value < -most - 10**-_DIGITS else math.tanh(z - half)
    high = 1.0 if value > most + 10**-_DIGITS else math.tanh(z + half)
    return Correlation(value, low, high, n)


def calibration(predicted_s: Sequence[float], measured_s: Sequence[float]) -> CostCalibration:
    """Return how far predicted times are off, to four digits.

    :param predicted_s: shape (N,), above 0. :param measured_s: shape (N,).
    """
    ratio = np.array(measured_s) / np.array(predicted_s)
    factor, low, high = (round(float(of(ratio)), 4) for of in (np.median, np.min, np.max))
    return CostCalibration(factor=factor, low=low, high=high)


def gain_of_best(predicted: Sequence[float], samples_s: npt.NDArray[np.float64]) -> PairedGain:
    """How many times sooner the order with the lowest predicted cost is done than the median order, by repetitions:
    orders took turns, so repetition k of all was run at about the same time.

    :param predicted: shape (N,). :param samples_s: shape (N, R), above 0.
    """
    best = samples_s[int(np.argmin(np.array(predicted)))]
    return paired_gain(np.median(samples_s, axis=0).tolist(), best.tolist())


def slower(before_s: Sequence[float], now_s: Sequence[float], tolerance: float) -> float | None:
    """Return how many times longer it takes now, None where that is within the tolerance or the noise: the medians are
    further apart than the tolerance, and half of what was measured now took longer than all that was before.

    :param before_s: seconds of the repetitions then, at least one. :param now_s: now. :param tolerance: a share.
    """
    ratio = median(now_s) / median(before_s)
    return ratio if ratio > 1 + tolerance and median(now_s) > max(before_s) else None


def ranks_worse(before: Correlation, now: float, tolerance: float = MAX_SPEARMAN_LOSS) -> bool:
    """Return whether the model ranks orders worse than it did, by Spearman's correlation: lower by more than
    the tolerance, and below the interval of what was found before, where it has one.

    Few orders vary by more from one day to the next without anything being wrong: two neighbours of four that change
    over are 0.2.
    """
    return now < before.spearman - tolerance and (before.low is None or now < before.low)
