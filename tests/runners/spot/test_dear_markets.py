"""A driver with ``--fallback`` through a time in which all markets are dear: on-demand machines come and go."""

import math

import pytest

from plink.model.spot.market_file import Limits, market_file_from
from plink.model.spot.price_files import Histories
from plink.model.spot.prices import HOUR_S, Market
from runners.spot.brain import MarketBrain
from solvers.spot.ledger import account
from tests.runners.spot.fake_cloud import ON_DEMAND_PRICE, START, A, World, world

COUNT = 2  # machines of the reference, of one core
DEAR_H, CHEAP_H = 1.5, 4.2  # when the price rises above on-demand, and when it falls again


def made(billing: str, falls_back: bool = True) -> World:
    """Machines at 0.1, which cost ten times as much for a while."""
    steps = [(START - 50, 0.1), (START + DEAR_H * HOUR_S, 1.0), (START + CHEAP_H * HOUR_S, 0.1)]
    result = world({A: steps}, hours=8.0, billing=billing)
    result.limits = Limits(math.inf, math.inf)
    document = {
        "billing": billing, "types": [{"name": "small", "cores": 1, "on_demand": ON_DEMAND_PRICE}],
        "reference": {"type": "small", "count": COUNT}, "limits": {"max_cores": COUNT, "chunk_cores": COUNT},
        "application": {"start_s": 60, "add_s": 10, "evict_s": 10},
    }  # fmt: skip
    market_file = market_file_from(document, "market.toml")
    result.brain = MarketBrain(market_file, Histories(), result.timing.commitment_s, falls_back)  # type: ignore[assignment]
    return result


def held_on_demand(driven: World) -> list[bool]:
    return [each.market.is_on_demand for each in driven.ledger.held]


@pytest.mark.parametrize("billing", ["per-second", "first-hour-free"])
def test_on_demand_machines_replace_dear_ones_until_a_market_is_cheap(billing: str) -> None:
    driven = made(billing)
    driver = driven.driver()
    driven.run(DEAR_H - 0.1, driver)
    assert held_on_demand(driven) == [False] * COUNT
    driven.run(1.0, driver)
    assert held_on_demand(driven) == [True] * COUNT
    driven.run(CHEAP_H + 1.3 - DEAR_H - 0.9, driver)  # at the end of an hour of theirs they are given back
    assert held_on_demand(driven) == [False] * COUNT
    assert driven.run(8.0, driver)
    assert driven.cloud.held == []
    assert account(driven.ledger, driven.clock.now).transient == pytest.approx(driven.cloud.bill())


def test_market_without_a_price_now_holds_no_on_demand_machine() -> None:
    driven = made("per-second")
    driven.brain.observe(Market("zone-z", "small"), START - 100, 0.2)  # only the history has it
    driver = driven.driver()
    driven.run(DEAR_H + 0.9, driver)
    assert held_on_demand(driven) == [True] * COUNT
    driven.run(CHEAP_H + 1.3 - DEAR_H - 0.9, driver)
    assert held_on_demand(driven) == [False] * COUNT


def test_nothing_is_on_demand_without_the_option() -> None:
    driven = made("per-second", falls_back=False)
    assert driven.run(9.0)
    assert not any(each.market.is_on_demand for each in driven.ledger.instances.values())


def test_driver_that_is_started_again_renews_and_gives_back() -> None:
    driven = made("per-second")
    driven.run(DEAR_H + 0.5)
    tokens = {each.token for each in driven.ledger.held}
    driven.run(2.0)
    assert {each.token for each in driven.ledger.held} == tokens
    driven.run(CHEAP_H + 1.3 - DEAR_H - 2.5)
    assert held_on_demand(driven) == [False] * COUNT
