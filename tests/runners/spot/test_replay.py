"""The provider that replays prices on hosts of the user's own: time, evictions, leases, and what outlives a driver."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plink.model.spot.prices import Market, PriceTrace, on_demand_market
from runners.spot.provider import ProviderError, RentalOrder
from runners.spot.replay import ReplayProvider, ReplaySettings

SMALL = Market("zone-a", "small")
TRACE = PriceTrace(np.array([1000.0, 5000.0, 9000.0]), np.array([0.1, 0.3, 0.1]), 20000.0)


class Real:
    """The machine's clock, which a test moves; the commands that were run."""

    def __init__(self) -> None:
        self.now, self.hooks = 100.0, []  # type: ignore[var-annotated]

    def __call__(self) -> float:
        return self.now


def replay(folder: Path, real: Real) -> ReplayProvider:
    settings = ReplaySettings(("h1", "h2", "h3"), 60.0, 1000.0, ("warn", "{host}"), ("kill", "{host}"), 120.0)
    return ReplayProvider("run1", settings, {SMALL: TRACE}, folder, real, real.hooks.append)


def order(token: str, count: int = 2, lease: float = 1e6) -> RentalOrder:
    return RentalOrder(token, SMALL, count, 0.2, lease)


def test_replay_clock_runs_on_without_a_driver(tmp_path: Path) -> None:
    real = Real()
    assert replay(tmp_path, real).clock() == 1000.0
    real.now += 10
    assert replay(tmp_path, real).clock() == 1600.0


def test_prices_are_those_until_now(tmp_path: Path) -> None:
    real = Real()
    cloud = replay(tmp_path, real)
    assert [point.price for point in cloud.prices(0)] == [0.1]
    real.now += 100
    assert [(point.since_s, point.price) for point in cloud.prices(3000)] == [(1000.0, 0.1), (5000.0, 0.3)]


def test_eviction_is_a_notice_and_then_a_dead_host(tmp_path: Path) -> None:
    real = Real()
    cloud = replay(tmp_path, real)
    granted = cloud.acquire(order("t1"))
    assert [each.host for each in granted] == ["h1", "h2"]
    real.now += 65  # 4900
    assert all(each.end is None for each in cloud.listing())
    assert real.hooks == [("warn", "h1"), ("warn", "h2")]
    real.now += 5  # 5200
    listed = replay(tmp_path, real).listing()
    assert [(each.end, each.until_s) for each in listed] == [("interrupted", 5000.0)] * 2
    assert real.hooks[2:] == [("kill", "h1"), ("kill", "h2")]
    real.now += 100  # the price is low again
    assert [each.host for each in cloud.acquire(order("t2"))] == ["h3"]  # hosts that died are not there any more


def test_token_is_granted_once(tmp_path: Path) -> None:
    cloud = replay(tmp_path, Real())
    first = cloud.acquire(order("t1", 1))
    assert [each.id for each in cloud.acquire(order("t1", 1))] == [each.id for each in first]
    assert len(cloud.listing()) == 1


def test_price_above_the_bid_and_no_free_host_are_refused(tmp_path: Path) -> None:
    real = Real()
    cloud = replay(tmp_path, real)
    cloud.acquire(order("t1", 3))
    with pytest.raises(ProviderError, match="no host"):
        cloud.acquire(order("t2"))
    real.now += 70
    with pytest.raises(ProviderError, match="above"):
        cloud.acquire(order("t3"))


def test_lease_that_is_not_renewed_ends_an_instance(tmp_path: Path) -> None:
    real = Real()
    cloud = replay(tmp_path, real)
    granted = cloud.acquire(order("t1", 2, lease=2000.0))
    cloud.renew([granted[0].id], 3000.0)
    real.now += 20  # 2200
    assert [(each.end, each.until_s) for each in cloud.listing()] == [(None, None), ("released", 2000.0)]


def test_released_hosts_can_be_rented_again(tmp_path: Path) -> None:
    cloud = replay(tmp_path, Real())
    granted = cloud.acquire(order("t1", 3))
    cloud.release([each.id for each in granted])
    assert len(cloud.acquire(order("t2", 3))) == 3


def test_observer_writes_nothing_and_runs_no_command(tmp_path: Path) -> None:
    real = Real()
    cloud = replay(tmp_path, real)
    cloud.acquire(order("t1"))
    before = (tmp_path / "cloud.json").read_bytes()
    real.now += 70
    observer = replace(cloud, is_observer=True)
    assert {each.end for each in observer.listing()} == {"interrupted"}
    assert real.hooks == []
    assert (tmp_path / "cloud.json").read_bytes() == before
    cloud.listing()
    assert real.hooks == [("kill", "h1"), ("kill", "h2")]


def test_hosts_are_released_without_the_history(tmp_path: Path) -> None:
    real = Real()
    replay(tmp_path, real).acquire(order("t1"))
    real.now += 10
    without = ReplayProvider("run1", ReplaySettings((), 60.0, 0.0), {}, tmp_path, real, real.hooks.append)
    assert without.clock() == 1600.0
    without.release([each.id for each in without.listing()])
    assert {each.end for each in without.listing()} == {"released"}


def test_on_demand_hosts_are_not_evicted(tmp_path: Path) -> None:
    real = Real()
    cloud = replay(tmp_path, real)
    order_on_demand = RentalOrder("t1", on_demand_market("zone-a", "small"), 2, 0.5, 1e9)
    assert len(cloud.acquire(order_on_demand)) == 2
    real.now += 1e5
    assert [each.end for each in cloud.listing()] == [None, None]
