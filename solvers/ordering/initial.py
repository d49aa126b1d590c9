"""Start orders: the baseline, by group, by the hierarchy of the latencies, and by spectral seriation."""

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from plink.model.network import Matrix
from solvers.costs.fabric import Fabric
from solvers.grouping.even import leaves as leaves_of

Order = npt.NDArray[np.intp]
_SPECTRAL_MAX_HOSTS = 1024  # the eigenvectors take time in the cube of the number of hosts


def initial_orders(fabric: Fabric, baseline: Order) -> list[Order]:
    """Return different orders of the ranks in ``baseline`` (the host at each rank), which is the first of them.

    The leaves of the hierarchy (:mod:`solvers.grouping.even`), once as they are and once with large groups first, so
    that the blocks of halving-doubling begin where subtrees do. And the hosts along the second eigenvector of their
    similarity's Laplacian (spectral seriation: Atkins, Boman and Hendrickson 1998).
    """
    orders = [baseline, baseline[np.lexsort([tier.group_of[baseline] for tier in fabric.tiers])]]
    hosts = np.unique(baseline)
    if len(hosts) > 2:
        position = np.full(len(fabric.names), -1, dtype=np.intp)
        leaves = hosts[leaves_of(fabric.rtt_us[np.ix_(hosts, hosts)])]
        position[leaves] = np.arange(len(leaves))
        orders.append(baseline[np.argsort(position[baseline], kind="stable")])
        if len(hosts) <= _SPECTRAL_MAX_HOSTS:
            seriated = hosts[_seriated(fabric.rtt_us[np.ix_(hosts, hosts)])]
            position[seriated] = np.arange(len(seriated))
            orders.append(baseline[np.argsort(position[baseline], kind="stable")])
            position[leaves] = np.arange(len(leaves))
        # Groups as they follow each other in the hierarchy, the large ones first: fewer of them straddle a boundary.
        size = np.bincount(fabric.group_of[baseline], minlength=int(fabric.group_of.max()) + 1)
        first_position = np.full(len(size), len(leaves))
        np.minimum.at(first_position, fabric.group_of[leaves], position[leaves])
        orders.append(
            baseline[
                np.lexsort(
                    (position[baseline], first_position[fabric.group_of[baseline]], -size[fabric.group_of[baseline]])
                )
            ]
        )
    different: dict[bytes, Order] = {}
    for order in orders:
        different.setdefault(order.tobytes(), order)
    return list(different.values())


def _seriated(rtt_us: Matrix) -> Order:
    """Return the hosts in an order that puts near hosts near each other, shape (N,)."""
    from scipy.linalg import eigh

    median_rtt = float(np.median(rtt_us)) or 1.0
    similarity = np.exp(-rtt_us / median_rtt)
    np.fill_diagonal(similarity, 0.0)
    with threadpool_limits(1):  # threads that wait for each other by spinning take seconds where a core is busy
        _, vectors = eigh(np.diag(similarity.sum(axis=1)) - similarity, subset_by_index=(1, 1))
    eigenvector = vectors[:, 0]
    # A vector and its negative are both solutions; which one the library returns may vary.
    eigenvector = eigenvector if eigenvector[int(np.argmax(np.abs(eigenvector)))] > 0 else -eigenvector
    return np.argsort(np.round(eigenvector, 9), kind="stable")
