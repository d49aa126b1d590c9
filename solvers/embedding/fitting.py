"""Equation 4.1 of the PLink thesis by Adam: many settings and many starts at once, as one batch of tensors.

Legend of shapes: B fits, N hosts, D dimensions (those of the largest setting; the others keep theirs at zero), R rows,
M pairs held out, C checks. Distances are in units of their median, so that one learning rate suits every network.

Where B N^2 is large a step looks at the distances of R hosts, drawn anew each time, to all others: the gradient's noise
dies out with the learning rate, and memory stays small.

Two batches run side by side, each with one thread of PyTorch. PyTorch's own threads wait for each other by spinning, at
every one of some ten thousand small steps: where something else runs on one of the cores each wait lasts as long as the
scheduler leaves that something alone, and fitting 64 hosts took a minute instead of two seconds. Batches that never
meet lose what the others take and no more.

The loss is soft L1, ``delta^2 (sqrt(1 + (r / delta)^2) - 1)``: quadratic near zero as in the thesis, linear beyond, so
that a few delayed pairs do not bend the whole map. Its gradient is written out: found by PyTorch these small steps took
three times as long.

Errors relative to what was measured give the near pairs the word, which are few and make the groups; but what was
measured too short counts for more than what was measured too long, which pulls all distances short. So every fit is
scaled in the end: the median of measured by fitted is one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import shorten
from threading import Event
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plink.errors import UsageError
from plink.model.network import Matrix
from solvers.embedding.pairs import Integers, Setting
from solvers.prediction.observed import ObservedPairs

Floats = npt.NDArray[np.float64]
_DELTA = 0.3
_SCALE_PAIRS = 4000  # pairs by which the scale is computed
_MIN_DISTANCE = 1e-3  # of the median: hosts nearer than this are at one point; keeps the root's slope finite
_MIN_ERROR_SCALE = 1e-2  # of the median: the smallest distance that errors are relative to
_FIRST_HEIGHT = 0.05
STEPS = 300
_CHECK_PERIOD = 20
_FIRST_CHECK = 100  # before it the learning rate is too large for a held-out error to mean much
_RATE, _LAST_RATE = 0.1, 0.002
_BETAS, _TINY = (0.9, 0.999), 1e-8  # Adam's usual ones
_MAX_DISTANCES_PER_STEP = 1 << 18  # distances in one step: more no longer fit in a cache
_MIN_ROWS = 16
_WORKERS = 2  # always: what is found must not depend on how many cores there are


def log_error(fitted: Floats, measured: Floats, median: float) -> Floats:
    """Return ``|log(fitted / measured)|``, any shape; what is below a hundredth of the ``median`` counts as that."""
    least = _MIN_ERROR_SCALE * median
    return np.asarray(np.abs(np.log(np.maximum(fitted, least) / np.maximum(measured, least))))


def _usable(device: str) -> torch.device:
    """:raises UsageError: when PyTorch does not know it or cannot use it here."""
    try:
        torch.zeros(1, device=device).item()
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = shorten(str(error).strip().splitlines()[0], 60, placeholder=" ...")
        raise UsageError(f"device {device!r}: PyTorch cannot use it here ({reason}); try cpu") from None


@dataclass(frozen=True)
class _Some:
    """Pairs ``i``, ``j`` and what was ``measured`` of them in units of the median, each of shape (B, M)."""

    i: Tensor
    j: Tensor
    measured: Floats


class Problem:
    """The tensors of one batch: what was measured, which of it each fit sees, and what each setting means."""

    def __init__(
        self, pairs: ObservedPairs, settings: Sequence[Setting], held_out: Sequence[Integers], unit: float, device: str
    ) -> None:
        n, self.device = pairs.n, _usable(device)
        self._unit = unit
        self._dimensions = [setting.dimension for setting in settings]
        self._alphas = {setting.alpha for setting in settings}
        widest = max(self._dimensions)
        target = np.zeros((n, n), dtype=np.float32)
        target[pairs.i, pairs.j] = target[pairs.j, pairs.i] = pairs.rtt_us / unit
        # What an error counts for, 0 for pairs that are not seen: one matrix for all fits that agree on that.
        request = [(fold.tobytes(), setting.relative) for fold, setting in zip(held_out, settings, strict=True)]
        folds = {fold.tobytes(): fold for fold in held_out}
        kinds = {key: k for k, key in enumerate(dict.fromkeys(request))}
        weight = np.zeros((len(kinds), n, n), dtype=np.float32)
        for counts, (key, relative) in zip(weight, kinds, strict=True):
            unused = np.ones(len(pairs), dtype=bool)
            unused[folds[key]] = False
            i, j = pairs.i[unused], pairs.j[unused]
            counts[i, j] = counts[j, i] = (
                1 / np.maximum(target[i, j], _MIN_ERROR_SCALE) / _DELTA if relative else 1 / _DELTA
            )
        self._target = self._tensor(target)
        self._weights = self._tensor(weight)
        self._kind = self._tensor(np.array([kinds[key] for key in request]))
        self._everyone: Tensor | None = None
        self.fitted_entries = float(2 * (len(pairs) - len(held_out[0])))
        self._alpha = self._tensor(np.array([setting.alpha for setting in settings], dtype=np.float32))
        self.with_heights = self._tensor(np.array([[setting.heights] for setting in settings], dtype=np.float32))
        used = np.arange(widest) < np.array(self._dimensions)[:, None]
        self._used = self._tensor(used[:, None, :].astype(np.float32))
        self._held_out = self._some(pairs, np.stack(list(held_out)))
        shown = {key: np.setdiff1d(np.arange(len(pairs)), fold) for key, fold in folds.items()}
        every = max(1, (len(pairs) - len(held_out[0])) // _SCALE_PAIRS)
        sampled = {key: np.random.default_rng(0).permutation(seen)[::every] for key, seen in shown.items()}
        self._sampled = self._some(pairs, np.stack([sampled[fold.tobytes()] for fold in held_out]))

    def _tensor(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def start(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random coordinates, (B, N, D), about one unit from each other, and small heights, (B, N)."""
        fits, n = len(self._dimensions), self._target.shape[0]
        width = torch.tensor([(2.0 * dimension) ** -0.5 for dimension in self._dimensions])
        drawn = torch.randn(fits, n, max(self._dimensions), generator=generator) * width[:, None, None]
        return drawn.to(self.device) * self._used, torch.full((fits, n), _FIRST_HEIGHT, device=self.device) * (
            self.with_heights
        )

    def loss(self, place: Tensor, height: Tensor, rows: Tensor) -> Tensor:
        """Return the sum of the loss over the distances of ``rows``, shape (R,), to all hosts, shape (B,)."""
        off, _ = self._off(place, height, rows, self._weight(rows))
        return ((1 + off * off).sqrt() - 1).sum(dim=(1, 2)) * _DELTA**2

    def gradient(self, place: Tensor, height: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return by how much the loss of ``rows`` grows with each coordinate, (B, N, D), and each height, (B, N)."""
        weight = self._weight(rows)
        off, slope = self._off(place, height, rows, weight)
        by_distance = (weight * off).div_((off * off).add_(1).sqrt_()).mul_(_DELTA**2)
        pull = slope.mul_(by_distance).mul_(2)
        own_place = place[:, rows]
        of_rows = pull.sum(dim=2)[:, :, None] * own_place - pull @ place
        heights_of_rows = by_distance.sum(dim=2)
        if len(rows) == len(self._target):  # each pair counts once from either end
            return of_rows.mul_(2), heights_of_rows.mul_(2)
        by_place = pull.sum(dim=1)[:, :, None] * place - pull.transpose(1, 2) @ own_place
        by_height = by_distance.sum(dim=1)
        by_place[:, rows] += of_rows
        by_height[:, rows] += heights_of_rows
        return by_place, by_height

    def _off(self, place: Tensor, height: Tensor, rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the errors of the distances of ``rows`` to all hosts, over delta.

        Also by how much they grow with the squares of the distances; both (B, R, N).
        """
        square = (place * place).sum(dim=2)
        apart = torch.baddbmm(square[:, None, :], place[:, rows], place.transpose(1, 2), alpha=-2)
        apart = apart.add_(square[:, rows, None]).clamp_(min=0.0).add_(_MIN_DISTANCE**2)
        bent = self._bent(apart, self._alpha[:, None, None])
        slope = (bent / apart).mul_(self._alpha[:, None, None] / 2)
        off = (bent + height[:, None, :]).add_(height[:, rows, None]).sub_(self._target[rows])
        return off.mul_(weight), slope

    def _weight(self, rows: Tensor) -> Tensor:
        """Return what errors count for, over delta, (B, R, N); kept where all rows are looked at."""
        if len(rows) < len(self._target):
            return self._weights[:, rows][self._kind]
        if self._everyone is None:
            self._everyone = self._weights[self._kind]
        return self._everyone

    def held_out_error(self, place: Tensor, height: Tensor) -> Floats:
        """Return the ``|log(fitted / measured)|`` of the pairs held out, shape (B, M)."""
        if not self._held_out.measured.size:
            return np.full(len(self._dimensions), np.nan)
        fitted = self._between(place, height, self._held_out) * self.scale(place, height)[:, None]
        return log_error(fitted, self._held_out.measured, 1.0)

    def scale(self, place: Tensor, height: Tensor) -> Floats:
        """Return the factor of fitted distances, shape (B,): the median of measured by fitted, of pairs seen."""
        fitted = self._between(place, height, self._sampled)
        return np.asarray(
            np.median(np.maximum(self._sampled.measured, _MIN_DISTANCE) / np.maximum(fitted, _MIN_DISTANCE), axis=1)
        )

    def _some(self, pairs: ObservedPairs, places: Integers) -> "_Some":
        return _Some(self._tensor(pairs.i[places]), self._tensor(pairs.j[places]), pairs.rtt_us[places] / self._unit)

    def _between(self, place: Tensor, height: Tensor, some: "_Some") -> Floats:
        fit = torch.arange(len(place), device=self.device)[:, None]
        apart = place[fit, some.i] - place[fit, some.j]
        fitted = self._bent((apart * apart).sum(dim=2) + _MIN_DISTANCE**2, self._alpha[:, None])
        fitted = fitted + height.gather(1, some.i) + height.gather(1, some.j)
        return np.asarray(fitted.cpu().double().numpy())

    def _bent(self, square: Tensor, alpha: Tensor) -> Tensor:
        """Return ``d^alpha`` of squared distances, none of them 0; a root is several times as fast as a power."""
        if self._alphas == {2.0}:
            return square
        if self._alphas <= {1.0, 2.0}:
            return torch.where(alpha == 2, square, square.sqrt())
        return square ** (alpha / 2)


@dataclass(frozen=True)
class Fits:
    """B fits in microseconds.

    ``coordinates`` (B, N, D) in units in which ``||v_i - v_j||^alpha`` is microseconds, ``heights_us`` (B, N), ``loss``
    (B,), the mean over the pairs fitted, ``checks`` (C,), numbers of steps, and ``held_out`` (B, C, M), the
    ``|log(fitted / measured)|`` of each pair held out, after so many.
    """

    coordinates: Floats
    heights_us: Floats
    loss: Floats
    checks: Integers
    held_out: Floats


def distances_us(coordinates: Floats, heights_us: Floats, alpha: float) -> Matrix:
    """Return ``||v_i - v_j||^alpha + h_i + h_j``, shape (N, N), 0 on the diagonal; (N, D) and (N,) as in ``Fits``."""
    square = (coordinates**2).sum(axis=1)
    apart = np.maximum(square[:, None] + square - 2 * coordinates @ coordinates.T, 0.0)
    fitted = apart ** (alpha / 2) + heights_us[:, None] + heights_us
    np.fill_diagonal(fitted, 0.0)
    return np.asarray((fitted + fitted.T) / 2)


def median_us(pairs: ObservedPairs) -> float:
    """Return the unit of a network: the median of its positive distances, 1 where all are zero."""
    positive = pairs.rtt_us[pairs.rtt_us > 0]
    return float(np.median(positive)) if len(positive) else 1.0


class Trial(NamedTuple):
    """One fit; ``held_out``, shape (M,): places among the pairs that it must not see."""

    setting: Setting
    held_out: Integers


def fit(
    pairs: ObservedPairs,
    trials: Sequence[Trial],
    seed: int,
    steps: int = STEPS,
    device: str = "cpu",
    keep_going: Callable[[], bool] = lambda: True,
) -> Fits:
    """Fit ``trials``, B of them, each from a random start.

    :param trials: all hold the same number M of pairs out, which may be 0.
    :param steps: stop after so many; the learning rate falls as if there were ``STEPS``.
    :param device: as PyTorch names it.
    :param keep_going: asked at every step; once it says no, the fits are as they are.
    :raises UsageError: when the device cannot be used.
    """
    unit, settings = median_us(pairs), [trial.setting for trial in trials]
    problem = Problem(pairs, settings, [trial.held_out for trial in trials], unit, device)
    generator = torch.Generator().manual_seed(seed)
    place, height = problem.start(generator)
    moments = [_Adam(place), _Adam(height)]
    rows = int(np.clip(_MAX_DISTANCES_PER_STEP // (len(settings) * pairs.n), min(_MIN_ROWS, pairs.n), pairs.n))
    everyone = torch.arange(pairs.n)
    checks: list[int] = []
    errors: list[Floats] = []
    for step in range(1, steps + 1):
        chosen = everyone if rows == pairs.n else torch.randperm(pairs.n, generator=generator)[:rows]
        rate = _LAST_RATE + (_RATE - _LAST_RATE) * (1 + math.cos(math.pi * (step - 1) / STEPS)) / 2
        # The loss is the sum over fits, which keeps them apart: Adam scales each coordinate by itself.
        for moment, gradient in zip(moments, problem.gradient(place, height, chosen.to(device)), strict=True):
            moment.step(gradient.div_(rows), step, rate)
        height.clamp_(min=0.0).mul_(problem.with_heights)
        stopped = not keep_going()
        if stopped or step == steps or (step >= _FIRST_CHECK and step % _CHECK_PERIOD == 0):
            checks.append(step)
            errors.append(problem.held_out_error(place, height))
        if stopped:
            break
    final = torch.zeros(len(settings), device=device)
    for part in torch.split(everyone, rows):
        final += problem.loss(place, height, part.to(device))
    scale = problem.scale(place, height)
    width = np.array([factor ** (1 / setting.alpha) for factor, setting in zip(scale * unit, settings, strict=True)])
    return Fits(
        place.cpu().double().numpy() * width[:, None, None],
        height.cpu().double().numpy() * (scale * unit)[:, None],
        final.cpu().double().numpy() / problem.fitted_entries,
        np.array(checks),
        np.stack(errors, axis=1),
    )


class _Adam:
    """Kingma and Ba 2015, algorithm 1, of one tensor, in place."""

    def __init__(self, values: Tensor) -> None:
        self._values, self._mean, self._square = values, torch.zeros_like(values), torch.zeros_like(values)

    def step(self, gradient: Tensor, number: int, rate: float) -> None:
        """Return the step of this ``number``, from 1 on."""
        first, second = _BETAS
        self._mean.lerp_(gradient, 1 - first)
        self._square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        usual = (self._square / (1 - second**number)).sqrt_().add_(_TINY)
        self._values.addcdiv_(self._mean, usual, value=-rate / (1 - first**number))


def fit_all(
    pairs: ObservedPairs,
    trials: Sequence[Trial],
    seed: int,
    steps: int = STEPS,
    device: str = "cpu",
    keep_going: Callable[[], bool] = lambda: True,
) -> Fits:
    """:func:`solvers.embedding.fitting.fit`, faster; a GPU takes all fits as one batch."""
    workers = 1 if device != "cpu" else min(_WORKERS, len(trials))
    stopped = Event()

    def fit_part(k: int) -> Fits:
        going = lambda: keep_going() and not stopped.is_set()  # noqa: E731
        own = _WORKERS * seed + k  # no other seed's thread draws the same
        return fit(pairs, trials[k::workers], own, steps, device, going)

    with _single_thread(), ThreadPoolExecutor(workers) as pool:
        try:
            parts = list(pool.map(fit_part, range(workers)))
        except BaseException:
            stopped.set()  # Ctrl-C: the pool waits for its threads
            raise
    checks = min(len(part.checks) for part in parts)  # a thread that was stopped may have come less far
    order = np.argsort(np.concatenate([np.arange(len(trials))[k::workers] for k in range(workers)]))
    return Fits(
        np.concatenate([_padded(part.coordinates, parts) for part in parts])[order],
        np.concatenate([part.heights_us for part in parts])[order],
        np.concatenate([part.loss for part in parts])[order],
        parts[0].checks[:checks],
        np.concatenate([part.held_out[:, :checks] for part in parts])[order],
    )


def _padded(coordinates: Floats, parts: Sequence[Fits]) -> Floats:
    """Pad with zeros up to the largest dimension of all parts."""
    widest = max(part.coordinates.shape[2] for part in parts)
    return np.pad(coordinates, ((0, 0), (0, 0), (0, widest - coordinates.shape[2])))


@contextmanager
def _single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
