"""Equation 4.1 against a second, slower way to fit it: Adam as in the paper, gradients by PyTorch; and its lanes."""

import itertools
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import solvers.embedding.fitting
from solvers.embedding.fitting import Fits, Problem, Trial, distances_us, fit, fit_all, log_error, median_us
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


def seen(pairs: ObservedPairs, held_out: np.ndarray) -> np.ndarray:
    """The places of the pairs that are not held out."""
    return np.setdiff1d(np.arange(len(pairs)), held_out)


def off(pairs: ObservedPairs, places: np.ndarray, unit: float, place: torch.Tensor, height: torch.Tensor,
        alpha: float) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Fitted and measured distances of some pairs, in units."""
    i, j = torch.from_numpy(pairs.i[places]), torch.from_numpy(pairs.j[places])
    square = ((place[i] - place[j]) ** 2).sum(dim=1) + LEAST**2
    return square ** (alpha / 2) + height[i] + height[j], torch.from_numpy(pairs.rtt_us[places] / unit)


def loss(fitted: torch.Tensor, true: torch.Tensor, relative: bool) -> torch.Tensor:
    """Of each pair: ``delta^2 (sqrt(1 + (r / delta)^2) - 1)``."""
    error = (fitted - true) / (true.clamp(min=FLOOR) if relative else 1.0)
    return DELTA**2 * ((1 + (error / DELTA) ** 2).sqrt() - 1)


def by_hand(pairs: ObservedPairs, settings: list[Setting], held_out: list[np.ndarray], seed: int, steps: int) -> Fits:
    """What :func:`fit` documents, one setting after the other; only where it begins is taken from there."""
    unit = float(np.median(pairs.rtt_us[pairs.rtt_us > 0]))
    begun = Problem(pairs, settings, held_out, unit, "cpu").start(torch.Generator().manual_seed(seed))
    result = []
    for setting, fold, first, high in zip(settings, held_out, *begun, strict=True):
        place = first.double().clone().requires_grad_()
        height = high.double().clone().requires_grad_()
        mean, square = ([torch.zeros_like(values) for values in (place, height)] for _ in range(2))
        for step in range(1, steps + 1):
            rate = 0.002 + 0.098 * (1 + math.cos(math.pi * (step - 1) / 300)) / 2
            error = loss(*off(pairs, seen(pairs, fold), unit, place, height, setting.alpha), setting.relative)
            # From either end, and the mean over the hosts.
            slopes = torch.autograd.grad(error.sum() * 2 / pairs.n, (place, height))
            with torch.no_grad():
                for k, (values, slope) in enumerate(zip((place, height), slopes, strict=True)):
                    mean[k] = 0.9 * mean[k] + 0.1 * slope
                    square[k] = 0.999 * square[k] + 0.001 * slope**2
                    values -= rate * (mean[k] / (1 - 0.9**step)) / ((square[k] / (1 - 0.999**step)).sqrt() + 1e-8)
                height.clamp_(min=0.0).mul_(float(setting.heights))
        with torch.no_grad():
            fitted, true = off(pairs, seen(pairs, fold), unit, place, height, setting.alpha)
            scale = float(np.median(true.numpy() / fitted.numpy()))
            kept_out, unseen = off(pairs, fold, unit, place, height, setting.alpha)
            result.append((
                place.numpy() * (scale * unit) ** (1 / setting.alpha), height.numpy() * scale * unit,
                float(loss(fitted, true, setting.relative).mean()),
                np.abs(np.log(np.maximum(scale * kept_out.numpy(), FLOOR) / np.maximum(unseen.numpy(), FLOOR)))[None],
            ))  # fmt: skip
    coordinates, heights, losses, errors = (np.array(values) for values in zip(*result, strict=True))
    return Fits(coordinates, heights, losses, np.array([steps]), errors)


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


@pytest.mark.parametrize(("steps", "alphas"), [(1, (2.0, 2.0)), (12, (1.0, 2.0)), (12, (1.5, 1.2))])
def test_a_batch_of_fits_is_what_adam_makes_of_each_of_them(steps: int, alphas: tuple[float, float]) -> None:
    pairs = measured(9)
    settings = [
        Setting(item.dimension, alphas[k % 2], item.heights, item.relative) for k, item in enumerate(SETTINGS)
    ]  # fmt: skip
    result, expected = fit(pairs, trials(settings, FOLDS), 5, steps), by_hand(pairs, settings, FOLDS, 5, steps)
    np.testing.assert_allclose(result.coordinates, expected.coordinates, rtol=5e-3, atol=0.1)
    np.testing.assert_allclose(result.heights_us, expected.heights_us, rtol=5e-3, atol=0.1)
    np.testing.assert_allclose(result.loss, expected.loss, rtol=1e-3)
    np.testing.assert_allclose(result.held_out, expected.held_out, rtol=2e-3, atol=1e-3)
    assert result.checks.tolist() == [steps]


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


@pytest.mark.parametrize(("hosts", "alpha", "within"), [(8, 1.3, 1e-4), (131, 2.0, 0.05)])
def test_half_of_the_pairs_seen_are_fitted_too_long(hosts: int, alpha: float, within: float) -> None:
    """The median of measured by fitted is one; of 8,515 pairs every other one is looked at for it."""
    pairs = measured(hosts)
    setting, fold = Setting(2, alpha, heights=True, relative=True), np.arange(3)
    result = fit(pairs, [Trial(setting, fold)], 0, 6)
    fitted = distances_us(result.coordinates[0], result.heights_us[0], alpha)[pairs.i, pairs.j][seen(pairs, fold)]
    assert np.median(pairs.rtt_us[seen(pairs, fold)] / fitted) == pytest.approx(1.0, rel=within)


def test_looking_at_some_rows_at_a_time_comes_to_the_same_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the batch is too large to look at all of it: 16 of 24 hosts, drawn anew each time."""
    place = np.random.default_rng(1).uniform(0, 100, (24, 2))
    true = np.linalg.norm(place[:, None] - place, axis=2)
    pairs, setting = observed(true), Setting(2, 1.0, heights=True, relative=True)
    monkeypatch.setattr(solvers.embedding.fitting, "_MAX_DISTANCES_PER_STEP", 1)
    result = fit(pairs, [Trial(setting, NOTHING)] * 3, 0)
    best = int(result.loss.argmin())
    fitted = distances_us(result.coordinates[best], result.heights_us[best], 1.0)
    assert np.median(np.abs(fitted - true)[pairs.i, pairs.j] / true[pairs.i, pairs.j]) < 0.03
    assert result.loss[best] < 0.001
    monkeypatch.setattr(solvers.embedding.fitting, "_MAX_DISTANCES_PER_STEP", 3 * 24 * 24)
    whole = fit(pairs, [Trial(setting, NOTHING)] * 3, 0)
    np.testing.assert_allclose(whole.loss.min(), result.loss.min(), atol=0.001)


def test_distances_are_powers_of_those_in_space_and_both_heights() -> None:
    rng = np.random.default_rng(2)
    place, height = rng.normal(size=(7, 3)), rng.uniform(0, 2, 7)
    for alpha in (1.0, 1.5, 2.0):
        result = distances_us(place, height, alpha)
        for i, j in itertools.product(range(7), repeat=2):
            there = math.dist(place[i], place[j]) ** alpha + height[i] + height[j] if i != j else 0.0
            assert result[i, j] == pytest.approx(there, abs=1e-6)


def test_the_unit_is_the_median_of_what_takes_any_time() -> None:
    rtt = np.array([[0, 0, 2], [0, 0, 7], [2, 7, 0.0]])
    assert median_us(observed(rtt)) == 4.5
    assert median_us(observed(np.zeros((3, 3)))) == 1.0
    assert median_us(observed(np.full((3, 3), np.nan))) == 1.0


def test_errors_are_logarithms_of_what_is_above_a_hundredth_of_the_median() -> None:
    fitted, true = np.array([20.0, 5.0, 0.0, 10.0, 0.5]), np.array([10.0, 10.0, 10.0, 0.0, 0.2])
    log = math.log
    assert log_error(fitted, true, 100.0) == pytest.approx([log(2), log(2), log(10), log(10), 0.0])


@pytest.mark.parametrize("rows", [[3, 0, 7], list(range(9))])
def test_loss_and_gradient_of_some_rows(rows: list[int]) -> None:
    """Of their pairs to all hosts, so that a pair of two such rows counts twice; pairs held out count nothing. The
    gradient that is written out is the one that PyTorch works out."""
    pairs = measured(9)
    unit = median_us(pairs)
    problem = Problem(pairs, SETTINGS, FOLDS, unit, "cpu")
    place, height = problem.start(torch.Generator().manual_seed(1))
    place.requires_grad_()
    height.requires_grad_()
    result = problem.loss(place, height, torch.tensor(rows))
    expected = torch.autograd.grad(result.sum(), (place, height))
    place, height = place.detach(), height.detach()
    for slope, other in zip(problem.gradient(place, height, torch.tensor(rows)), expected, strict=True):
        torch.testing.assert_close(slope, other, rtol=1e-4, atol=1e-5)
    for k, (setting, fold) in enumerate(zip(SETTINGS, FOLDS, strict=True)):
        remaining = seen(pairs, fold)
        single = loss(
            *off(pairs, remaining, unit, place[k].double(), height[k].double(), setting.alpha), setting.relative
        ).numpy()
        times = np.isin(pairs.i[remaining], rows).astype(int) + np.isin(pairs.j[remaining], rows)
        assert float(result[k].detach()) == pytest.approx(float((single * times).sum()), rel=1e-4)


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
