"""Accuracy of predicted times: the interval in which a library's measured time is likely to be.

It has two parts, which are independent: rates as another probe might measure them, and the model's own error, as
calibrated where libraries ran on labs (benchmarks/records/prediction-intervals.json).
"""

import math
from typing import NamedTuple

from solvers.costs.by_name import CONTENTION, SIMULATED
from solvers.costs.fabric import MIN_RATE_SIGMA, Fabric

CONFIDENCE = 0.9
_QUANTILE = 1.645  # of a normal variable, for that confidence


class ModelError(NamedTuple):
    """Error of the model on labs: on the worst of four, 5 % of the measured times were below ``low`` times the
    predicted one, and 5 % above ``high`` times it and ``host_us``, what hosts take for their messages, which the models
    omit (16 of them on two cores)."""

    low: float
    high: float
    host_us: float


RINGS, OTHERS = ModelError(0.91, 1.32, 48e3), ModelError(0.68, 2.07, 20e3)


def model_error(algo: str) -> ModelError:
    """Return the error for an algorithm: rings stream equal blocks, as is modelled; in others libraries do more."""
    return RINGS if "ring" in algo or algo == "gloo" else OTHERS


def prediction_interval(cost_us: float, algo: str, model: str, fabric: Fabric) -> tuple[float, float] | None:
    """Return the interval, microseconds, that has a library's time with a probability of :data:`CONFIDENCE`.

    None for a model without shared links, where their capacities were not measured, and for times so short that the
    hosts' own work may be the greater part: it is another one on every machine.
    """
    if model not in (CONTENTION, SIMULATED) or not fabric.measured or cost_us < model_error(algo).host_us:
        return None
    return calibrated_interval(cost_us, model_error(algo), fabric.rate_sigma)


def calibrated_interval(cost_us: float, error: ModelError, rate_sigma: float = MIN_RATE_SIGMA) -> tuple[float, float]:
    """Return the interval for rates with this relative standard deviation; the labs' own is in the calibration."""
    low, high, host_us = error
    variance = _QUANTILE**2 * max(0.0, rate_sigma**2 - MIN_RATE_SIGMA**2)
    below, above = (math.hypot(math.log(ratio), math.sqrt(variance)) for ratio in (low, high))
    return round(cost_us * math.exp(-below), 3), round(cost_us * math.exp(above) + host_us, 3)
