"""ZipLine: the barrier of a superstep at which workers wait least (Zhao et al., ElasticBSP, 2019, IV, Algorithm 2)."""

import math

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError

Vector = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]


def barrier(ends_s: npt.ArrayLike) -> tuple[float, Counts]:
    """Return how long the first worker waits at the best barrier, and how many steps each worker does until then.

    One end of each worker is taken so that the latest and the earliest of them are nearest to each other, the first
    such choice in time. The paper goes through all ends in time and drops the earliest of its choice, in O(R n^2). Here
    all windows are looked at together: a window that ends with the r-th end of all may begin as late as no worker's
    only end is left out, which rises with r. That takes a sort and two scans, O(Rn log Rn). How sure predictions are
    does not matter: nearer barriers are more, and no less waiting (docs/results/rules.md).

    :param ends_s: shape (n, R), when each of n workers is predicted to end each of its next R steps, rising by rows.
    :returns: seconds, and the steps of each worker, shape (n,), 1 to R.
    :raises UsageError: for no workers or steps, or ends that are no rising finite numbers.
    """
    ends = np.asarray(ends_s, dtype=np.float64)
    if ends.ndim != 2 or not ends.size:
        raise UsageError(f"ends of steps of shape {ends.shape}: one row a worker, one column a step")
    workers, steps = ends.shape
    total = ends.size
    flat = ends.ravel()
    order = flat.argsort(kind="stable")
    in_time = flat[order]  # NaN would be last
    rising = np.logical_and.reduce(ends[:, 1:] >= ends[:, :-1], axis=None)
    if not (math.isfinite(in_time[0]) and math.isfinite(in_time[-1]) and rising):
        raise UsageError("ends of steps must be finite, and each worker's must rise")
    place = np.empty((workers, steps), dtype=np.intp)
    place.ravel()[order] = np.arange(total)
    following = np.full(total, total, dtype=np.intp)
    following[place[:, :-1]] = place[:, 1:]
    # A window may begin at i when all workers with an end before i have another one within it.
    latest = np.maximum.accumulate(following)
    earliest_end = int(np.maximum.reduce(place[:, 0]))
    first = latest.searchsorted(np.arange(earliest_end, total), "right")
    waits = in_time[earliest_end:] - in_time[first]
    best = int(waits.argmin())
    return float(waits[best]), np.add.reduce(place <= earliest_end + best, axis=1, dtype=np.intp)
