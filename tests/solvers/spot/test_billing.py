"""What is charged, at the edges of hours, and what is expected against sampled evictions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.spot.prices import PriceTrace
from solvers.spot.billing import BILLINGS, Billing, End, Hourly2016, PerSecond, PerSecondFirstHourFree, Stay
from solvers.spot.odds import ExponentialEvictions
from tests.solvers.spot.histories import histories, history

HOUR = 3600.0
RISING = history((0, 1), (1.5, 2), (2.2, 4), until=10)  # 1 at hours 0 and 1, 2 at hour 2, 4 at hour 3


@pytest.mark.parametrize(
    ("hours", "end", "money", "refunded", "free_h"),
    [
        (0.5, "interrupted", 0, 2, 1),
        (0.5, "released", 2, 0, 0),
        (0.5, "job ended", 1, 0, 0),
        (1.0, "interrupted", 2, 0, 0),  # the hour was used up
        (1.0, "released", 2, 0, 0),
        (2.5, "interrupted", 4, 4, 1),  # only the third hour comes back, at its own price
        (2.5, "released", 8, 0, 0),
        (2.5, "job ended", 6, 0, 0),
        (3.0, "job ended", 8, 0, 0),
        (0.0, "interrupted", 0, 0, 0),
    ],
)
def test_hourly(hours: float, end: End, money: float, refunded: float, free_h: float) -> None:
    """Two instances from hour 0: each hour is charged at the price of its beginning."""
    charge = Hourly2016().charged(Stay(0, hours * HOUR, 2, end), RISING.price_at)
    assert (charge.money, charge.refunded, charge.free_s) == pytest.approx((money, refunded, free_h * HOUR))


@pytest.mark.parametrize(
    ("hours", "end", "money", "refunded"),
    [
        (0.5, "interrupted", 0, 1),
        (0.5, "released", 1, 0),
        (0.999, "interrupted", 0, 1.998),
        (1.0, "interrupted", 2, 0),
        (2.5, "interrupted", 6, 0),  # two hours at 1, half of one at 2
        (2.5, "released", 6, 0),
    ],
)
def test_first_hour_free(hours: float, end: End, money: float, refunded: float) -> None:
    charge = PerSecondFirstHourFree().charged(Stay(0, hours * HOUR, 2, end), RISING.price_at)
    assert (charge.money, charge.refunded) == pytest.approx((money, refunded))


def test_per_second_has_a_minimum_and_no_refunds() -> None:
    billing = PerSecond(minimum_s=60)
    for seconds, paid in ((10, 60), (60, 60), (61, 61), (0, 0)):
        for end in ("interrupted", "released"):
            charge = billing.charged(Stay(0, seconds, 3, end), lambda _: 2.0)  # type: ignore[arg-type]
            assert (charge.money, charge.refunded) == (pytest.approx(3 * 2 * paid / HOUR), 0)


@given(histories(), st.sampled_from(list(BILLINGS.values())), st.floats(0, 1), st.floats(0, 1), st.integers(1, 9))
def test_charges_are_bounded(trace: PriceTrace, billing: Billing, begin: float, length: float, count: int) -> None:
    """Money is never below 0; an interruption never costs more than a release; refunds are of one hour at most."""
    start = begin * trace.until / 2
    until = start + length * (trace.until - start)
    by_end = {
        end: billing.charged(Stay(start, until, count, end), trace.price_at)  # type: ignore[arg-type]
        for end in ("interrupted", "released", "job ended")
    }
    most = count * float(trace.prices.max())
    assert all(charge.money >= 0 and 0 <= charge.refunded <= most + 1e-9 for charge in by_end.values())
    assert by_end["interrupted"].money <= by_end["job ended"].money + 1e-9 <= by_end["released"].money + 2e-9
    refund = by_end["released"].money - by_end["interrupted"].money
    assert by_end["interrupted"].refunded == pytest.approx(refund, abs=1e-9)


@pytest.mark.parametrize("name", BILLINGS)
@pytest.mark.parametrize("rate", [0.02, 1.0, 5.0])
@pytest.mark.parametrize("age_min", [0, 15, 90])
def test_expected_is_the_mean_of_what_is_charged(name: str, rate: float, age_min: int) -> None:
    """Evictions at a constant rate, sampled: the cost from now to the end of the hour (2016) or for an hour (today).
    An interruption in the first hour gives back what was paid before, too."""
    billing, age = BILLINGS[name], age_min / 60
    remaining = 1 - age % 1 if name == "hourly-2016" else 1.0
    after = np.random.default_rng(3).exponential(1 / rate, 40_000)
    start, end = 0.0, (age + remaining) * HOUR

    def cost(stay: Stay) -> float:
        return billing.charged(stay, lambda _: 2.0).money

    paid = cost(Stay(start, age * HOUR, 1, "job ended")) if age_min else 0.0
    whole = cost(Stay(start, end, 1, "job ended")) - paid
    sampled = [
        whole if t >= remaining else cost(Stay(start, (age + t) * HOUR, 1, "interrupted")) - paid for t in after[:6000]
    ]
    expected = billing.expected(2.0, age, remaining, ExponentialEvictions(rate))
    if name == "hourly-2016" and age % 1:  # eq. 4.1 counts what is left of the hour, not what a refund gives back of it
        sampled = [whole if t >= remaining else 0.0 for t in after[:6000]]
    error = 4 * float(np.std(sampled)) / math.sqrt(len(sampled)) + 1e-9
    assert expected == pytest.approx(float(np.mean(sampled)), abs=error)
