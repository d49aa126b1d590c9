"""Do fitted distances help or hurt? Whether they are nearer to fresh measurements than the raw ones are.

With two halves of the samples: fit on one, and compare both the fitted and the raw half with the other half. What is
true of a pair for good is in both halves, what is noise is in one, so that an embedding which smooths away the truth
is found out as well as one that smooths away noise. Noise that both halves share (a slow hour) is not seen.

Without halves nothing fresh is there for a measured pair. Then pairs are held out, and the fitted distance is compared
with the best that the raw matrix says of a pair without having measured it: what the nearest hosts of either end
measured to the other end. That says whether the map is right, not whether it beats a measurement.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.embedding import SmoothingVerdict
from plink.model.network import Matrix, symmetrised
from solvers.embedding.embed import Embedding, held_out_of, refitted
from solvers.embedding.fitting import log_error, median_us
from solvers.embedding.pairs import reachable
from solvers.prediction.observed import by_neighbours, observed

Floats = npt.NDArray[np.float64]
_CONFIDENT_SIGMAS = 2.0  # standard errors
_MIN_PAIRS = 10  # pairs


def word_for(gain: float, standard_error: float) -> Literal["helps", "hurts", "no difference"]:
    """Return what to tell the user of a gain: a difference of less than two standard errors is none."""
    if abs(gain) <= _CONFIDENT_SIGMAS * standard_error:
        return "no difference"
    return "helps" if gain > 0 else "hurts"


def validate_halves(
    halves: Sequence[Matrix],
    like: Embedding,
    seed: int = 0,
    device: str = "cpu",
    whole: bool = True,
) -> SmoothingVerdict:
    """Fit each half, shape (N, N), symmetric, NaN where missing, as ``like`` was fitted, and judge by the other.

    With a and b the logarithms of the halves, each off by noise of variance s^2 of its own, and f that of the fit of a:
    ``E (a - b)^2 = 2 s^2`` and ``E (f - b)^2 = (error of f)^2 + s^2``. All samples together are off by s^2 / 2.

    :param whole: whether fitted distances stand for all samples, else for one half of them.
    :raises NoAnswer: when either half cannot be embedded, or too few pairs are in both.
    """
    fits = [refitted(half, like, seed, device) for half in halves]
    there = np.triu(np.isfinite(halves[0]) & np.isfinite(halves[1]), 1)
    i, j = np.nonzero(there & np.isfinite(fits[0]) & np.isfinite(fits[1]))
    _require_pairs(len(i))
    median = median_us(observed(halves[0]))
    fitted = sum(log_error(fits[k][i, j], halves[1 - k][i, j], median) ** 2 for k in (0, 1)) / 2
    apart = log_error(halves[0][i, j], halves[1][i, j], median) ** 2
    return _verdict(fitted - apart / 2, apart / (4 if whole else 2), i, j, len(halves[0]), "halves")


def validate_held_out(
    measured_us: Matrix,
    like: Embedding,
    seed: int = 0,
    device: str = "cpu",
    names: Sequence[str] | None = None,
) -> SmoothingVerdict:
    """Hold pairs of ``measured_us``, shape (N, N), out, fit the rest as ``like`` was fitted, and judge by those.

    :raises NoAnswer: as ``embed`` does, and where too few pairs can be held out.
    """
    result = reachable(measured_us, names)
    drawn = held_out_of(result.pairs, seed)
    i, j, rtt = result.pairs.i[drawn], result.pairs.j[drawn], result.pairs.rtt_us[drawn]
    _require_pairs(len(i))
    rest = symmetrised(measured_us[np.ix_(result.hosts, result.hosts)])
    rest[i, j] = rest[j, i] = np.nan
    fitted = refitted(rest, like, seed, device)[i, j]
    median = median_us(result.pairs)
    error = log_error(fitted, rtt, median) ** 2
    guess = by_neighbours(rest, i, j)
    guess = np.where(np.isnan(guess), np.median(rest[np.isfinite(rest) & ~np.eye(len(rest), dtype=bool)]), guess)
    return _verdict(error, log_error(guess, rtt, median) ** 2, i, j, result.pairs.n, "held-out")


def _require_pairs(pairs: int) -> None:
    if pairs < _MIN_PAIRS:
        raise NoAnswer(f"{pairs} pairs are too few to validate fitted distances: probe more hosts, or more samples")


def _verdict(
    fitted: Floats,
    raw: Floats,
    i: npt.NDArray[np.intp],
    j: npt.NDArray[np.intp],
    n: int,
    basis: Literal["halves", "held-out"],
) -> SmoothingVerdict:
    """Return the verdict on squared errors, shape (M,), to six digits.

    By ``halves`` the truth is free of noise, and the raw error that of the samples which the fitted distances are to
    stand for; where pairs were ``held-out`` it is one measurement, whose noise is in both. The standard error leaves
    out one host after the other (jackknife): pairs of one host err together.
    """
    difference = raw - fitted
    count = np.bincount(i, minlength=n) + np.bincount(j, minlength=n)
    own = np.bincount(i, difference, n) + np.bincount(j, difference, n)
    left = (len(i) - count) > 0
    without = (difference.sum() - own[left]) / (len(i) - count[left])
    spread = float(np.sqrt((len(without) - 1) / len(without) * ((without - without.mean()) ** 2).sum()))
    errors = [round(float(np.sqrt(max(0.0, values.mean()))), 6) for values in (fitted, raw)]
    return SmoothingVerdict(
        word=word_for(float(difference.mean()), spread),
        basis=basis,
        fitted_error=errors[0],
        raw_error=errors[1],
        standard_error=round(spread, 6),
        pairs=len(i),
    )
