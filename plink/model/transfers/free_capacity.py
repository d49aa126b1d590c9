"""Free capacity of ways in and out over time, and when a transfer that takes all that is free would arrive (M 5.1.1).

A *way* is one direction of a host's link. A transfer uses a way out and a way in, at each moment as much as both have
free. Everything else of the network is taken to be free of congestion, as M 7.4 does.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Breakpoints = tuple[tuple[float, float], ...]
"""Times in seconds, rising, and the bytes a second that are free from each on; the last lasts for ever."""

_EXACT = 1e-9  # share of a size or a rate that rounding may leave


@dataclass(frozen=True)
class FreeCapacity:
    """W ways. ``rates_bytes_s``, shape (W,): what each has free in the end. ``ways``: the breakpoints of each.
    ``constant_from_s``, shape (W,): when the last stretch of each begins."""

    rates_bytes_s: Vector
    ways: tuple[Breakpoints, ...]
    constant_from_s: Vector

    @staticmethod
    def idle(rates_bytes_s: Iterable[float], now_s: float = 0.0) -> "FreeCapacity":
        """Return ways on which nothing is reserved."""
        rates = np.array([*rates_bytes_s], dtype=np.float64)
        return FreeCapacity(rates, tuple(((now_s, rate),) for rate in rates.tolist()), np.full(len(rates), now_s))

    def free_bytes_s(self, way: int, time_s: float) -> float:
        """Return what a way has free at a time."""
        points = self.ways[way]
        return points[max(0, bisect_right(points, (time_s, inf)) - 1)][1]

    def first_free_s(self, way: int, ready_s: float) -> float:
        """Return the first time, from ``ready_s`` on, at which a way has anything free; infinite where it never has."""
        points = self.ways[way]
        first = max(0, bisect_right(points, (ready_s, inf)) - 1)
        return next((max(ready_s, time) for time, free in points[first:] if free > 0), inf)

    def arrival(self, way_out: int, way_in: int, size_bytes: float, ready_s: float) -> float:
        """Return when the last byte of a transfer would arrive, in seconds (t_en of M 5.1.1)."""
        pieces = self._pieces(way_out, way_in, size_bytes, ready_s)
        return (pieces[-1][1] if pieces else ready_s) if pieces is not None else inf

    def arrivals(self, ways_out: Integers, way_in: int, sizes_bytes: Vector, ready_s: float) -> Vector:
        """Return the same for C transfers, each as if it were alone, shape (C,)."""
        front = self.first_free_s(way_in, ready_s)
        if front == inf:
            return np.where(sizes_bytes > 0, inf, ready_s)
        points = self.ways[way_in]
        free = np.array(points[max(0, bisect_right(points, (front, inf)) - 1) :])
        free[0, 0] = front
        # Nearly all ways out are constant from then on. The others are few, and walked one by one.
        rates = np.minimum(self.rates_bytes_s[ways_out][:, None], free[:, 1])
        carried = np.zeros_like(rates)
        np.cumsum(rates[:, :-1] * np.diff(free[:, 0]), axis=1, out=carried[:, 1:])
        each = np.arange(len(rates))
        last = (carried[:, 1:] < sizes_bytes[:, None] * (1 - _EXACT)).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends: Vector = free[last, 0] + np.maximum(0.0, sizes_bytes - carried[each, last]) / rates[each, last]
        ends[sizes_bytes <= 0] = ready_s
        for k in np.flatnonzero(self.constant_from_s[ways_out] > front).tolist():
            ends[k] = self.arrival(int(ways_out[k]), way_in, float(sizes_bytes[k]), ready_s)
        return ends

    def reserve(self, way_out: int, way_in: int, size_bytes: float, ready_s: float) -> tuple["FreeCapacity", float]:
        """Return what is left when a transfer takes all that is free from ``ready_s`` on, and when it arrives.

        One that can never arrive (a way that has nothing free in the end) takes nothing, and arrives never (infinite).
        """
        pieces = self._pieces(way_out, way_in, size_bytes, ready_s)
        if not pieces:
            return self, ready_s if pieces is not None else inf
        ways, constant = list(self.ways), self.constant_from_s.copy()
        for way in (way_out, way_in):
            ways[way] = _less(ways[way], pieces, float(self.rates_bytes_s[way]) * _EXACT)
            constant[way] = ways[way][-1][0]
        return replace(self, ways=tuple(ways), constant_from_s=constant), pieces[-1][1]

    def _pieces(
        self, way_out: int, way_in: int, size_bytes: float, ready_s: float
    ) -> list[tuple[float, float, float]] | None:
        """Begin, end and bytes a second of each stretch of a transfer; None where it never ends."""
        out_points, in_points = self.ways[way_out], self.ways[way_in]
        i = max(0, bisect_right(out_points, (ready_s, inf)) - 1)
        j = max(0, bisect_right(in_points, (ready_s, inf)) - 1)
        now, left, pieces = ready_s, size_bytes, list[tuple[float, float, float]]()
        while left > size_bytes * _EXACT:
            out_end = out_points[i + 1][0] if i + 1 < len(out_points) else inf
            in_end = in_points[j + 1][0] if j + 1 < len(in_points) else inf
            end, rate = min(out_end, in_end), min(out_points[i][1], in_points[j][1])
            if rate > 0:
                done = min(end, now + left / rate)
                pieces.append((now, done, rate))
                left -= rate * (done - now) if done == end else left
            elif end == inf:
                return None
            now = end
            i, j = i + (out_end <= end), j + (in_end <= end)
        return pieces


def _less(points: Breakpoints, pieces: list[tuple[float, float, float]], rounding: float) -> Breakpoints:
    """The breakpoints of a way less what the pieces take of it."""
    change: dict[float, float] = {}
    free = 0.0
    for time, value in points:
        change[time] = value - free
        free = value
    for begin, end, rate in pieces:
        change[begin] = change.get(begin, 0.0) - rate
        change[end] = change.get(end, 0.0) + rate
    result: list[tuple[float, float]] = []
    level, last = 0.0, -inf
    for time in sorted(change):
        level += change[time]
        value = 0.0 if level < rounding else level
        if abs(value - last) > rounding or not result:
            result.append((time, value))
            last = value
    if result[-1][1] != free:  # what is free in the end is exactly what it was
        result[-1] = result[-1][0], free
    return tuple(result)
