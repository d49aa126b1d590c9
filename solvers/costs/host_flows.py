"""Rates of hosts from bounded flows between disjoint pairs of them.

A flow is as fast as the slower of its two ends and of the links between them, so a host's rate is the best that it had
with any partner.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix, Network
from plink.model.network_file import was_tried

Vector = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
SLOW_SHARE = 0.5  # of the median of the others; below it is no noise of TCP's
_SIGMA_OF_MEDIAN_DEVIATION = 1.4826
_GAP_SIGMAS = 4.0  # between neighbours in rate; ten of a host's flows' median, of four flows
_MIN_GAP = 1.15  # ratio: other traffic, and slow starts of TCP, are no noise that repeats show
_MAX_SPAN = 1.5  # gaps, of the fastest over the slowest of a class: six standard deviations of a flow
_MIXTURE_STEPS = 50
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


def ports_without_flows(network: Network) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the ways (``out``, ``in``) by which no flow came through interfaces, by (host, interface).

    An attempt must be on record. Hosts that were lost, or had no flow at all, have findings of their own: their
    interfaces are left out, and those with no others on their switch.

    :raises InputError: when the file's interfaces are invalid.
    """
    entry, names = network.interfaces, network.hosts.names
    if entry is None or not (entry.out_gbps and entry.in_gbps and entry.errors):
        return {}
    up = {name for flow in network.host_flows for name in (flow.source, flow.target)}
    up |= {name for rows in (entry.out_gbps, entry.in_gbps) for name, row in zip(names, rows, strict=True) if any(row)}
    up -= network.lost_hosts.keys()
    result = {}
    for ports in entry.switches:
        hosts = {host for host, _ in ports if names[host] in up}
        for host, k in ports:
            reason = entry.errors[host][k] or ""
            is_own = reason.startswith(f"{names[host]}: ")  # its agent's end
            ways = tuple(way for way, rows in (("out", entry.out_gbps), ("in", entry.in_gbps)) if rows[host][k] is None)
            if ways and was_tried(reason) and not is_own and host in hosts and len(hosts) > 1:
                result[host, k] = ways
    return result


def flow_noise(flows: Sequence[Flow]) -> float:
    """Return the relative standard deviation of a flow: a pair repeats each flow while another goes the other way.

    By the median deviation of the repeats' ratios from their median: flows both ways may all have less, and few hosts
    much less. 0 for fewer than two repeats.
    """
    alone = {(flow.source, flow.target): flow.gbps for flow in flows if not flow.both_ways and flow.gbps > 0}
    repeats = [flow.gbps / alone[pair] for flow in flows if flow.both_ways and flow.gbps > 0
               if (pair := (flow.source, flow.target)) in alone]  # fmt: skip
    if len(repeats) < 2:
        return 0.0
    ratios = np.log(repeats)
    return float(np.median(np.abs(ratios - np.median(ratios)))) * _SIGMA_OF_MEDIAN_DEVIATION / math.sqrt(2)


def class_gap(noise: float) -> float:
    """Return the ratio of rates above which two hosts differ: four standard deviations of a flow, 1.15 to 2.

    :param noise: relative standard deviation of a flow.
    """
    return min(max(math.exp(_GAP_SIGMAS * noise), _MIN_GAP), 1 / SLOW_SHARE)


@dataclass(frozen=True)
class RateEvidence:
    """What flows say of hosts' rates, out and in, shape (2, N) each.

    ``best_gbps``: NaN without flows. ``shown``: the other end of a flow was faster with others, so that the host was
    the limit. ``masked``: the other ends were the limit of all its flows, so that it may have any higher rate.
    ``top``: none of the others had more. ``gap``: the ratio above which rates differ.
    """

    best_gbps: Vector
    shown: Booleans
    masked: Booleans
    top: Booleans
    gap: float

    @property
    def unknown(self) -> Booleans:
        """Return of whom a faster partner might show more, shape (2, N): of nobody where all are alike."""
        measured = np.isfinite(self.best_gbps)
        return np.asarray(~self.shown & measured & (measured & ~self.top).any())


def rate_evidence(flows: Sequence[Flow], hosts: int) -> RateEvidence:
    """Return which rates the flows show: a flow is as fast as the slower of its two ends."""
    best, gap = np.array(best_rates(flows, hosts)), class_gap(flow_noise(flows))
    ends = np.array([(flow.source, flow.target) for flow in flows], dtype=np.intp).reshape(-1, 2).T
    gbps = np.array([flow.gbps for flow in flows])
    shown, plausible = np.zeros_like(best, dtype=bool), np.zeros_like(best, dtype=bool)
    near = [gbps * gap >= best[way, ends[way]] for way in (0, 1)]
    for way in (0, 1):
        faster = best[1 - way, ends[1 - way]] > gbps * gap
        shown[way, ends[way, near[way] & faster]] = True
    for way in (0, 1):
        plausible[way, ends[way, near[way] & ~shown[1 - way, ends[1 - way]]]] = True
    top = best * gap >= np.nanmax(best, axis=1, initial=0.0)[:, None]
    return RateEvidence(best, shown, ~shown & ~plausible & np.isfinite(best), top, gap)


def revealing_pairs(flows: Sequence[Flow], rtt_us: Matrix) -> list[tuple[int, int]]:
    """Return disjoint pairs of hosts that have met nobody faster with the fastest that they have not met, the nearest
    of these.

    Hosts whose partners were all slower come first, the fastest of them first. None where all hosts are alike.

    :param rtt_us: symmetric round trips, shape (N, N), NaN where unmeasured.
    """
    n = len(rtt_us)
    evidence = rate_evidence(flows, n)
    unknown, best = evidence.unknown, np.nan_to_num(evidence.best_gbps)
    met = np.eye(n, dtype=bool)
    for flow in flows:
        met[flow.source, flow.target] = met[flow.target, flow.source] = True
    free = np.asarray(np.isfinite(evidence.best_gbps).all(axis=0))
    distance = np.nan_to_num(rtt_us, nan=np.inf)
    pairs = []
    for host in np.lexsort((-best.min(axis=0), -evidence.masked.sum(axis=0), evidence.top.all(axis=0))).tolist():
        ways = np.flatnonzero(unknown[:, host])
        if not (free[host] and len(ways)):
            continue
        other, own = best[1 - ways], best[ways, host, None]
        # They take more than it has sent so far, or may do so.
        faster = (other > own * evidence.gap) | (unknown[1 - ways] & (other * evidence.gap > own))
        candidates = np.flatnonzero(free & ~met[host] & faster.any(axis=0))
        if len(candidates):
            tops, least = evidence.top[1 - ways].sum(axis=0)[candidates], other.min(axis=0)[candidates]
            partner = int(candidates[np.lexsort((distance[host, candidates], -least, -tops))[0]])
            free[host] = free[partner] = False
            pairs.append((min(host, partner), max(host, partner)))
    return pairs


def class_rates(flows: Sequence[Flow], hosts: int) -> tuple[Vector, Vector] | None:
    """Return what each host sends and receives, Gbit/s, two of shape (N,); None without flows.

    A host's own rate is the median of its flows near the best. Hosts between whose rates there is no gap
    (:func:`class_gap`) are a class and have its median rate, so that noise does not tell them apart. A host whose
    partners were all slower, or that has no flows, has at least the median of all hosts.
    """
    evidence = rate_evidence(flows, hosts)
    rates = []
    for way, best in enumerate(evidence.best_gbps):
        if not np.isfinite(best).any():
            return None
        near: dict[int, list[float]] = {}
        for flow in flows:
            host = (flow.source, flow.target)[way]
            if flow.gbps * evidence.gap >= best[host]:
                near.setdefault(host, []).append(flow.gbps)
        own = np.array([np.median(near[host]) if host in near else np.nan for host in range(hosts)])
        rate, usual = by_classes(own, flow_noise(flows)), float(np.nanmedian(own))
        rates.append(np.where(evidence.masked[way], np.fmax(rate, usual), np.where(np.isnan(rate), usual, rate)))
    return rates[0], rates[1]


def by_classes(own: Vector, noise: float) -> Vector:
    """Return the median rate of each host's class, shape (N,); NaN stays.

    Where a chain of hosts without gaps spans more than noise does, each has its mean by the mixture of rates that
    explains the measured ones best (Kiefer and Wolfowitz, Annals of Mathematical Statistics 27, 1956): its own where
    there is no noise.

    :param own: Gbit/s, shape (N,). :param noise: relative standard deviation of a flow.
    """
    rates, gap = own.copy(), class_gap(noise)
    order = np.argsort(own)[: np.isfinite(own).sum()]
    for members in np.split(order, np.flatnonzero(own[order[1:]] > gap * own[order[:-1]]) + 1):
        if own[members[-1]] <= own[members[0]] * gap**_MAX_SPAN:
            rates[members] = np.median(own[members])
        elif noise > 0:
            logs = np.log(own[members])
            share = likelihood = np.exp(-(((logs[:, None] - logs) / noise) ** 2) / 2)
            for _ in range(_MIXTURE_STEPS):  # expectation maximisation of the mixture's weights
                share = share / share.sum(axis=1, keepdims=True)
                share = likelihood * share.mean(axis=0)
            rates[members] = np.exp(share @ logs / share.sum(axis=1))
    return rates
