"""Equation 4.1 of the PLink thesis by Adam: many settings and many starts at once, as one batch of tensors.

Legend of shapes: as in :mod:`solvers.embedding.problem`, and C checks.

Where B N^2 is large a step looks at the distances of R hosts, drawn anew each time, to all others: the gradient's noise
dies out with the learning rate, and memory stays small.

Many fits on two cores: two batches side by side, each with one thread of PyTorch.

PyTorch's own threads wait for each other by spinning, at every one of some ten thousand small steps: where something
else runs on one of the cores each wait lasts as long as the scheduler leaves that something alone, and fitting 64 hosts
took a minute instead of two seconds. Batches that never meet lose what the others take and no more.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plink.model.network import Matrix
from solvers.embedding.pairs import Integers, Setting
from solvers.embedding.problem import Problem
from solvers.prediction.observed import ObservedPairs

Floats = npt.NDArray[np.float64]
STEPS = 300
_CHECK_PERIOD = 20
_FIRST_CHECK = 100  # before it the learning rate is too large for a held-out error to mean much
_RATE, _LAST_RATE = 0.1, 0.002
_BETAS, _TINY = (0.9, 0.999), 1e-8  # Adam's usual ones
_MAX_DISTANCES_PER_STEP = 1 << 18  # distances in one step: more no longer fit in a cache
_MIN_ROWS = 16
_WORKERS = 2  # always: what is found must not depend on how many cores there are


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
