"""What a provider charges for transient machines, as expected beforehand and as it comes out.

Times are seconds, prices money per instance and hour. An hour of an instance begins when it is granted, and is charged
at the market price of its beginning.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from plink.model.spot.prices import HOUR_S

End = Literal["interrupted", "released", "job ended"]
PriceAt = Callable[[float], float]


@dataclass(frozen=True)
class Stay:
    """``count`` instances held from ``start`` until ``until``. ``end``: the provider took them, the user gave them
    back, or the job was over. In the last case what remains of the hour is used by the next job and not charged to
    this one (Harlap thesis, 4.5.2)."""

    start: float
    until: float
    count: int
    end: End

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.until - self.start


@dataclass(frozen=True)
class Charge:
    """``money`` that is paid, ``refunded`` or never charged because the provider interrupted; ``free_s``:
    instance-seconds that were held and not paid."""

    money: float
    refunded: float = 0.0
    free_s: float = 0.0


class Evictions(Protocol):
    """When an allocation is evicted, as far as that is known."""

    def within(self, hours: float) -> tuple[float, float]:
        """Return P(T < hours), and E[T; T < hours] in hours."""
        ...


class Billing(Protocol):
    """A provider's rules."""

    def charged(self, stay: Stay, price_at: PriceAt) -> Charge:
        """Return what a stay costs."""
        ...

    def expected(self, price: float, age: float, remaining: float, evictions: Evictions) -> float:
        """Return what one instance is expected to cost in its ``remaining`` hours, ``age`` hours after its grant."""
        ...


@dataclass(frozen=True)
class Hourly2016:
    """EC2 until 2017: by the begun hour, and an hour that the provider interrupts is refunded entirely."""

    def charged(self, stay: Stay, price_at: PriceAt) -> Charge:
        """Return what a stay costs; one that is interrupted at the very end of an hour has used it up."""
        money = refunded = free = 0.0
        whole, rest = divmod(stay.seconds, HOUR_S)
        for hour in range(int(whole)):
            money += stay.count * price_at(stay.start + hour * HOUR_S)
        if rest > 0:
            last = stay.count * price_at(stay.start + whole * HOUR_S)
            if stay.end == "interrupted":
                refunded, free = last, stay.count * rest
            else:
                money += last * (rest / HOUR_S if stay.end == "job ended" else 1.0)
        return Charge(money, refunded, free)

    def expected(self, price: float, age: float, remaining: float, evictions: Evictions) -> float:
        """Return (1 - beta) P t (Harlap thesis, eq. 4.1)."""
        return (1 - evictions.within(remaining)[0]) * price * remaining


@dataclass(frozen=True)
class PerSecondFirstHourFree:
    """EC2 today, Linux: by the second; nothing if the provider interrupts within the first hour."""

    def charged(self, stay: Stay, price_at: PriceAt) -> Charge:
        """Return what a stay costs."""
        money = _by_second(stay, price_at)
        if stay.end == "interrupted" and stay.seconds < HOUR_S:
            return Charge(0.0, money, stay.count * stay.seconds)
        return Charge(money)

    def expected(self, price: float, age: float, remaining: float, evictions: Evictions) -> float:
        """Return P (E[min(T, H); T >= 1 - a] - a P(T < 1 - a)) within the first hour, P E[min(T, H)] after it: an
        interruption gives back what was accrued."""
        probability, evicted = evictions.within(remaining)
        used = evicted + remaining * (1 - probability)
        if age < 1:
            early, early_hours = evictions.within(min(1 - age, remaining))
            used -= early_hours + age * early
        return price * used


@dataclass(frozen=True)
class PerSecond:
    """By the second, at least ``minimum_s`` seconds: GCP and Azure, which refund nothing."""

    minimum_s: float = 60.0

    def charged(self, stay: Stay, price_at: PriceAt) -> Charge:
        """Return what a stay costs."""
        longer = Stay(stay.start, stay.start + max(stay.seconds, self.minimum_s), stay.count, stay.end)
        return Charge(_by_second(longer, price_at) if stay.seconds > 0 else 0.0)

    def expected(self, price: float, age: float, remaining: float, evictions: Evictions) -> float:
        """Return P E[min(T, H)]; of a new instance evictions before the minimum cost that."""
        probability, evicted = evictions.within(remaining)
        used = evicted + remaining * (1 - probability)
        if age * HOUR_S < self.minimum_s:
            least = self.minimum_s / HOUR_S - age
            early, early_hours = evictions.within(min(least, remaining))
            used += early * least - early_hours
        return price * used


def _by_second(stay: Stay, price_at: PriceAt) -> float:
    """Return the money for the seconds of a stay, each hour at the price of its beginning."""
    money = 0.0
    for hour in range(math.ceil(stay.seconds / HOUR_S)):
        begin = stay.start + hour * HOUR_S
        money += stay.count * price_at(begin) * min(HOUR_S, stay.until - begin) / HOUR_S
    return money


BILLINGS: dict[str, Billing] = {
    "hourly-2016": Hourly2016(),
    "first-hour-free": PerSecondFirstHourFree(),
    "per-second": PerSecond(),
}
