"""Equation 4.1 against a second, slower way to fit it: Adam as in the paper, gradients by PyTorch; and its lanes."""

import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from solvers.embedding.fitting import Problem, Trial, fit, fit_all
from solvers.embedding.pairs import Integers, Setting
from solvers.prediction.observed import ObservedPairs, observed

NOTHING = np.empty(0, dtype=np.intp)
DELTA, LEAST, FLOOR = 0.3, 1e-3, 1e-2  # of the soft L1 loss; of distances, and of what errors are relative to


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """PyTorch's threads wait by spinning, for whoever else uses the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def measured(n: int, seed: int = 0) -> ObservedPairs:
    """All pairs of hosts in a plane, with noise."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0, 100, (n, 2))
    return observed(np.linalg.norm(place[:, None] - place, axis=2) * rng.lognormal(0, 0.3, (n, n)))


def loss(fitted: torch.Tensor, true: torch.Tensor, relative: bool) -> torch.Tensor:
    """Of each pair: ``delta^2 (sqrt(1 + (r / delta)^2) - 1)``."""
    error = (fitted - true) / (true.clamp(min=FLOOR) if relative else 1.0)
    return DELTA**2 * ((1 + (error / DELTA) ** 2).sqrt() - 1)


SETTINGS = [
    Setting(3, 1.0, heights=False, relative=False),
    Setting(1, 2.0, heights=True, relative=True),
    Setting(2, 1.0, heights=True, relative=False),
    Setting(2, 2.0, heights=False, relative=True),
]
FOLDS_OF_SIX = [np.array([1]), np.array([2])]


def trials(settings: Sequence[Setting], folds: Sequence[Integers]) -> list[Trial]:
    """A fit of each."""
    return [Trial(setting, fold) for setting, fold in zip(settings, folds, strict=True)]


FOLDS = [np.array([0, 7, 20]), np.array([1, 2, 30]), np.array([0, 7, 20]), np.array([4, 5, 6])]


def test_parallel_fits_match_sequential_fits() -> None:
    """Every other setting is one batch, from a seed of its own; in the end all stand in the order they were given in,
    with as many coordinates as the widest has."""
    pairs = measured(9)
    workers = [fit(pairs, trials(SETTINGS[k::2], FOLDS[k::2]), 2 * 3 + k, 5) for k in (0, 1)]
    result = fit_all(pairs, trials(SETTINGS, FOLDS), 3, 5)
    for at in range(4):
        worker, row = workers[at % 2], at // 2
        width = worker.coordinates.shape[2]
        np.testing.assert_array_equal(result.coordinates[at, :, :width], worker.coordinates[row])
        assert not result.coordinates[at, :, width:].any()
        np.testing.assert_array_equal(result.heights_us[at], worker.heights_us[row])
        np.testing.assert_array_equal(result.held_out[at], worker.held_out[row])
        assert result.loss[at] == worker.loss[row]
    assert result.coordinates.shape == (4, 9, 3)
    assert result.checks.tolist() == [5]
    assert [int((coordinate != 0).any(axis=0).sum()) for coordinate in result.coordinates] == [3, 1, 2, 2]


def test_no_two_seeds_begin_alike() -> None:
    pairs = measured(6)
    begun = [
        coordinate.tobytes()
        for seed in range(4)
        for coordinate in fit_all(pairs, trials([SETTINGS[0]] * 4, [NOTHING] * 4), seed, 1).coordinates
    ]
    assert len(set(begun)) == 16


def test_parallel_fits_use_one_pytorch_thread_and_restore_it() -> None:
    during: set[int] = set()

    def look() -> bool:
        during.add(torch.get_num_threads())
        return True

    torch.set_num_threads(2)
    fit_all(measured(6), trials(SETTINGS[:2], FOLDS_OF_SIX), 0, 2, keep_going=look)
    assert during == {1}
    assert torch.get_num_threads() == 2


CTRL_C = """
import itertools, signal, threading
from solvers.embedding.fitting import fit_all
from tests.solvers.embedding.test_embedding_fit import FOLDS_OF_SIX, SETTINGS, measured, trials

signal.signal(signal.SIGINT, signal.default_int_handler)
steps = itertools.count()

def pressed():
    if next(steps) == 10:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    return True

try:
    fit_all(measured(6), trials(SETTINGS[:2], FOLDS_OF_SIX), 0, 50_000, keep_going=pressed)
except KeyboardInterrupt:
    print("interrupted", next(steps) < 50_000)
"""


@pytest.mark.extended
def test_ctrl_c_ends_parallel_fits() -> None:
    """In a process of its own: it arrives in the main thread, which waits for the lanes."""
    child = subprocess.run(
        [sys.executable, "-c", CTRL_C], cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=120
    )
    assert child.stdout == "interrupted True\n", child.stderr


def test_stopped_fits_have_the_fewest_common_checks() -> None:
    request = itertools.count()
    result = fit_all(measured(6), trials(SETTINGS[:2], FOLDS_OF_SIX), 0, 300, keep_going=lambda: next(request) < 250)
    assert result.held_out.shape == (2, len(result.checks), 1)
    assert len(result.checks) >= 1


def test_a_fit_that_goes_on_was_the_shorter_one_by_then() -> None:
    """The learning rate falls as if there were all steps, however many are made."""
    setting = [Setting(2, 1.0, heights=True, relative=True)]
    short, long = (fit(measured(7), trials(setting, [np.array([3, 4])]), 0, steps) for steps in (100, 130))
    np.testing.assert_array_equal(short.held_out[:, 0], long.held_out[:, 0])
    assert (short.held_out[:, 0] != long.held_out[:, 1]).any()


def test_after_a_no_the_fit_is_what_it_is_by_then() -> None:
    setting, request = [Setting(2, 1.0, heights=True, relative=True)], iter([True] * 6 + [False])
    stopped = fit(measured(7), trials(setting, [np.array([3])]), 0, 50, keep_going=lambda: next(request))
    whole = fit(measured(7), trials(setting, [np.array([3])]), 0, 7)
    assert stopped.checks.tolist() == whole.checks.tolist() == [7]
    np.testing.assert_array_equal(stopped.coordinates, whole.coordinates)


@pytest.mark.parametrize("alphas", [(2.0, 2.0), (1.0, 1.5)])
def test_the_gradient_is_that_of_the_loss(alphas: tuple[float, float]) -> None:
    """Where a pair was not measured too, and for powers of which each is worked out in its own way."""
    drawn = np.triu(np.random.default_rng(0).lognormal(3.0, 1.0, (12, 12)), 1)
    drawn[2, 5] = np.nan
    settings = [Setting(3, alphas[0], True, True), Setting(2, alphas[1], False, False)]
    problem = Problem(observed(drawn + drawn.T), settings, FOLDS[:2], 20.0, "cpu")
    place, height = problem.start(torch.Generator().manual_seed(1))
    place.requires_grad_()
    height.requires_grad_()
    rows = torch.tensor([3, 0, 7])
    expected = torch.autograd.grad(problem.loss(place, height, rows).sum(), (place, height))
    result = problem.gradient(place.detach(), height.detach(), rows)
    for slope, other in zip(result, expected, strict=True):
        torch.testing.assert_close(slope, other, rtol=1e-4, atol=1e-5)
