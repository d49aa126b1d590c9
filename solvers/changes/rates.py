"""Compare the bandwidths of pairs and the shared capacities of groups of hosts."""

from collections.abc import Sequence

import numpy as np

from plink.model.comparison import NetworkChange
from plink.model.network import Matrix
from plink.model.network_file import SharedLinkEntry
from solvers.changes.aligned import Aligned, Labels, Side
from solvers.changes.network_change import BETTER, UNITS, WORSE, ChangeThresholds, PairChanges, describe, severity_of
from solvers.changes.noise import noise

_MAX_DRIFT_LOG = 0.2  # natural logarithm of the ratio between two probes: the precision of a few seconds of TCP
_MIN_RATE_SHARE = 1e-3  # a rate of 0 counts as this share of the other one


def pair_rates(
    aligned: Aligned, groupings: Sequence[Labels], limits: ChangeThresholds
) -> tuple[list[NetworkChange], int, int]:
    """Return changes of pairs' rates, how many pairs were compared, and how many were measured in the old file only.

    A pair's rate is that of its slower direction; a direction counts where both files have it.
    """
    was, now = (_rates(side) for side in (aligned.old, aligned.new))
    if was is None:
        return [], 0, 0
    before, after = (np.zeros_like(was, dtype=bool) if rates is None else np.isfinite(rates) for rates in (was, now))
    lost = int(np.triu((before | before.T) & ~(after | after.T), 1).sum())
    if now is None:
        return [], 0, lost
    there = before & after
    np.fill_diagonal(there, False)
    old, new = (np.where(there, rate, np.inf) for rate in (was, now))
    old, new = (np.minimum(rate, rate.T) for rate in (old, new))
    measured = (there | there.T) & (np.maximum(old, new) > 0)
    old, new = (np.where(measured, rate, 1.0) for rate in (old, new))
    by = np.where(
        measured, np.log(np.maximum(old, _MIN_RATE_SHARE * new) / np.maximum(new, _MIN_RATE_SHARE * old)), 0.0
    )
    change = PairChanges(
        by, measured, measured, float(np.log1p(limits.share)), noise(by, measured, old, (), _MAX_DRIFT_LOG)
    )
    findings = [
        describe(cause, aligned.names, "rate", verdict, (old, new, by))
        for sign, verdict in ((1, WORSE), (-1, BETTER))
        for cause in change.causes(groupings, sign)
    ]
    return findings, int(np.triu(measured, 1).sum()), lost


def capacities(aligned: Aligned, limits: ChangeThresholds) -> tuple[list[NetworkChange], int, int, int]:
    """Return changes of shared capacities, of groups that have the same hosts in both files, with three counts.

    The counts: capacities that were compared, groups of the old file that have other hosts in the new one, and
    capacities of other groups that only the old file has. A change is reported where the ranges of both files' runs do
    not overlap.
    """
    before, after = _groups(aligned.old), _groups(aligned.new)
    others = {name for members in after.keys() - before.keys() for name in members}
    regrouped = {members for members in before.keys() - after.keys() if others.intersection(members)}
    findings, count, lost = [], 0, 0
    for members, row in before.items():
        for way in ("out", "in"):
            was, now = _figure(row, way), _figure(after.get(members), way)
            if was is None or now is None:
                lost += was is not None and members not in regrouped
                continue
            count += 1
            (old, old_low, old_high), (new, new_low, new_high) = was, now
            fell = old > new * (1 + limits.share) and new_high < old_low
            rose = new > old * (1 + limits.share) and new_low > old_high
            if fell or rose:
                verdict = WORSE if fell else BETTER
                findings.append(
                    NetworkChange(
                        what="capacity",
                        severity=severity_of("capacity", verdict, old, new),
                        verdict=verdict,
                        where="uplink",
                        hosts=members,
                        others=(),
                        old=round(old, 6),
                        new=round(new, 6),
                        unit=UNITS["capacity"],
                        pairs=1,
                        way=way,
                    )
                )
    return findings, count, len(regrouped), lost


def _rates(side: Side) -> Matrix | None:
    rates = side.network.bandwidth_gbps
    return None if rates is None else side.cut(rates)


def _groups(side: Side) -> dict[tuple[str, ...], SharedLinkEntry]:
    return {tuple(sorted(row.members)): row for tier in side.network.shared_links for row in tier.groups}


def _figure(row: SharedLinkEntry | None, way: str) -> tuple[float, float, float] | None:
    """Return a capacity and the range of its runs, Gbit/s; 0 is a measured value, None a missing one.

    Where the links of others were the limit the capacity is at least so much: the range has no end.
    """
    value = None if row is None else row.gbps(way)
    if row is None or value is None:
        return None
    low, high = row.range_gbps(way) or (value, value)
    return value, low, np.inf if row.limited_by(way) == "others" else high
