"""When on-demand machines must take over for a deadline."""

import pytest

from solvers.spot.deadline import Deadline, IterationTime, JobProgress, latest_start
from solvers.spot.footprint import Scaling


def test_latest_start_leaves_time_for_the_rest_and_the_start() -> None:
    deadline = Deadline(0.0, 10_000.0, 100)
    assert latest_start(deadline, 40, 10.0, 200.0) == 10_000 - 60 * 10 - 200
    assert latest_start(deadline, 100, 10.0, 200.0) == 9_800
    assert latest_start(deadline, 120, 10.0, 200.0) == 9_800


def test_start_by_half_of_the_time_where_nothing_says_what_is_left() -> None:
    assert latest_start(Deadline(1_000.0, 10_000.0, 100), 0, None, 200.0) == 1_000 + (9_000 - 200) / 2


def test_iteration_time_is_measured_and_scaled() -> None:
    iteration = IterationTime(Scaling(1.0, 8.0, 0.0))  # of 4 cores 3 s, of 8 cores 2 s
    assert iteration.seconds(8) is None
    iteration.observe(JobProgress(1, 6.0, 4))
    assert iteration.seconds(8) == pytest.approx(4.0)


def test_one_slow_iteration_does_not_count() -> None:
    iteration = IterationTime(Scaling(0.0, 1.0, 0.0))
    for number, seconds in enumerate([1.0, 1.0, 60.0, 1.0, 1.0], 1):
        iteration.observe(JobProgress(number, seconds, 1))
    assert iteration.seconds(1) == pytest.approx(1.0)


def test_same_iteration_counts_once() -> None:
    iteration = IterationTime(Scaling(0.0, 1.0, 0.0))
    for number, seconds in [(1, 1.0), (2, 1.0), *[(3, 60.0)] * 20]:
        iteration.observe(JobProgress(number, seconds, 1))
    assert iteration.seconds(1) == pytest.approx(1.0)


def test_stated_times_serve_until_there_are_measured_ones() -> None:
    iteration = IterationTime(Scaling(0.0, 100.0, 0.0), is_stated=True)
    assert iteration.seconds(10) == pytest.approx(10.0)
    iteration.observe(JobProgress(1, 40.0, 5))
    assert iteration.seconds(10) == pytest.approx(20.0)
