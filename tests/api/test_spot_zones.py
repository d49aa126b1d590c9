"""Strategies compared on availability histories, and what is refused."""

import numpy as np
import pytest

from benchmarks.made_availability import KINDS, make_availability
from plink.api.spot_zones import compare_zones
from plink.errors import InputError, NoAnswer, UsageError
from plink.model.spot.availability import AvailabilityTrace
from plink.model.spot.market_file import MarketFile, market_file_from
from plink.model.spot.prices import Market

MARKET = {
    "types": [{"name": "v100", "cores": 8, "on_demand": 3.0}],
    "reference": {"type": "v100", "count": 16},
    "limits": {"max_cores": 128},
    "billing": "first-hour-free",
}


def market_file() -> MarketFile:
    return market_file_from(MARKET, "market.toml")


def histories(count: int = 3, kind: str = "v100") -> dict[Market, AvailabilityTrace]:
    traces = make_availability(KINDS[:count], 5, 1)
    return {Market(f"z{number}", kind): trace for number, trace in enumerate(traces)}


def test_all_strategies_are_simulated_over_the_same_time() -> None:
    simulation = compare_zones(market_file(), histories())
    assert [(row.strategy, row.zone) for row in simulation.results] == [
        ("one zone", "z0"), ("one zone", "z1"), ("one zone", "z2"), ("next zone", ""), ("bidbrain", ""),
    ]  # fmt: skip
    assert simulation.nodes == 16
    assert simulation.hours == pytest.approx(0.7 * 5 * 24)
    assert all(0 < row.outcome.work <= 16 * simulation.hours for row in simulation.results)


def test_histories_are_cut_to_the_time_that_all_cover() -> None:
    traces = histories(2)
    late = traces[Market("z1", "v100")]
    traces[Market("z1", "v100")] = AvailabilityTrace(late.gap_s, late.counts, start=2 * 86400)
    assert compare_zones(market_file(), traces).hours == pytest.approx(0.7 * 3 * 24, abs=0.1)


def test_histories_that_are_not_sampled_at_the_same_times() -> None:
    """One begins a sample later, one in the middle of a gap."""
    counts = {"a": 26, "b": 25, "c": 24}
    starts = {"a": 0.0, "b": 600.0, "c": 300.0}
    traces = {
        Market(zone, "v100"): AvailabilityTrace(600, np.full(count, 16), starts[zone]) for zone, count in counts.items()
    }
    simulation = compare_zones(market_file(), traces)
    assert simulation.hours == pytest.approx(17 / 6)  # of 24 samples from 600 s on, 7 are known before
    assert simulation.train_until == pytest.approx(600 + 7 * 600)
    assert all(row.outcome.half_share > 0.9 for row in simulation.results)


def test_refused() -> None:
    with pytest.raises(InputError, match="no market of its types"):
        compare_zones(market_file(), histories(kind="a100"))
    with pytest.raises(UsageError, match="--train-until"):
        compare_zones(market_file(), histories(), train_until=1e9)
    with pytest.raises(UsageError, match="from 1970-01-01 00:00 to 1970-01-06 00:00 UTC"):
        compare_zones(market_file(), histories(), train_until=5 * 86400 - 100)
    traces = histories(2)
    other = {Market("z9", "v100"): AvailabilityTrace(600, np.array([1, 1, 1]), 1e9)}
    with pytest.raises(NoAnswer, match="no time that all"):
        compare_zones(market_file(), traces | other)
    with pytest.raises(InputError, match="sampled every 60 s and every 600 s"):
        compare_zones(market_file(), traces | {Market("z9", "v100"): AvailabilityTrace(60, np.array([1, 1, 1]))})
