"""Compare round trips: the shift of the whole network first, then the remaining change of each pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.comparison import NetworkChange
from plink.model.network import Matrix
from solvers.changes.aligned import Aligned, Labels, Mask
from solvers.changes.causes import Cause, network_wide
from solvers.changes.network_change import BETTER, WORSE, ChangeThresholds, PairChanges, describe
from solvers.changes.noise import Noise, noise, own_noise

_MAX_DRIFT_LOG = 0.1  # natural logarithm of the ratio between two probes: more is a change


@dataclass(frozen=True)
class RoundTrips:
    """The changes of round trips.

    ``findings``: the changes. ``pairs``: how many were compared. ``shift``: ratio of all round trips, new to old.
    ``noise``: the median standard error of a pair's change, a share.
    """

    findings: list[NetworkChange]
    pairs: int
    shift: float
    noise: float


def round_trips(aligned: Aligned, groupings: Sequence[Labels], differ: Mask, limits: ChangeThresholds) -> RoundTrips:
    """Return which round trips became longer or shorter.

    :param differ: pairs that were measured by another method now, shape (N, N): they are not compared.
    :raises InputError: when the halves of the samples in a file are malformed.
    """
    old, new, measured = compared(aligned, differ)
    pairs = int(np.triu(measured, 1).sum())
    if not pairs:
        return RoundTrips([], 0, 1.0, 0.0)
    ratio = np.where(measured, np.log(np.where(measured, new / old, 1.0)), 0.0)
    sides = aligned.old, aligned.new
    shift, throughout = _shift(ratio, old, measured, groupings, limits, own_noise(measured, old, sides))
    by = np.where(measured, ratio - shift, 0.0)
    excess = np.abs(np.where(measured, new - old * np.exp(shift), 0.0))
    what_noise = noise(by, measured, old, sides, _MAX_DRIFT_LOG)
    change = PairChanges(by, measured, excess > limits.floor_us, float(np.log1p(limits.share)), what_noise)
    findings = []
    if throughout:
        i, j = np.nonzero(np.triu(measured, 1))
        everything = Cause("network", tuple(range(len(measured))), (), (i, j))
        verdict = WORSE if shift > 0 else BETTER
        findings.append(describe(everything, aligned.names, "latency", verdict, (old, new, ratio)))
    for sign, verdict in ((1, WORSE), (-1, BETTER)):
        findings += [
            describe(cause, aligned.names, "latency", verdict, (old, new, by))
            for cause in change.causes(groupings, sign)
            # A pair without the whole network's change did not change in the other direction.
            if not throughout or sign * float(np.median(ratio[cause.pairs])) > change.least
        ]
    return RoundTrips(findings, pairs, float(np.exp(shift)), float(np.median(what_noise.sigma[np.triu(measured, 1)])))


def compared(aligned: Aligned, differ: Mask) -> tuple[Matrix, Matrix, Mask]:
    """Return old and new round trips, microseconds, and the pairs that have both, shape (N, N), symmetric.

    A pair's round trip is the geometric mean of its directions; a direction counts where both files have it.
    """
    old, new = aligned.old.latency(), aligned.new.latency()
    measured = np.isfinite(old) & np.isfinite(new) & ~differ
    count = measured.astype(int) + measured.T
    means = []
    for matrix in (old, new):
        logs = np.where(measured, np.log(np.where(measured, matrix, 1.0)), 0.0)
        means.append(np.where(count > 0, np.exp((logs + logs.T) / np.maximum(count, 1)), np.nan))
    return means[0], means[1], count > 0


def _shift(
    ratio: Matrix, old: Matrix, measured: Mask, groupings: Sequence[Labels], limits: ChangeThresholds, own: Noise
) -> tuple[float, bool]:
    """Return the logarithm of the ratio of all round trips, and whether it is a change to report.

    Nearly all round trips of every tier must have changed in its direction, and their median by more than the noise of
    their own samples. A smaller shift is a drift, which most pairs must share.
    """
    least, values = float(np.log1p(limits.share)), ratio[np.triu(measured, 1)]
    shift = float(np.median(values))
    large = float(np.median(old[np.triu(measured, 1)])) * abs(np.expm1(shift)) > limits.floor_us
    rows, columns = np.nonzero(np.triu(measured, 1))
    large = large and own.holds(ratio, (rows, columns))
    signs = measured & own.signs(np.sign(shift) * ratio, least)
    if abs(shift) > least and large and network_wide(measured, signs, groupings):
        return shift, True
    drifting = values[np.abs(values) <= least]
    return (float(np.median(drifting)), False) if 2 * len(drifting) > len(values) else (0.0, False)
