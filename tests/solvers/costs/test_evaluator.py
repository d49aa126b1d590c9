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


def test_each_round_has_a_limit_of_its_own() -> None:
    """Two leave a one after the other, then two come to e, then one goes from c: 200, 300 and 100 KB at 1,000 bytes a
    microsecond; what two different hosts send at once takes no longer than the larger."""
    schedule = moving((0, 0, 1, 1), (0, 0, 2, 1), (1, 0, 4, 1), (1, 1, 4, 2), (2, 2, 4, 1), (2, 0, 1, 1))
    for model, names in (
        ("alpha-beta", ("a, sending", "e, receiving", "a, sending")),
        ("contention", ("a, out", "e, in", "a, out")),
    ):
        breakdown = evaluated(schedule, wide(), model)
        assert breakdown.transfer_us.tolist() == pytest.approx([200.0, 300.0, 100.0])
        assert breakdown.busiest == names
        assert breakdown.cost_us == pytest.approx(600 + 3 * 20)


def test_alpha_beta_knows_what_a_pair_gets_and_which_way() -> None:
    """b gets 4 Gbit/s to c where everybody else has 8, and c all the 8 to b."""
    pairs = np.full((5, 5), 8.0)
    pairs[1, 2] = 4.0
    fabric = wide(pair_gbps=pairs)
    assert evaluated(moving((0, 1, 2, 1)), fabric, "alpha-beta").cost_us == pytest.approx(200 + 20)
    assert evaluated(moving((0, 2, 1, 1)), fabric, "alpha-beta").cost_us == pytest.approx(100 + 20)
    both = evaluated(moving((0, 0, 3, 1), (0, 1, 2, 1)), fabric, "alpha-beta")
    assert both.busiest == ("b, sending",)
    assert both.slowest == ("b", "c")


@pytest.mark.parametrize("model", ["alpha-beta", "contention"])
def test_the_slowest_pair_is_far_apart_or_has_much_to_move(model: str) -> None:
    """a to c are 500 us apart and move one chunk of ten, b to d 40 us and four chunks. Of 1 KB they take 250.1 and 20.4
    us alone, of 750 KB 325 and 320, of 1 MB 350 and 420."""
    fabric = wide()
    fabric.rtt_us[0, 2] = fabric.rtt_us[2, 0] = 500.0
    schedule = moving((0, 0, 2, 1), (0, 1, 3, 4))
    assert evaluated(schedule, fabric, model, 1e3).slowest == ("a", "c")
    assert evaluated(schedule, fabric, model, 7.5e5).slowest == ("a", "c")
    assert evaluated(schedule, fabric, model, 1e6).slowest == ("b", "d")
    assert evaluated(schedule, fabric, "latency", 1e6).slowest == ("a", "c")


def test_one_slow_round_trip_holds_up_its_round_only() -> None:
    fabric = wide()
    fabric.rtt_us[0, 2] = fabric.rtt_us[2, 0] = 500.0
    schedule = moving((0, 0, 1, 1), (1, 0, 2, 1), (1, 1, 3, 1), (2, 2, 3, 1))
    assert evaluated(schedule, fabric, "latency").latency_us.tolist() == [40.0, 500.0, 40.0]
    assert evaluated(schedule, fabric, "latency").cost_us == 580.0
    assert evaluated(schedule, fabric, "latency").busiest == ("latency",) * 3
    assert evaluated(schedule, fabric, "latency").transfer_us.tolist() == [0.0] * 3
    assert evaluated(schedule, fabric, "contention").latency_us.tolist() == [20.0, 250.0, 20.0]


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


def test_contention_does_not_ask_for_a_rate_of_the_pair() -> None:
    """It has the hosts' own; a pair that nobody measured is no reason to give no cost."""
    pairs = np.full((5, 5), 8.0)
    pairs[1, 3] = np.nan
    breakdown = evaluated(moving((0, 1, 3, 5)), wide(pair_gbps=pairs), "contention")
    assert breakdown.cost_us == pytest.approx(500 + 20)
    assert breakdown.slowest == ("b", "d")
    beside = evaluated(moving((0, 1, 3, 5), (0, 0, 2, 1)), wide(pair_gbps=pairs), "contention")
    assert beside.slowest == ("a", "c")  # what is not known takes no time


@pytest.mark.parametrize(("way", "backwards"), [("group_out_gbps", False), ("group_in_gbps", True)])
def test_two_ways_that_are_equally_busy_are_later_than_one(way: str, backwards: bool) -> None:
    """Racks of a and of c send (or get) 100 KB each at 500 bytes a microsecond: 200 us, times the 16th root of two. A
    third that is half as busy adds 2^-16 below the root."""
    fabric = wide(**{way: np.array([4.0, 4.0, 8.0])})
    hops = [(0, 0, 4, 1), (0, 2, 1, 1), (0, 4, 3, 1)]
    hops = [(t, b, a, count) if backwards else (t, a, b, count) for t, a, b, count in hops]
    for number, late in ((1, 1.0), (2, 2 ** (1 / 16)), (3, (2 + 2**-16) ** (1 / 16))):
        breakdown = evaluated(moving(*hops[:number]), fabric, "contention")
        assert breakdown.cost_us == pytest.approx(20 + 200 * late, rel=1e-12)
        assert breakdown.busiest[0].startswith("the way into" if backwards else "the way out of")


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


@pytest.mark.parametrize(("model", "scale"), [("alpha-beta", 1e-9), ("contention", 1e3)])
def test_only_bytes_over_rates_count(model: str, scale: float) -> None:
    """A billionth of the bytes at a billionth of the rates is the same cost, with the same limits."""
    pairs = np.random.default_rng(1).uniform(1, 10, (5, 5))
    rates = {
        "pair_gbps": pairs,
        "host_out_gbps": np.arange(1.0, 6.0),
        "host_in_gbps": np.arange(6.0, 1.0, -1.0),
        "group_out_gbps": np.array([3.0, 2.0, 1.0]),
        "group_in_gbps": np.array([9.0, np.inf, 2.0]),
    }
    item, other = wide(**rates), wide(**{name: value * scale for name, value in rates.items()})
    for algo in ("ring", "flat", "tree"):
        schedule = schedule_for(algo, 5)
        breakdown, scaled = evaluated(schedule, item, model, 1e6), evaluated(schedule, other, model, 1e6 * scale)
        assert scaled.transfer_us == pytest.approx(breakdown.transfer_us)
        assert (scaled.busiest, scaled.slowest) == (breakdown.busiest, breakdown.slowest)
