"""Does the cost model rank orders as the clock does? Which orders to run, and what their times say of it."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, median
from typing import Literal

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.check import CalibratedHosts, CostCalibration, FittedTiming
from plink.model.units import format_bytes, format_us
from solvers.costs.by_name import CONTENTION, cost_function_for, parts_of, pattern_for
from solvers.costs.closed_forms import Order
from solvers.costs.evaluator import with_host_costs
from solvers.costs.fabric import Fabric
from solvers.gain import CONFIDENCE, PairedGain, paired_gain
from solvers.ordering.problem import expand_slots
from solvers.schedules.catalogue import Options
from solvers.schedules.segmentation import options_at
from solvers.simulation.cost import SimulatedCost

_DIGITS = 12  # of a correlation; beyond these is what adding up left
MAX_SPEARMAN_LOSS = 0.05
MIN_ORDERS = 4  # for a confidence interval, whose width is proportional to 1 / sqrt(orders - 3)
_MIN_RANKINGS = 10  # of so many costs: else a perfect one comes by chance more often than once in ten
_DISTURBED_ORDERS, _RANDOM_ORDERS, _CLIMBS, _CLIMB_STEPS = 600, 300, 3, 100
_EQUAL_DISTANCE_SHARE = 0.005  # of the range of costs: targets within it are equally near
EQUAL_COST_SHARE = 0.001  # repetitions of one order scatter by 1 % or more: no clock tells such costs apart
MIN_SIZES = 4
_MIN_SIZE_RATIO = 16
_MIN_GROWTH = 1.2  # of the time from the smallest size to the largest
_NOISE = 0.05  # relative: larger errors count less
_US_PER_S, _NS_PER_US = 1e6, 1e3
_MAX_LOSS = 0.01  # by which costs of hosts may leave the model further off than none
_EPSILON = 1e-12
_STEP = 1e-3  # relative, of the differences that stand for derivatives
_PRECISE = 1e-6


@dataclass(frozen=True)
class Correlation:
    """Spearman's, of ``orders`` orders; ``low`` and ``high``: its interval of :data:`solvers.gain.CONFIDENCE`, None
    for :func:`too_few_rankings`. ``attainable``: what the predicted ranking has with itself where equal costs are
    ranked by chance, below 1 with ties."""

    spearman: float
    low: float | None
    high: float | None
    orders: int
    attainable: float = 1.0


def with_ties(values: Sequence[float], share: float) -> npt.NDArray[np.float64]:
    """Return the values, each replaced by the least that is within this share below it, counted from the least on."""
    tied, least = np.array(values, dtype=np.float64), -np.inf
    for k in np.argsort(tied, kind="stable").tolist():
        least = least if tied[k] <= least * (1 + share) else tied[k]
        tied[k] = least
    return tied


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> Correlation:
    """Whether orders that should be slower are. Predicted costs within :data:`EQUAL_COST_SHARE` are ties.

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
    costs = with_ties(predicted, EQUAL_COST_SHARE)
    if n < 2 or len(set(costs)) == 1 or len(set(measured)) == 1:
        raise NoAnswer("a rank correlation needs two orders or more that differ, in what is predicted and in time")
    from scipy.stats import spearmanr

    # Some perfect rankings come out as 1 - 1e-16, and what is exactly a limit just below it.
    value, attainable = (
        round(float(spearmanr(*ranked).statistic), _DIGITS)
        for ranked in ((costs, measured), (np.sort(costs), range(n)))
    )
    if too_few_rankings(predicted) is not None:
        return Correlation(value, None, None, n, attainable)
    most = 1 - 12 / (n * (n * n - 1))
    inner = max(-most, min(most, value))
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt((1 + inner * inner / 2) / (n - 3))
    z = math.atanh(inner)
    low = -1.0 if value < -most - 10**-_DIGITS else math.tanh(z - half)
    high = 1.0 if value > most + 10**-_DIGITS else math.tanh(z + half)
    return Correlation(value, low, high, n, attainable)


def too_few_rankings(predicted: Sequence[float]) -> str | None:
    """Return why a perfect ranking of orders with these costs says little: by chance it would come more often than once
    in ten. None where it says something."""
    equal = Counter(with_ties(predicted, EQUAL_COST_SHARE)).values()
    rankings = math.factorial(len(predicted)) // math.prod(math.factorial(number) for number in equal)
    if rankings >= _MIN_RANKINGS:
        return None
    return (
        f"{len(predicted)} orders with {len(equal)} different costs can be ranked in {rankings} ways only, so a "
        "perfect ranking may be chance; use more --orders"
    )


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


def ranks_worse(before: Correlation, now: float) -> bool:
    """Return whether the model ranks orders worse than it did, by Spearman's correlation: lower by more than
    the tolerance, and below the interval of what was found before, where it has one.

    Few orders vary by more from one day to the next without anything being wrong: two neighbours of four that change
    over are 0.2.
    """
    return now < before.spearman - MAX_SPEARMAN_LOSS and (before.low is None or now < before.low)


def orders_between(
    best: Order, slots: Order, cost_of: Callable[[Order], float], number: int, seed: int
) -> list[tuple[Order, float]]:
    """Return orders at even steps of cost from the cheapest to the most expensive that were drawn, by cost.

    :param best: shape (N,), the host at each rank in the cheapest order that is known.
    :param slots: shape (H,), how many ranks each host has; they stay in one block.
    :param cost_of: the cost of an order; an order for which it raises NoAnswer is skipped.
    :returns: (order, cost), up to ``number`` of them; fewer where there are not so many different ones.
    :raises NoAnswer: when all orders cost the same, or fewer than two have a cost.
    """
    rng = np.random.default_rng(seed)
    evaluated: dict[bytes, tuple[Order, float]] = {}

    def evaluate(hosts: Order) -> float | None:
        order = expand_slots(hosts, slots)
        try:
            cost = float(cost_of(order))
        except NoAnswer:
            return None
        evaluated.setdefault(order.tobytes(), (order, cost))
        return cost

    hosts = best[np.sort(np.unique(best, return_index=True)[1])]
    evaluate(hosts)
    for _ in range(_DISTURBED_ORDERS):
        evaluate(_disturbed(hosts, int(rng.integers(1, len(hosts) + 1)), rng))
    for _ in range(_RANDOM_ORDERS):
        evaluate(rng.permutation(hosts))
    for _ in range(_CLIMBS):
        _climb(rng.permutation(hosts), evaluate, rng)
    candidates = sorted(evaluated.values(), key=lambda entry: entry[1])
    if len(candidates) < 2:
        raise NoAnswer(
            "fewer than two orders have a cost: too many pairs were not measured; `plink probe HOSTS --resume` "
            "measures them"
        )
    costs = np.array([cost for _, cost in candidates])
    if costs[-1] <= costs[0] * (1 + EQUAL_COST_SHARE):
        raise NoAnswer(f"every order costs the same by this model, to {EQUAL_COST_SHARE:.1%}: there is nothing to rank")
    return [candidates[place] for place in spread(costs, number, rng)]


def spread(costs: npt.NDArray[np.float64], number: int, rng: np.random.Generator) -> list[int]:
    """Return indices of up to ``number`` orders at even steps from the lowest to the highest cost, by cost.

    Of equally near orders one is drawn at random.
    """
    chosen: list[int] = []
    low, high = costs.min(), costs.max()
    for target in np.linspace(low, high, min(number, len(costs))):
        distance = np.abs(costs - target)
        distance[chosen] = np.inf
        chosen.append(
            int(rng.choice(np.flatnonzero(distance <= distance.min() + _EQUAL_DISTANCE_SHARE * (high - low))))
        )
    return sorted(chosen, key=lambda index: float(costs[index]))


def _disturbed(hosts: Order, swaps: int, rng: np.random.Generator) -> Order:
    order = hosts.copy()
    for _ in range(swaps):
        i, j = rng.integers(len(order), size=2)
        order[[i, j]] = order[[j, i]]
    return order


def _climb(hosts: Order, evaluate: Callable[[Order], float | None], rng: np.random.Generator) -> None:
    """Swap hosts at random; keep swaps that make the order more expensive."""
    cost = evaluate(hosts)
    for _ in range(_CLIMB_STEPS):
        other = _disturbed(hosts, 1, rng)
        other_cost = evaluate(other)
        if other_cost is not None and (cost is None or other_cost >= cost):
            hosts, cost = other, other_cost


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

    def fitted(self, fitted_us: float) -> FittedTiming:
        """Return it beside what was fitted, microseconds, rounded as a document states them."""
        return FittedTiming(
            algo=self.algo,
            size_bytes=self.size_bytes,
            measured_us=round(self.median_us, 3),
            fitted_us=round(fitted_us, 3),
        )

    def rounds(self, fabric: Fabric) -> float:
        """Return the rounds of the collective, one after the other."""
        parts = parts_of(self.algo, self.size_bytes, fabric)
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
    :raises NoAnswer: for too few timings, times that do not grow with the size, or where the model is further off with
        costs of hosts than without.
    """
    from scipy.optimize import least_squares

    check_sizes(timings)
    measured_us = np.array([timing.median_us for timing in timings])
    scales = _scales(fabric, timings)

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
    error, without = (float(np.median(np.abs(errors(each)))) for each in (x, np.zeros(2)))
    algorithms = list(dict.fromkeys(timing.algo for timing in timings))
    if error > without + _MAX_LOSS:
        raise NoAnswer(
            f"{', '.join(algorithms)}: times by {model} are off by {error:.1%} in the median with the costs of hosts "
            f"that fit best, and by {without:.1%} without any"
        )
    message_us, per_byte_ns = scales.tolist()
    return CalibratedHosts(
        overhead_us=round(float(x[0]) * message_us, 4),
        overhead_interval_us=_scaled(overhead, message_us),
        byte_ns=round(float(x[1]) * per_byte_ns, 5),
        byte_interval_ns=_scaled(byte, per_byte_ns),
        algorithms=algorithms,
        timings=len(timings),
        error=round(error, 4),
        measured_at=now,
        model=model,
        fitted=tuple(timing.fitted(us) for timing, us in zip(timings, costs(x).tolist(), strict=True)),
    )


def _scaled(interval: tuple[float, float] | None, unit: float) -> list[float] | None:
    return None if interval is None else [round(end * unit, 5) for end in interval]


def check_sizes(timings: Sequence[CollectiveTiming]) -> None:
    """Refuse timings that tell no costs.

    :raises NoAnswer: for too few sizes, or times that do not grow with the size.
    """
    sizes = sorted({timing.size_bytes for timing in timings})
    if len(sizes) < MIN_SIZES or sizes[-1] < _MIN_SIZE_RATIO * sizes[0]:
        raise NoAnswer(
            f"--calibrate needs timings of {MIN_SIZES} sizes or more, the largest {_MIN_SIZE_RATIO} times the "
            f"smallest; there are {len(sizes)}: {', '.join(format_bytes(int(size)) for size in sizes) or 'none'}"
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


def _scales(fabric: Fabric, timings: Sequence[CollectiveTiming]) -> npt.NDArray[np.float64]:
    """Return (microseconds, nanoseconds) of a message and a byte if they alone took the shortest and longest time."""
    rounds = max(1.0, timings[0].rounds(fabric))
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
