"""How long a ring all-reduce takes when links are the limit: hosts' own, and those that groups of hosts share."""

import numpy as np
import numpy.typing as npt


def ring_seconds(
    group_of: npt.NDArray[np.intp], order: npt.NDArray[np.intp], size_bytes: float, host_bps: float, uplink_bps: float
) -> float:
    """Seconds that the busiest link needs for a ring all-reduce.

    Every rank sends 2(N-1)/N of the data to its neighbour (Patarasuk and Yuan 2009); an uplink carries that once for
    every hop of the ring that leaves (as many enter) its group. Latency and the ends of the pipeline are left out.

    :param group_of: shape (N,), the group of every host; :param order: shape (N,), the host at each rank.
    """
    n = len(order)
    if n < 2:
        return 0.0
    sent_bits = 8 * size_bytes * 2 * (n - 1) / n
    groups = group_of[order]
    leaving = np.bincount(groups[groups != np.roll(groups, -1)], minlength=1)
    return float(sent_bits * max(1 / host_bps, leaving.max() / uplink_bps))
