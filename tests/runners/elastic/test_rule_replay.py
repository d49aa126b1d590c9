"""What other rules would have made of a run: step times of which the answer is known."""

import numpy as np
import pytest

from runners.elastic.rule_replay import BY_SPEED, REBALANCED, Division, hint, predicted_s, rule_in_use, step_seconds

_HALF = np.tile([1.0, 1.0, 1.0, 2.0], (300, 1))
_EQUAL = np.ones((300, 4))


@pytest.mark.parametrize(
    ("rule", "seconds"),
    [
        ("bsp", 600),
        ("ssp:3", 600),
        ("dssp:1:9", 600),
        (BY_SPEED, 360),
        (REBALANCED, 343),
        ("asp", 343),
        ("elastic-bsp:15", 343),
    ],
)
def test_one_of_four_at_half_speed(rule: str, seconds: float) -> None:
    """343 s if nobody ever waits."""
    assert predicted_s(_HALF, rule) == pytest.approx(seconds, rel=0.03)


def test_staleness_helps_against_slowness_that_moves() -> None:
    """Each host is slow at every fourth clock, another one each time."""
    steps = np.ones((200, 4))
    steps[np.arange(200), np.arange(200) % 4] = 3.0
    assert predicted_s(steps, "bsp") == 600
    assert predicted_s(steps, "ssp:3") < 400


def test_hint_prefers_rules_with_the_guarantees_of_bsp() -> None:
    """Shares by speed are exact, and save as much as supersteps do."""
    result = hint(_HALF, "bsp")
    assert result is not None
    assert result.rule == BY_SPEED
    assert result.saved == pytest.approx(0.40, abs=0.01)


def test_hint_with_optimisers_keeps_to_bulk_synchronous_rules() -> None:
    """Others are refused; here they would save more, as few shards can be helped with."""
    steps = np.ones((200, 4))
    steps[np.arange(200), np.arange(200) % 4] = 3.0
    results = [hint(steps, "bsp", Division(4), optimisers=optimisers) for optimisers in (False, True)]
    assert [result is not None and result.rule.startswith("bsp") for result in results] == [False, True]


def test_hint_proposes_help_where_slowness_moves() -> None:
    """Each host is slow for ten clocks, another one then: shares by speed cannot follow, and help is as good as ASP."""
    steps = np.ones((400, 4))
    steps[np.arange(400), np.arange(400) // 10 % 4] = 2.0
    result = hint(steps, "bsp", Division(64))
    assert result is not None
    assert result.rule == REBALANCED
    assert result.saved == pytest.approx(1 - 19 / 16 / 2)  # 19 of 64 shards, instead of 16, in half the time


@pytest.mark.parametrize(
    ("clocks", "division", "gain"),
    [
        (20, Division(), 0.0),  # all that there are measure
        (40, Division(), 0.21),
        (40, Division(batches=5), 0.39),  # of five clocks each
        (300, Division(4), 0.0),  # a shard a host
        (300, Division(8), 0.23),  # one for the slow, two or three for the others
    ],
)
def test_shares_by_speed_gain_what_they_can(clocks: int, division: Division, gain: float) -> None:
    saved = 1 - predicted_s(_HALF[:clocks], BY_SPEED, division) / predicted_s(_HALF[:clocks], "bsp")
    assert saved == pytest.approx(gain, abs=0.01)
    result = hint(_HALF[:clocks], "bsp", division)
    assert gain or result is None or result.rule != BY_SPEED


@pytest.mark.parametrize("rule", ["bsp", "ssp:3", "asp"])
def test_no_hint_where_nothing_is_to_be_saved(rule: str) -> None:
    assert hint(_EQUAL, rule) is None
    assert hint(_EQUAL[:, :1], rule) is None


def test_no_hint_for_the_rule_in_use() -> None:
    assert hint(_HALF, rule_in_use("bsp", "speed", rebalance=False)) is None
    for rule in ("bsp", "ssp:3"):
        assert hint(_HALF, rule_in_use(rule, "slots", rebalance=True)) is None
    assert hint(_HALF, "elastic-bsp:15") is None


def test_hosts_that_came_later_are_left_out() -> None:
    """Step times are of iterations with the hosts of the last one."""
    old, new = {"a": (1.0, 0.0, 1)}, {"a": (2.0, 0.0, 2), "b": (3.0, 0.0, 1)}
    assert step_seconds([old, old, new, {}, new]).tolist() == [[1.0, 3.0], [1.0, 3.0]]
    assert step_seconds([]).size == 0
    assert hint(step_seconds([]), "bsp") is None
