"""Orders to begin with: the given one, groups kept together, and the leaves of a hierarchy found in the latencies."""

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from plink.network import Matrix
from solvers.costs.fabric import Fabric

Order = npt.NDArray[np.intp]
_OPTIMAL_UP_TO = 600  # hosts: ordering the leaves takes the cube of their number


def initial_orders(fabric: Fabric, given: Order) -> list[Order]:
    """Different orders of the ranks in ``given`` (the host at each rank; a host may have several), that one first.

    The hierarchy is that of average linkage, its leaves turned so that neighbours are near each other (Bar-Joseph,
    Gifford and Jaakkola 2001), once as it is and once with groups of a power of two first: what halving and doubling
    exchange among themselves then starts where a subtree starts.
    """
    orders = [given, given[np.argsort(fabric.group_of[given], kind="stable")]]
    hosts = np.unique(given)
    if len(hosts) > 2:
        place = np.full(len(fabric.names), -1, dtype=np.intp)
        leaves = hosts[_leaves(fabric.rtt_us[np.ix_(hosts, hosts)])]
        place[leaves] = np.arange(len(leaves))
        orders.append(given[np.argsort(place[given], kind="stable")])
        # Groups as they follow each other in the hierarchy, the large ones first: fewer of them straddle a boundary.
        size = np.bincount(fabric.group_of[given], minlength=int(fabric.group_of.max()) + 1)
        first = np.full(len(size), len(leaves))
        np.minimum.at(first, fabric.group_of[leaves], place[leaves])
        orders.append(given[np.lexsort((place[given], first[fabric.group_of[given]], -size[fabric.group_of[given]]))])
    found: dict[bytes, Order] = {}
    for order in orders:
        found.setdefault(order.tobytes(), order)
    return list(found.values())


def _leaves(rtt_us: Matrix) -> Order:
    distances = squareform(rtt_us, checks=False)
    tree = linkage(distances, method="average")
    if len(rtt_us) <= _OPTIMAL_UP_TO:
        tree = optimal_leaf_ordering(tree, distances)
    return np.asarray(leaves_list(tree), dtype=np.intp)
