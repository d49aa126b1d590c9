"""Colours: magnitude by viridis, departures by a diverging map, groups by a colour-blind-safe cycle and a mark each."""

from dataclasses import dataclass

import numpy as np

from plink.model.network import Matrix
from plink.pictures import Floats

MAGNITUDE = "viridis"
DEPARTURE = "PuOr_r"  # orange: slower than fitted; told apart by all common kinds of colour blindness (ColorBrewer)
_CYCLE = "petroff10"  # Petroff 2021, "Accessible color sequences for data visualization"
# Matplotlib's mark and the character that looks like it; a number of marks without a common factor with the colours.
MARKS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("P", "✚"), ("X", "✖"))
_MIN_SPAN_FACTOR = 1.5  # times the shortest round trip: what the colours span at least
_COLOUR_PERCENTILES = (0.5, 99.5)  # percentiles between which the colours run: one pair in a thousand may be far off


def group_colour(group: int) -> str:
    """Return the colour of a group, as ``#rrggbb``."""
    import matplotlib
    from matplotlib.colors import to_hex

    cycle = matplotlib.color_sequences[_CYCLE]
    return str(to_hex(cycle[group % len(cycle)]))


def group_mark(group: int) -> tuple[str, str]:
    """Return the mark of a group, for Matplotlib and as a character."""
    return MARKS[group % len(MARKS)]


@dataclass(frozen=True)
class Scale:
    """Map of round trips to colours, by their logarithm from ``low`` to ``high`` microseconds; values beyond have the
    colour of the end."""

    low: float
    high: float
    beyond_low: bool
    beyond_high: bool

    def share(self, values: Matrix | Floats) -> Matrix:
        """Return where values lie between the ends, 0 to 1, NaN stays; any shape."""
        with np.errstate(divide="ignore", invalid="ignore"):
            at = (np.log(values) - np.log(self.low)) / (np.log(self.high) - np.log(self.low))
        return np.asarray(np.clip(at, 0.0, 1.0), dtype=np.float64)


def scale_of(values: Floats) -> Scale:
    """Return the scale for these round trips, shape (M,): all of them but the farthest off; any scale when there are
    none."""
    positive = values[values > 0]
    if not len(positive):
        return Scale(1.0, 10.0, False, False)
    low, high = (float(end) for end in np.percentile(positive, _COLOUR_PERCENTILES))
    if high < low * _MIN_SPAN_FACTOR:  # noise must not look like a structure
        middle = np.sqrt(low * high)
        low, high = float(middle / np.sqrt(_MIN_SPAN_FACTOR)), float(middle * np.sqrt(_MIN_SPAN_FACTOR))
    return Scale(low, high, bool(values.min() < low), bool(values.max() > high))


def ticks(low: float, high: float, max_ticks: int = 6) -> list[float]:
    """Return round numbers between two positive ones for a logarithmic axis, at least two where it can be."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    best: list[float] = []
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        candidate = [m * 10.0**p for p in powers for m in steps if low <= m * 10.0**p <= high]
        if len(candidate) > max_ticks:
            break
        best = candidate
    if len(best) >= 3:
        return best
    step = 10 ** np.floor(np.log10((high - low) / 2))
    for factor in (1, 2, 5, 10):
        even = np.arange(np.ceil(low / (factor * step)), np.floor(high / (factor * step)) + 1) * factor * step
        if len(even) <= max_ticks:
            return [float(tick) for tick in even]
    return best
