"""Differences of two networks: round trips, losses, pairs that were measured, and routers between them.

Changes of pairs are told by their causes (:mod:`solvers.changes.causes`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec.structs import replace

from plink.model.comparison import NetworkChange
from plink.model.diagnosis import Severity
from plink.model.network import Matrix
from solvers.changes.causes import Cause, Pairs, explain, network_wide
from solvers.changes.failures import scattered
from solvers.changes.noise import Aligned, Labels, LossNoise, Mask, Noise, Side, chance, noise, own_noise

WORSE, BETTER, CHANGED = "worse", "better", "changed"
UNITS = {"latency": "us", "loss": "share", "rate": "Gbit/s", "capacity": "Gbit/s", "hops": "hops"}
_MAX_DRIFT_LOG = 0.1  # natural logarithm of the ratio between two probes: more is a change
_DEFAULT_SAMPLES = 100.0  # of a pair, where a file has no number
_BURST_FACTOR = 2.0  # of the binomial standard error: losses come in bursts


@dataclass(frozen=True)
class ChangeThresholds:
    """The smallest changes that are reported.

    ``share``: relative change (0.25: 1.25 times as long, or a rate of 1 / 1.25). ``floor_us``: change of a round trip,
    microseconds, which must be exceeded too. ``loss``: rise of a loss, a share.
    """

    share: float = 0.25
    floor_us: float = 10.0
    loss: float = 0.001


@dataclass(frozen=True)
class PairChanges:
    """How each pair changed; matrices of shape (N, N), symmetric.

    ``by``: the change, above 0 where worse. ``measured``: which pairs both files have. ``matters``: which changes also
    exceed the absolute limit. ``least``: the smallest ``by`` that is reported.
    """

    by: Matrix
    measured: Mask
    matters: Mask
    least: float
    noise: Noise

    def causes(self, groupings: Sequence[Labels], sign: int) -> list[Cause]:
        """Return the causes of what got worse (``sign`` 1) or better (-1); single pairs come last, largest first."""
        by = sign * self.by
        signs = self.noise.signs(by, self.least)
        result, unexplained = explain(self.measured, signs, groupings, lambda pairs: self._holds(by, pairs))
        single = np.triu(unexplained & (by > self.least) & self.matters & self.noise.beyond(self.by), 1)
        return result + pairs_of(single, by)

    def _holds(self, by: Matrix, pairs: Pairs) -> bool:
        large = float(np.median(by[pairs])) > self.least and bool(np.median(self.matters[pairs]) >= 1)
        return large and self.noise.holds(by, pairs)


def pairs_of(single: Mask, by: Matrix | None = None) -> list[Cause]:
    """Return a cause for each of these pairs, the largest change first."""
    places = np.argwhere(single)
    if by is not None:
        places = places[np.argsort(-by[single], kind="stable")]
    return [Cause("pair", (i,), (j,), (np.array([i]), np.array([j]))) for i, j in places.tolist()]


def describe(
    cause: Cause, names: Sequence[str], what: str, verdict: str, values: tuple[Matrix, Matrix, Matrix] | None = None
) -> NetworkChange:
    """Return the change that a cause describes, with host names and the values of one of its pairs.

    The pair is the one whose change is the median, the larger of two; of losses that with the largest, as in a
    diagnosis. Separate medians of the old and the new values would belong to different pairs.

    :param values: old values, new values, and the change by which pairs are ordered, shape (N, N) each.
    """
    was = now = None
    if values is not None:
        old, new, by = (matrix[cause.pairs] for matrix in values)
        order = np.lexsort((old, np.round(-by if verdict == BETTER else by, 9)))  # of equal changes the middle value
        at = order[-1 if what == "loss" else len(order) // 2]
        was, now = float(old[at]), float(new[at])
    near, far = (tuple(names[host] for host in hosts) for hosts in (cause.near, cause.far))
    return NetworkChange(
        what=what,
        severity=severity_of(what, verdict, was, now),
        verdict=verdict,
        where=cause.kind,
        hosts=near,
        others=far,
        old=None if was is None else round(was, 6),
        new=None if now is None else round(now, 6),
        unit=UNITS.get(what),
        pairs=len(cause.pairs[0]),
    )


def severity_of(what: str, verdict: str, old: float | None, new: float | None) -> Severity:
    """Return how severe a change is, as a diagnosis judges it: info unless it got worse.

    Pairs that can no longer be measured are an error: a job between them fails.
    """
    if verdict != WORSE:
        return Severity.INFO
    if old is None or new is None:
        return Severity.ERROR
    if what == "loss":
        return Severity.of_loss(new)
    least, most = (old, new) if what == "latency" else (new, old)
    return Severity.of_ratio(most / least) if least > 0 else Severity.ERROR


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
    own = own_noise(measured, old, (aligned.old, aligned.new))
    shift, throughout = _shift(ratio, old, measured, groupings, limits, own)
    by = np.where(measured, ratio - shift, 0.0)
    excess = np.abs(np.where(measured, new - old * np.exp(shift), 0.0))
    what_noise = noise(by, measured, own, _MAX_DRIFT_LOG)
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


def losses(
    aligned: Aligned, groupings: Sequence[Labels], differ: Mask, limits: ChangeThresholds
) -> list[NetworkChange]:
    """Return which pairs lose more or fewer packets, both ways together; nothing where a file has no losses.

    A change has the loss of its worst way, as a diagnosis.

    :raises InputError: when a file's losses or samples are not matrices.
    """
    sides = [_lost(side, ~differ) for side in (aligned.old, aligned.new)]
    if sides[0] is None or sides[1] is None:
        return []
    (was, sent_then, old), (now, sent_now, new) = sides[0], sides[1]
    measured = np.isfinite(was) & np.isfinite(now)
    np.fill_diagonal(measured, False)
    was, now = (np.where(measured, share, 0.0) for share in (was, now))
    both = (was * sent_then + now * sent_now) / np.maximum(1, sent_then + sent_now)
    # At least one loss: the standard error of zero losses would be 0.
    both = np.maximum(both, 1 / np.maximum(1, sent_then + sent_now))
    sigma = _BURST_FACTOR * np.sqrt(both * (1 - both) * (1 / np.maximum(1, sent_then) + 1 / np.maximum(1, sent_now)))
    by = now - was
    change = PairChanges(by, measured, measured, limits.loss, LossNoise(sigma, chance(int(np.triu(measured, 1).sum()))))
    findings = []
    for sign, verdict, ways in ((1, WORSE, new), (-1, BETTER, old)):
        is_worst = ways >= ways.T
        was, now, by = (np.where(is_worst, losses, losses.T) for losses in (old, new, sign * ways))
        findings += [
            describe(cause, aligned.names, "loss", verdict, (was, now, by)) for cause in change.causes(groupings, sign)
        ]
    return findings


def _lost(side: Side, comparable: Mask) -> tuple[Matrix, Matrix, Matrix] | None:
    """Return the share of a pair's probes that were lost in either direction, how many were sent, and the share lost on
    the way from i to j, whoever measured it.

    All have shape (N, N), the first two are symmetric; NaN where unmeasured, and where no probe came back, the last 0.
    """
    forward, back, samples = (side.detail(key) for key in ("loss_forward", "loss_back", "samples"))
    if forward is None:
        return None
    there = np.isfinite(forward) & np.isfinite(side.latency()) & comparable
    came_back = 1.0 if back is None else 1 - np.nan_to_num(back)
    share = np.clip(1 - np.where(there, 1 - forward, 1.0) * came_back, 0.0, 1.0)
    received = np.full_like(share, _DEFAULT_SAMPLES) if samples is None else np.nan_to_num(samples)
    sent = np.where(there, received / np.maximum(1 - share, 1e-6), 0.0)
    lost, total = share * sent, sent + sent.T
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.where(total > 0, (lost + lost.T) / total, np.nan)
    answers = np.zeros_like(share) if back is None else np.where(there, np.nan_to_num(back), 0.0)
    return both, total, np.maximum(np.where(there, forward, 0.0), answers.T)


def missing(aligned: Aligned, groupings: Sequence[Labels], limits: ChangeThresholds) -> list[NetworkChange]:
    """Return pairs that one file has and the other lacks in both directions.

    A host whose agent was lost has none, whatever was measured before. Adaptive probing leaves most pairs out on
    purpose: in such a file only those count whose measurement failed.
    Causes go by all pairs that failed in one file only. Pairs that failed by chance
    (:func:`~solvers.changes.failures.scattered`) are worse where they are more than in the old file, a warning where
    none failed in it, else only changed.
    """
    sides = (aligned.old, aligned.new)
    lost = [np.isin(aligned.names, [*side.network.lost_hosts]) for side in sides]
    there = [np.isfinite(side.latency()) & ~(rows | rows[:, None]) for side, rows in zip(sides, lost, strict=True)]
    had, have = (mask | mask.T for mask in there)
    lacks, lacked = (
        ~mask & (_failed(side, aligned.names) if side.network.details.plan == "adaptive" else True)
        for mask, side in ((have, aligned.new), (had, aligned.old))
    )
    for mask in (lacks, lacked):
        np.fill_diagonal(mask, False)
    tell = partial(describe, names=aligned.names, what="unmeasured")
    tried = (have | lacks) & ~lacked
    gone, alone = _explained(tried, lacks, groupings, had)
    again, back = _explained((had | lacked) & ~lacks, lacked, groupings, have)
    by_chance = scattered(alone, tried)
    findings = [tell(cause, verdict=WORSE) for cause in [*gone, *pairs_of(np.triu(alone & had & ~by_chance, 1))]]
    more, less = (int(mask.sum()) // 2 for mask in (by_chance, scattered(back, (had | lacked) & ~lacks)))
    is_small = limits.loss * math.comb(len(had), 2) < 1
    has_risen = more > 0 if is_small else more - less > chance(1) * math.sqrt(more + less)  # a sign test
    for cause in pairs_of(np.triu(by_chance & had, 1)):
        change = tell(cause, verdict=WORSE if has_risen or not lacked.any() else CHANGED)
        lesser = replace(change, severity=Severity.WARNING)
        findings.append(lesser if change.verdict == WORSE and not has_risen else change)
    return findings + [tell(cause, verdict=BETTER) for cause in [*again, *pairs_of(np.triu(back & have, 1))]]


def hops(aligned: Aligned, groupings: Sequence[Labels]) -> list[NetworkChange]:
    """Return pairs with another number of routers between them.

    :raises InputError: when a file's hops are not a matrix.
    """
    was, now = (side.detail("hops") for side in (aligned.old, aligned.new))
    if was is None or now is None:
        return []
    measured = np.isfinite(was) & np.isfinite(now)
    changed = measured & (was != now)
    # A pair has the values of the direction that changed.
    old, new = (np.where(changed, item, np.where(changed.T, item.T, 0.0)) for item in (was, now))
    measured, changed = measured | measured.T, changed | changed.T
    np.fill_diagonal(measured, False)
    tell = partial(describe, names=aligned.names, what="hops", verdict=CHANGED, values=(old, new, new - old))
    causes, alone = _explained(measured, changed, groupings, measured)
    return [tell(cause) for cause in [*causes, *pairs_of(np.triu(alone, 1))]]


def _explained(measured: Mask, moved: Mask, groupings: Sequence[Labels], required: Mask) -> tuple[list[Cause], Mask]:
    """Return causes all of whose pairs changed, one of them ``required``, and changed pairs without one, (N, N)."""
    moved = measured & moved
    if not moved.any():
        return [], moved
    causes, unexplained = explain(
        measured, moved, groupings, lambda pairs: bool(moved[pairs].all() and required[pairs].any())
    )
    return causes, unexplained & moved


def _failed(side: Side, names: Sequence[str]) -> Mask:
    index = {name: k for k, name in enumerate(names)}
    mask = np.zeros((len(names), len(names)), dtype=bool)
    for row in side.network.errors:
        if row.source in index and row.target in index:
            mask[index[row.source], index[row.target]] = True
    mask[np.isin(names, [*side.network.lost_hosts])] = True
    return mask | mask.T
