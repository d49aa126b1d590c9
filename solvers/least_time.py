"""Least possible time of an all-reduce on a network's tiers, in closed form, and the work of hosts that reaches it.

Tiers are a tree: hosts are leaves, and the link above a node carries ``o`` bytes out and ``i`` in per microsecond.

A lower bound for any algorithm. Cut the hosts into K parts: K parties that all-reduce S bytes exchange 2 (K - 1) S at
least (Patarasuk and Yuan, JPDC 2009), each byte leaves one part and enters another, so ``T >= 2 (K - 1) S / min(sum of
o, sum of i)`` over the parts of every cut.

It is reached. An all-reduce of a chunk up and down a spanning tree sends it once each way over each edge of the tree.
Let ``w`` of a node be how often its link is crossed, less 1, in the mean of all chunks. At each switch of k children
the sum of their w is (k - 1) + its own w, at the root k - 2: a chunk's edges among k parts are k - 1, with two ends
each. A group whose tree falls apart into parts exports work, so its w may be below 0. So a time T is enough if and only
if the work can be dealt out, each w at most ``o T / S - 1``: a flow on the tree. With o and i apart there are two, one
for each direction; the longer time counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.costs.fabric import BYTES_PER_US, Fabric, Labels, Vector

_BISECTIONS = 200
_BELOW = 1 - 1e-9  # of the least time: there the cut that binds shows
_MAX_NAMED = 2


@dataclass(frozen=True)
class TierTree:
    """Nodes of the tree, the root first, children after their parents.

    ``parent``, shape (M,), -1 of the root; ``ranks``, shape (M,): ranks of a host, 0 of a switch; ``out``, ``into``,
    shape (M,): bytes a microsecond of the link above, infinite without a limit; ``host``, shape (M,): number of the
    host in the fabric, -1 of a switch; ``names``: of the links, for people.
    """

    parent: Labels
    ranks: Labels
    out: Vector
    into: Vector
    host: Labels
    names: tuple[str, ...]

    def children(self, node: int) -> list[int]:
        """Return the nodes below a node."""
        return np.flatnonzero(self.parent == node).tolist()


@dataclass(frozen=True)
class LeastTime:
    """Least possible time of an all-reduce, microseconds a byte, and the links that limit it, in words."""

    us_per_byte: float
    limited_by: str


def least_time_on(fabric: Fabric, order: Labels) -> LeastTime | None:
    """Return the least time of an all-reduce of all ranks; None where rates are unknown, or hosts have several
    interfaces, which are no tree.

    :param order: shape (N,), the host at each rank.
    """
    if fabric.paths is not None or not (fabric.measured or fabric.has_host_rates) or len(np.unique(order)) < 2:
        return None
    return least_time(tier_tree(fabric, order))


def tier_tree(fabric: Fabric, order: Labels, groups_of_hosts: Labels | None = None) -> TierTree:
    """Return the tree of the hosts that have ranks.

    A group of one host is that host, with the lesser of both links; a tier whose one group has all hosts is none.

    :param order: shape (N,), the host at each rank. :param groups_of_hosts: shape (H,), in place of the fabric's tiers:
        two levels, with the links of those groups that a tier has.
    """
    hosts, ranks = np.unique(order, return_counts=True)
    tiers = [(tier.group_of, tier.out_gbps, tier.in_gbps) for tier in fabric.tiers]
    if groups_of_hosts is not None:
        tiers = [(groups_of_hosts, *_links_of(fabric, hosts, groups_of_hosts))]
    rows: list[tuple[int, int, float, float, int, str]] = [(-1, 0, math.inf, math.inf, -1, "")]

    def add(members: Labels, parent: int, level: int, limit: tuple[float, float]) -> None:
        """Add some hosts below ``parent``, by this tier and those inside; ``limit``: of links around one host alone."""
        if level < 0:
            for host in members.tolist():
                own = fabric.host_out_gbps[host], fabric.host_in_gbps[host]
                out, into = (float(min(a, b)) for a, b in zip(own, limit, strict=True))
                what = f"{fabric.names[host]} at {min(out, into):.4g} Gbit/s"
                rows.append((parent, int(ranks[np.searchsorted(hosts, host)]), out, into, host, what))
            return
        group_of, tier_out, tier_in = tiers[level]
        labels = group_of[members]
        for label in dict.fromkeys(labels.tolist()):
            part, link = members[labels == label], (float(tier_out[label]), float(tier_in[label]))
            if len(part) == 1:
                add(part, parent, level - 1, (min(link[0], limit[0]), min(link[1], limit[1])))
                continue
            above = parent
            if len(part) < len(members):
                what = f"the link of the group of {fabric.names[int(part[0])]} at {min(link):.4g} Gbit/s"
                rows.append((parent, 0, *link, -1, what))
                above = len(rows) - 1
            elif parent:  # the same hosts as the switch around: one link after the other
                grand, _, out, into, _, what = rows[parent]
                rows[parent] = (grand, 0, min(out, link[0]), min(into, link[1]), -1, what)
            add(part, above, level - 1, (math.inf, math.inf))

    add(hosts, 0, len(tiers) - 1, (math.inf, math.inf))
    parents, numbers, out, into, host, names = zip(*rows, strict=True)
    return TierTree(
        np.array(parents),
        np.array(numbers),
        np.array(out) * BYTES_PER_US,
        np.array(into) * BYTES_PER_US,
        np.array(host),
        names,
    )


def _links_of(fabric: Fabric, hosts: Labels, group_of: Labels) -> tuple[Vector, Vector]:
    """Return what each group's link carries, Gbit/s: of a tier that has the same group, else without a limit."""
    out, into = (np.full(int(group_of.max()) + 1, np.inf) for _ in range(2))
    for tier in fabric.tiers:
        for label in np.unique(tier.group_of[hosts]).tolist():
            groups = np.unique(group_of[hosts[tier.group_of[hosts] == label]])
            same = len(groups) == 1 and np.array_equal(tier.group_of[hosts] == label, group_of[hosts] == groups[0])
            if same:
                out[groups[0]] = min(out[groups[0]], tier.out_gbps[label])
                into[groups[0]] = min(into[groups[0]], tier.in_gbps[label])
    return out, into


@dataclass(frozen=True)
class _Flow:
    """Least and most work of every node at a time, for one direction; ``limit``: of its own link."""

    least: Vector
    most: Vector
    limit: Vector
    feasible: bool


def _flow(tree: TierTree, us_per_byte: float, own: Vector, exports: Vector, dissolve: bool) -> _Flow:
    """Return what each node can work: at most what its link carries besides its own, and what its children can.

    :param own: the rates that limit work for others. :param exports: those that limit what others do for a group.
    """
    nodes = len(tree.parent)
    limit, exported = own * us_per_byte - 1, exports * us_per_byte - 1
    least, most = np.zeros(nodes), np.where(tree.ranks > 0, np.inf, 0.0)
    number = np.where(tree.ranks > 0, tree.ranks, 0).astype(np.float64)
    feasible = bool((np.minimum(limit, exported)[1:] >= 0).all())
    for node in range(nodes - 1, 0, -1):
        low = least[node] - (number[node] - 1)
        least[node] = max(-exported[node] if dissolve else 0.0, low)
        most[node] = min(limit[node], most[node] - (number[node] - 1))
        feasible = feasible and bool(least[node] <= most[node])
        parent = tree.parent[node]
        least[parent] += least[node]
        most[parent] += most[node]
        number[parent] += 1
    feasible = feasible and bool(least[0] <= number[0] - 2 <= most[0])
    return _Flow(least, most, limit, feasible)


def least_time(tree: TierTree, dissolve: bool = True) -> LeastTime:
    """Return the least time of an all-reduce of all ranks.

    :param dissolve: whether a group's tree may fall apart. False: the least time of schedules in which every group has
        one master a chunk, as two-level aggregation.
    """
    if len(tree.parent) <= 2:
        return LeastTime(0.0, "nothing: all ranks are on one host")
    directions = ((tree.out, tree.into), (tree.into, tree.out))
    slowest = LeastTime(0.0, "")
    for own, exports in directions:
        rates = np.minimum(own, exports)[1:]
        low, high = 0.0, 2 * len(tree.parent) / float(rates.min())
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if _flow(tree, middle, own, exports, dissolve).feasible else (middle, high)
        if high > slowest.us_per_byte:
            slowest = LeastTime(high, _words(tree, _flow(tree, high * _BELOW, own, exports, dissolve)))
    return slowest


def _words(tree: TierTree, flow: _Flow) -> str:
    """Return the links of the cut that binds, at a time that is too short."""
    alone = [node for node in range(1, len(tree.parent)) if flow.limit[node] < 0]
    if alone:
        return tree.names[alone[0]]
    blocked = [node for node in range(1, len(tree.parent)) if flow.least[node] > flow.most[node]]
    top = blocked[-1] if blocked else 0
    parts = [*_parts(tree, flow, top), *([top] if top else [])]
    if len(parts) == int((tree.ranks > 0).sum()) and not top:
        return "all hosts' links together"
    if len(parts) > _MAX_NAMED:
        return f"{len(parts)} links together, {tree.names[parts[0]]} among them"
    return " and ".join(tree.names[part] for part in parts)


def _parts(tree: TierTree, flow: _Flow, switch: int) -> Iterator[int]:
    """Yield the nodes below a switch whose own links limit their work."""
    for child in tree.children(switch):
        if tree.ranks[child] or flow.most[child] >= flow.limit[child]:
            yield child
        else:
            yield from _parts(tree, flow, child)


def work(tree: TierTree, us_per_byte: float, dissolve: bool = True) -> Vector:
    """Return the work ``w`` of every node, shape (M,), at a time that is enough: at each switch the least share of what
    links carry that does all of it.

    :param us_per_byte: as :func:`least_time`, or more.
    """
    own, exports = np.minimum(tree.out, tree.into), np.minimum(tree.out, tree.into)
    flow = _flow(tree, us_per_byte, own, exports, dissolve)
    result = np.zeros(len(tree.parent))
    result[0] = -1.0
    for node in range(len(tree.parent)):
        children = tree.children(node)
        if not children:
            continue
        needed = len(children) - 1 + result[node]
        least, most = flow.least[children], flow.most[children]
        rate = np.where(np.isfinite(own[children]), own[children], np.nanmax([*own[np.isfinite(own)], 1.0]) * 1e3)
        low, high = 0.0, us_per_byte * 4
        for _ in range(_BISECTIONS):  # the share of the time, as a time
            middle = (low + high) / 2
            enough = np.clip(rate * middle - 1, least, most).sum() >= needed
            low, high = (low, middle) if enough else (middle, high)
        result[children] = np.clip(rate * high - 1, least, most)
    return result
