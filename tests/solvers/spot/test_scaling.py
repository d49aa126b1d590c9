"""Scaling, sigma and lambda from measured iterations."""

import numpy as np
import pytest

from plink.errors import NoAnswer
from solvers.spot.footprint import MeasuredIteration, Scaling, fit_application, fit_scaling

TRUE = Scaling(0.2, 24.0, 0.01)


def test_the_fit_finds_what_made_the_times() -> None:
    cores = [1, 2, 4, 8, 16, 32]
    fitted = fit_scaling(cores, [TRUE.seconds(n) for n in cores])
    assert (fitted.a, fitted.b, fitted.c) == pytest.approx((0.2, 24.0, 0.01), rel=1e-6)


def test_noise_never_gives_negative_parts() -> None:
    rng, cores = np.random.default_rng(2), [2, 2, 4, 4, 8, 8]
    fitted = fit_scaling(cores, [24 / n * rng.uniform(0.9, 1.1) for n in cores])
    assert min(fitted.a, fitted.c) >= 0
    assert fitted.seconds(4) == pytest.approx(6, rel=0.1)


@pytest.mark.parametrize(("cores", "seconds"), [([4, 4, 4], [1, 2, 1]), ([], []), ([0, 4], [1, 1])])
def test_one_number_of_workers_is_refused(cores: list[float], seconds: list[float]) -> None:
    with pytest.raises(NoAnswer, match="one number of workers"):
        fit_scaling(cores, seconds)


def test_times_that_grow_with_workers_are_refused() -> None:
    with pytest.raises(NoAnswer, match="did not get shorter"):
        fit_scaling([2, 4, 8], [2.0, 4.0, 8.0])


def test_pauses_are_what_iterations_take_beyond_the_fit() -> None:
    """Hosts join twice (3 s more each), one is lost (5 s more, and 2 s of an attempt that was undone)."""
    at, iterations, joined, lost = 0.0, [], [], []
    for number in range(30):
        workers = 2 if number < 10 else 4 if number < 20 else 8
        seconds = TRUE.seconds(workers) + (3 if number in (10, 20) else 5 if number == 25 else 0)
        undone = 2.0 if number == 25 else 0.0
        at += seconds + undone
        iterations.append(MeasuredIteration(at, seconds, workers, undone))
        if number in (10, 20):
            joined.append(at - 1)
        if number == 25:
            lost.append(at - 1)
    application = fit_application(iterations, joined, lost, start_s=90)
    assert application.scaling.seconds(4) == pytest.approx(TRUE.seconds(4), rel=1e-6)
    assert (application.add_s, application.evict_s, application.start_s) == pytest.approx((3, 7, 90), rel=1e-4)


def test_what_never_happened_keeps_its_default() -> None:
    iterations = [MeasuredIteration(10.0 * k, TRUE.seconds(2 + k % 2), 2 + k % 2) for k in range(1, 9)]
    application = fit_application(iterations, [], [], 90)
    assert (application.add_s, application.evict_s) == (30, 60)
