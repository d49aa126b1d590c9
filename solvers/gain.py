"""Gain of one order over another, by paired runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairedGain:
    """Ratio of two orders' results: above 1 where the second is better.

    ``low`` and ``high``: its interval of :data:`CONFIDENCE`, None for a single pair of runs.
    """

    gain: float
    low: float | None
    high: float | None


def paired_gain(first: Sequence[float], second: Sequence[float], higher_is_better: bool = False) -> PairedGain:
    """Return the gain of the second order, from runs k of both made one after the other, so that drift cancels.

    It is the geometric mean of the pairs' ratios, with Student's interval of the mean of their logarithms: a ratio is
    as likely doubled as halved, so the logarithms are taken as normal.

    :param first: figures above 0, shape (N,). :param second: of the other order, shape (N,).
    :raises ValueError: when there are none, when they differ in number, or when one is not above 0.
    """
    if not first or len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} figures make no pairs")
    if not all(math.isfinite(value) and value > 0 for value in (*first, *second)):
        raise ValueError("figures must be above 0")
    logs = np.log(np.array(first) / np.array(second)) * (-1 if higher_is_better else 1)
    mean = float(logs.mean())
    if len(logs) == 1:
        return PairedGain(math.exp(mean), None, None)
    from scipy.special import stdtrit

    half = float(stdtrit(len(logs) - 1, (1 + CONFIDENCE) / 2)) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return PairedGain(math.exp(mean), math.exp(mean - half), math.exp(mean + half))
