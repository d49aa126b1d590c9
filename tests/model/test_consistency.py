"""Consistency rules: what a user types, and how far workers may be apart."""

import numpy as np
import pytest

from plink.errors import PlinkError
from plink.model.consistency import BSP, MAX_APART_CLOCKS, SSP, Rule, parse_rule
from plink.model.rules.asp import ASP
from plink.model.rules.ordered import Ordered


@pytest.mark.parametrize(("spec", "rule"), [("bsp", BSP()), ("ssp:0", SSP(0)), ("ssp:30", SSP(30))])
def test_rule_is_parsed(spec: str, rule: Rule) -> None:
    assert parse_rule(spec) == rule


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "BSP",
        "bsp:0",
        "ssp",
        "ssp:",
        "ssp:-1",
        "ssp: 1",
        "ssp:1.5",
        "ssp:٣",
        "dssp:1",
        "dssp:1:2:3",
        "dssp:-1:2",
        "Asp",
        "asp2",
        "asp:",
        "ordered",
        "ordered30",
        "ordered:30:direct:2s",
        "ordered:30::direct",
    ],
)
def test_unknown_rule_is_refused_with_the_choices(spec: str) -> None:
    with pytest.raises(PlinkError, match="choose one of bsp, ssp:N") as refused:
        parse_rule(spec)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("spec", ["ssp:31", "ssp:999999999"])
def test_staleness_above_the_bound_is_refused(spec: str) -> None:
    with pytest.raises(PlinkError, match=f"{spec}: choose a staleness of 0 to 30 clocks") as refused:
        parse_rule(spec)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("spec", ["dssp:5:3", "dssp:0:31"])
def test_bounds_in_the_wrong_order_or_too_large_are_refused(spec: str) -> None:
    with pytest.raises(PlinkError, match=f"{spec}: choose two bounds of 0 to 30 clocks, the lower first") as refused:
        parse_rule(spec)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("spec", ["asp:0s", "asp:50ms", "asp:1h", "asp:-1s", "asp:soon", "asp:nan", "ordered:9:0s",
                                  "ordered:9:directly"])  # fmt: skip
def test_invalid_clock_length_is_refused(spec: str) -> None:
    with pytest.raises(PlinkError) as refused:
        parse_rule(spec)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("spec", "clock_s"), [("asp", 2.0), ("asp:500ms", 0.5), ("asp:3", 3.0)])
def test_asynchronous_clock_is_parsed(spec: str, clock_s: float) -> None:
    rule = parse_rule(spec)
    assert isinstance(rule, ASP)
    assert rule.clock_s == clock_s
    assert rule.steps


@pytest.mark.parametrize("spec", ["dssp:3:15", "dssp:0:0", "asp", "ordered:30"])
def test_first_values_are_read_before_the_first_clock(spec: str) -> None:
    """Whatever the bound: clock 0 gives the tables their first values."""
    rule = parse_rule(spec)
    assert [rule.needs(0), rule.needs(1)] == [-1, 0]
    assert rule.needs(20) == 20 - rule.apart - 1
    assert rule.sees_ahead


@pytest.mark.parametrize("spec", ["bsp", "ssp:0", "ssp:3", f"ssp:{MAX_APART_CLOCKS}"])
def test_clock_begins_before_the_slowest_is_too_far_behind(spec: str) -> None:
    """A worker may read at clock c when the slowest has finished c - apart - 1."""
    rule = parse_rule(spec)
    assert rule.needs(10) == 10 - rule.apart - 1
    assert rule.sees_ahead == spec.startswith("ssp")
    assert not rule.steps


@pytest.mark.parametrize("spec", ["ordered:0", "ordered:1000001", "ordered:9999999999999", "ordered:-1", "ordered:x",
                                  "ordered:", "ordered:1.5", "ordered:nan", "ordered:٣"])  # fmt: skip
def test_delay_out_of_bounds_is_refused(spec: str) -> None:
    with pytest.raises(PlinkError, match="delay") as refused:
        parse_rule(spec)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("spec", "max_delay", "clock_s"), [
    ("ordered:1", 1, 2.0), ("ordered:1000000", 10**6, 2.0), ("ordered:30:500ms", 30, 0.5),
])  # fmt: skip
def test_bounded_delay_is_parsed(spec: str, max_delay: int, clock_s: float) -> None:
    assert parse_rule(spec) == Ordered(max_delay=max_delay, clock_s=clock_s)
    assert parse_rule(f"{spec}:direct") == Ordered(max_delay=max_delay, clock_s=clock_s, direct=True)


def dropped_share(senders: list[int], workers: int, max_delay: int) -> float:
    """Of updates that come in this order, each computed from what its worker read after its last one."""
    version, read, dropped = 0, [0] * workers, 0
    for sender in senders:
        if version - read[sender] > max_delay:
            dropped += 1
        else:
            version += 1
        read[sender] = version
    return dropped / len(senders)


@pytest.mark.parametrize(("workers", "max_delay"), [(2, 1), (4, 1), (4, 2), (4, 3), (8, 1), (8, 3), (30, 15)])
def test_expected_drops_are_those_of_a_replay(workers: int, max_delay: int) -> None:
    rule, steps = Ordered(max_delay=max_delay), 6000
    equal, random = rule.dropped_shares(workers)
    assert dropped_share(list(range(workers)) * steps, workers, max_delay) == pytest.approx(equal, abs=1e-3)
    senders = np.random.default_rng(1).integers(0, workers, 6 * steps).tolist()
    assert dropped_share(senders, workers, max_delay) == pytest.approx(random, abs=0.02)


def test_bound_below_the_workers_comes_with_a_caution() -> None:
    assert "50%" in Ordered(max_delay=1).caution(4)
    assert not Ordered(max_delay=4).caution(4)
    assert not Ordered(max_delay=1).caution(1)
