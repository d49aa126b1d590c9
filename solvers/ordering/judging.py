"""What an order really gains: fitted on one half of the samples, judged on the other, with an interval.

The cheapest of many orders looks cheap on the samples it was chosen by because their noise flattered it (the winner's
curse). The other half flatters no order. Given the true round trips, the gain on the held-out half and the gain on
fresh samples of the same kind are drawn alike and independently; hence their difference is symmetric about zero,
whatever the objective (also where a longest hop counts, which noise inflates: it does so on both sides). So the
interval is the judged gain plus and minus a quantile of that difference, and only the quantile has to be estimated.

It is, by drawing noise around the held-out round trips. What half of the samples is off by is seen in
``log(fit / held out)``, the difference of two halves, so over sqrt(2) it is the noise of one. All pairs are looked at:
those that the order uses were chosen for being fitted low, and without them the rest would seem quieter than all are. A
pair draws from pairs about as far, for noise may grow with distance; they are few, which widens the interval as it does
Student's. Held-out values spread more than true ones, so that where longest hops count the interval is rather too wide
than too narrow. Noise that both halves share (a slow hour) is not seen. Where rare large delays make the noise an
interval of 95 % may hold 85 % only: half of a difference is not the shape of one.

The order to launch is the one that was judged. One fitted on all samples saves more, by 0.1 to 0.3 % of the given
order's cost at a noise of 2 % and by 2 to 5 % at one of 20 % (simulated), but there is nothing left to judge it on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric, Vector
from solvers.costs.patterns import Pattern

Order = npt.NDArray[np.intp]
Edges = npt.NDArray[np.intp]
_DRAWS = 300
_SEEN = 1 << 16  # pairs that the noise is looked at: more would say the same
_ALIKE = 8  # a pair draws from one in so many of the seen pairs to either side, the nearest in distance
_FEWEST = 32  # but from so many: fewer say too little of how large the noise is
_HALVINGS = 53
_HELD = 1 << 22  # numbers at a time


@dataclass(frozen=True)
class Judgement:
    """What an order saves of the given order's cost; 0.2 is a fifth.

    ``gain``: on the held-out samples. ``low``, ``high``: what fresh samples of the same kind would show, by the
    confidence asked for. ``predicted``: on the samples it was fitted on. ``pairs``: of how many pairs that either order
    uses there are held-out samples; the others count as they were fitted.
    """

    gain: float
    low: float
    high: float
    predicted: float
    pairs: int

    @property
    def within_noise(self) -> bool:
        """Whether the saving cannot be told from none."""
        return not self.low > 0


def split(halves_us: Sequence[Matrix], rtt_us: Matrix) -> tuple[Matrix, Matrix] | None:
    """The round trips to fit an order on, and those to judge it on; None when no pair has both.

    :param halves_us: two, shape (N, N), symmetric, NaN where missing: what half of the samples says of every pair.
    :param rtt_us: shape (N, N), symmetric: what all samples say, or a prediction.
    :returns: (fit, held out), shape (N, N), symmetric. Where a half is missing ``fit`` is ``rtt_us`` and ``held out``
        is NaN: such a pair is not judged, and :func:`judge` takes the fitted value for it.
    """
    first, second = halves_us
    both = (first > 0) & (second > 0)
    np.fill_diagonal(both, False)
    if not both.any():
        return None
    held_out = np.where(both, second, np.nan)
    np.fill_diagonal(held_out, 0.0)
    return np.where(both, first, rtt_us), held_out


class Priced(NamedTuple):
    """How an order is priced. ``patterns``: (weight, pattern) of what the algorithm is made of; ``fabric``: its
    ``rtt_us`` is what the order was fitted on."""

    patterns: Sequence[tuple[float, Pattern]]
    fabric: Fabric
    size_bytes: float
    model: str


def judge(
    priced: Priced, order: Order, given: Order, held_out_us: Matrix, seed: int, confidence: float = 0.95
) -> Judgement:
    """What ``order`` saves, judged on samples that it was not fitted on.

    Rates and shared links stay what they are; only round trips are judged. Where the order uses no pair that could be
    judged the interval reaches down to 0.

    :param order: shape (N,), the host at each rank, of the same hosts as ``given``.
    :param held_out_us: shape (H, H), symmetric, as from :func:`split`.
    :param confidence: how often the interval holds the gain on fresh samples.
    :raises UsageError: for an unknown model or a size that is not positive.
    :raises NoAnswer: when a pair that is used is not known.
    """
    patterns, fabric, size_bytes, model = priced
    prices = [(weight, pattern, closed_form(pattern, fabric, size_bytes, model)) for weight, pattern in patterns]
    before, after = (
        [(weight, _Cost(pattern, fabric, model, ranks, price(ranks))) for weight, pattern, price in prices]
        for ranks in (given, order)
    )
    parts = [cost.pairs for _, cost in (*before, *after)]
    asked, where = np.unique(np.concatenate(parts), return_inverse=True)
    places = np.split(where, np.cumsum([len(part) for part in parts])[:-1])
    fit, held_out = fabric.rtt_us.take(asked), held_out_us.take(asked)
    judged = held_out > 0
    held_out = np.where(judged, held_out, fit)

    def gains(rtt_us: Vector) -> Vector:
        """Shape (D,), of D drawings of the P pairs, shape (D, P)."""
        costs = [weight * cost(rtt_us[:, at]) for (weight, cost), at in zip((*before, *after), places, strict=True)]
        given_us, order_us = sum(costs[: len(before)]), sum(costs[len(before) :])
        return 1 - np.divide(order_us, given_us, out=np.ones(len(rtt_us)), where=np.greater(given_us, 0))

    predicted, gain, pairs = float(gains(fit[None])[0]), float(gains(held_out[None])[0]), int(judged.sum())
    if np.array_equal(order, given) or all(pattern.everyone for _, pattern in patterns):
        return Judgement(0.0, 0.0, 0.0, 0.0, pairs)
    rng = np.random.default_rng(seed)
    noise = _Noise(fabric.rtt_us, held_out_us, rng)
    at_once = max(1, min(_DRAWS, _HELD // sum(map(len, parts))))
    draws = [min(at_once, _DRAWS - begin) for begin in range(0, _DRAWS, at_once)]
    drawn = np.concatenate([gains(held_out * noise.factors(held_out, number, rng)) for number in draws])
    apart = np.abs(drawn[:, None] - drawn[None, :])[np.triu_indices(_DRAWS, 1)]
    reach = float(np.quantile(apart, confidence)) * noise.few(confidence)
    low = gain - reach
    return Judgement(gain, low if pairs else min(0.0, low), gain + reach, predicted, pairs)


def students_quantile(freedom: int, share: float) -> float:
    """What so large a share of Student's t stays below, for an even number of degrees of freedom.

    Its distribution then is a finite sum (Abramowitz and Stegun 1964, 26.7.4), and halving finds where it is ``share``:
    the half that is left is less than a double can tell. SciPy has this too, and takes a fifth of a second to load.

    :param share: more than a half, less than 1.
    """
    k = np.arange(1, freedom // 2)
    factors = np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))
    powers = 2 * np.arange(len(factors))

    def below(angle: float) -> float:
        return float(1 + np.sin(angle) * (factors @ np.cos(angle) ** powers)) / 2

    low, high = 0.0, np.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if below(middle) >= share else (middle, high)
    return float(np.sqrt(freedom) * np.tan((low + high) / 2))


class _Noise:
    """What half of the samples is off by, as seen in up to 65,536 pairs, nearest first."""

    def __init__(self, fit_us: Matrix, held_out_us: Matrix, rng: np.random.Generator) -> None:
        n = len(fit_us)
        if n * (n - 1) // 2 <= _SEEN:
            a, b = np.triu_indices(n, 1)
        else:
            a, b = rng.integers(n, size=(2, _SEEN))
            a, b = np.minimum(a, b)[a != b], np.maximum(a, b)[a != b]
        keys = a * n + b
        keys = keys[(held_out_us.take(keys) > 0) & (fit_us.take(keys) > 0)]
        fit, held_out = np.log(fit_us.take(keys)), np.log(held_out_us.take(keys))
        level = (fit + held_out) / 2
        nearest_first = np.argsort(level)
        self._level = level[nearest_first]
        self._off = ((fit - held_out) / np.sqrt(2))[nearest_first]
        self._reach = min(max(_FEWEST, len(keys) // _ALIKE), max(1, len(keys) // 2))

    def few(self, confidence: float) -> float:
        """How much wider an interval is for noise known from so few pairs only: Student's quantile over Gauss's."""
        half = (1 + confidence) / 2
        return students_quantile(2 * self._reach, half) / NormalDist().inv_cdf(half)

    def factors(self, rtt_us: Vector, draws: int, rng: np.random.Generator) -> Vector:
        """What to multiply P round trips with, shape (draws, P)."""
        seen, width = len(self._off), 2 * self._reach
        if not seen:
            return np.ones((draws, len(rtt_us)))
        place = np.searchsorted(self._level, np.log(np.where(rtt_us > 0, rtt_us, 1.0)))
        first = np.clip(place - self._reach, 0, max(0, seen - width))
        chosen = first + rng.integers(min(width, seen), size=(draws, len(rtt_us)))
        sign = rng.integers(2, size=chosen.shape) * 2 - 1
        factors: Vector = np.exp(self._off[chosen] * sign)
        return factors


class _Cost:
    """The cost of one order as a function of the round trips of the pairs that it uses; what does not depend on them
    (bytes over rates) is its price less the latency's part."""

    def __init__(self, pattern: Pattern, fabric: Fabric, model: str, order: Order, price: float) -> None:
        n, ranks = len(fabric.names), pattern.ranks
        self._pattern, self._latency_alone = pattern, model == "latency"
        edges = pattern.source * ranks + pattern.target
        if self._latency_alone and pattern.pace == "chain":
            edges = np.concatenate([level.edges for level in pattern.chain])
        elif self._latency_alone and pattern.pace == "pipeline":
            edges = np.unique(edges)
        a, b = order[edges // ranks], order[edges % ranks]
        self.pairs: Edges = np.minimum(a, b) * n + np.maximum(a, b)
        self._rest = 0.0
        if not self._latency_alone or pattern.everyone:
            self._rest = price - float(self(fabric.rtt_us.take(self.pairs)[None])[0])

    def __call__(self, hops: Vector) -> Vector:
        """Microseconds, shape (D,); ``hops``: the round trips of ``pairs``, shape (D, E)."""
        pattern = self._pattern
        if not hops.shape[1]:
            return np.full(len(hops), self._rest)
        if self._latency_alone and pattern.pace == "pipeline":
            return np.asarray(hops.sum(axis=1))
        if self._latency_alone and pattern.pace == "chain":
            return self._longest_path(hops)
        longest = np.maximum.reduceat(hops, pattern.starts, axis=1)
        if self._latency_alone:
            return np.asarray(longest @ pattern.there)
        return np.asarray(longest @ pattern.repeat / 2 + self._rest)

    def _longest_path(self, hops: Vector) -> Vector:
        done = np.zeros((len(hops), hops.shape[1]))
        begin = 0
        for level in self._pattern.chain:
            part = hops[:, begin : begin + len(level.edges)]
            begin += len(level.edges)
            if len(level.waits):
                part = part + np.maximum.reduceat(done[:, level.waits], level.starts, axis=1)
            done[:, level.places] = part
        return np.asarray(done.max(axis=1))
