"""Probes that were lost: more of them, or fewer."""

from collections.abc import Sequence

import numpy as np

from plink.model.network import Matrix
from solvers.changes.aligned import Aligned, Labels, Mask, Side
from solvers.changes.finding import BETTER, WORSE, Change, Finding, Limits, told
from solvers.changes.noise import Noise, chance

_SAMPLES = 100.0  # where a file does not say how many
_BURSTS = 2.0  # losses come several at a time: the spread of their number is so much more than a coin's


def losses(aligned: Aligned, groupings: Sequence[Labels], differ: Mask, limits: Limits) -> list[Finding]:
    """What loses more of its packets now, or fewer; nothing where a file says nothing of losses.

    :raises InputError: when a file's losses or samples are no matrices.
    """
    sides = [_lost(side, ~differ) for side in (aligned.old, aligned.new)]
    if sides[0] is None or sides[1] is None:
        return []
    (was, sent_then), (now, sent_now) = sides[0], sides[1]
    measured = np.isfinite(was) & np.isfinite(now)
    np.fill_diagonal(measured, False)
    was, now = (np.where(measured, share, 0.0) for share in (was, now))
    both = (was * sent_then + now * sent_now) / np.maximum(1, sent_then + sent_now)
    # One loss more than there were: of none lost no spread could be told.
    both = np.maximum(both, 1 / np.maximum(1, sent_then + sent_now))
    sigma = _BURSTS * np.sqrt(both * (1 - both) * (1 / np.maximum(1, sent_then) + 1 / np.maximum(1, sent_now)))
    by = now - was
    change = Change(by, measured, measured, limits.loss, Noise(sigma, chance(int(np.triu(measured, 1).sum()))))
    return [
        told(cause, aligned.names, "loss", verdict, (was, now, by))
        for sign, verdict in ((1, WORSE), (-1, BETTER))
        for cause in change.causes(groupings, sign)
    ]


def _lost(side: Side, comparable: Mask) -> tuple[Matrix, Matrix] | None:
    """The share of a pair's probes that were lost on either way, and how many were sent, shape (N, N), symmetric; NaN
    where unmeasured, and where nothing came back: such a pair is missing."""
    forward, back, samples = (side.detail(key) for key in ("loss_forward", "loss_back", "samples"))
    if forward is None:
        return None
    there = np.isfinite(forward) & np.isfinite(side.latency()) & comparable
    came_back = 1.0 if back is None else 1 - np.nan_to_num(back)
    share = np.clip(1 - np.where(there, 1 - forward, 1.0) * came_back, 0.0, 1.0)
    received = np.full_like(share, _SAMPLES) if samples is None else np.nan_to_num(samples)
    sent = np.where(there, received / np.maximum(1 - share, 1e-6), 0.0)
    lost, total = share * sent, sent + sent.T
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, (lost + lost.T) / total, np.nan), total
