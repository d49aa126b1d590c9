"""Store a number per iteration in 16 bytes, for jobs that run for weeks; a dict takes ten times as much."""

from array import array
from bisect import bisect_left
from collections.abc import Callable


class IterationValues:
    """Numbers by iteration; a repeated iteration replaces its earlier value.

    >>> seconds = IterationValues()
    >>> seconds.add(0, 1.5)
    >>> seconds.add(0, 2.5)
    >>> list(seconds.values)
    [2.5]
    """

    def __init__(self) -> None:
        self._iterations, self.values = array("q"), array("d")

    def __len__(self) -> int:
        return len(self._iterations)

    def add(self, iteration: int, value: float) -> None:
        """Add the value of an iteration, usually a later one than all before."""
        index = bisect_left(self._iterations, iteration)
        if index < len(self) and self._iterations[index] == iteration:
            self.values[index] = value
        else:
            self._iterations.insert(index, iteration)
            self.values.insert(index, value)

    def keep_while(self, keep: Callable[[float], bool]) -> None:
        """Remove values from the end until one is to be kept, as after a roll-back."""
        while len(self) and not keep(self.values[-1]):
            self._iterations.pop()
            self.values.pop()
