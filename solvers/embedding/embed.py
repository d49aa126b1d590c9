"""An embedding of a measured network: settings chosen by what they say of pairs they have not seen, then all pairs.

Chosen is the setting with the least held-out error, or one that is as good as far as can be told, and the number of
steps at which its error was least (early stopping).
The fit itself sees all pairs; of several random starts the one with the least loss is kept.

Pairs that were not measured are predicted by the fit, or by near hosts where these say more of the pairs held out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix, symmetrised
from solvers.embedding.fitting import STEPS, Fits, Trial, distances_us, fit_all, log_error, median_us
from solvers.embedding.pairs import EmbeddingConstraints, Integers, Setting, folds, reachable
from solvers.prediction.observed import ObservedPairs, by_neighbours

Floats = npt.NDArray[np.float64]
_STARTS = 4
_REFIT_STARTS = 2
_DOUBT_SIGMAS = 2.0  # standard errors
_NEIGHBOURS_PER_END = (3, 6, 12)
_COMPARED_FOLDS = 3  # by which neighbours are compared with the fit
_THIRD_HOSTS = 256  # drawn when there are more: all N^3 triangles would say the same


@dataclass(frozen=True)
class Embedding:
    """N hosts in D dimensions.

    ``coordinates``, shape (N, D), centred, in units in which ``||v_i - v_j||^alpha`` is microseconds; ``heights_us``,
    shape (N,), zeros where none were fitted; ``fitted_us``, shape (N, N), symmetric, 0 on the diagonal: all of them NaN
    for the hosts ``left_out``, of which nothing was measured. ``setting``: what was fitted; ``tried``: how many
    settings it was chosen from. ``unmeasured_by``: what ``fitted_us`` has for pairs that were not measured: the fit, or
    what near hosts measured. ``held_out_error``: the mean of ``|log(fitted / measured)|`` over pairs it had not seen
    (0.1 is about 10 %), by what predicts unmeasured ones; a little flattered, for the setting was chosen by it.
    ``loss``: of the fit, the mean over all pairs. ``steps``: of Adam. ``triangle_violations``: the share of detours
    shorter than the straight way in what was measured.
    """

    coordinates: Floats
    heights_us: Floats
    fitted_us: Matrix
    setting: Setting
    held_out_error: float
    loss: float
    steps: int
    tried: int
    triangle_violations: float
    left_out: tuple[int, ...]
    unmeasured_by: Literal["fit", "neighbours"] = "fit"

    @property
    def dimension(self) -> int:
        """Of the space the hosts were placed in."""
        return self.setting.dimension

    @property
    def alpha(self) -> float:
        """The power of the distance."""
        return self.setting.alpha


def embed(
    measured_us: Matrix,
    constraints: EmbeddingConstraints | None = None,
    seed: int = 0,
    device: str = "cpu",
    keep_going: Callable[[], bool] = lambda: True,
    names: Sequence[str] | None = None,
) -> Embedding:
    """Place the hosts of ``measured_us``, shape (N, N), round trips in microseconds, NaN where unmeasured.

    The same seed gives the same embedding on the same machine.

    :param device: as PyTorch names it, ``cpu`` or ``cuda``.
    :param keep_going: asked at every step; after a no the fit is what it is by then.
    :param names: of the hosts, for errors.
    :raises UsageError: when a constraint is out of range, or the device cannot be used.
    :raises NoAnswer: when fewer than four hosts have measured pairs, or too few pairs say where they lie.
    """
    result = reachable(measured_us, names)
    settings = (constraints or EmbeddingConstraints()).settings(result.pairs.n)
    setting, steps, error = _chosen(result.pairs, settings, seed, device, keep_going)
    fits, best = _placed(result.pairs, _starts(setting, _STARTS), seed, steps, device, keep_going)
    n = len(measured_us)
    place = fits.coordinates[best] - fits.coordinates[best].mean(axis=0)
    coordinates, heights = np.full((n, setting.dimension), np.nan), np.full(n, np.nan)
    coordinates[result.hosts], heights[result.hosts] = place, fits.heights_us[best]
    fitted = _distances(n, result.hosts, fits, best, setting)
    unmeasured_by: Literal["fit", "neighbours"] = "fit"
    rtt = symmetrised(measured_us)
    i, j = np.nonzero(np.triu(np.isnan(rtt) & np.isfinite(fitted), 1))
    if len(i):
        # Drawn anew: of the pairs that the setting was chosen by the fit has a flattered error.
        trials = [Trial(setting, held_out_of(result.pairs, seed, number)) for number in range(_COMPARED_FOLDS)]
        by_fit = fit_all(result.pairs, trials, seed, steps, device, keep_going).held_out[:, -1]
        per_end, by_near = _best_neighbours(result.pairs, [trial.held_out for trial in trials], by_fit)
        if by_near < by_fit.mean():
            near, unmeasured_by, error = by_neighbours(rtt, i, j, per_end), "neighbours", by_near
            fitted[i, j] = fitted[j, i] = np.where(np.isnan(near), fitted[i, j], near)
    return Embedding(
        coordinates,
        heights,
        fitted,
        setting,
        error,
        float(fits.loss[best]),
        int(fits.checks[-1]),
        len(settings),
        triangle_violations(symmetrised(measured_us), seed),
        tuple(int(host) for host in np.setdiff1d(np.arange(n), result.hosts)),
        unmeasured_by,
    )


def refitted(measured_us: Matrix, like: Embedding, seed: int = 0, device: str = "cpu") -> Matrix:
    """Return fitted distances of other measurements of the same hosts, shape (N, N).

    NaN for hosts that cannot be placed. Setting and steps are those chosen for ``like``, which saves most of the time.

    :raises NoAnswer: as :func:`embed`.
    """
    result = reachable(measured_us)
    fits, best = _placed(result.pairs, _starts(like.setting, _REFIT_STARTS), seed, like.steps, device, lambda: True)
    return _distances(len(measured_us), result.hosts, fits, best, like.setting)


def _starts(setting: Setting, number: int) -> list[Trial]:
    return [Trial(setting, np.empty(0, dtype=np.intp))] * number


def _placed(
    pairs: ObservedPairs, starts: list[Trial], seed: int, steps: int, device: str, keep_going: Callable[[], bool]
) -> tuple[Fits, int]:
    """Fits of all pairs from several starts, and which has the least loss."""
    fits = fit_all(pairs, starts, seed, steps, device, keep_going)
    return fits, int(np.argmin(fits.loss))


def _distances(n: int, hosts: Integers, fits: Fits, best: int, setting: Setting) -> Matrix:
    fitted = np.full((n, n), np.nan)
    fitted[np.ix_(hosts, hosts)] = distances_us(fits.coordinates[best], fits.heights_us[best], setting.alpha)
    return fitted


def _chosen(
    pairs: ObservedPairs, settings: list[Setting], seed: int, device: str, keep_going: Callable[[], bool]
) -> tuple[Setting, int, float]:
    """Return the setting, how many steps it takes, and its held-out error then.

    Of settings that cannot be told from the best one, by two standard errors of the difference, the most expressive.
    """
    held_out = folds(pairs, np.random.default_rng(seed))
    trials = [Trial(setting, fold) for setting in settings for fold in held_out]
    fits = fit_all(pairs, trials, seed, STEPS, device, keep_going)
    error = fits.held_out.reshape(len(settings), len(held_out), len(fits.checks), -1)
    mean = error.mean(axis=(1, 3))
    check = mean.argmin(axis=1)
    each = error[np.arange(len(settings)), :, check].reshape(len(settings), -1)
    best = int(mean.min(axis=1).argmin())
    behind = each - each[best]
    doubt = _DOUBT_SIGMAS * behind.std(axis=1) / np.sqrt(behind.shape[1])
    alike = np.flatnonzero(behind.mean(axis=1) <= doubt)
    # Relative errors and more dimensions leave the few near pairs their place, which all pairs together say little of.
    chosen = max(alike.tolist(), key=lambda k: (settings[k].relative, settings[k].dimension, -mean[k, check[k]]))
    return settings[chosen], int(fits.checks[check[chosen]]), float(mean[chosen, check[chosen]])


def _best_neighbours(pairs: ObservedPairs, held_out: list[Integers], by_fit: Floats) -> tuple[int, float]:
    """Return how many near hosts of each end predict the pairs held out best, and their mean error; of a pair that none
    of them measured it is that of the fit, ``by_fit``, shape (F, M)."""
    errors = dict.fromkeys(_NEIGHBOURS_PER_END, 0.0)
    for fold, fold_by_fit in zip(held_out, by_fit, strict=True):
        rest = np.full((pairs.n, pairs.n), np.nan)
        rest[pairs.i, pairs.j] = rest[pairs.j, pairs.i] = pairs.rtt_us
        i, j = pairs.i[fold], pairs.j[fold]
        rest[i, j] = rest[j, i] = np.nan
        for per_end in _NEIGHBOURS_PER_END:
            near = log_error(by_neighbours(rest, i, j, per_end), pairs.rtt_us[fold], median_us(pairs))
            errors[per_end] += float(np.where(np.isnan(near), fold_by_fit, near).mean()) / len(held_out)
    best = min(errors, key=lambda per_end: errors[per_end])
    return best, errors[best]


def held_out_of(pairs: ObservedPairs, seed: int, number: int = 0) -> Integers:
    """Draw the pairs to validate an embedding on, otherwise than those its setting is chosen by."""
    return folds(pairs, np.random.default_rng((seed, 1 + number)))[0]


def triangle_violations(rtt_us: Matrix, seed: int = 0) -> float:
    """Return the share of (i, j; k), i < j, all three pairs measured, with ``p_ij > p_ik + p_kj``; NaN without any.

    :param rtt_us: shape (N, N), symmetric, NaN where unmeasured.
    :param seed: which hosts k are looked at where there are more than 256.
    """
    n = len(rtt_us)
    far = np.where(np.eye(n, dtype=bool), np.nan, rtt_us)
    third = np.arange(n) if n <= _THIRD_HOSTS else np.random.default_rng(seed).permutation(n)[:_THIRD_HOSTS]
    worse = total = 0
    for k in third:
        detour = far[:, k][:, None] + far[k]
        both = np.isfinite(detour) & np.isfinite(far)
        total += int(both.sum())
        worse += int((both & (far > detour)).sum())
    return worse / total if total else float("nan")
