"""How long the bandwidths of all pairs take: rounds of disjoint pairs, as many at a time as shared links carry."""

from collections.abc import Sequence

import numpy as np

from plink.features.measure.shared_links import link_limits
from plink.model.network_file import SharedTierEntry
from probes.plan import LinkAwarePlan

ROUND_DRAIN_S = 0.05  # what is still queued of one round; more is left out with the ramp of TCP
_ROUND_OVERHEAD_S = 0.03
_MAX_SIMULATED_HOSTS = 64


def bandwidth_rounds(names: Sequence[str], tiers: Sequence[SharedTierEntry], seed: int) -> int:
    """Return the number of rounds; above 64 hosts at least so many.

    :param tiers: ``shared_links`` of the network file.
    """
    n, limits = len(names), link_limits(names, tiers)
    rounds = n - 1 + n % 2
    if not limits:
        return rounds
    if n > _MAX_SIMULATED_HOSTS:
        inside = [int(limit.members.sum()) for limit in limits]
        crossing = [hosts * (n - hosts) / limit.max_flows for hosts, limit in zip(inside, limits, strict=True)]
        return max(rounds, *(int(np.ceil(pairs)) for pairs in crossing))
    plan, unmeasured, planned = LinkAwarePlan(n, seed, limits), np.full((n, n), np.nan), 0
    while plan.next_round(unmeasured) is not None:
        planned += 1
    return planned


def round_seconds(flow_s: float, both_at_once: bool) -> float:
    """Return how long a round of TCP flows takes."""
    return (1 if both_at_once else 2) * (flow_s + _ROUND_OVERHEAD_S) + ROUND_DRAIN_S
