"""How a job scales and what changes of its footprint cost it: measured, where the thesis sets phi, sigma, lambda."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plink.errors import NoAnswer
from plink.model.spot.prices import HOUR_S, Floats


@dataclass(frozen=True)
class Scaling:
    """Seconds of an iteration on n cores: t(n) = a + b / n + c n, with a, c >= 0 and b > 0.

    ``a``: what does not get shorter, ``b``: the work, core-seconds; ``c``: what each core adds.
    """

    a: float = 0.0
    b: float = 1.0
    c: float = 0.0

    def seconds(self, cores: float) -> float:
        """Return the time of an iteration; infinite without cores."""
        return self.a + self.b / cores + self.c * cores if cores > 0 else float("inf")

    def efficiency(self, cores: float) -> float:
        """Return phi: the share of linear scaling, from 1 down. A constant phi would cancel from every comparison."""
        return self.b / (self.b + self.a * cores + self.c * cores * cores)

    def speed(self, cores: float) -> float:
        """Return the work per second, in that of one core that scales linearly."""
        return cores * self.efficiency(cores)


@dataclass(frozen=True)
class Application:
    """How a job takes changes. ``start_s``: from a request until new instances work; ``add_s``: sigma, no progress
    after hosts are added or removed; ``evict_s``: lambda, no progress after an eviction."""

    scaling: Scaling = Scaling()
    start_s: float = 120.0
    add_s: float = 30.0
    evict_s: float = 60.0

    @cached_property
    def numbers(self) -> Floats:
        """What compiled loops read, shape (6,): a, b, c, and sigma, lambda and the start in hours."""
        pauses = (self.add_s / HOUR_S, self.evict_s / HOUR_S, self.start_s / HOUR_S)
        return np.array([self.scaling.a, self.scaling.b, self.scaling.c, *pauses])


def fit_scaling(cores: Sequence[float], seconds: Sequence[float]) -> Scaling:
    """Fit t(n) = a + b / n + c n to measured iterations, by non-negative least squares of relative errors.

    :raises NoAnswer: when there are fewer than two numbers of cores, or time does not fall with cores at all.
    """
    from scipy.optimize import nnls

    n, t = np.asarray(cores, dtype=float), np.asarray(seconds, dtype=float)
    usable = (n > 0) & (t > 0)
    n, t = n[usable], t[usable]
    if len(np.unique(n)) < 2:
        raise NoAnswer("iterations were measured at one number of workers only; give iteration_s in the market file")
    columns = np.stack([np.ones_like(n), 1 / n, n], axis=1)
    scale = np.abs(columns / t[:, None]).max(axis=0)
    (a, b, c), _ = nnls(columns / t[:, None] / scale, np.ones_like(t))
    if b <= 1e-9:  # the columns are scaled to 1
        raise NoAnswer("iterations did not get shorter with more workers; give iteration_s in the market file")
    return Scaling(float(a / scale[0]), float(b / scale[1]), float(c / scale[2]))


@dataclass(frozen=True)
class MeasuredIteration:
    """One iteration that counts: it ended at ``at``, took ``seconds`` with ``workers``; ``lost_s``: of earlier
    attempts at it, which a roll-back undid."""

    at: float
    seconds: float
    workers: int
    lost_s: float = 0.0


def fit_application(
    iterations: Sequence[MeasuredIteration], added: Sequence[float], removed: Sequence[float], start_s: float
) -> Application:
    """Return an application as its run shows it.

    sigma is the mean time that iterations take beyond t(n) around a change, lambda the same around a loss, with what
    roll-backs redid. The scaling is fitted to the iterations away from changes, where there are enough of them.

    :param added: when hosts joined, seconds; several within one iteration are one change. :param removed: when hosts
        went or failed. :raises NoAnswer: as :func:`fit_scaling`.
    """
    calm = [each for each in iterations if not _hit(each, added) and not _hit(each, removed)]
    usable = calm if len({each.workers for each in calm}) > 1 else iterations
    scaling = fit_scaling([each.workers for each in usable], [each.seconds for each in usable])
    default = Application()

    def mean_excess(times: Sequence[float], fallback: float) -> float:
        hit = [each for each in iterations if _hit(each, times)]
        excess = [max(0.0, each.seconds - scaling.seconds(each.workers)) + each.lost_s for each in hit]
        return sum(excess) / len(excess) if excess else fallback

    return Application(scaling, start_s, mean_excess(added, default.add_s), mean_excess(removed, default.evict_s))


def _hit(iteration: MeasuredIteration, times: Sequence[float]) -> bool:
    """Return whether something happened during an iteration."""
    begin = iteration.at - iteration.seconds - iteration.lost_s
    return any(begin <= time <= iteration.at for time in times)
