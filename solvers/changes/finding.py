"""One thing that changed: what, whose, from what to what; and from causes to such findings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.network import Matrix
from solvers.changes.aligned import Labels, Mask
from solvers.changes.causes import Cause, Pairs, explain
from solvers.changes.noise import Noise

WORSE, BETTER, CHANGED = "worse", "better", "changed"


@dataclass(frozen=True)
class Limits:
    """What is worth naming. ``share``: the smallest relative change (0.25: 1.25 times as long, or a rate of 1 / 1.25);
    ``floor_us``: of round trips so many microseconds besides; ``loss``: the smallest rise of a loss, a share."""

    share: float = 0.25
    floor_us: float = 10.0
    loss: float = 0.001


@dataclass(frozen=True)
class Finding:
    """``what``: ``latency`` (us), ``loss`` (share), ``rate`` (a pair's bandwidth, Gbit/s), ``capacity`` (of what a
    group shares, Gbit/s), ``unmeasured``, ``hops``. ``where``: the kind of a :class:`~solvers.changes.causes.Cause`, of
    ``hosts`` to ``others`` (none: to all others, or among themselves). ``old``, ``new``: of the ``pairs`` that
    it explains that which changed by the median, NaN where there is none. ``way``: of a capacity, ``out`` or ``in``."""

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
class Change:
    """How each pair changed, all of shape (N, N), symmetric: ``by``, above 0 where worse; ``known``: where both files
    say; ``matters``: where it is large enough besides; ``least``: the smallest ``by`` worth naming."""

    by: Matrix
    known: Mask
    matters: Mask
    least: float
    noise: Noise

    def causes(self, groupings: Sequence[Labels], sign: int) -> list[Cause]:
        """What got worse (``sign`` 1) or better (-1), pairs that nothing else explains last and the largest first."""
        by = sign * self.by
        signs = self.noise.signs(by, self.least)
        result, left = explain(self.known, signs, groupings, lambda pairs: self._holds(by, pairs))
        single = np.triu(left & (by > self.least) & self.matters & self.noise.beyond(self.by), 1)
        return result + pairs_of(single, by)

    def _holds(self, by: Matrix, pairs: Pairs) -> bool:
        large = float(np.median(by[pairs])) > self.least and bool(np.median(self.matters[pairs]) >= 1)
        return large and self.noise.holds(by, pairs)


def pairs_of(single: Mask, by: Matrix) -> list[Cause]:
    """A cause for each of these pairs, the largest first."""
    places = np.argwhere(single)[np.argsort(-by[single], kind="stable")]
    return [Cause("pair", (i,), (j,), (np.array([i]), np.array([j]))) for i, j in places.tolist()]


def told(
    cause: Cause, names: Sequence[str], what: str, verdict: str, values: tuple[Matrix, Matrix, Matrix] | None = None
) -> Finding:
    """A cause in names, with what one pair had and has (``values``: before, after, and the change that it is judged
    by): that whose change is the median one, of two the larger (the smaller may not be worth naming). Medians of before
    and after by themselves would be of different pairs, and the same where nearly all have changed."""
    was = now = float("nan")
    if values is not None:
        old, new, by = (matrix[cause.pairs] for matrix in values)
        order = np.lexsort((old, np.round(-by if verdict == BETTER else by, 9)))  # of equal ones the size is middling
        middle = order[len(order) // 2]
        was, now = float(old[middle]), float(new[middle])
    near, far = (tuple(names[host] for host in hosts) for hosts in (cause.near, cause.far))
    return Finding(what, verdict, cause.kind, near, far, was, now, len(cause.pairs[0]))
