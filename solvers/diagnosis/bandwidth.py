"""Slow hosts and slow shared links, from bandwidths: a limited rate that round trips do not show.

A host is slow when all its pairs are far slower than pairs of other hosts. A group's shared link is slow when it
carries far less than those of the other groups, in total and per host behind it.

Rates of hosts, told from bounded flows between disjoint pairs: who sends or receives far less than the others.

A flow is as fast as the slower of its two ends and of the links between them, so a host's rate is the best that it had
with any partner. A host whose best is far below the others' is a suspect; a flow with a host that is known to be fast,
and nothing else at the same time, says whether it is the host or who it met.

Interfaces that carry far less than others, by flows over each of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.host_flows import MIN_OTHERS, SLOW_SHARE, Flow, best_rates
from solvers.costs.shared_rows import Row, shared_rows

_HALF_DUPLEX = 0.65  # of both one-way rates: what both ways at once have left where they share one medium
Port = tuple[int, int]
Rates = Sequence[Sequence[float | None]]
_MIN_PAIRS = 3  # measured rates of a host, and of the other hosts, for a result
_MIN_GROUPS = 3  # for a median of the other groups


@dataclass(frozen=True)
class SlowHost:
    """Slow directions of a host (``out``, ``in``), each with its best rate and the median of others, Gbit/s."""

    host: int
    rates: dict[str, tuple[float, float]]


def slow_by_flows(flows: Sequence[Flow], hosts: int) -> list[SlowHost]:
    """Return hosts whose best flow, out or in, has less than half the median of the other hosts', slowest first.

    A host that met none but slow ones, each of which met more hosts than it did, is none: they explain its flows.
    """
    slow: dict[int, dict[str, tuple[float, float]]] = {}
    for way, rates in zip(("out", "in"), best_rates(flows, hosts), strict=True):
        for host in np.flatnonzero(np.isfinite(rates)).tolist():
            others = np.delete(rates, host)
            others = others[np.isfinite(others)]
            if len(others) >= MIN_OTHERS and rates[host] < SLOW_SHARE * np.median(others):
                slow.setdefault(host, {})[way] = (float(rates[host]), float(np.median(others)))
    met: dict[tuple[int, str], set[int]] = {}
    for flow in flows:
        met.setdefault((flow.source, "out"), set()).add(flow.target)
        met.setdefault((flow.target, "in"), set()).add(flow.source)
    suspects = []
    for host, rates_of_ways in slow.items():
        other_way = {"out": "in", "in": "out"}
        own = {
            way: rates
            for way, rates in rates_of_ways.items()
            if not all(
                other_way[way] in slow.get(partner, {}) and len(met[partner, other_way[way]]) > len(met[host, way])
                for partner in met[host, way]
            )
        }
        suspects += [SlowHost(host, own)] if own else []
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


@dataclass(frozen=True)
class SlowInterfaces:
    """``ports``: one (host, interface), or both ends of a cable; ``ways``: ``sends`` or ``receives`` at most so many
    Gbit/s; ``usual_gbps``: the median of all others."""

    ports: tuple[Port, ...]
    ways: dict[str, float]
    usual_gbps: float


def slow_interfaces(out_gbps: Rates, in_gbps: Rates, cables: Sequence[tuple[Port, Port]]) -> list[SlowInterfaces]:
    """Return interfaces whose best flow, out or in, has less than half the median of the others', slowest first.

    What one end of a cable does not send the other does not receive: nobody knows which of them is slow.

    :param out_gbps: by host and interface, None where unknown; so ``in_gbps``. :param cables: switches of two ports.
    """
    slow: dict[Port, dict[str, float]] = {}
    usual = 0.0
    for way, table in (("sends", out_gbps), ("receives", in_gbps)):
        rates = {
            (host, interface): rate
            for host, row in enumerate(table)
            for interface, rate in enumerate(row)
            if rate is not None
        }
        for port, rate in rates.items():
            others = [other for which, other in rates.items() if which != port]
            median = float(np.median(others)) if len(others) >= MIN_OTHERS else 0.0
            if rate < SLOW_SHARE * median:
                slow.setdefault(port, {})[way] = rate
                usual = median
    results = []
    for cable in cables:
        if all(port in slow for port in cable):
            results.append(SlowInterfaces(cable, slow.pop(cable[0]) | slow.pop(cable[1]), usual))
    results += [SlowInterfaces((port,), ways, usual) for port, ways in slow.items()]
    return sorted(results, key=lambda item: min(item.ways.values()))


@dataclass(frozen=True)
class SlowLink:
    """Hosts behind a link, its direction (``out`` or ``in``), its capacity and the other groups' median, Gbit/s."""

    members: tuple[int, ...]
    way: str
    gbps: float
    usual_gbps: float


def slow_rates(gbps: Matrix, groups: npt.NDArray[np.intp]) -> list[SlowHost]:
    """Return hosts whose rates to all others are far below usual, in either direction, slowest first.

    The baseline is the median of the pairs without the host. For a host alone in its group, which may be far from all
    others, it is the median of pairs between groups if there are enough.

    :param gbps: ``gbps[i, j]`` is what j received from i, shape (N, N), NaN where unmeasured.
    :param groups: the group of every host, shape (N,).
    """
    rates = np.where(np.eye(len(gbps), dtype=bool), np.nan, gbps)
    between = groups[:, None] != groups[None, :]
    alone = np.bincount(groups, minlength=1)[groups] == 1
    slow_hosts = []
    for host in range(len(rates)):
        other_rates = np.delete(np.delete(rates, host, 0), host, 1)
        far = other_rates[np.delete(np.delete(between, host, 0), host, 1)]
        usual = _median(far) if alone[host] else np.nan
        usual = _median(other_rates) if np.isnan(usual) else usual
        directions = {}
        for way, own in (("out", rates[host]), ("in", rates[:, host])):
            own = own[np.isfinite(own)]
            if len(own) >= _MIN_PAIRS and own.max() < SLOW_SHARE * usual:
                directions[way] = (float(own.max()), usual)
        if directions:
            slow_hosts.append(SlowHost(host, directions))
    return sorted(slow_hosts, key=lambda host: min(rate for rate, _ in host.rates.values()))


def _median(rates: npt.NDArray[np.float64]) -> float:
    """Return the median, NaN where too few were measured."""
    finite = rates[np.isfinite(rates)]
    return float(np.median(finite)) if len(finite) >= _MIN_PAIRS else float("nan")


def slow_shared_links(rows: Sequence[Row], names: list[str]) -> list[SlowLink]:
    """Return groups whose shared link is far slower than those of other groups, slowest first.

    Only a full link can be slow: where the hosts were the limit (``limited_by``), it carries at least the measured
    rate.

    :param rows: the groups of a tier of a network's ``shared_links``.
    """
    groups = shared_rows(rows, names)
    links = []
    for way in ("out", "in"):
        # One of 0 is no slow link but a dead one, and no measure of others.
        measured = [(members, row, rate) for members, row in groups if (rate := row.gbps(way) or 0.0) > 0]
        if len(measured) < _MIN_GROUPS:
            continue
        for at, (members, row, rate) in enumerate(measured):
            other_groups = measured[:at] + measured[at + 1 :]
            usual = float(np.median([other for _, _, other in other_groups]))
            usual_per_host = float(np.median([other / len(group) for group, _, other in other_groups]))
            _, highest = row.range_gbps(way) or (0.0, 0.0)
            highest_rate = max(rate, highest)
            is_full = row.limited_by(way) == "link"
            if (
                is_full
                and highest_rate < SLOW_SHARE * usual
                and highest_rate / len(members) < SLOW_SHARE * usual_per_host
            ):
                links.append(SlowLink(tuple(members), way, rate, usual))
    return sorted(links, key=lambda link: link.gbps)
