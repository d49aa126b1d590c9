"""Detection of a change of throughput that starts tuning."""

from collections.abc import Sequence
from statistics import median

CHANGE = 0.2  # PLink thesis, 4.2.3: "a sudden change (e.g., larger than 20%)"
_SIGMAS = 3.0
_MAD = 1.4826  # median absolute deviations in a standard deviation of normal noise


def changed(throughputs: Sequence[float], window: int = 5, threshold: float = CHANGE) -> bool:
    """Return whether throughput changed significantly: the last ``window`` values against those ``window`` before them.

    They must differ by more than ``threshold``, and by more than three times the spread of all earlier ones. Medians
    make one slow iteration (a checkpoint, a burst of other traffic) no change. Shares of the larger one make a fall by
    a fifth and the rise that undoes it equal.
    """
    if len(throughputs) < 2 * window:
        return False
    before, now = median(throughputs[-2 * window : -window]), median(throughputs[-window:])
    usual = median(throughputs[:-window])
    noise = _MAD * median(abs(value - usual) for value in throughputs[:-window])
    largest = max(before, now)
    return largest > 0 and abs(now - before) > max(threshold * largest, _SIGMAS * noise)
