"""Changes between two networks, and their derivation from causes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.comparison import NetworkChange
from plink.model.diagnosis import Severity
from plink.model.network import Matrix
from solvers.changes.causes import Cause, Pairs, explain
from solvers.changes.noise import Labels, Mask, Noise

WORSE, BETTER, CHANGED = "worse", "better", "changed"
UNITS = {"latency": "us", "loss": "share", "rate": "Gbit/s", "capacity": "Gbit/s", "hops": "hops"}


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


def pairs_of(single: Mask, by: Matrix) -> list[Cause]:
    """Return a cause for each of these pairs, the largest change first."""
    places = np.argwhere(single)[np.argsort(-by[single], kind="stable")]
    return [Cause("pair", (i,), (j,), (np.array([i]), np.array([j]))) for i, j in places.tolist()]


def describe(
    cause: Cause, names: Sequence[str], what: str, verdict: str, values: tuple[Matrix, Matrix, Matrix] | None = None
) -> NetworkChange:
    """Return the change that a cause describes, with host names and the values of one of its pairs.

    The pair is the one whose change is the median, the larger of two. Separate medians of the old and the new values
    would belong to different pairs.

    :param values: old values, new values, and the change by which pairs are ordered, shape (N, N) each.
    """
    was = now = None
    if values is not None:
        old, new, by = (matrix[cause.pairs] for matrix in values)
        order = np.lexsort((old, np.round(-by if verdict == BETTER else by, 9)))  # of equal changes the middle value
        middle = order[len(order) // 2]
        was, now = float(old[middle]), float(new[middle])
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
