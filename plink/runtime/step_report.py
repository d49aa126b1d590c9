"""Report of a training step: what all-reduces of a group tell rank 0 of its bytes and its seconds, as one line."""

import itertools
import json
import math
import re
import statistics
import time
from collections import Counter, deque

from plink.errors import UsageError

METRIC_KEY = "plink_metric"


_MAX_CALLS = 4096
_MIN_STEPS = 4
_MIN_SHARE = 0.01  # of all bytes: smaller all-reduces (losses, metrics) begin no step
_LINE = re.compile(r"plink: the last (\d+) steps took (\d+\.\d+) s each \(median\), each (\d+) bytes of all-reduces")


def report_metric(value: float, unit: str = "s") -> None:
    """Print a metric of the program, such as the seconds of a step, as a line of JSON that ``plink compare`` reads.

    Call it as often as you like, on any rank; the median of the first rank that calls it counts.

    :raises UsageError: for a value that is not above 0 and finite.
    """
    if not 0 < value < math.inf:
        raise UsageError(f"a metric must be above 0 and finite, not {value!r}")
    print(json.dumps({METRIC_KEY: value, "unit": unit}), flush=True)


class StepCounter:
    """Counter of all-reduces; a step begins with each of the size that comes least often, among sizes that have at
    least 1 % of the bytes. The first half of what it remembers, while buckets may still change, does not count."""

    def __init__(self) -> None:
        self._calls: deque[tuple[float, int]] = deque(maxlen=_MAX_CALLS)

    def add(self, size_bytes: int) -> None:
        """Count an all-reduce that begins now."""
        self._calls.append((time.perf_counter(), size_bytes))

    def report(self) -> str | None:
        """Return a line on the mean bytes and the median seconds of the steps; None for too few."""
        calls = list(self._calls)[len(self._calls) // 2 :]
        counts, total = Counter(size for _, size in calls), sum(size for _, size in calls)
        sizes = [size for size, number in counts.items() if size * number >= _MIN_SHARE * total]
        first = min(sizes, key=lambda size: (counts[size], -size), default=0)
        starts = [k for k, (_, size) in enumerate(calls) if size == first]
        steps = len(starts) - 1
        if steps < _MIN_STEPS:
            return None
        seconds = statistics.median(calls[b][0] - calls[a][0] for a, b in itertools.pairwise(starts))
        moved = sum(size for _, size in calls[starts[0] : starts[-1]])
        size_bytes = round(moved / steps)
        return (
            f"plink: the last {steps} steps took {seconds:.6f} s each (median), each {size_bytes} bytes of all-reduces"
        )


def step_of_line(line: str) -> dict[str, float]:
    """Return ``bytes_per_step`` and ``step_s`` of a rank's line; empty where it is no report."""
    match = _LINE.fullmatch(line.strip())
    return {} if match is None else {"bytes_per_step": int(match[3]), "step_s": float(match[2])}
