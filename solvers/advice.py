"""Which algorithm in which order for which size: the lower envelope of prices over sizes.

Under ``alpha-beta`` and ``contention`` a price is a line in the size: every round takes its longest latency, and the
size times what its busiest resource needs a byte. So two sizes tell a price at all sizes, and the cheapest of many
lines changes at points that can be computed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.schedules.catalogue import Options

Order = npt.NDArray[np.intp]
_TOLD_BY = (1e6, 2e6)


@dataclass(frozen=True)
class Line:
    """``start_us + us_per_byte * size``: the price of an algorithm in an order of that family."""

    algo: str
    family: str
    start_us: float
    us_per_byte: float

    def at(self, size_bytes: float) -> float:
        """Microseconds."""
        return self.start_us + self.us_per_byte * size_bytes


@dataclass(frozen=True)
class Stretch:
    """The line that is cheapest from one size to another, bytes."""

    line: Line
    from_bytes: float
    to_bytes: float


def lines(
    fabric: Fabric, orders: Mapping[str, Order], algorithms: Mapping[str, Options], model: str
) -> tuple[list[Line], dict[str, str]]:
    """The price of every algorithm in every order, and why there is none of some: {algorithm: reason}.

    :param orders: family name -> order, shape (N,); :param algorithms: name -> its options.
    :raises UsageError: for the model ``latency``, which knows no sizes.
    """
    if model == "latency":
        raise UsageError("--model latency knows no sizes; alpha-beta and contention do")
    found, left_out = [], {}
    ranks = len(next(iter(orders.values())))
    for algo, options in algorithms.items():
        try:
            pattern = pattern_for(algo, ranks, options)
        except UsageError as error:
            left_out[algo] = str(error)
            continue
        prices = {size: closed_form(pattern, fabric, size, model) for size in _TOLD_BY}
        for family, order in orders.items():
            found.append(line_of(algo, family, lambda size, o=order, p=prices: p[size](o)))  # type: ignore[misc]
    return found, left_out


def line_of(algo: str, family: str, price: Callable[[float], float]) -> Line:
    """The line through the prices, in microseconds, of two sizes in bytes."""
    one, two = _TOLD_BY
    low, high = price(one), price(two)
    slope = max(0.0, (high - low) / (two - one))
    return Line(algo, family, max(0.0, low - slope * one), slope)


def envelope(candidates: Sequence[Line], from_bytes: float, to_bytes: float) -> list[Stretch]:
    """The cheapest line at every size, as stretches in ascending order; of equal lines the first.

    >>> flat, steep = Line("a", "given", 10.0, 1.0), Line("b", "given", 0.0, 2.0)
    >>> [(stretch.line.algo, stretch.to_bytes) for stretch in envelope([flat, steep], 1, 100)]
    [('b', 10.0), ('a', 100)]
    """
    found: list[Stretch] = []
    at = from_bytes
    # Cheapest here; of equal ones that which stays cheapest. Then on to a flatter line, the one that is met first.
    line = min(candidates, key=lambda line: (line.at(at), line.us_per_byte))
    while flatter := [other for other in candidates if other.us_per_byte < line.us_per_byte]:
        met = [(line.start_us - other.start_us) / (other.us_per_byte - line.us_per_byte) for other in flatter]
        number = min(range(len(met)), key=lambda k: (met[k], flatter[k].us_per_byte))
        end = met[number]
        if end >= to_bytes:
            break
        if end > at:  # by rounding it may have been passed already
            found.append(Stretch(line, at, end))
            at = end
        line = flatter[number]
    return [*found, Stretch(line, at, to_bytes)]
