"""Rates of hosts from bounded flows between disjoint pairs of them.

A flow is as fast as the slower of its two ends and of the links between them, so a host's rate is the best that it had
with any partner.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Network

Vector = npt.NDArray[np.float64]
SLOW_SHARE = 0.5  # of the median of the others; below it is no noise of TCP's
MIN_OTHERS = 2  # hosts to compare with: of two hosts nobody knows which is slow


@dataclass(frozen=True)
class Flow:
    """What one flow from ``source`` to ``target`` carried; ``both_ways``: while another went the other way."""

    source: int
    target: int
    gbps: float
    both_ways: bool = False


def best_rates(flows: Sequence[Flow], hosts: int) -> tuple[Vector, Vector]:
    """Return what each host sent and received at best, Gbit/s, two of shape (N,); NaN where it had no flow."""
    sent, received = np.full(hosts, np.nan), np.full(hosts, np.nan)
    for flow in flows:
        sent[flow.source] = np.fmax(sent[flow.source], flow.gbps)
        received[flow.target] = np.fmax(received[flow.target], flow.gbps)
    return sent, received


def unreached_hosts(flows: Sequence[Flow], failed: Sequence[tuple[int, int]]) -> list[int]:
    """Return the hosts that no flow reached, or that no flow left, though it was tried.

    Of the two ends of a failed flow that is the one which fails with every other host. Where both do, and no other flow
    says which it is, both are.

    :param failed: (source, target) of flows that did not come through.
    """
    sources, targets = {flow.source for flow in flows}, {flow.target for flow in flows}
    unreached = {source for source, target in failed if source not in sources and target in targets}
    unreached |= {target for source, target in failed if target not in targets and source in sources}
    unexplained = [
        pair for pair in failed if pair[0] not in sources and pair[1] not in targets and unreached.isdisjoint(pair)
    ]
    return sorted(unreached.union(*unexplained))


def flows_of(network: Network) -> list[Flow]:
    """Return the flows of a network file between hosts that it has.

    :raises InputError: when its ``host_flows`` are no such list.
    """
    index = {name: k for k, name in enumerate(network.hosts.names)}
    return [
        Flow(index[row.source], index[row.target], row.gbps, row.both_ways)
        for row in network.host_flows
        if row.source in index and row.target in index
    ]


def failed_flows_of(network: Network) -> list[tuple[int, int]]:
    """Return (source, target) of the flows of a network file that did not come through, between hosts that it has.

    :raises InputError: when its ``host_flow_errors`` are no such list.
    """
    index = {name: k for k, name in enumerate(network.hosts.names)}
    return [
        (index[row.source], index[row.target])
        for row in network.host_flow_errors
        if row.source in index and row.target in index
    ]


def usual_rates(flows: Sequence[Flow], hosts: int) -> tuple[Vector, Vector] | None:
    """Return what each host sends and receives, Gbit/s, two of shape (N,); None without flows.

    Flows of half a second are too noisy to tell equal hosts apart: a host with at least half the median rate has the
    median rate, and so has one without flows. Slower ones have their own.
    """
    rates = []
    for best in best_rates(flows, hosts):
        if not np.isfinite(best).any():
            return None
        usual = float(np.nanmedian(best))
        rates.append(np.where(best < SLOW_SHARE * usual, best, usual))
    return rates[0], rates[1]
