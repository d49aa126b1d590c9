"""When on-demand machines must take over from transient ones, so that a job is over by its deadline.

A safety net: as long as the rest of the job, done on the fallback's machines alone, would be over in time, transient
ones may do it for less. At the last moment that this is so the fallback begins, and stays.
"""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

from solvers.spot.footprint import Scaling

UNMEASURED_SHARE = 0.5  # of the time: the fallback begins then, where nothing says what an iteration takes
_SAMPLES = 9  # iterations whose median is taken: one may have waited for hosts that came or went


@dataclass(frozen=True)
class Deadline:
    """``start_s``: from when it counts; ``at_s``: when the job is to be over; ``iterations``: all that it does."""

    start_s: float
    at_s: float
    iterations: int


@dataclass(frozen=True)
class JobProgress:
    """``iterations`` that are done; ``iteration_s``: what the last one took, on so many ``cores``, or by so many
    workers where ``hosts`` names who did it: then their types say the cores."""

    iterations: int
    iteration_s: float
    cores: float
    hosts: frozenset[str] = frozenset()


@dataclass
class IterationTime:
    """Seconds of an iteration on any number of cores: ``scaling`` times what iterations took by it.

    ``is_stated``: whether the scaling has absolute times by itself, before anything is measured.
    """

    scaling: Scaling
    is_stated: bool = False
    _ratios: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    _seen: int = 0

    def observe(self, progress: JobProgress) -> None:
        """Take how the job stands; the same iteration counts once."""
        expected_s = self.scaling.seconds(progress.cores)
        if progress.iterations != self._seen and progress.iteration_s > 0 and math.isfinite(expected_s):
            self._seen = progress.iterations
            self._ratios.append(progress.iteration_s / expected_s)

    def seconds(self, cores: float) -> float | None:
        """Return the time of an iteration, None where nothing says it."""
        if not self._ratios:
            return self.scaling.seconds(cores) if self.is_stated else None
        return self.scaling.seconds(cores) * statistics.median(self._ratios)


def latest_start(deadline: Deadline, done: int, iteration_s: float | None, lead_s: float) -> float:
    """Return when the fallback has to begin at the latest.

    :param iteration_s: on its machines alone; None where nothing says it, for nobody can say what is left then.
    :param lead_s: from a request until they work.
    """
    if iteration_s is None:
        return deadline.start_s + UNMEASURED_SHARE * (deadline.at_s - lead_s - deadline.start_s)
    return deadline.at_s - lead_s - max(0, deadline.iterations - done) * iteration_s
