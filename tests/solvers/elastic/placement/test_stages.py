"""When the stage changes, and when it does not."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.elastic.placement.stages import MeasuredTraffic, Stage, Thresholds, measured_thresholds, stage_for

STAGE_1, STAGE_2, STAGE_3 = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP, Stage.BACKUP_ONLY
THESIS = Thresholds()


@pytest.mark.parametrize(
    ("reliable", "transient", "stage"),
    [
        (1, 0, STAGE_1),
        (1, 1, STAGE_1),
        (1, 2, STAGE_2),
        (1, 15, STAGE_2),
        (1, 16, STAGE_3),
        (4, 4, STAGE_1),
        (4, 60, STAGE_2),
        (4, 61, STAGE_3),
    ],
)
def test_the_stage_goes_up_over_one_to_one_and_over_fifteen_to_one(reliable: int, transient: int, stage: Stage) -> None:
    assert stage_for(reliable, transient, THESIS) is stage


def test_stage_falls_only_clearly_below_the_threshold() -> None:
    assert [stage_for(4, transient, THESIS, STAGE_2) for transient in (4, 3)] == [STAGE_2, STAGE_1]
    assert [stage_for(1, transient, THESIS, STAGE_3) for transient in (15, 14, 13, 2)] == [
        STAGE_3,
        STAGE_3,
        STAGE_2,
        STAGE_2,
    ]
    assert stage_for(1, 0, THESIS, STAGE_3) is STAGE_1


@given(st.integers(1, 8), st.integers(1, 200), st.floats(0, 20), st.floats(0, 20))
def test_a_transient_host_that_comes_and_goes_moves_the_stage_once_at_most(
    reliable: int, transient: int, first: float, second: float
) -> None:
    thresholds, stages = Thresholds(min(first, second), max(first, second)), [STAGE_1]
    for turn in range(8):
        stages.append(stage_for(reliable, transient + turn % 2, thresholds, stages[-1]))
    assert len(set(stages[2:])) == 1


def test_no_reliable_host_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="tier=reliable"):
        stage_for(0, 4, THESIS)


@pytest.mark.parametrize("ratios", [(2, 1), (-1, 3), (float("nan"), 3), (1, float("nan"))])
def test_thresholds_that_are_none_are_refused(ratios: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="stage thresholds"):
        Thresholds(*ratios)


def test_a_bottleneck_that_holds_the_workers_down_is_still_one() -> None:
    """Five hosts share a reliable one's line: each gets a fifth of it, however much it would take."""
    result = measured_thresholds(MeasuredTraffic(worker=100e6 / 5, capacity=100e6), Thresholds(9, 15))
    assert result.active < 4
    assert result.backup_only == 15


def test_measurements_that_differ_little_change_nothing() -> None:
    now = Thresholds(3, 30)
    assert measured_thresholds(MeasuredTraffic(worker=21e6, capacity=100e6, replica=2e6), now) == now


def test_measured_thresholds_by_hand() -> None:
    """Of 100 a half may be used. Workers take 10: five hosts, one of them itself. Replicas 2: 40 of what is left."""
    now = Thresholds(1.0, 2.0)
    traffic = MeasuredTraffic(worker=10.0, capacity=100.0, replica=2.0, load=0.5)
    assert measured_thresholds(traffic, now) == Thresholds(4.0, 20.0)
    assert measured_thresholds(MeasuredTraffic(10.0, 100.0, None, 0.5), now) == Thresholds(4.0, 4.0), (
        "never below the first"
    )
    assert measured_thresholds(MeasuredTraffic(10.0, 100.0, 0.0, 0.5), Thresholds(1.0, 30.0)) == Thresholds(4.0, 30.0)
    assert measured_thresholds(MeasuredTraffic(0.0, 100.0, 5.0, 0.5), now) == Thresholds(1.0, 10.0)
    assert measured_thresholds(MeasuredTraffic(0.5, 1.0, 1.0, 0.5), now) == Thresholds(0.0, 0.0)
    assert measured_thresholds(MeasuredTraffic(80.0, 100.0, 5.0, 0.5), now) == Thresholds(0.0, 0.0), (
        "none below nothing"
    )


@pytest.mark.parametrize("wrong", [{"worker": -1.0}, {"capacity": math.inf}, {"replica": -0.1}, {"load": math.nan}])
def test_traffic_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    right: dict[str, Any] = {"worker": 0.0, "capacity": 0.0, "replica": 0.0, "load": 0.0}
    MeasuredTraffic(**right)
    with pytest.raises(UsageError, match="traffic"):
        MeasuredTraffic(**(right | wrong))
