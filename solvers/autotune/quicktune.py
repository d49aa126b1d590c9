"""Quicktune: all masters dealt anew at once, in proportion to what ranks were seen to carry (PLink thesis, 4.2.3)."""

import numpy as np

from solvers.autotune.observed import MasterAssignment, ObservedTraffic
from solvers.schedules.masters import Weights, equal_chunks


def quicktune(assignment: MasterAssignment, observed: ObservedTraffic, alike: float = 0.0) -> MasterAssignment:
    """The same groups and as many chunks, of equal size; global masters in proportion to each group's rate, local ones
    to each member's.

    The thesis approximates "minimise the largest transfer time of a rank" so. It adds up the bandwidths of all pairs
    that leave a group, by which two groups would always weigh the same; here a group weighs the sum of its members'
    mean rates, as in :func:`solvers.planning.bandwidth_weights`.

    :param alike: rates no further than this share from their median are taken for equal to it: what two runs on the
        same network differ by is no reason to load one rank more than another.
    """
    rates = observed.rates()
    middle = float(np.median(rates))
    rates = np.where(np.abs(rates - middle) <= alike * middle, middle, rates)
    groups = np.array([rates[np.asarray(line)].sum() for line in assignment.groups])
    local_masters, global_group = equal_chunks(assignment.groups, len(assignment.global_group), Weights(groups, rates))
    return MasterAssignment(assignment.groups, local_masters, global_group)
