"""Orders to begin with: the given one, groups kept together, and the leaves of a hierarchy found in the latencies."""

import numpy as np
import numpy.typing as npt

from solvers.costs.fabric import Fabric
from solvers.grouping.even import leaves as leaves_of

Order = npt.NDArray[np.intp]


def initial_orders(fabric: Fabric, given: Order) -> list[Order]:
    """Different orders of the ranks in ``given`` (the host at each rank; a host may have several), that one first.

    The leaves of the hierarchy (:mod:`solvers.grouping.even`) once as they are and once with large groups first: what
    halving and doubling exchange among themselves then starts where a subtree starts.
    """
    orders = [given, given[np.argsort(fabric.group_of[given], kind="stable")]]
    hosts = np.unique(given)
    if len(hosts) > 2:
        place = np.full(len(fabric.names), -1, dtype=np.intp)
        leaves = hosts[leaves_of(fabric.rtt_us[np.ix_(hosts, hosts)])]
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
