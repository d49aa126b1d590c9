"""Equation 4.1 of the PLink thesis as tensors: the loss of many fits at once, and how it falls.

Legend of shapes: B fits, N hosts, D dimensions (those of the largest setting; the others keep theirs at zero), R rows,
M pairs held out. Distances are in units of their median, so that one learning rate suits every network.

The loss is soft L1, ``delta^2 (sqrt(1 + (r / delta)^2) - 1)``: quadratic near zero as in the thesis, linear beyond, so
that a few delayed pairs do not bend the whole map. Its gradient is written out: found by PyTorch these small steps took
three times as long.

Errors relative to what was measured give the near pairs the word, which are few and make the groups; but what was
measured too short counts for more than what was measured too long, which pulls all distances short. So every fit is
scaled in the end: the median of measured by fitted is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plink.errors import UsageError
from solvers.embedding.pairs import Integers, Setting
from solvers.prediction.observed import ObservedPairs

Floats = npt.NDArray[np.float64]
_DELTA = 0.3
_SCALE_PAIRS = 4000  # pairs by which the scale is computed
_MIN_DISTANCE = 1e-3  # of the median: hosts nearer than this are at one point; keeps the root's slope finite
_MIN_ERROR_SCALE = 1e-2  # of the median: the smallest distance that errors are relative to
_FIRST_HEIGHT = 0.05


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
