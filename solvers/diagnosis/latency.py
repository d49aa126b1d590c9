"""Slow hosts, slow links and lopsided pairs, told from a matrix of round trips.

A host is slow when it is slow to everybody: its offset, the median excess of its pairs over what pairs of the same two
groups take, is far out of line. A link is slow when its pair is slower than its two hosts explain.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

_MAD_TO_SIGMA = 1.4826  # of a normal distribution


@dataclass(frozen=True)
class Limits:
    """A host or link is suspect when it is beyond both: ``share`` of what is usual, and ``sigmas`` of the usual spread;
    a pair is lopsided beyond ``asymmetry``, and ``grain_us`` (what two busy hosts' clocks may differ by anyway)."""

    share: float = 0.25
    sigmas: float = 6.0
    asymmetry: float = 0.3
    grain_us: float = 5.0


@dataclass(frozen=True)
class Suspect:
    """``hosts``: one (a slow host) or two (a slow link); ``excess_us`` over the ``usual_us``."""

    hosts: tuple[int, ...]
    usual_us: float
    excess_us: float


def expected(cost: Matrix, groups: npt.NDArray[np.intp]) -> Matrix:
    """What a pair of these two groups usually takes: the block's median, shape (N, N), NaN where none was measured.

    A host in a group of its own would be its own standard: its pairs are held against those between the other groups,
    or, when the others are one group, against that group's.
    """
    found = np.full_like(cost, np.nan)
    off = ~np.eye(len(cost), dtype=bool)
    alone = np.bincount(groups)[groups] == 1
    known = off & ~alone[:, None] & ~alone[None, :]
    between = known & (groups[:, None] != groups[None, :])
    for standard in (cost[between], cost[known], cost[off]):
        if np.isfinite(standard).any():
            found[off] = np.nanmedian(standard)
            break
    others = np.where(off, cost, np.nan)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups[~alone])]
    for a in members:
        for b in members:
            block = np.ix_(a, b)
            values = others[block]
            values = values[np.isfinite(values)]
            if len(values):
                found[block] = np.median(values)
    np.fill_diagonal(found, np.nan)
    return found


def slow_hosts(
    cost: Matrix, groups: npt.NDArray[np.intp], limits: Limits
) -> tuple[list[Suspect], npt.NDArray[np.float64]]:
    """Hosts slow to everybody, worst first, and every host's offset in microseconds, shape (N,).

    :param cost: symmetrised round trips, shape (N, N), NaN where unmeasured.
    """
    usual = expected(cost, groups)
    excess = cost - usual
    np.fill_diagonal(excess, np.nan)
    offsets = np.array([np.nanmedian(row) if np.isfinite(row).any() else 0.0 for row in excess])
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(offsets - np.median(offsets))))
    found = []
    for host, offset in enumerate(offsets):
        typical = np.nanmedian(usual[host]) if np.isfinite(usual[host]).any() else np.nan
        if offset > limits.share * typical and offset > limits.sigmas * spread:
            found.append(Suspect((host,), float(typical), float(offset)))
    return sorted(found, key=lambda suspect: -suspect.excess_us), offsets


def slow_links(
    cost: Matrix, groups: npt.NDArray[np.intp], offsets: npt.NDArray[np.float64], limits: Limits
) -> list[Suspect]:
    """Pairs slower than their two groups and the two hosts' offsets explain, worst first."""
    usual = expected(cost, groups) + np.maximum(offsets[:, None], 0) + np.maximum(offsets[None, :], 0)
    excess = cost - usual
    np.fill_diagonal(excess, np.nan)
    measured = excess[np.isfinite(excess)]
    if not len(measured):
        return []
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(measured)))
    with np.errstate(invalid="ignore"):
        bad = np.triu((excess > limits.share * usual) & (excess > limits.sigmas * spread), 1)
    found = [Suspect((int(i), int(j)), float(usual[i, j]), float(excess[i, j])) for i, j in np.argwhere(bad)]
    return sorted(found, key=lambda suspect: -suspect.excess_us)


def lopsided(latency_us: Matrix, limits: Limits) -> list[tuple[int, int]]:
    """Pairs (slow direction first) whose directions differ by more than ``limits.asymmetry`` of the faster one, and by
    far more than those of other pairs do."""
    difference = latency_us - latency_us.T
    usual = np.abs(difference[np.isfinite(difference) & ~np.eye(len(difference), dtype=bool)])
    spread = _MAD_TO_SIGMA * float(np.median(usual)) if len(usual) else 0.0
    least = max(limits.sigmas * spread, limits.grain_us)
    with np.errstate(invalid="ignore"):
        bad = (difference > limits.asymmetry * latency_us.T) & (difference > least)
    return [(int(i), int(j)) for i, j in np.argwhere(bad)]


def known_good(cost: Matrix, offsets: npt.NDArray[np.float64], suspects: set[int], near: int) -> int | None:
    """The nearest host that is above suspicion, to measure a suspect against; None when there is none."""
    candidates = [host for host in range(len(cost)) if host not in suspects and host != near]
    candidates = [host for host in candidates if np.isfinite(cost[near, host])] or candidates
    if not candidates:
        return None
    return min(candidates, key=lambda host: (np.nan_to_num(cost[near, host], nan=np.inf), offsets[host]))
