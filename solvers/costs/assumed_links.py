"""Links of groups whose capacities nobody measured: tiers by the round trips, capacities by an assumption.

Round trips show which hosts are behind the same switch, not what its uplink carries. A link is taken to carry what
enters it from the tier below, over an oversubscription. Data centres have 1 to 5 at a rack's switch and more above
(Greenberg et al. 2009, VL2, section 2.1), so that any one figure may be wrong by a factor of two for one group and not
for another.
"""

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.hierarchy.shared_tiers import candidate_tiers
from solvers.hierarchy.tiers import MIN_RATIO

OVERSUBSCRIPTION = 2.5
OVERSUBSCRIPTION_RANGE = (1.5, 4.0)  # between which draws are

Labels = npt.NDArray[np.intp]
Vector = npt.NDArray[np.float64]
Rates = tuple[Vector, Vector]  # out and in


def tiers_from(rtt_us: Matrix, group_of: Labels) -> list[Labels]:
    """Return the groups, and those of the tiers above them that stand out in the round trips, shape (N,) each.

    :param rtt_us: symmetric, complete, shape (N, N).
    """
    groups = [np.flatnonzero(group_of == group).tolist() for group in range(int(group_of.max()) + 1)]
    labels = [group_of]
    for tier in candidate_tiers(rtt_us, groups, MIN_RATIO):
        labels.append(np.zeros(len(rtt_us), dtype=np.intp))
        for number, members in enumerate(tier):
            labels[-1][members] = number
    return labels


def assumed_capacities(labels: list[Labels], hosts: Rates, rng: np.random.Generator | None = None) -> list[Rates]:
    """Return the capacities (out, in) of each tier's groups, Gbit/s, from the innermost tier out.

    None is below that of the group's fastest host. A host alone, and a tier of one group, have no limit.

    :param labels: as :func:`tiers_from`. :param hosts: their own rates, shape (N,) each. :param rng: draws each group's
        oversubscription, the same both ways, from 1.5 to 4; None: 2.5 for all.
    """
    result, entering = list[Rates](), hosts
    for label in labels:
        size = np.bincount(label)
        ratio: Vector | float = OVERSUBSCRIPTION if rng is None else rng.uniform(*OVERSUBSCRIPTION_RANGE, len(size))
        shared, shares = list[Vector](), list[Vector]()
        for own, rates in zip(hosts, entering, strict=True):
            fastest = np.zeros(len(size))
            np.maximum.at(fastest, label, own)
            capacity = np.maximum(np.bincount(label, rates) / ratio, fastest)
            shared.append(np.where((size == 1) | (size == len(label)), np.inf, capacity))
            shares.append(np.minimum(rates, (shared[-1] / size)[label]))
        result.append((shared[0], shared[1]))
        entering = shares[0], shares[1]
    return result
