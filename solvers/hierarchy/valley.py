"""Where the innermost tier of a network ends: the first valley in how the distances of its pairs are spread."""

import numpy as np
import numpy.typing as npt

_GRID_STEP = 0.01  # of the natural logarithm of a height
_MAX_VALLEY_SHARE = 0.5  # density of a valley over that of the lower peak beside it
_MIN_SHARE = 0.001  # of the pairs, on either side of a valley
_MIN_PAIRS = 5  # on either side of a valley


def innermost_tier_us(height_us: npt.NDArray[np.float64], bandwidth: float = 0.04) -> float:
    """Return the height that separates the nearest tier from the rest; 0 where no tier stands out: all hosts apart.

    The heights' logarithms are smoothed with a Gaussian kernel; a valley counts when its density is no more than half
    that of the peaks on both sides, and five pairs at least (one in a thousand) lie below it, and above. A largest-gap
    rule would do for complete measurements; with most pairs missing, some hosts hang in the tree by one noisy pair and
    fill the gap.

    :param height_us: shape (M,), for each measured pair the height at which a tree joins its hosts.
    :param bandwidth: of the kernel, as a share of the height: the spread of one tier that is to be smoothed away.
    """
    if len(height_us) < 2 or height_us.max() <= 0:
        return 0.0
    x = np.sort(np.log(np.maximum(height_us, height_us.max() * 1e-6)))
    grid = np.arange(x[0] - 0.3, x[-1] + 0.3, _GRID_STEP)
    histogram, _ = np.histogram(x, bins=np.append(grid, grid[-1] + _GRID_STEP) - _GRID_STEP / 2)
    reach = np.arange(-int(4 * bandwidth / _GRID_STEP), int(4 * bandwidth / _GRID_STEP) + 1) * _GRID_STEP
    density = np.convolve(histogram, np.exp(-0.5 * (reach / bandwidth) ** 2))[len(reach) // 2 :][: len(grid)]
    least = max(_MIN_SHARE * len(x), _MIN_PAIRS)
    peak, low, at = density[0], density[0], 0
    for k, value in enumerate(density.tolist()):
        deep = low < _MAX_VALLEY_SHARE * min(peak, value)
        if deep and least <= np.searchsorted(x, grid[at]) <= len(x) - least:
            return float(np.exp(grid[at]))
        if value > peak or deep:  # a new peak; a valley with too little below it is forgotten
            peak, low, at = value, value, k
        elif value < low:
            low, at = value, k
    return 0.0
