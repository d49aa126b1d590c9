"""The cost per unit of work of a footprint (Harlap thesis, eq. 4.1 to 4.4).

An allocation x_i is k_i instances of one type, acquired at one time with one bid. In the t_i hours that are left of its
billing hour it is evicted with probability beta_i:

    C[x_i] = (1 - beta_i) P_i k_i t_i                        (4.1), for 2016's refunds; else as its billing expects
    Dt_i   = omega_i - (1 - prod_j (1 - beta_j)) lambda - sigma, not below 0                                  (4.2)
    W      = phi(n) sum_i k_i nu_i Dt_i, n = sum_i k_i nu_i                                                   (4.3)
    E      = sum_i C[x_i] / W, infinite without work                                                          (4.4)

The thesis leaves omega open "if BidBrain expects the allocation to be evicted"; here it is E[min(T, t_i)], which of
price histories is (1 - beta_i) t_i + beta_i min(t_i, m_i) with the median time m_i of those that are evicted. sigma is
lost only where the footprint changes. phi falls with n as measured: a constant would cancel, and growth had no end.

The footprint is priced for an hour: each allocation at its cost and its work per hour of t_i, the anchors at theirs. By
sums over different t_i E would be a matter of when hours began: a whole hour of anchors by the last seconds of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plink.errors import NoAnswer
from plink.model.spot.prices import HOUR_S, Floats
from solvers.spot.billing import Billing, Evictions
from solvers.spot.odds import cost_per_work


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


@dataclass(frozen=True)
class Prospect:
    """What is expected of an allocation until its horizon, in a footprint in an hour: ``cost`` in money, ``hours`` of
    useful time (omega), ``survival``: the probability to reach its billing hour's end, ``cores`` that work (k nu)."""

    cost: float
    hours: float
    survival: float
    cores: float

    def times(self, count: int, cores: float) -> "Prospect":
        """Return the same of ``count`` instances of so many cores each, from that of one instance."""
        return Prospect(self.cost * count, self.hours, self.survival, count * cores)


def reliable(price: float, count: int = 1, cores: float = 0.0) -> Prospect:
    """Return the prospect of anchors: never evicted; without cores where they only serve (stage 3)."""
    return Prospect(price * count, 1.0, 1.0, count * cores)


@dataclass(frozen=True)
class Outlook:
    """How prospects are reckoned: by which ``billing``, and whether evicted capacity is expected to be replaced.

    ``replacement_h``: hours from an eviction until bought capacity works again. None is the thesis's form: what is
    evicted is lost for the rest of the hour.
    """

    billing: Billing
    replacement_h: float | None = None

    def prospect(self, price: float, age: float, remaining: float, evictions: Evictions) -> Prospect:
        """Return the prospect of one transient instance of one core, ``age`` hours old, for its remaining hours."""
        beta, evicted = evictions.within(remaining)
        cost, hours = self.billing.expected(price, age, remaining, evictions), evicted + remaining * (1 - beta)
        if self.replacement_h is not None and beta > 0:
            replaced = beta * max(0.0, remaining - evicted / beta - self.replacement_h)
            cost, hours = cost + price * replaced, hours + replaced
        return Prospect(cost, hours, 1 - beta, 1.0)


def columns(prospects: Sequence[Prospect]) -> Floats:
    """Return what compiled loops read, shape (4, n)."""
    rows = [(each.cost, each.hours, each.survival, each.cores) for each in prospects]
    return np.array(rows, dtype=float).reshape(len(rows), 4).T.copy()


def cost_per_core_hour(prospects: Sequence[Prospect], application: Application, changed: bool) -> float:
    """Return E, money per hour of one core that scales linearly; infinite without work.

    :param changed: whether this footprint comes of adding or removing allocations, so that sigma is lost.
    """
    pause = application.add_s / 3600 if changed else 0.0
    return float(cost_per_work(columns(prospects), application.numbers, pause))


def expected_work(prospects: Sequence[Prospect], application: Application, changed: bool) -> float:
    """Return W of eq. 4.3, core-hours."""
    survival = float(np.prod([each.survival for each in prospects]))
    lost = ((1 - survival) * application.evict_s + application.add_s * changed) / 3600
    hours = sum(each.cores * max(0.0, each.hours - lost) for each in prospects)
    return hours * application.scaling.efficiency(sum(each.cores for each in prospects))
