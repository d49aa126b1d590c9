"""Equation 4.1 of the PLink thesis by Adam: many settings and many starts at once, as one batch of tensors.

Legend of shapes: B fits, N hosts, D dimensions (those of the largest setting; the others keep theirs at zero), R rows,
C checks, M pairs held out. Distances are in units of their median, so that one learning rate suits every network.

The loss is soft L1, ``delta^2 (sqrt(1 + (r / delta)^2) - 1)``: quadratic near zero as in the thesis, linear beyond, so
that a few delayed pairs do not bend the whole map. Where B N^2 is large a step looks at the distances of R hosts, drawn
anew each time, to all others: the gradient's noise dies out with the learning rate, and memory stays small.

Errors relative to what was measured give the near pairs the word, which are few and make the groups; but what was
measured too short counts for more than what was measured too long, which pulls all distances short. So every fit is
scaled in the end: the median of measured by fitted is one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plink.errors import UsageError
from plink.network import Matrix
from solvers.embedding.pairs import Integers
from solvers.embedding.settings import Setting
from solvers.prediction.observed import Observed

Floats = npt.NDArray[np.float64]
STEPS = 300
_CHECK_EVERY = 20
_FIRST_CHECK = 100  # before it the learning rate is too large for a held-out error to mean much
_RATE, _LAST_RATE = 0.1, 0.002
_DELTA = 0.3
_SAMPLED = 4000  # pairs that the scale is read off
_LEAST = 1e-3  # of the median: nearer than this two hosts are in one place; keeps the root's slope finite
_FLOOR = 1e-2  # of the median: what errors are relative to at least
_FIRST_HEIGHT = 0.05
_AT_ONCE = 1 << 18  # distances in one step: more no longer fit in a cache
_FEWEST_ROWS = 16


@dataclass(frozen=True)
class Fits:
    """B fits in microseconds: ``coordinates`` (B, N, D) in units in which ``||v_i - v_j||^alpha`` is microseconds,
    ``heights_us`` (B, N), ``loss`` (B,), the mean over the pairs fitted, ``checks`` (C,), numbers of steps, and
    ``held_out`` (B, C), the mean of ``|log(fitted / measured)|`` over the pairs held out, after so many."""

    coordinates: Floats
    heights_us: Floats
    loss: Floats
    checks: Integers
    held_out: Floats


def distances_us(coordinates: Floats, heights_us: Floats, alpha: float) -> Matrix:
    """``||v_i - v_j||^alpha + h_i + h_j``, shape (N, N), 0 on the diagonal; (N, D) and (N,) as in ``Fits``."""
    square = (coordinates**2).sum(axis=1)
    apart = np.maximum(square[:, None] + square - 2 * coordinates @ coordinates.T, 0.0)
    fitted = apart ** (alpha / 2) + heights_us[:, None] + heights_us
    np.fill_diagonal(fitted, 0.0)
    return np.asarray((fitted + fitted.T) / 2)


def log_error(fitted: Floats, measured: Floats, median: float) -> Floats:
    """``|log(fitted / measured)|``, any shape; what is below a hundredth of the ``median`` counts as that."""
    least = _FLOOR * median
    return np.asarray(np.abs(np.log(np.maximum(fitted, least) / np.maximum(measured, least))))


def median_us(pairs: Observed) -> float:
    """The unit of a network: the median of its positive distances, 1 where all are zero."""
    positive = pairs.rtt_us[pairs.rtt_us > 0]
    return float(np.median(positive)) if len(positive) else 1.0


def fit(
    pairs: Observed,
    settings: Sequence[Setting],
    held_out: Sequence[Integers],
    seed: int,
    steps: int = STEPS,
    device: str = "cpu",
    keep_going: Callable[[], bool] = lambda: True,
) -> Fits:
    """Fit ``settings``, B of them, each from a random start.

    :param held_out: for each of the B fits the places in ``pairs`` that it must not see, all of the same number M,
        which may be 0.
    :param steps: stop after so many; the learning rate falls as if there were ``STEPS``.
    :param device: as PyTorch names it.
    :param keep_going: asked at every step; once it says no, the fits are as they are.
    :raises UsageError: when the device cannot be used.
    """
    unit = median_us(pairs)
    problem = _Problem(pairs, settings, held_out, unit, device)
    generator = torch.Generator().manual_seed(seed)
    place, height = problem.start(generator)
    optimiser = torch.optim.Adam([place, height], lr=_RATE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS, eta_min=_LAST_RATE)
    rows = int(np.clip(_AT_ONCE // (len(settings) * pairs.n), min(_FEWEST_ROWS, pairs.n), pairs.n))
    everyone = torch.arange(pairs.n)
    checks: list[int] = []
    errors: list[Floats] = []
    for step in range(1, steps + 1):
        chosen = everyone if rows == pairs.n else torch.randperm(pairs.n, generator=generator)[:rows]
        optimiser.zero_grad()
        # The sum over fits keeps them independent of each other: Adam scales each coordinate by itself.
        (problem.loss(place, height, chosen.to(device)).sum() / rows).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        decay.step()
        with torch.no_grad():
            height.clamp_(min=0.0).mul_(problem.with_heights)
        stopped = not keep_going()
        if stopped or step == steps or (step >= _FIRST_CHECK and step % _CHECK_EVERY == 0):
            checks.append(step)
            errors.append(problem.held_out_error(place, height))
        if stopped:
            break
    with torch.no_grad():
        final = torch.zeros(len(settings), device=device)
        for part in torch.split(everyone, rows):
            final += problem.loss(place, height, part.to(device))
    scale = problem.scale(place, height)
    width = np.array([factor ** (1 / setting.alpha) for factor, setting in zip(scale * unit, settings, strict=True)])
    return Fits(
        place.detach().cpu().double().numpy() * width[:, None, None],
        height.detach().cpu().double().numpy() * (scale * unit)[:, None],
        final.cpu().double().numpy() / problem.fitted_entries,
        np.array(checks),
        np.stack(errors, axis=1),
    )


def _usable(device: str) -> torch.device:
    """:raises UsageError: when PyTorch does not know it or cannot use it here."""
    try:
        torch.zeros(1, device=device).item()
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"device {device!r}: PyTorch cannot use it here ({reason}); try cpu") from None


@dataclass(frozen=True)
class _Some:
    """Pairs ``i``, ``j`` and what was ``measured`` of them in units of the median, each of shape (B, M)."""

    i: Tensor
    j: Tensor
    measured: Floats


class _Problem:
    """The tensors of one batch: what was measured, which of it each fit sees, and what each setting means."""

    def __init__(
        self, pairs: Observed, settings: Sequence[Setting], held_out: Sequence[Integers], unit: float, device: str
    ) -> None:
        n, self.device = pairs.n, _usable(device)
        self._unit = unit
        self._dimensions = [setting.dimension for setting in settings]
        self._alphas = {setting.alpha for setting in settings}
        widest = max(self._dimensions)
        target = np.zeros((n, n), dtype=np.float32)
        target[pairs.i, pairs.j] = target[pairs.j, pairs.i] = pairs.rtt_us / unit
        folds = {fold.tobytes(): fold for fold in held_out}
        seen = np.zeros((len(folds), n, n), dtype=bool)
        for mask, fold in zip(seen, folds.values(), strict=True):
            left = np.ones(len(pairs), dtype=bool)
            left[fold] = False
            mask[pairs.i[left], pairs.j[left]] = mask[pairs.j[left], pairs.i[left]] = True
        number = {key: k for k, key in enumerate(folds)}
        self._target = self._tensor(target)
        self._seen = self._tensor(seen)
        self._fold = self._tensor(np.array([number[fold.tobytes()] for fold in held_out]))
        self.fitted_entries = float(2 * (len(pairs) - len(held_out[0])))
        self._alpha = self._tensor(np.array([setting.alpha for setting in settings], dtype=np.float32))
        self._relative = self._tensor(np.array([setting.relative for setting in settings]))[:, None, None]
        self.with_heights = self._tensor(np.array([[setting.heights] for setting in settings], dtype=np.float32))
        used = np.arange(widest) < np.array(self._dimensions)[:, None]
        self._used = self._tensor(used[:, None, :].astype(np.float32))
        self._held_out = self._some(pairs, np.stack(list(held_out)))
        shown = [np.setdiff1d(np.arange(len(pairs)), fold) for fold in folds.values()]
        every = max(1, len(shown[0]) // _SAMPLED)
        sampled = np.stack([np.random.default_rng(0).permutation(pairs_of)[::every] for pairs_of in shown])
        self._sampled = self._some(pairs, sampled[[number[fold.tobytes()] for fold in held_out]])

    def _tensor(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def start(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random coordinates, (B, N, D), about one unit from each other, and small heights, (B, N)."""
        fits, n = len(self._dimensions), self._target.shape[0]
        width = torch.tensor([(2.0 * dimension) ** -0.5 for dimension in self._dimensions])
        drawn = torch.randn(fits, n, max(self._dimensions), generator=generator) * width[:, None, None]
        place = (drawn.to(self.device) * self._used).requires_grad_()
        height = (torch.full((fits, n), _FIRST_HEIGHT, device=self.device) * self.with_heights).requires_grad_()
        return place, height

    def loss(self, place: Tensor, height: Tensor, rows: Tensor) -> Tensor:
        """The sum of the loss over the distances of ``rows``, shape (R,), to all hosts, shape (B,)."""
        target = self._target[rows]
        mine, square = place[:, rows], (place * place).sum(dim=2)
        apart = square[:, rows, None] + square[:, None, :] - 2 * mine @ place.transpose(1, 2)
        fitted = self._bent(apart, self._alpha[:, None, None]) + height[:, rows, None] + height[:, None, :]
        weight = torch.where(self._relative, 1 / target.clamp(min=_FLOOR), 1.0)
        off = (fitted - target) * weight / _DELTA
        robust = _DELTA**2 * ((1 + off * off).sqrt() - 1)
        return (robust * self._seen[:, rows][self._fold]).sum(dim=(1, 2))

    def held_out_error(self, place: Tensor, height: Tensor) -> Floats:
        """The mean of ``|log(fitted / measured)|`` over the pairs held out, shape (B,); NaN without any."""
        if not self._held_out.measured.size:
            return np.full(len(self._dimensions), np.nan)
        fitted = self._between(place, height, self._held_out) * self.scale(place, height)[:, None]
        return np.asarray(log_error(fitted, self._held_out.measured, 1.0).mean(axis=1))

    def scale(self, place: Tensor, height: Tensor) -> Floats:
        """By how much to multiply fitted distances, shape (B,): the median of measured by fitted, of pairs seen."""
        fitted = self._between(place, height, self._sampled)
        return np.asarray(np.median(np.maximum(self._sampled.measured, _LEAST) / np.maximum(fitted, _LEAST), axis=1))

    def _some(self, pairs: Observed, places: Integers) -> "_Some":
        return _Some(self._tensor(pairs.i[places]), self._tensor(pairs.j[places]), pairs.rtt_us[places] / self._unit)

    def _between(self, place: Tensor, height: Tensor, some: "_Some") -> Floats:
        with torch.no_grad():
            fit = torch.arange(len(place), device=self.device)[:, None]
            apart = place[fit, some.i] - place[fit, some.j]
            fitted = self._bent((apart * apart).sum(dim=2), self._alpha[:, None])
            fitted = fitted + height.gather(1, some.i) + height.gather(1, some.j)
        return np.asarray(fitted.cpu().double().numpy())

    def _bent(self, square: Tensor, alpha: Tensor) -> Tensor:
        """``d^alpha`` of squared distances; a general power takes several times as long as a root."""
        square = square.clamp(min=0.0) + _LEAST**2
        if self._alphas == {2.0}:
            return square
        if self._alphas <= {1.0, 2.0}:
            return torch.where(alpha == 2, square, square.sqrt())
        return square ** (alpha / 2)
