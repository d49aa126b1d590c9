"""Slow hosts, slow links and asymmetric pairs, from a matrix of round trips.

A host is slow when it is slow to all others: its offset, the median excess of its pairs over pairs of the same two
groups, is an outlier. A link is slow when its pair is slower than its two hosts explain.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

MAD_TO_SIGMA = 1.4826  # of a normal distribution
_MIN_US = 1e-3  # of a round trip: the last digit of a file, which may say 0


@dataclass(frozen=True)
class DiagnosisThresholds:
    """Thresholds of suspicion.

    The excess of a host or link must be more than ``share`` of the usual value, ``sigmas`` of the usual spread, and
    ``floor_us``. A pair is asymmetric beyond ``asymmetry`` of its faster direction, and both of the last.
    """

    share: float = 0.25
    sigmas: float = 6.0
    asymmetry: float = 0.3
    floor_us: float = 10.0  # hosts that are busy differ by as much


@dataclass(frozen=True)
class Suspect:
    """One host (slow host) or two (slow link); ``excess_us`` over the ``usual_us``."""

    hosts: tuple[int, ...]
    usual_us: float
    excess_us: float


def expected(cost: Matrix, groups: npt.NDArray[np.intp]) -> Matrix:
    """Return the usual value of a pair of two groups: the block's median, shape (N, N), NaN where none was measured.

    A host in a group of its own would be its own baseline. It is taken for a host of the group nearest to it, or for
    one beside that group, whichever its round trips fit better but for a constant.

    :param groups: shape (N,); or of shape (N, N) the class of each pair, whose median is usual.
    """
    usual = np.full_like(cost, np.nan)
    off = ~np.eye(len(cost), dtype=bool)
    if groups.ndim == 2:
        for number in np.unique(groups[off]):
            alike = off & (groups == number)
            usual[alike] = np.nanmedian(cost[alike]) if np.isfinite(cost[alike]).any() else np.nan
        return usual
    alone = np.bincount(groups)[groups] == 1
    grouped = off & ~alone[:, None] & ~alone[None, :]
    between = grouped & (groups[:, None] != groups[None, :])
    for baseline in (cost[between], cost[grouped], cost[off]):
        if np.isfinite(baseline).any():
            usual[off] = np.nanmedian(baseline)
            break
    off_diagonal = np.where(off, cost, np.nan)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups[~alone])]
    for a in members:
        for b in members:
            block = np.ix_(a, b)
            values = off_diagonal[block]
            values = values[np.isfinite(values)]
            if len(values):
                usual[block] = np.median(values)
    if members:
        _place_alone(usual, off_diagonal, np.flatnonzero(alone), members)
    np.fill_diagonal(usual, np.nan)
    return usual


def _place_alone(
    usual: Matrix, cost: Matrix, alone: npt.NDArray[np.intp], members: Sequence[npt.NDArray[np.intp]]
) -> None:
    """Fill the usual values of hosts in a group of their own from those of the hosts they are placed at, in place.

    :param cost: shape (N, N), NaN on the diagonal.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a host that no host of the group was measured with
        medians = np.array([np.nanmedian(cost[np.ix_(alone, group)], axis=1) for group in members])
    placed, at, rows_of = [], [], []
    for host, to_groups in zip(alone.tolist(), medians.T, strict=True):
        if np.isnan(to_groups).all():
            continue
        near = members[int(np.nanargmin(to_groups))]
        rows = [usual[near[0]].copy()]
        rows[0][near[0]] = usual[near[0], near[1]]
        if len(members) > 1:
            rows.append(rows[0].copy())
            rows[1][near] = min(rows[0][group[0]] for group in members if group is not near)
        grouped = np.concatenate([group for group, to in zip(members, to_groups, strict=True) if to == to])
        placed.append(host)
        at.append(near[0])
        rows_of.append(min(rows, key=lambda row: _misfit(cost[host, grouped], row[grouped])))
    if placed:
        place = np.array(rows_of)
        usual[placed] = place
        usual[:, placed] = place.T
        usual[np.ix_(placed, placed)] = np.fmax(place[:, at], place[:, at].T)


def _misfit(values: npt.NDArray[np.float64], usual: npt.NDArray[np.float64]) -> float:
    """Return how far values are from usual ones plus a constant, on average, as a share of these."""
    measured = np.isfinite(values) & np.isfinite(usual)
    excess = values[measured] - usual[measured]
    return float(np.mean(np.abs(excess - np.median(excess)) / np.maximum(usual[measured], _MIN_US)))


def slow_hosts(
    cost: Matrix, groups: npt.NDArray[np.intp], limits: DiagnosisThresholds
) -> tuple[list[Suspect], npt.NDArray[np.float64]]:
    """Return hosts slow to all others, worst first, and every host's offset in microseconds, shape (N,).

    :param cost: symmetrised round trips, shape (N, N), NaN where unmeasured.
    """
    usual = expected(cost, groups)
    excess = cost - usual
    np.fill_diagonal(excess, np.nan)
    offsets = np.array([np.nanmedian(row) if np.isfinite(row).any() else 0.0 for row in excess])
    spread = MAD_TO_SIGMA * float(np.median(np.abs(offsets - np.median(offsets))))
    suspects = []
    for host, offset in enumerate(offsets):
        typical = np.nanmedian(usual[host]) if np.isfinite(usual[host]).any() else np.nan
        if offset > max(limits.share * typical, limits.sigmas * spread, limits.floor_us):
            suspects.append(Suspect((host,), float(typical), float(offset)))
    return sorted(suspects, key=lambda suspect: -suspect.excess_us), offsets


def slow_links(
    cost: Matrix, groups: npt.NDArray[np.intp], offsets: npt.NDArray[np.float64], limits: DiagnosisThresholds
) -> list[Suspect]:
    """Return pairs slower than their two groups and the two hosts' offsets explain, worst first.

    The excess must be an outlier in microseconds and as a share of the usual value, as far pairs vary by more.
    """
    usual = expected(cost, groups) + np.maximum(offsets[:, None], 0) + np.maximum(offsets[None, :], 0)
    excess = cost - usual
    np.fill_diagonal(excess, np.nan)
    measured = np.isfinite(excess)
    if not measured.any():
        return []
    spread, share = (
        MAD_TO_SIGMA * float(np.median(np.abs(values[measured])))
        for values in (excess, excess / np.maximum(usual, _MIN_US))
    )
    least = max(limits.share, limits.sigmas * share)
    with np.errstate(invalid="ignore"):
        is_slow = np.triu((excess > least * usual) & (excess > max(limits.sigmas * spread, limits.floor_us)), 1)
    suspects = [Suspect((int(i), int(j)), float(usual[i, j]), float(excess[i, j])) for i, j in np.argwhere(is_slow)]
    return sorted(suspects, key=lambda suspect: -suspect.excess_us)


def asymmetric_pairs(latency_us: Matrix, limits: DiagnosisThresholds) -> list[tuple[int, int]]:
    """Return pairs (slow direction first) whose directions differ by more than ``limits.asymmetry`` of the faster one.

    The difference must also be an outlier among those of other pairs.
    """
    difference = latency_us - latency_us.T
    usual = np.abs(difference[np.isfinite(difference) & ~np.eye(len(difference), dtype=bool)])
    spread = MAD_TO_SIGMA * float(np.median(usual)) if len(usual) else 0.0
    threshold_us = max(limits.sigmas * spread, limits.floor_us)
    with np.errstate(invalid="ignore"):
        is_asymmetric = (difference > limits.asymmetry * latency_us.T) & (difference > threshold_us)
    return [(int(i), int(j)) for i, j in np.argwhere(is_asymmetric)]


def known_good(cost: Matrix, offsets: npt.NDArray[np.float64], suspects: set[int], near: int) -> int | None:
    """Return the nearest host above suspicion, to measure a suspect against; None when there is none."""
    candidates = [host for host in range(len(cost)) if host not in suspects and host != near]
    candidates = [host for host in candidates if np.isfinite(cost[near, host])] or candidates
    if not candidates:
        return None
    return min(candidates, key=lambda host: (np.nan_to_num(cost[near, host], nan=np.inf), offsets[host]))
