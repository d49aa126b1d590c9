"""Compare the packet loss of pairs."""

from collections.abc import Sequence

import numpy as np

from plink.model.comparison import NetworkChange
from plink.model.network import Matrix
from solvers.changes.aligned import Aligned, Labels, Mask, Side
from solvers.changes.network_change import BETTER, WORSE, ChangeThresholds, PairChanges, describe
from solvers.changes.noise import Noise, chance

_DEFAULT_SAMPLES = 100.0  # of a pair, where a file has no number
_BURST_FACTOR = 2.0  # of the binomial standard error: losses come in bursts


def losses(
    aligned: Aligned, groupings: Sequence[Labels], differ: Mask, limits: ChangeThresholds
) -> list[NetworkChange]:
    """Return which pairs lose more or fewer packets; nothing where a file has no losses.

    :raises InputError: when a file's losses or samples are not matrices.
    """
    sides = [_lost(side, ~differ) for side in (aligned.old, aligned.new)]
    if sides[0] is None or sides[1] is None:
        return []
    (was, sent_then), (now, sent_now) = sides[0], sides[1]
    measured = np.isfinite(was) & np.isfinite(now)
    np.fill_diagonal(measured, False)
    was, now = (np.where(measured, share, 0.0) for share in (was, now))
    both = (was * sent_then + now * sent_now) / np.maximum(1, sent_then + sent_now)
    # At least one loss: the standard error of zero losses would be 0.
    both = np.maximum(both, 1 / np.maximum(1, sent_then + sent_now))
    sigma = _BURST_FACTOR * np.sqrt(both * (1 - both) * (1 / np.maximum(1, sent_then) + 1 / np.maximum(1, sent_now)))
    by = now - was
    change = PairChanges(by, measured, measured, limits.loss, Noise(sigma, chance(int(np.triu(measured, 1).sum()))))
    return [
        describe(cause, aligned.names, "loss", verdict, (was, now, by))
        for sign, verdict in ((1, WORSE), (-1, BETTER))
        for cause in change.causes(groupings, sign)
    ]


def _lost(side: Side, comparable: Mask) -> tuple[Matrix, Matrix] | None:
    """Return the share of a pair's probes that were lost in either direction, and how many were sent.

    Both have shape (N, N) and are symmetric; NaN where unmeasured, and where no probe came back.
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
        return np.where(total > 0, (lost + lost.T) / total, np.nan), total
