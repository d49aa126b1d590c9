"""An embedding of a measured network: settings chosen by what they say of pairs they have not seen, then all pairs.

Chosen is the setting with the least held-out error, or one that is as good as far as can be told, and the number of
steps at which its error was least (early stopping).
The fit itself sees all pairs; of several random starts the one with the least loss is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix, symmetrised
from solvers.embedding.fitting import STEPS, Fits, Trial, distances_us
from solvers.embedding.pairs import Integers, folds, reachable
from solvers.embedding.parallel import fit_all
from solvers.embedding.settings import EmbeddingConstraints, Setting
from solvers.embedding.triangles import triangle_violations
from solvers.prediction.observed import ObservedPairs

Floats = npt.NDArray[np.float64]
_STARTS = 4
_REFIT_STARTS = 2
_DOUBT_SIGMAS = 2.0  # standard errors


@dataclass(frozen=True)
class Embedding:
    """N hosts in D dimensions.

    ``coordinates``, shape (N, D), centred, in units in which ``||v_i - v_j||^alpha`` is microseconds; ``heights_us``,
    shape (N,), zeros where none were fitted; ``fitted_us``, shape (N, N), symmetric, 0 on the diagonal: all of them NaN
    for the hosts ``left_out``, of which nothing was measured. ``setting``: what was fitted; ``tried``: how many
    settings it was chosen from. ``held_out_error``: the mean of ``|log(fitted / measured)|`` over pairs it had not seen
    (0.1 is about 10 %); a little flattered, for the setting was chosen by it. ``loss``: of the fit, the mean over all
    pairs. ``steps``: of Adam. ``triangle_violations``: the share of detours shorter than the straight way in what was
    measured.
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
    return Embedding(
        coordinates,
        heights,
        _distances(n, result.hosts, fits, best, setting),
        setting,
        error,
        float(fits.loss[best]),
        int(fits.checks[-1]),
        len(settings),
        triangle_violations(symmetrised(measured_us), seed),
        tuple(int(host) for host in np.setdiff1d(np.arange(n), result.hosts)),
    )


def refitted(
    measured_us: Matrix,
    like: Embedding,
    seed: int = 0,
    device: str = "cpu",
    keep_going: Callable[[], bool] = lambda: True,
) -> Matrix:
    """Fitted distances of other measurements of the same hosts, shape (N, N), NaN for those that cannot be placed, by
    the setting and the steps that were chosen for ``like``: a small part of the time that choosing takes.

    :raises NoAnswer: as :func:`embed`.
    """
    result = reachable(measured_us)
    fits, best = _placed(result.pairs, _starts(like.setting, _REFIT_STARTS), seed, like.steps, device, keep_going)
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
    """The setting, how many steps it takes, and its held-out error then.

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


def held_out_of(pairs: ObservedPairs, seed: int) -> Integers:
    """The pairs to judge an embedding on, drawn otherwise than those its setting is chosen by."""
    return folds(pairs, np.random.default_rng((seed, 1)))[0]
