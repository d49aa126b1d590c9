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
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.spot.prices import Floats
from solvers.spot.billing import Billing, Evictions
from solvers.spot.odds_kernels import cost_per_work
from solvers.spot.scaling import Application


@dataclass(frozen=True)
class Prospect:
    """What is expected of an allocation until its horizon: ``cost`` in money, ``hours`` of useful time (omega),
    ``survival``: the probability to reach the horizon, ``cores`` that work (k nu)."""

    cost: float
    hours: float
    survival: float
    cores: float

    def times(self, count: int, cores: float) -> "Prospect":
        """Return the same of ``count`` instances of so many cores each, from that of one instance."""
        return Prospect(self.cost * count, self.hours, self.survival, count * cores)


def reliable(price: float, hours: float, count: int = 1, cores: float = 0.0) -> Prospect:
    """Return the prospect of on-demand instances: never evicted; without cores where they only serve (stage 3)."""
    return Prospect(price * count * hours, hours, 1.0, count * cores)


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
