"""Bandwidths of pairs, and the capacity of what groups of hosts share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plink.model.network import Matrix
from solvers.changes.aligned import Aligned, Labels, Side
from solvers.changes.finding import BETTER, WORSE, Change, Finding, Limits, told
from solvers.changes.noise import noise

_MOST_WANDER = 0.2  # of the logarithm, from one probe to the next; a few seconds of TCP tell no more
_LEAST = 1e-3  # a rate of none is so much of what it was


def pair_rates(aligned: Aligned, groupings: Sequence[Labels], limits: Limits) -> tuple[list[Finding], int, int]:
    """What pairs carry less or more than they did, how many pairs were compared, and how many were measured before and
    are not now: a choice of those who measured, or the sign of a host that cannot be.

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
    known = (there | there.T) & (np.maximum(old, new) > 0)
    old, new = (np.where(known, rate, 1.0) for rate in (old, new))
    by = np.where(known, np.log(np.maximum(old, _LEAST * new) / np.maximum(new, _LEAST * old)), 0.0)
    change = Change(by, known, known, float(np.log1p(limits.share)), noise(by, known, old, (), _MOST_WANDER))
    findings = [
        told(cause, aligned.names, "rate", verdict, (old, new, by))
        for sign, verdict in ((1, WORSE), (-1, BETTER))
        for cause in change.causes(groupings, sign)
    ]
    return findings, int(np.triu(known, 1).sum()), lost


def capacities(aligned: Aligned, limits: Limits) -> tuple[list[Finding], int, int, int]:
    """What groups share of less or more than before, of groups that are the same hosts in both files; how many figures
    were compared, how many groups were measured before and are of other hosts now, and how many figures of other groups
    were there before and are not now: nothing came through, or nobody measured.

    Each file has the range of its runs: these must be apart.
    """
    before, after = _groups(aligned.old), _groups(aligned.new)
    others = {name for members in after.keys() - before.keys() for name in members}
    regrouped = {members for members in before.keys() - after.keys() if others.intersection(members)}
    findings, count, lost = [], 0, 0
    for members, row in before.items():
        for way in ("out", "in"):
            was, now = _figure(row, way), _figure(after.get(members, {}), way)
            if was is None or now is None:
                lost += was is not None and members not in regrouped
                continue
            count += 1
            (old, old_low, old_high), (new, new_low, new_high) = was, now
            fell = old > new * (1 + limits.share) and new_high < old_low
            rose = new > old * (1 + limits.share) and new_low > old_high
            if fell or rose:
                verdict = WORSE if fell else BETTER
                findings.append(Finding("capacity", verdict, "uplink", members, (), old, new, 1, way))
    return findings, count, len(regrouped), lost


def _rates(side: Side) -> Matrix | None:
    rates = side.network.bandwidth_gbps
    return None if rates is None else side.cut(rates)


def _groups(side: Side) -> dict[tuple[str, ...], Mapping[str, Any]]:
    return {tuple(sorted(row["members"])): row for tier in side.network.shared_links for row in tier["groups"]}


def _figure(row: Mapping[str, Any], way: str) -> tuple[float, float, float] | None:
    """A capacity and the range of its runs, Gbit/s; 0 is the worst of all, and no missing figure."""
    value = row.get(f"{way}_gbps")
    if value is None:
        return None
    low, high = row.get("interval", {}).get(f"{way}_gbps") or (value, value)
    return float(value), float(low), float(high)
