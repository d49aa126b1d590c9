"""What the evaluator says besides the cost: what limits each round, which pair is slowest, and each round's parts."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from plink.errors import NoAnswer
from plink.model.schedule import Schedule, make_schedule
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import CostBreakdown, evaluate, reduce_phase
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import pattern_of
from solvers.schedules.catalogue import schedule_for

RACKS = np.array([0, 0, 1, 1, 2])  # a and b, c and d, e


def wide(**changes: Any) -> Fabric:
    """Five hosts, 40 us apart, of 8 Gbit/s (1,000 bytes a microsecond); nothing that racks share is a limit."""
    rtt = np.full((5, 5), 40.0)
    np.fill_diagonal(rtt, 0.0)
    ways, eight = np.full(3, np.inf), np.full(5, 8.0)
    plain = Fabric(tuple("abcde"), rtt, None, eight, eight, RACKS, ways, ways, "measured")
    return dataclasses.replace(plain, **changes)


def slow(number: int, which: int, usual: float) -> Any:
    """4 Gbit/s (500 bytes a microsecond) in one place."""
    rates = np.full(number, usual)
    rates[which] = 4.0
    return rates


def moving(*hops: tuple[int, int, int, int], **details: Any) -> Schedule:
    """Transfers (round, source, target, chunks) of a vector of ten chunks, added at the target."""
    return make_schedule("mine", 5, 10, [(t, a, b, 0, count, 0) for t, a, b, count in hops], **details)


def evaluated(schedule: Schedule, fabric: Fabric, model: str, size: float = 1e6) -> CostBreakdown:
    return evaluate(schedule, fabric, np.arange(5), size, model)


@pytest.mark.parametrize(
    ("changes", "what", "rate"),
    [
        ({"host_out_gbps": slow(5, 1, 8.0)}, "b, out", 500),
        ({"host_in_gbps": slow(5, 3, 8.0)}, "d, in", 500),
        ({"group_out_gbps": slow(3, 0, np.inf)}, "the way out of the group of a", 500),
        ({"group_in_gbps": slow(3, 1, np.inf)}, "the way into the group of c", 500),
        # Slow places that this transfer does not use are none of its business.
        ({"host_out_gbps": slow(5, 3, 8.0), "host_in_gbps": slow(5, 1, 8.0)}, "b, out", 1000),
        ({"group_out_gbps": slow(3, 1, np.inf), "group_in_gbps": slow(3, 0, np.inf)}, "b, out", 1000),
    ],
)
def test_what_limits_a_round_is_named(changes: dict[str, Any], what: str, rate: float) -> None:
    """Half of 1 MB from b to d, and nothing else, over the rate of the slowest place on its way; half of 40 us."""
    breakdown = evaluated(moving((0, 1, 3, 5)), wide(**changes), "contention")
    assert breakdown.busiest == (what,)
    assert breakdown.transfer_us.tolist() == pytest.approx([5e5 / rate])
    assert breakdown.latency_us.tolist() == [20.0]
    assert breakdown.cost_us == pytest.approx(5e5 / rate + 20)


def test_alpha_beta_asks_for_the_rates_of_pairs_that_move_something() -> None:
    """However little; ranks of one host move nothing, and nobody measured a host with itself."""
    size = 1e-6
    pairs = np.full((5, 5), 8.0)
    np.fill_diagonal(pairs, np.nan)
    pairs[3, 4] = np.nan
    fabric, schedule = wide(pair_gbps=pairs), moving((0, 0, 1, 5), (1, 1, 2, 5))
    cost_of = closed_form(pattern_of(schedule), fabric, size, "alpha-beta")
    shared, unknown = np.array([2, 2, 0, 3, 4]), np.array([0, 3, 4, 1, 2])
    assert evaluate(schedule, fabric, shared, size, "alpha-beta").cost_us == pytest.approx(20 + size / 2000)
    assert cost_of(shared) == pytest.approx(20 + size / 2000)
    for ask in (lambda: evaluate(schedule, fabric, unknown, size, "alpha-beta"), lambda: cost_of(unknown)):
        with pytest.raises(NoAnswer, match="the bandwidth d - e is needed"):
            ask()


@pytest.mark.parametrize(
    ("timing", "cost"),
    [
        ("rounds", 55 + 70),  # every round waits for its longest hop
        ("chain", 55 + 30),  # b waits for both that it sends on; the 70 us wait for nothing
        ("pipeline", 40 + 55 + 30 + 70),  # every link once
    ],
)
def test_three_timing_models_of_one_schedule_by_hand(timing: str, cost: float) -> None:
    """a to b (40 us) and c to b (55), then b on to e (30) and c to d (70); the way back counts for nothing."""
    fabric = wide()
    for a, b, us in ((1, 2, 55.0), (1, 4, 30.0), (2, 3, 70.0)):
        fabric.rtt_us[a, b] = fabric.rtt_us[b, a] = us
    rows = [(0, 0, 1, 0, 1, 0), (0, 2, 1, 0, 1, 0), (1, 1, 4, 0, 1, 0), (1, 2, 3, 0, 1, 0), (2, 4, 0, 0, 1, 1)]
    for order in (rows, [rows[1], rows[0], *rows[2:]]):
        schedule = make_schedule("mine", 5, 1, order, timing=timing)
        assert evaluated(schedule, fabric, "latency").cost_us == cost
        there = make_schedule("mine", 5, 1, order[:-1], timing=timing)
        assert evaluated(there, fabric, "latency").cost_us == cost
        assert closed_form(pattern_of(there), fabric, 1e6, "latency")(np.arange(5)) == cost


def test_the_way_there_ends_with_the_round_of_the_last_reduction() -> None:
    """Copies of that round belong to it, those of the next do not; where nothing is reduced all is the way there."""
    rows = [(0, 0, 1, 0, 1, 0), (1, 2, 1, 0, 1, 0), (1, 3, 4, 1, 1, 1), (2, 1, 0, 0, 1, 1), (2, 1, 2, 0, 1, 1)]
    assert reduce_phase(make_schedule("mine", 5, 2, rows)) == slice(0, 3)
    assert reduce_phase(make_schedule("mine", 5, 2, rows[3:])) == slice(0, 2)
    assert reduce_phase(schedule_for("ring", 4)) == slice(0, 12)
    assert reduce_phase(schedule_for("tree", 5)) == slice(0, 4)


def test_a_cost_is_printed_to_the_nanosecond() -> None:
    """Three decimals of a microsecond; the rounds in their order."""
    breakdown = CostBreakdown(
        "latency", 12.34567, np.array([1.00049, 2.0]), np.array([0.12345, 3.0]), ("x", "y"), ("a", "b")
    )
    assert breakdown.to_json() == {
        "model": "latency",
        "cost_us": 12.346,
        "slowest_pair": ["a", "b"],
        "rounds": [
            {"latency_us": 1.0, "transfer_us": 0.123, "busiest": "x"},
            {"latency_us": 2.0, "transfer_us": 3.0, "busiest": "y"},
        ],
    }
