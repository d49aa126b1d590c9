"""Flows between hosts at once, compared with what was measured of the network before: which part is slower now.

What a flow can be expected to have is the least of what its two hosts sent and received at best, both ways at once
where that was measured, and of its share of every link that groups of hosts share. Links that nobody measured are not
judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.hostlist import fold_hostlist
from plink.model.network import Network
from plink.model.units import format_gbps
from solvers.changes.causes import Cause, explain
from solvers.costs.fabric import Fabric, fabric_of
from solvers.costs.host_flows import SLOW_SHARE, best_rates, flows_of
from solvers.costs.shared_rows import Row, is_uncertain, shared_rows

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class SlowPart:
    """A host, a link or several hosts that are slower than before: ``what``, and its slowest flow from ``source`` to
    ``target``, with Gbit/s ``now`` and ``before``."""

    what: str
    source: str
    target: str
    now: float
    before: float

    def __str__(self) -> str:
        rates = f"{format_gbps(self.now)} from {self.source} to {self.target}, {format_gbps(self.before)} when measured"
        return f"{self.what}: {rates}"


def expected_gbps(network: Network, source: Indices, target: Indices) -> Vector:
    """Return what each of these flows can be expected to have while all of them run, Gbit/s, shape (F,); NaN where
    that is not known.

    :param source: shape (F,), indices of hosts, each once at most; so ``target``.
    :raises InputError: when what the file has of rates or links is invalid.
    """
    n, flows = len(network.hosts), flows_of(network)
    both, alone = (best_rates([flow for flow in flows if flow.both_ways is way], n) for way in (True, False))
    sent, received = (np.where(np.isfinite(a), a, b) for a, b in zip(both, alone, strict=True))
    pair = np.full(len(source), np.nan) if network.bandwidth_gbps is None else network.bandwidth_gbps[source, target]
    expected = np.fmin(np.minimum(sent[source], received[target]), np.where(pair > 0, pair, np.nan))
    if not np.isfinite(expected).any():
        return expected
    fabric = fabric_of(network)
    if fabric.paths is not None and fabric.paths.has_relays:
        return _over_interfaces(fabric, source, target, expected)
    rows = [[row for row in tier.groups if not is_uncertain(row)] for tier in network.shared_links]
    tiers = [shared_rows(tier, network.hosts.names) for tier in rows]
    for groups in tiers:
        group_of = -1 - np.arange(n)
        for number, (members, _) in enumerate(groups):
            group_of[members] = number
        for number, (_, row) in enumerate(groups):
            for way, ends, others in (("out", source, target), ("in", target, source)):
                crossing = (group_of[ends] == number) & (group_of[others] != number)
                expected[crossing] = np.minimum(expected[crossing], _share(row, way, pair[crossing]))
    if not any(tiers):
        for ends, others in ((source, target), (target, source)):
            crossing = fabric.group_of[ends] != fabric.group_of[others]
            beside = np.bincount(fabric.group_of[ends][crossing], minlength=n)[fabric.group_of[ends]]
            expected = np.where(crossing, np.minimum(expected, pair / np.maximum(beside, 1)), expected)
    return expected


def _share(row: Row, way: str, pair: Vector) -> Vector:
    """Return what each of some flows that cross a group's link at once has; NaN where that was not measured."""
    rate, one_flow = row.gbps(way), row.one_flow_gbps(way) or np.inf
    if rate is None:
        return pair / max(1, len(pair))
    is_full = row.limited_by(way) not in ("hosts", "groups")
    return np.full(len(pair), min(one_flow, rate / max(1, len(pair)) if is_full else np.inf))


def _over_interfaces(fabric: Fabric, source: Indices, target: Indices, expected: Vector) -> Vector:
    """Return the least of what is expected and of each flow's share of every interface that it crosses."""
    for resources in fabric.resources:
        hops = resources.of(source, target)
        flows = np.bincount(hops[hops >= 0], minlength=len(resources))
        share = np.append(resources.gbps / np.maximum(flows, 1), np.inf)  # the last is of no hop: -1
        expected = np.minimum(expected, share[hops].min(axis=0))
    return expected


def is_slow(now: Vector, expected: Vector) -> npt.NDArray[np.bool_]:
    """Return which flows have less than half of what is expected of them; shapes (F,), NaN where unknown."""
    return np.asarray(now < SLOW_SHARE * expected)


def slow_parts(network: Network, source: Indices, target: Indices, now: Vector, expected: Vector) -> list[SlowPart]:
    """Return the fewest parts of the network that explain which flows are slow, the slowest first.

    :param now: what each flow has, Gbit/s, shape (F,), NaN where it did not come through.
    :param expected: as :func:`expected_gbps` returns.
    """
    names, n = network.hosts.names, len(network.hosts)
    compared = np.flatnonzero(np.isfinite(now) & np.isfinite(expected))
    slow = is_slow(now, expected)
    measured, moved = np.zeros((n, n), dtype=bool), np.zeros((n, n), dtype=bool)
    for a, b, k in zip(source[compared].tolist(), target[compared].tolist(), compared.tolist(), strict=True):
        measured[a, b] = measured[b, a] = True
        moved[a, b] |= slow[k]
        moved[b, a] |= slow[k]
    groupings = [tier.group_of for tier in fabric_of(network).tiers]
    causes, unexplained = explain(measured, moved, groupings, lambda pairs: True)
    parts = []
    for what, pairs in _named(causes, unexplained & moved, names):
        of_part = [k for k in compared.tolist() if slow[k] and {(source[k], target[k]), (target[k], source[k])} & pairs]
        worst = min(of_part, key=lambda k: now[k] / expected[k])
        a, b = names[source[worst]], names[target[worst]]
        parts.append(SlowPart(what or f"the way from {a} to {b}", a, b, float(now[worst]), float(expected[worst])))
    return sorted(parts, key=lambda part: part.now / part.before)


def _named(
    causes: Sequence[Cause], unexplained: npt.NDArray[np.bool_], names: Sequence[str]
) -> Iterator[tuple[str, set[tuple[int, int]]]]:
    """Yield what each cause is, empty for a pair of hosts, and its pairs of hosts."""
    for cause in causes:
        near, far = (fold_hostlist([names[host] for host in hosts], ",") for hosts in (cause.near, cause.far))
        what = {
            "host": near,
            "network": "all hosts",
            "link": f"the way between {near} and {far}",
            "inside": f"the hosts {near}, among each other",
            "uplink": f"the link that {near} share",
            "group": f"the hosts {near}",
            "within": "all groups of hosts inside",
            "between": "the links between groups",
        }[cause.kind]
        yield what, set(zip(*(hosts.tolist() for hosts in cause.pairs), strict=True))
    for pair in np.argwhere(np.triu(unexplained, 1)).tolist():
        yield "", {(pair[0], pair[1])}
