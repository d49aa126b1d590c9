"""What other rules would have made of a run: step times of which the answer is known."""

import numpy as np
import pytest

from runners.agile.rule_replay import BY_SPEED, hint, predicted_s, step_seconds

_HALF = np.tile([1.0, 1.0, 1.0, 2.0], (300, 1))
_EQUAL = np.ones((300, 4))


@pytest.mark.parametrize(
    ("rule", "seconds"),
    [("bsp", 600), ("ssp:3", 600), ("dssp:1:9", 600), (BY_SPEED, 343), ("asp", 343), ("elastic-bsp:15", 343)],
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
    result = hint(_HALF, "bsp", "slots")
    assert result is not None
    assert result.rule == BY_SPEED
    assert result.saved == pytest.approx(0.43, abs=0.01)


@pytest.mark.parametrize(("rule", "shares"), [("bsp", "slots"), ("ssp:3", "slots"), ("asp", "slots")])
def test_no_hint_where_nothing_is_to_be_saved(rule: str, shares: str) -> None:
    assert hint(_EQUAL, rule, shares) is None
    assert hint(_EQUAL[:, :1], rule, shares) is None


def test_no_hint_for_the_rule_in_use() -> None:
    assert hint(_HALF, "bsp", "speed") is None
    assert hint(_HALF, "elastic-bsp:15", "slots") is None


def test_hosts_that_came_later_are_left_out() -> None:
    """Step times are of iterations with the hosts of the last one."""
    old, new = {"a": (1.0, 0.0, 1)}, {"a": (2.0, 0.0, 2), "b": (3.0, 0.0, 1)}
    assert step_seconds([old, old, new, {}, new]).tolist() == [[1.0, 3.0], [1.0, 3.0]]
    assert step_seconds([]).size == 0
    assert hint(step_seconds([]), "bsp", "slots") is None
