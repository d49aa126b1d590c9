"""The schedule that a plan stands for."""

from dataclasses import fields

import numpy as np

from plink.errors import UsageError
from plink.model.plan import Plan
from plink.model.schedule import Schedule, forward_and_reverse
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.hierarchical import two_level_reduce_scatter


def schedule_of(plan: Plan) -> Schedule:
    """The plan's schedule: the one it holds, or made again from its masters, or from its algorithm and options.

    :raises UsageError: for an algorithm or an option that there is none of.
    """
    if plan.schedule is not None:
        return plan.schedule
    if plan.masters is not None and plan.groups is not None:
        group_of = np.empty(plan.ranks, dtype=np.int32)
        for number, group in enumerate(plan.groups):
            group_of[list(group)] = number
        return forward_and_reverse(
            two_level_reduce_scatter(plan.groups, plan.masters.local_masters, group_of[plan.masters.global_masters])
        )
    strange = set(plan.options) - {field.name for field in fields(Options)}
    if strange:
        raise UsageError(f"the plan's options: there is no {min(strange)}")
    return schedule_for(plan.algo, plan.ranks, Options(**plan.options))
