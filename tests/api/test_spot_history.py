"""The history of prices that a driver gets with the first prices that there are."""

import pytest

from plink.api.spot_history import HistoryFirst
from plink.model.spot.prices import Market
from runners.spot.provider import PricePoint, ProviderError
from tests.runners.spot.fake_cloud import START, A, world


def test_history_comes_with_the_first_prices_after_an_outage() -> None:
    driven = world({A: [(START - 900, 0.1), (START - 500, 0.2), (START - 50, 0.3)]})
    driven.cloud.fails["prices"] = [ProviderError("unavailable", "no answer")]
    observed: list[tuple[Market, float, float]] = []
    provider = HistoryFirst(driven.cloud, lambda *step: observed.append(step), START - 800)
    with pytest.raises(ProviderError):
        provider.prices(START)
    assert provider.prices(START - 100) == [PricePoint(A, START - 500, 0.2), PricePoint(A, START - 50, 0.3)]
    assert observed == [(A, START - 900, 0.1), (A, START - 500, 0.2), (A, START - 50, 0.3)]
    assert provider.prices(START) == [PricePoint(A, START - 50, 0.3)]
    assert len(observed) == 3
