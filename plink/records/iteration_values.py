"""A number for each iteration of a job that may run for weeks: 16 bytes each, where a dict takes ten times as much."""

from array import array
from bisect import bisect_left
from collections.abc import Callable


class IterationValues:
    """Numbers by iteration; one that is done again takes the place of the one before.

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
        """Of an iteration, rising as a rule."""
        index = bisect_left(self._iterations, iteration)
        if index < len(self) and self._iterations[index] == iteration:
            self.values[index] = value
        else:
            self._iterations.insert(index, iteration)
            self.values.insert(index, value)

    def keep_while(self, keep: Callable[[float], bool]) -> None:
        """Forget the last ones whose values are not kept, as after a roll-back."""
        while len(self) and not keep(self.values[-1]):
            self._iterations.pop()
            self.values.pop()
