"""Orders to begin with: the given one, groups kept together, what a hierarchy and a spectrum of the latencies say."""

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.fabric import Fabric
from solvers.grouping.even import leaves as leaves_of

Order = npt.NDArray[np.intp]
_SPECTRAL_UP_TO = 1024  # hosts: all eigenvectors take the cube of their number


def initial_orders(fabric: Fabric, given: Order) -> list[Order]:
    """Different orders of the ranks in ``given`` (the host at each rank; a host may have several), that one first.

    The leaves of the hierarchy (:mod:`solvers.grouping.even`) once as they are and once with large groups first: what
    halving and doubling exchange among themselves then starts where a subtree starts. And hosts along the second
    eigenvector of their nearness's Laplacian (spectral seriation: Atkins, Boman and Hendrickson 1998).
    """
    orders = [given, given[np.argsort(fabric.group_of[given], kind="stable")]]
    hosts = np.unique(given)
    if len(hosts) > 2:
        place = np.full(len(fabric.names), -1, dtype=np.intp)
        leaves = hosts[leaves_of(fabric.rtt_us[np.ix_(hosts, hosts)])]
        place[leaves] = np.arange(len(leaves))
        orders.append(given[np.argsort(place[given], kind="stable")])
        if len(hosts) <= _SPECTRAL_UP_TO:
            along = hosts[_seriated(fabric.rtt_us[np.ix_(hosts, hosts)])]
            place[along] = np.arange(len(along))
            orders.append(given[np.argsort(place[given], kind="stable")])
            place[leaves] = np.arange(len(leaves))
        # Groups as they follow each other in the hierarchy, the large ones first: fewer of them straddle a boundary.
        size = np.bincount(fabric.group_of[given], minlength=int(fabric.group_of.max()) + 1)
        first = np.full(len(size), len(leaves))
        np.minimum.at(first, fabric.group_of[leaves], place[leaves])
        orders.append(given[np.lexsort((place[given], first[fabric.group_of[given]], -size[fabric.group_of[given]]))])
    found: dict[bytes, Order] = {}
    for order in orders:
        found.setdefault(order.tobytes(), order)
    return list(found.values())


def _seriated(rtt_us: Matrix) -> Order:
    """Near hosts near each other on a line, shape (N,)."""
    from scipy.linalg import eigh
    from threadpoolctl import threadpool_limits

    usual = float(np.median(rtt_us)) or 1.0
    near = np.exp(-rtt_us / usual)
    np.fill_diagonal(near, 0.0)
    with threadpool_limits(1):  # threads that wait for each other by spinning take seconds where a core is busy
        _, vectors = eigh(np.diag(near.sum(axis=1)) - near, subset_by_index=(1, 1))
    along = vectors[:, 0]
    # A vector and its negative are the same answer; which one comes out is up to the library.
    along = along if along[int(np.argmax(np.abs(along)))] > 0 else -along
    return np.argsort(np.round(along, 9), kind="stable")
