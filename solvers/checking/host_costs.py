"""What hosts take for each message and byte, fitted to timed collectives of several sizes.

Small collectives tell the cost of a message, large ones that of a byte: every time is that of the cost model, the same
as `plink cost` prints, with the host costs of :mod:`solvers.costs.host_costs` as the unknowns. The fit is by
non-negative least squares of relative errors, with a soft L1 loss so that single slow timings do not move it (Huber
1964; ``scipy.optimize.least_squares``).
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.check import CalibratedHosts, FittedTiming
from plink.model.units import format_bytes, format_us
from solvers.costs.by_name import CONTENTION, cost_function_for, parts_of, pattern_for
from solvers.costs.closed_forms import Order
from solvers.costs.fabric import Fabric
from solvers.costs.host_costs import with_host_costs
from solvers.gain import CONFIDENCE
from solvers.schedules.catalogue import Options
from solvers.schedules.segmentation import options_at
from solvers.simulation.cost import SimulatedCost

MIN_SIZES = 4
_MIN_SIZE_RATIO = 16
_MIN_GROWTH = 1.2  # of the time from the smallest size to the largest
_NOISE = 0.05  # relative: larger errors count less
_US_PER_S, _NS_PER_US = 1e6, 1e3
_EPSILON = 1e-12
_STEP = 1e-3  # relative, of the differences that stand for derivatives
_PRECISE = 1e-6


@dataclass(frozen=True)
class CollectiveTiming:
    """Measured times of one collective of ``size_bytes``. ``order``, shape (N,): the host at each rank; ``seconds``: of
    each repetition, on the slowest rank."""

    algo: str
    options: Options
    order: Order
    size_bytes: float
    seconds: tuple[float, ...]

    @property
    def median_us(self) -> float:
        """Median time, microseconds."""
        return statistics.median(self.seconds) * _US_PER_S

    @property
    def rounds(self) -> float:
        """Rounds of the collective, one after the other."""
        parts = parts_of(self.algo, self.size_bytes)
        options = options_at(self.options, self.algo, self.size_bytes)
        patterns = [(weight, pattern_for(name, len(self.order), options)) for weight, name in parts]
        return sum(weight * float(pattern.repeat.sum()) for weight, pattern in patterns)

    def cost_on(self, fabric: Fabric, model: str) -> Callable[[Fabric], float]:
        """Return what gives the cost, microseconds, on a fabric like ``fabric``, with other costs of hosts."""
        ranks = len(self.order)
        if model == CONTENTION:
            prepared = SimulatedCost.of(self.algo, ranks, self.options, fabric, self.size_bytes, model)
            return lambda other: replace(prepared, fabric=other)(self.order)
        return lambda other: cost_function_for(self.algo, ranks, self.options, other, self.size_bytes, model)(
            self.order
        )


def fit_host_costs(
    fabric: Fabric, timings: Sequence[CollectiveTiming], model: Literal["alpha-beta", "contention"], now: str
) -> CalibratedHosts:
    """Fit what hosts take, rounded as a document states it.

    :param fabric: as its links alone are known, without costs of hosts. :param now: the time, RFC 3339.
    :raises NoAnswer: for too few timings, or times that do not grow with the size.
    """
    from scipy.optimize import least_squares

    _check(timings)
    measured_us = np.array([timing.median_us for timing in timings])
    scales = _scales(timings)

    cost_functions = [timing.cost_on(fabric, model) for timing in timings]

    def costs(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        with_costs = with_host_costs(fabric, *(x * scales).tolist())
        return np.array([cost_on(with_costs) for cost_on in cost_functions])

    def errors(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray((costs(x) - measured_us) / measured_us)

    fits = [
        least_squares(
            errors,
            start,
            bounds=(0, np.inf),
            loss="soft_l1",
            f_scale=_NOISE,
            x_scale=1.0,
            diff_step=_STEP,
            ftol=_PRECISE,
        )
        for start in (np.array([0.5, 0.5]), np.array([0.01, 0.01]), np.array([0.5, 0.01]))
    ]
    fit = min(fits, key=lambda result: result.cost)
    overhead, byte = _intervals(fit.x, fit.jac, errors(fit.x))
    x = np.where([overhead is None, byte is None], 0.0, fit.x)  # what changes no time is none
    message_us, per_byte_ns = scales.tolist()
    return CalibratedHosts(
        overhead_us=round(float(x[0]) * message_us, 4),
        overhead_interval_us=_scaled(overhead, message_us),
        byte_ns=round(float(x[1]) * per_byte_ns, 5),
        byte_interval_ns=_scaled(byte, per_byte_ns),
        algorithms=list(dict.fromkeys(timing.algo for timing in timings)),
        timings=len(timings),
        error=round(float(np.median(np.abs(errors(x)))), 4),
        measured_at=now,
        model=model,
        fitted=tuple(
            FittedTiming(
                algo=timing.algo,
                size_bytes=timing.size_bytes,
                measured_us=round(timing.median_us, 3),
                fitted_us=round(fitted_us, 3),
            )
            for timing, fitted_us in zip(timings, costs(x).tolist(), strict=True)
        ),
    )


def _scaled(interval: tuple[float, float] | None, unit: float) -> list[float] | None:
    return None if interval is None else [round(end * unit, 5) for end in interval]


def _check(timings: Sequence[CollectiveTiming]) -> None:
    sizes = sorted({timing.size_bytes for timing in timings})
    if len(sizes) < MIN_SIZES or sizes[-1] < _MIN_SIZE_RATIO * sizes[0]:
        raise NoAnswer(
            f"host costs need timings of {MIN_SIZES} sizes or more, the largest {_MIN_SIZE_RATIO} times the smallest; "
            f"there are {len(sizes)}: {', '.join(format_bytes(int(size)) for size in sizes) or 'none'}"
        )
    for algo in dict.fromkeys(timing.algo for timing in timings):
        of_algo = sorted((timing for timing in timings if timing.algo == algo), key=lambda timing: timing.size_bytes)
        small, large = of_algo[0], of_algo[-1]
        if large.size_bytes > small.size_bytes and large.median_us < _MIN_GROWTH * small.median_us:
            raise NoAnswer(
                f"{algo}: times do not grow with the size ({format_us(small.median_us)} for "
                f"{format_bytes(int(small.size_bytes))}, {format_us(large.median_us)} for "
                f"{format_bytes(int(large.size_bytes))}), so they do not tell the cost of a byte; give a larger --size"
            )


def _scales(timings: Sequence[CollectiveTiming]) -> npt.NDArray[np.float64]:
    """Return (microseconds, nanoseconds) of a message and a byte if they alone took the shortest and longest time."""
    rounds = max(1.0, timings[0].rounds)
    shortest, longest = (pick(timings, key=lambda timing: timing.median_us) for pick in (min, max))
    return np.array([shortest.median_us / rounds, longest.median_us / longest.size_bytes * _NS_PER_US])


def _intervals(
    x: npt.NDArray[np.float64], jacobian: npt.NDArray[np.float64], errors: npt.NDArray[np.float64]
) -> list[tuple[float, float] | None]:
    """Return the intervals of the unknowns by Student's distribution; None for one that changes no time.

    The jacobian of a robust fit is weighted already, and so are the errors here.
    """
    from scipy.stats import t

    weighted = errors / np.sqrt(1 + (errors / _NOISE) ** 2) ** 0.5
    has_effect = np.abs(jacobian).max(axis=0) > _EPSILON
    intervals: list[tuple[float, float] | None] = [None] * len(x)
    if not has_effect.any():
        return intervals
    freedom = len(errors) - int(has_effect.sum())
    variance = float((weighted**2).sum()) / freedom
    covariance = np.linalg.pinv(jacobian[:, has_effect].T @ jacobian[:, has_effect]) * variance
    quantile = float(t.ppf((1 + CONFIDENCE) / 2, freedom))
    for k, width in zip(
        np.flatnonzero(has_effect).tolist(), (quantile * np.sqrt(np.diag(covariance))).tolist(), strict=True
    ):
        intervals[k] = max(0.0, float(x[k]) - width), float(x[k]) + width
    return intervals
