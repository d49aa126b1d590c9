"""The time that a driver goes by: wall time where it begins, and from then on a clock that never jumps."""

import time
from collections.abc import Callable


def elapsed_s() -> float:
    """Return seconds since some moment, those in which the machine slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SteadyClock:
    """Time of a provider that never falls, and jumps only where :meth:`take_new_base` is called.

    :param wall: the provider's time, seconds since 1970, of a clock that may be set. :param steady: seconds that have
        passed since some moment, as fast as those of ``wall``. :param not_before: the time of the last entry of a
        journal, before which there is no time any more.
    """

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float], not_before: float) -> None:
        self._wall, self._steady = wall, steady
        self._wall_offset_s = wall() - steady()
        self._lead_s = max(0.0, not_before - wall())

    def now(self) -> float:
        """Return the time for entries of the journal, ages and waits."""
        return self.lease_time() + self._lead_s

    def lease_time(self) -> float:
        """Return the time from which leases count: as instances see it, if the wall clock was right at the start."""
        return self._wall_offset_s + self._steady()

    def take_new_base(self, least_s: float, most_s: float) -> float:
        """Go by the wall clock again if it is ahead by so much, as after a pause that the steady clock does not count;
        return by how much, 0 where it is not."""
        ahead_s = self._wall() - self.lease_time()
        if not least_s < ahead_s <= most_s:
            return 0.0
        self._wall_offset_s += ahead_s
        self._lead_s = max(0.0, self._lead_s - ahead_s)
        return ahead_s

    def error_s(self) -> float:
        """Return by how much the wall clock is ahead of this one; below 0: behind it."""
        return self._wall() - self.now()
