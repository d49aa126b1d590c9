"""Advice on algorithm and order by size: the lower envelope of costs over sizes.

By rounds a cost is a line in the size: every round takes its longest latency, and the size times the seconds per byte
of its busiest resource. So two sizes determine the cost at all sizes, and the cheapest of many lines changes at points
that can be computed. In slices, whose number depends on the size, it is a mixture of two lines. Estimated and simulated
times are no line: they are computed at several sizes, with lines between them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from solvers.costs.by_name import CONTENTION, engine_slices, pattern_for, time_in_slices
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import NO_MESSAGES, Messages
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import in_slices
from solvers.schedules.catalogue import HUB_ALGORITHMS, Options

Order = npt.NDArray[np.intp]
_SAMPLE_SIZES = (1e6, 2e6)
_SLICED_BYTES = 1e9  # a vector that AggEngine cuts, if it executes the algorithm at all


@dataclass(frozen=True)
class CostLine:
    """Cost ``start_us + us_per_byte * size`` of an algorithm in an order of that family.

    ``messages``: of the vector whole, that hosts work on one after the other.
    """

    algo: str
    family: str
    start_us: float
    us_per_byte: float
    messages: Messages = field(default=NO_MESSAGES, kw_only=True)

    def at(self, size_bytes: float) -> float:
        """Return the cost at a size, microseconds."""
        return self.start_us + self.us_per_byte * size_bytes

    def is_by_rounds(self, size_bytes: float | None = None) -> bool:
        """Return whether the cost at one of its sizes, or at any, stands for a simulation that was not made."""
        return False


@dataclass(frozen=True)
class SlicedLine(CostLine):
    """Cost by rounds in as many slices as AggEngine has for the size. ``in_two``: the cost in two slices, where links
    last longest; ``messages_us``: what messages of a slice take."""

    in_two: CostLine
    slices_at: Callable[[float], int] = field(repr=False)
    messages_us: Messages

    def at(self, size_bytes: float) -> float:
        """Return the cost at a size, microseconds: with P slices 1/P of one slice's rounds and the rest of all rounds
        at once (:func:`solvers.costs.patterns.in_slices`), of which in two slices it is a half each; no less than what
        messages take (:func:`solvers.costs.by_name.time_in_slices`)."""
        slices, whole_us = self.slices_at(size_bytes), super().at(size_bytes)
        share = 2 / slices - 1
        by_links_us = share * whole_us + (1 - share) * self.in_two.at(size_bytes)
        return max(by_links_us, time_in_slices(whole_us, 0.0, 0.0, slices, self.messages_us))


@dataclass(frozen=True)
class SimulatedLine(CostLine):
    """Simulated times ``times_us`` at ``sizes_bytes``, rising, and lines between them; by rounds at ``rounds_at`` of
    these sizes.

    ``start_us`` and ``us_per_byte`` are of the line through the first and the last.
    """

    sizes_bytes: tuple[float, ...]
    times_us: tuple[float, ...]
    rounds_at: tuple[float, ...] = ()

    def at(self, size_bytes: float) -> float:
        """Return the time at a size, microseconds."""
        return float(np.interp(size_bytes, self.sizes_bytes, self.times_us))

    def is_by_rounds(self, size_bytes: float | None = None) -> bool:
        """Return whether the time at one of its sizes, or at any, is by rounds."""
        return bool(self.rounds_at) if size_bytes is None else size_bytes in self.rounds_at


@dataclass(frozen=True)
class SizeInterval:
    """The cheapest line from one size to another, bytes."""

    line: CostLine
    from_bytes: float
    to_bytes: float


def cost_lines(
    fabric: Fabric, orders: Mapping[str, Order], algorithms: Mapping[str, Options], model: str
) -> tuple[list[CostLine], dict[str, str]]:
    """Return the cost of every algorithm in every order, and the error of each that has none: {algorithm: reason}.

    :param orders: family name -> order, shape (N,); :param algorithms: name -> its options.
    :raises UsageError: for the model ``latency``, which ignores sizes.
    """
    if model == "latency":
        raise UsageError("--model latency ignores sizes; choose alpha-beta or contention")
    lines, errors = [], {}
    links = replace(fabric, overhead_us=0.0)
    ranks = len(next(iter(orders.values())))
    for algo, options in algorithms.items():
        try:
            pattern = pattern_for(algo, ranks, options)
        except UsageError as error:
            errors[algo] = str(error)
            continue
        is_sliced = model == CONTENTION or algo in HUB_ALGORITHMS
        sliced = is_sliced and engine_slices(algo, options, fabric, _SLICED_BYTES) > 1
        cost_functions = [
            {size: closed_form(form, links, size, model) for size in _SAMPLE_SIZES}
            for form in (pattern, *([in_slices(pattern, 2)] if sliced else []))
        ]
        messages = pattern.messages
        messages_us = messages.us(fabric.overhead_us)
        for family, order in orders.items():
            whole, *in_two = (
                line_of(algo, family, lambda size, o=order, p=p, added_us=messages_us.rounds / k: p[size](o) + added_us)  # type: ignore[misc]
                for k, p in enumerate(cost_functions, 1)
            )
            if in_two:
                slices_at = partial(engine_slices, algo, options, fabric)
                whole = SlicedLine(algo, family, whole.start_us, whole.us_per_byte, in_two[0], slices_at, messages_us)
            lines.append(replace(whole, messages=messages))
    return lines, errors


def line_of(algo: str, family: str, cost_of: Callable[[float], float]) -> CostLine:
    """Return the line through the costs, in microseconds, of two sizes in bytes."""
    small, large = _SAMPLE_SIZES
    small_us, large_us = cost_of(small), cost_of(large)
    slope = max(0.0, (large_us - small_us) / (large - small))
    return CostLine(algo, family, max(0.0, small_us - slope * small), slope)


def simulated_line(
    algo: str, family: str, cost_of: Callable[[float], float], sizes_bytes: Sequence[float]
) -> SimulatedLine:
    """Return the line through the costs, in microseconds, of two sizes or more, rising, in bytes."""
    times = tuple(cost_of(size) for size in sizes_bytes)
    slope = max(0.0, (times[-1] - times[0]) / (sizes_bytes[-1] - sizes_bytes[0]))
    start_us = max(0.0, times[0] - slope * sizes_bytes[0])
    return SimulatedLine(algo, family, start_us, slope, tuple(sizes_bytes), times)


@dataclass(frozen=True)
class PricedAlgorithm:
    """Algorithm whose time is simulated where it may be the fastest. ``cost_of``: microseconds of a size in bytes;
    ``busiest_us_per_byte``: what its busiest resource works for each byte of the vector, 0 where that is not known.
    ``estimate``: what stands where it is not simulated (None: its bound); half of its start counts as a bound, too,
    as latencies of rounds may overlap."""

    algo: str
    family: str
    cost_of: Callable[[float], float]
    busiest_us_per_byte: float = 0.0
    estimate: CostLine | None = None


def fastest_lines(candidates: Sequence[PricedAlgorithm], sizes_bytes: Sequence[float]) -> list[SimulatedLine]:
    """Return each candidate's line, as :func:`simulated_line`, right wherever it is the fastest (as far as half of an
    estimate's start is a bound: by rounds a ring across far sites may take more than twice its time at 1 kB).

    Those whose busiest resource works least come first. Where one of them is faster than a bound of the next candidate,
    at a size and at those beside it, that one is not simulated, and its time is the estimate, or the bound: what its
    busiest resource works, and no less than at a smaller size.
    """
    lines: dict[int, SimulatedLine] = {}
    sizes = np.asarray(sizes_bytes)
    for place in sorted(range(len(candidates)), key=lambda place: candidates[place].busiest_us_per_byte):
        candidate, estimate = candidates[place], candidates[place].estimate
        least = np.maximum(candidate.busiest_us_per_byte * sizes, estimate.start_us / 2 if estimate else 0.0)
        times = least.copy() if estimate is None else np.maximum([estimate.at(size) for size in sizes_bytes], least)
        shrinks = 2 if candidate.algo in HUB_ALGORITHMS else 1.25  # where their vectors are first sliced
        for k, size in enumerate(sizes_bytes):
            least[k:] = np.maximum(least[k:], least[: k + 1].max() / shrinks)
            near = slice(max(0, k - 1), k + 2)
            if any(np.less(line.times_us[near], least[near]).all() for line in lines.values()):
                times[k] = max(times[k], least[k])
            else:
                times[k] = least[k] = candidate.cost_of(size)
        time_at = dict(zip(sizes_bytes, times.tolist(), strict=True))
        lines[place] = simulated_line(candidate.algo, candidate.family, time_at.__getitem__, sizes_bytes)
        if estimate is not None:
            lines[place] = replace(lines[place], messages=estimate.messages)
    return [lines[place] for place in range(len(candidates))]


def simulated_envelope(candidates: Sequence[SimulatedLine], from_bytes: float, to_bytes: float) -> list[SizeInterval]:
    """Return the fastest candidate at every size, as :func:`envelope`; all have times at the same sizes.

    Times may jump between two sizes that are a byte apart: none is between them.
    """
    ends = sorted({from_bytes, to_bytes, *(s for s in candidates[0].sizes_bytes if from_bytes < s < to_bytes)})
    intervals: list[SizeInterval] = []
    for low, high in pairwise(ends) if len(ends) > 1 else [(from_bytes, to_bytes)]:
        if intervals and high - low <= 1 and high < to_bytes:
            continue
        lines = {}
        for candidate in candidates:
            slope = (candidate.at(high) - candidate.at(low)) / (high - low) if high > low else candidate.us_per_byte
            line = CostLine(candidate.algo, candidate.family, candidate.at(low) - slope * low, slope)
            lines[line] = candidate
        for interval in envelope(list(lines), low, high):
            line = lines[interval.line]
            if intervals and intervals[-1].line is line:
                intervals[-1] = SizeInterval(line, intervals[-1].from_bytes, interval.to_bytes)
            else:
                intervals.append(SizeInterval(line, interval.from_bytes, interval.to_bytes))
    return intervals


def envelope(candidates: Sequence[CostLine], from_bytes: float, to_bytes: float) -> list[SizeInterval]:
    """The cheapest line at every size, as stretches in ascending order; of equal lines the first.

    >>> flat, steep = Line("a", "given", 10.0, 1.0), Line("b", "given", 0.0, 2.0)
    >>> [(stretch.line.algo, stretch.to_bytes) for stretch in envelope([flat, steep], 1, 100)]
    [('b', 10.0), ('a', 100)]
    """
    intervals: list[SizeInterval] = []
    at = from_bytes
    # Begin with the cheapest line, of equal ones the flattest. Then continue with the flatter line crossed first.
    line = min(candidates, key=lambda line: (line.at(at), line.us_per_byte))
    while flatter := [other for other in candidates if other.us_per_byte < line.us_per_byte]:
        crossings = [(line.start_us - other.start_us) / (other.us_per_byte - line.us_per_byte) for other in flatter]
        index = min(range(len(crossings)), key=lambda k: (crossings[k], flatter[k].us_per_byte))
        end = crossings[index]
        if end >= to_bytes:
            break
        if end > at:  # rounding may have passed it already
            intervals.append(SizeInterval(line, at, end))
            at = end
        line = flatter[index]
    return [*intervals, SizeInterval(line, at, to_bytes)]
