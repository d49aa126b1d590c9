"""Changes between two networks, and their derivation from causes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.network import Matrix
from solvers.changes.aligned import Labels, Mask
from solvers.changes.causes import Cause, Pairs, explain
from solvers.changes.noise import Noise

WORSE, BETTER, CHANGED = "worse", "better", "changed"


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
class NetworkChange:
    """One change: what changed, of which hosts, from which value to which.

    ``what``: ``latency`` (us), ``loss`` (share), ``rate`` (a pair's bandwidth, Gbit/s), ``capacity`` (of what a
    group shares, Gbit/s), ``unmeasured``, ``hops``. ``where``: the kind of a :class:`~solvers.changes.causes.Cause`, of
    ``hosts`` to ``others`` (none: to all others, or among themselves). ``old``, ``new``: the values of the pair whose
    change is the median of the ``pairs`` that it explains, NaN where there is none. ``way``: direction of a capacity,
    ``out`` or ``in``.
    """

    what: str
    verdict: str
    where: str
    hosts: tuple[str, ...]
    others: tuple[str, ...]
    old: float
    new: float
    pairs: int
    way: str = ""


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
    was = now = float("nan")
    if values is not None:
        old, new, by = (matrix[cause.pairs] for matrix in values)
        order = np.lexsort((old, np.round(-by if verdict == BETTER else by, 9)))  # of equal changes the middle value
        middle = order[len(order) // 2]
        was, now = float(old[middle]), float(new[middle])
    near, far = (tuple(names[host] for host in hosts) for hosts in (cause.near, cause.far))
    return NetworkChange(what, verdict, cause.kind, near, far, was, now, len(cause.pairs[0]))
