"""Rates of hosts, told from bounded flows between disjoint pairs: who sends or receives far less than the others.

A flow is as fast as the slower of its two ends and of the links between them, so a host's rate is the best that it had
with any partner. A host whose best is far below the others' is a suspect; a flow with a host that is known to be fast,
and nothing else at the same time, says whether it is the host or who it met.
"""

from collections.abc import Sequence

import numpy as np

from plink.model.network import Matrix
from solvers.costs.host_flows import MIN_OTHERS, SLOW_SHARE, Flow, best_rates
from solvers.diagnosis.bandwidth import SlowHost

_HALF_DUPLEX = 0.65  # of both one-way rates: what both ways at once have left where they share one medium


def slow_by_flows(flows: Sequence[Flow], hosts: int) -> list[SlowHost]:
    """Return hosts whose best flow, out or in, has less than half the median of the other hosts', slowest first."""
    slow: dict[int, dict[str, tuple[float, float]]] = {}
    for way, rates in zip(("out", "in"), best_rates(flows, hosts), strict=True):
        for host in np.flatnonzero(np.isfinite(rates)).tolist():
            others = np.delete(rates, host)
            others = others[np.isfinite(others)]
            if len(others) >= MIN_OTHERS and rates[host] < SLOW_SHARE * np.median(others):
                slow.setdefault(host, {})[way] = (float(rates[host]), float(np.median(others)))
    suspects = [SlowHost(host, rates) for host, rates in slow.items()]
    return sorted(suspects, key=lambda suspect: min(rate for rate, _ in suspect.rates.values()))


def half_duplex(flows: Sequence[Flow], hosts: int, min_partners: int = 2) -> list[int]:
    """Return hosts that send and receive at once, together, no more than they do one way, with every partner tried.

    A partner of theirs shows the same with them, but not with others: fewer than ``min_partners`` say nothing.
    """
    alone = {(flow.source, flow.target): flow.gbps for flow in flows if not flow.both_ways}
    both = {(flow.source, flow.target): flow.gbps for flow in flows if flow.both_ways}
    shares: dict[int, list[float]] = {}
    for (a, b), rate in both.items():
        directions = {(a, b), (b, a)}
        if a < b and directions <= both.keys() and directions <= alone.keys():
            share = (rate + both[b, a]) / (alone[a, b] + alone[b, a])
            for host in (a, b):
                shares.setdefault(host, []).append(share)
    if len(shares) <= MIN_OTHERS:
        return []
    best = {host: max(seen) for host, seen in shares.items()}
    # Where all hosts have less both ways, as on few cores, that is no fault of one.
    limit = _HALF_DUPLEX * min(1.0, float(np.median(list(best.values()))))
    return sorted(host for host, seen in shares.items() if len(seen) >= min_partners and best[host] < limit)


def fast_partner(flows: Sequence[Flow], suspects: Sequence[int], host: int, rtt_us: Matrix) -> int | None:
    """Return the nearest host above suspicion to try a suspect against, of those as fast as the median; None if there
    is none.

    :param rtt_us: round trips, shape (N, N), NaN where unmeasured.
    """
    sent, received = best_rates(flows, len(rtt_us))
    rate = np.fmin(sent, received)
    good = [k for k in np.flatnonzero(np.isfinite(rate)).tolist() if k != host and k not in suspects]
    if not good:
        return None
    usual = float(np.median(rate[good]))
    good = [k for k in good if rate[k] >= usual * (1 - 1e-9)]
    return min(good, key=lambda k: (np.nan_to_num(rtt_us[host, k], nan=np.inf), -rate[k]))
