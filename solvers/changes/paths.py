"""Compare which pairs were measured, and the number of routers between them."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from plink.model.comparison import NetworkChange
from solvers.changes.aligned import Aligned, Labels, Mask, Side
from solvers.changes.causes import Cause, explain
from solvers.changes.network_change import BETTER, CHANGED, WORSE, describe, pairs_of


def missing(aligned: Aligned, groupings: Sequence[Labels]) -> list[NetworkChange]:
    """Return pairs that one file has and the other lacks in both directions.

    Adaptive probing leaves most pairs out on purpose: in such a file only those count whose measurement failed.
    """
    there = [np.isfinite(side.latency()) for side in (aligned.old, aligned.new)]
    had, have = (mask | mask.T for mask in there)
    findings = []
    for verdict, first, lacks, side in ((WORSE, had, ~have, aligned.new), (BETTER, have, ~had, aligned.old)):
        if side.network.details.plan == "adaptive":
            lacks = lacks & _failed(side, aligned.names)
        tell = partial(describe, names=aligned.names, what="unmeasured", verdict=verdict)
        findings += _findings(first, lacks, groupings, tell)
    return findings


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
    return _findings(measured, changed, groupings, tell)


def _findings(
    measured: Mask, moved: Mask, groupings: Sequence[Labels], tell: Callable[[Cause], NetworkChange]
) -> list[NetworkChange]:
    moved = measured & moved
    if not moved.any():
        return []
    result, unexplained = explain(measured, moved, groupings, lambda pairs: bool(moved[pairs].all()))
    result += pairs_of(np.triu(unexplained & moved, 1), moved.astype(float))
    return [tell(cause) for cause in result]


def _failed(side: Side, names: Sequence[str]) -> Mask:
    index = {name: k for k, name in enumerate(names)}
    mask = np.zeros((len(names), len(names)), dtype=bool)
    for row in side.network.errors:
        if row.source in index and row.target in index:
            mask[index[row.source], index[row.target]] = True
    return mask | mask.T
