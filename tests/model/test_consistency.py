"""Consistency rules: what a user types, and how far workers may be apart."""

import pytest

from plink.errors import PlinkError
from plink.model.consistency import BSP, MAX_APART_CLOCKS, SSP, Rule, parse_rule
from plink.model.rules.asp import ASP


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


@pytest.mark.parametrize("spec", ["asp:0s", "asp:50ms", "asp:1h", "asp:-1s", "asp:soon", "asp:nan"])
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


@pytest.mark.parametrize("spec", ["dssp:3:15", "dssp:0:0", "asp"])
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
