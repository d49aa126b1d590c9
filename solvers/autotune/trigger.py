"""When the network has changed enough to look again."""

from collections.abc import Sequence
from statistics import median

CHANGE = 0.2  # PLink thesis, 4.2.3: "a sudden change (e.g., larger than 20%)"
_SIGMAS = 3.0
_MAD = 1.4826  # median absolute deviations in a standard deviation of normal noise


def changed(throughputs: Sequence[float], window: int = 5, threshold: float = CHANGE) -> bool:
    """Whether the last ``window`` throughputs differ from those ``window`` before them by more than ``threshold``, and
    by more than three times what all earlier ones differ among themselves.

    Medians of both, so that one slow iteration (a checkpoint, another's burst) is no change; shares of the larger one,
    so that a fall by a fifth and the rise that undoes it count alike.
    """
    if len(throughputs) < 2 * window:
        return False
    before, now = median(throughputs[-2 * window : -window]), median(throughputs[-window:])
    usual = median(throughputs[:-window])
    noise = _MAD * median(abs(one - usual) for one in throughputs[:-window])
    largest = max(before, now)
    return largest > 0 and abs(now - before) > max(threshold * largest, _SIGMAS * noise)
