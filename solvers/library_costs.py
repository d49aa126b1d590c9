"""What a library takes for a collective besides the network, fitted to timings of several sizes.

NCCL sends small vectors by other protocols (LL, LL128, Simple) than large ones, each with latencies of its own for an
operation and its steps, and a share of the links' rate. So the time besides the network's is linear in the size, in
pieces. Which protocol is used from which size is NCCL's choice, so the pieces follow from the timings: segmented least
squares (Bellman 1961, "On the approximation of curves by line segments using dynamic programming"), the number of
pieces by the Bayesian information criterion (Schwarz 1978). Timings on one set of hosts do not tell the operation's own
latency from those of its steps: a piece has their sum. Neither a latency nor a cost of bytes is negative.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from plink.model.check import CalibratedLibrary, FittedTiming
from plink.model.network_file import SizeCosts
from solvers.checking import CollectiveTiming, check_sizes
from solvers.costs.fabric import Fabric, library_us

_MAX_PIECES, _MIN_SIZES = 3, 3  # NCCL has three protocols; a line through two sizes fits any noise
_PARAMETERS = 3  # of a piece: where it begins, and its line
_NOISE = 0.01  # relative: better fits than that count as equal
_NS_PER_US = 1e3
Values = npt.NDArray[np.float64]


def fit_library_costs(
    fabric: Fabric, timings: Sequence[CollectiveTiming], model: Literal["alpha-beta", "contention"], now: str
) -> CalibratedLibrary:
    """Fit what a library takes for one algorithm, rounded as a document states it.

    :param fabric: as its links alone are known. :param timings: of one algorithm. :param now: the time, RFC 3339.
    :raises NoAnswer: for too few timings, or times that do not grow with the size.
    """
    check_sizes(timings)
    timings = sorted(timings, key=lambda timing: timing.size_bytes)
    sizes = np.array([timing.size_bytes for timing in timings])
    measured_us = np.array([timing.median_us for timing in timings])
    network_us = np.array([timing.cost_on(fabric, model)(fabric) for timing in timings])
    pieces = fit_pieces(sizes, measured_us - network_us, measured_us)
    fitted_us = [float(us) + library_us(pieces, size) for us, size in zip(network_us, sizes.tolist(), strict=True)]
    return CalibratedLibrary(
        algo=timings[0].algo,
        pieces=list(pieces),
        timings=len(timings),
        error=round(float(np.median(np.abs(np.array(fitted_us) / measured_us - 1))), 4),
        measured_at=now,
        model=model,
        fitted=tuple(
            FittedTiming(
                algo=timing.algo,
                size_bytes=timing.size_bytes,
                measured_us=round(timing.median_us, 3),
                fitted_us=round(us, 3),
            )
            for timing, us in zip(timings, fitted_us, strict=True)
        ),
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
