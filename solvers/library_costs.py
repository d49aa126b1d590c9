"""What a library takes for a collective besides the network, fitted to timings of several sizes.

NCCL sends small vectors by other protocols (LL, LL128, Simple) than large ones, each with latencies of its own for an
operation and its steps, and a share of the links' rate. So the time besides the network's is linear in the size, in
pieces. Which protocol is used from which size is NCCL's choice, so the pieces follow from the timings: segmented least
squares (Bellman 1961, "On the approximation of curves by line segments using dynamic programming"), the number of
pieces by the Bayesian information criterion (Schwarz 1978). Timings on one set of hosts do not tell the operation's own
latency from those of its steps, whose number follows from the ranks: a piece has their sum. Neither a latency nor a
cost of bytes is negative.

A library's kernels and the network work side by side, in part. How far shows where orders are timed that differ in what
the network takes: the times of both are joined by a norm, (a^p + b^p)^(1/p), and p is what fits best. On 16 lab hosts
that shared a GPU, sums (p = 1) fitted to the fastest order of NCCL's ring were up to 35 % too long for seven others at
1 MB; p = 3, as fitted to three orders, was at most 8 % off. With one order p is 1.

By itself NCCL takes its tree up to some size and its ring for larger ones. It does not know the order, so the size is
one for all orders: that which explains the timings of its own choice best by the fitted costs of both.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import structs

from plink.errors import NoAnswer
from plink.model.check import CalibratedLibrary
from plink.model.network_file import LibraryCostsEntry, SizeCosts
from solvers.checking import CollectiveTiming, check_sizes
from solvers.costs.by_name import MIXED
from solvers.costs.fabric import Fabric, library_us

_MAX_PIECES, _MIN_SIZES = 3, 3  # NCCL has three protocols; a line through two sizes fits any noise
_PARAMETERS = 3  # of a piece: where it begins, and its line
_NOISE = 0.01  # relative: better fits than that count as equal
_NS_PER_US = 1e3
_NORMS = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0)  # 1: one after the other; 8: about the longer of the two
LIBRARY_ALGORITHMS = (*MIXED["nccl"], "nccl")  # whose costs are not the hosts'; the last chooses among the others
Values = npt.NDArray[np.float64]
Model = Literal["alpha-beta", "contention"]


def fit_library_costs(
    fabric: Fabric,
    timings: Sequence[CollectiveTiming],
    model: Model,
    now: str,
    previous: Sequence[LibraryCostsEntry] = (),
) -> tuple[CalibratedLibrary, ...]:
    """Fit what a library takes for each of its algorithms that was timed, rounded as a document states it.

    :param fabric: as its links alone are known. :param timings: of :data:`LIBRARY_ALGORITHMS`. :param now: the time,
        RFC 3339. :param previous: what was fitted before, for algorithms that were not timed now.
    :raises NoAnswer: for too few timings, times that do not grow with the size, or those of NCCL's own choice without
        costs of its tree and its ring.
    """
    results: dict[str, CalibratedLibrary] = {}
    for algo in LIBRARY_ALGORITHMS:
        of_algo = sorted((each for each in timings if each.algo == algo), key=lambda timing: timing.size_bytes)
        if not of_algo:
            continue
        check_sizes(of_algo)
        if algo in MIXED:
            entries = {entry.algo: entry for entry in (*previous, *results.values())}
            if missing := [name for name in MIXED[algo] if name not in entries]:
                raise NoAnswer(f"{algo}: it chooses between two; time {' and '.join(missing)}, too")
            parts = [entries[name] for name in MIXED[algo]]
            results[algo] = _fit_choice(fabric, of_algo, parts, model, now)
        else:
            results[algo] = _fit_algorithm(fabric, of_algo, model, now)
    return tuple(results.values())


def _fit_algorithm(fabric: Fabric, timings: Sequence[CollectiveTiming], model: Model, now: str) -> CalibratedLibrary:
    """Fit what one algorithm takes, by timings in ascending order of their sizes."""
    sizes = np.array([timing.size_bytes for timing in timings])
    measured_us = np.array([timing.median_us for timing in timings])
    network_us = np.array([timing.cost_on(fabric, model)(fabric) for timing in timings])
    orders = {timing.order.tobytes() for timing in timings}
    fits = []
    for norm in _NORMS if len(orders) > 1 else _NORMS[:1]:
        beside = measured_us**norm - network_us**norm
        pieces = fit_pieces(sizes, np.sign(beside) * np.abs(beside) ** (1 / norm), measured_us)
        own_us = np.array([library_us(pieces, size) for size in sizes.tolist()])
        fitted_us = (network_us**norm + own_us**norm) ** (1 / norm)
        fits.append((float(((fitted_us / measured_us - 1) ** 2).sum()), norm, pieces, fitted_us))
    _, norm, pieces, fitted_us = min(fits, key=lambda fit: fit[:2])
    return structs.replace(_calibrated(timings, fitted_us, model, now), pieces=list(pieces), norm=norm)


def _fit_choice(
    fabric: Fabric,
    timings: Sequence[CollectiveTiming],
    parts: Sequence[LibraryCostsEntry],
    model: Model,
    now: str,
) -> CalibratedLibrary:
    """Fit up to which size NCCL takes the first of two algorithms, by squares of errors of the time's logarithm.

    :param timings: in ascending order of their sizes. :param parts: the costs of both.
    """
    calibrated = replace(fabric, library_costs=tuple(parts))

    def fitted_us(algo: str) -> Values:
        network_us = [replace(timing, algo=algo).cost_on(fabric, model)(fabric) for timing in timings]
        rows = zip(timings, network_us, strict=True)
        return np.array([calibrated.with_library_us(algo, timing.size_bytes, us) for timing, us in rows])

    tree_us, ring_us = (fitted_us(part.algo) for part in parts)
    measured_us = np.array([timing.median_us for timing in timings])
    sizes = np.array([timing.size_bytes for timing in timings])
    distinct = np.unique(sizes)
    # Nothing was timed between two sizes: the middle, by ratio. Above the largest it counts as the ring's.
    bounds = [0.0, *np.sqrt(distinct[1:] * distinct[:-1]).tolist(), float(distinct[-1])]
    fits = [np.where(sizes <= bound, tree_us, ring_us) for bound in bounds]
    squares = [float((np.log(fit / measured_us) ** 2).sum()) for fit in fits]
    best = int(np.argmin(squares))
    return structs.replace(_calibrated(timings, fits[best], model, now), tree_up_to_bytes=round(bounds[best]))


def _calibrated(timings: Sequence[CollectiveTiming], fitted_us: Values, model: Model, now: str) -> CalibratedLibrary:
    """Return the summary of a fit, without what was fitted."""
    fitted = tuple(timing.fitted(us) for timing, us in zip(timings, fitted_us.tolist(), strict=True))
    measured_us = np.array([timing.median_us for timing in timings])
    return CalibratedLibrary(
        algo=timings[0].algo,
        timings=len(timings),
        error=round(float(np.median(np.abs(fitted_us / measured_us - 1))), 4),
        measured_at=now,
        model=model,
        fitted=fitted,
    )


def fit_pieces(sizes: Values, extra_us: Values, measured_us: Values) -> tuple[SizeCosts, ...]:
    """Fit lines to the time besides the network's, by squares of errors relative to the measured time.

    :param sizes: shape (T,), bytes, in ascending order; some may be equal. :param extra_us: shape (T,), microseconds.
    :param measured_us: shape (T,), above 0.
    """
    starts = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist()]  # of the timings of each size
    ends = [*starts[1:], len(sizes)]
    lines: dict[tuple[int, int], tuple[float, float, float]] = {}

    def line(first: int, last: int) -> tuple[float, float, float]:
        """Return (squares of errors, fixed, slope) of the sizes from first to last."""
        if (first, last) not in lines:
            part = slice(starts[first], ends[last])
            lines[first, last] = _line(sizes[part], extra_us[part], measured_us[part])
        return lines[first, last]

    count, candidates = len(starts), []
    for number in range(1, max(1, min(_MAX_PIECES, count // _MIN_SIZES)) + 1):
        for cuts in itertools.combinations(range(1, count), number - 1):
            bounds = list(itertools.pairwise((0, *cuts, count)))
            if number == 1 or all(end - first >= _MIN_SIZES for first, end in bounds):
                squares = sum(line(first, end - 1)[0] for first, end in bounds)
                variance = squares / len(sizes) + _NOISE**2
                score = len(sizes) * math.log(variance) + _PARAMETERS * number * math.log(len(sizes))
                candidates.append((score, bounds))
    _, bounds = min(candidates)
    pieces = []
    for first, end in bounds:
        # Between the last size of a piece and the first of the next nothing was timed: the middle, by ratio.
        begin = 0.0 if first == 0 else math.sqrt(sizes[starts[first]] * sizes[starts[first - 1]])
        _, fixed_us, slope = line(first, end - 1)
        pieces.append(
            SizeCosts(from_bytes=round(begin), fixed_us=round(fixed_us, 3), byte_ns=round(slope * _NS_PER_US, 6))
        )
    return tuple(pieces)


def _line(sizes: Values, extra_us: Values, measured_us: Values) -> tuple[float, float, float]:
    """Return (squares of relative errors, microseconds of size 0, microseconds a byte); neither is negative."""
    from scipy.optimize import nnls

    scale = np.array([1.0, sizes.max()])  # of the columns, for precision
    columns = np.stack([np.ones_like(sizes), sizes], axis=1) / scale / measured_us[:, None]
    solution, norm = nnls(columns, extra_us / measured_us)
    fixed_us, slope = (solution / scale).tolist()
    return float(norm**2), fixed_us, slope
