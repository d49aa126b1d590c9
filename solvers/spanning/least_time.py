"""Least time of an all-reduce on a tree of tiers, in closed form, for any algorithm.

Cut the hosts into K parts. K parties that all-reduce S bytes exchange at least 2(K-1)S (Patarasuk and Yuan 2009, 3),
and each byte leaves one part and enters another, so no algorithm is faster than 2(K-1)S over what the parts' links
carry. The best of these bounds is reached: a chunk that goes up and down a spanning tree crosses each of its edges once
each way, and with w the crossings of a link less one, averaged over chunks, every spanning tree has at each switch of k
children a sum of w of (k - 1) + its own w, and k - 2 at the root. So T is enough if and only if a flow fits on the tree
with w of at most o T/S - 1, and of at least -(i T/S - 1) at groups; docs/optimal.md has the proof. With o apart from i
there are two flows, which share a group's link: the bound is then reached except where a group must work in one
direction and export in the other.
"""

from dataclasses import dataclass, replace

import numpy as np

from solvers.spanning.tier_tree import TierTree, Vector

_ROUNDING = 1e-6  # of the time: what is exactly at a limit is within it
_BISECTIONS, _NAMED = 60, 3
_SAME = 1e-14  # relative: two times that differ by no more are one
Line = tuple[float, float]  # slope and intercept over the time
Bound = tuple[float, tuple[int, ...]]  # the time, microseconds a byte, and the links that bind


@dataclass(frozen=True)
class LeastTime:
    """Least time of an all-reduce, microseconds a byte of the vector, 0 where nothing limits it. ``links``: the nodes
    of the tree whose links, together, allow no less; ``limited_by``: these in words."""

    us_per_byte: float
    links: tuple[int, ...]
    limited_by: str


def least_time(tree: TierTree, dissolve: bool = True) -> LeastTime:
    """Return the least time: of the reduction's flow or of the broadcast's, whichever is longer.

    A broadcast's switches send more than they receive, so work is limited by what goes out and exports by what comes
    in; in a reduction it is the other way round.

    :param dissolve: whether a group's tree may fall apart. False: the least time of schedules in which each group has
        one master a chunk, as two-level aggregation.
    """
    ways = tree.out, tree.into
    time, links = max((_flow(tree, *each, dissolve) for each in (ways, ways[::-1])), key=lambda bound: bound[0])
    return LeastTime(time, links, _words(tree, links))


def alike_both_ways(tree: TierTree) -> TierTree:
    """Return the tree with each link's slower direction both ways: a schedule and its reverse load both alike."""
    return replace(tree, out=tree.slower, into=tree.slower)


def other_way_round(tree: TierTree) -> TierTree:
    """Return the tree whose links carry out what came in: a reduction on it is a broadcast on the other."""
    return replace(tree, out=tree.into, into=tree.out)


def work(tree: TierTree, dissolve: bool = True, beside: Vector | None = None) -> Vector:
    """Return what each node works for others in a broadcast in the least time, in vectors, shape (V,): crossings of its
    link less one. For a reduction: of :func:`other_way_round`.

    Below 0 for a group that needs others. At each switch all children are equally busy as far as their limits allow.

    :param dissolve: as of :func:`least_time`. :param beside: work of the reduction: what groups work in one direction
        and export in the other shares their links.
    """
    least, most = _work_limits(tree, least_time(tree, dissolve).us_per_byte * (1 + _ROUNDING), dissolve, beside)
    result = np.zeros(len(least))
    for node, below in enumerate(tree.children):
        if below:
            need = len(below) - 2 if node == 0 else len(below) - 1 + result[node]
            result[below] = _shared(float(need), least[below], most[below])
    return result


def _work_limits(tree: TierTree, us_per_byte: float, dissolve: bool, beside: Vector | None) -> tuple[Vector, Vector]:
    """The least and the most that each node can work for others in that time, shape (V,) each."""
    least, most = np.zeros(len(tree.parent)), np.full(len(tree.parent), np.inf)
    other = np.zeros(len(least)) if beside is None else beside
    us_per_byte = max(us_per_byte, np.finfo(np.float64).tiny)  # a single host takes no time
    spares = np.maximum(tree.out * us_per_byte - 1 - np.maximum(-other, 0.0), 0.0).tolist()
    exports = np.maximum(tree.into * us_per_byte - 1 - np.maximum(other, 0.0), 0.0).tolist()
    for node in reversed(range(1, len(least))):
        spare, export = spares[node], exports[node]
        most[node] = spare
        if below := tree.children[node]:
            least[node] = max(-export if dissolve else 0.0, least[below].sum() - (len(below) - 1))
            most[node] = min(spare, most[below].sum() - (len(below) - 1))
    return least, most


def _shared(need: float, least: Vector, most: Vector) -> Vector:
    """Parts of a need within limits, all equally busy. Nobody is below 0 unless the others cannot do without."""
    base = np.clip(0.0, least, most)
    spare = need - base.sum()
    if spare <= 0:
        room = (base - least).sum()
        return np.asarray(base + (least - base) * (min(1.0, -spare / room) if room > 0 else 0.0))
    most = np.minimum(most, base + spare)  # where there is no limit
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        busy = (low + high) / 2
        low, high = (busy, high) if np.clip(busy * (most + 1) - 1, base, most).sum() < need else (low, busy)
    return np.asarray(np.clip(high * (most + 1) - 1, base, most))


def _flow(tree: TierTree, work: Vector, export: Vector, dissolve: bool) -> Bound:
    """The least time of one direction, by Newton's method from below: what a switch can work is concave in the time and
    what it must is convex, both of linear pieces, so each step ends on a cut and none is past the last."""
    slower = np.minimum(work, export)
    slowest = int(np.argmin(slower))
    time: float = 1 / float(slower[slowest])
    links: tuple[int, ...] = (slowest,)
    while time and (binding := _violated(tree, time, work, export, dissolve)) and binding[0] > time * (1 + _SAME):
        time, links = binding
    return time, links


def _violated(tree: TierTree, time: float, work: Vector, export: Vector, dissolve: bool) -> Bound | None:
    """The longest time that a switch asks for which does not manage in this one."""

    def at(line: Line) -> float:
        return line[0] * time + line[1]

    least: list[Line] = [(0.0, 0.0)] * len(work)
    most: list[Line] = [(0.0, 0.0)] * len(work)
    cut: list[tuple[int, ...]] = [()] * len(work)
    bounds: list[Bound] = []
    for node in reversed(range(len(work))):
        below, own = tree.children[node], (float(work[node]), -1.0)
        most[node], cut[node] = own, (node,)
        if not below:
            continue
        inside = sum(most[c][0] for c in below), sum(most[c][1] for c in below) - (len(below) - 1)
        links = tuple(link for child in below for link in cut[child])
        must: Line = (0.0, -1.0)
        if node:
            must = (-float(export[node]), 1.0) if dissolve else (0.0, 0.0)
        if at(must) > at(inside):
            bounds.append(((must[1] - inside[1]) / (inside[0] - must[0]), ((node, *links) if node else links)))
        needed = sum(least[c][0] for c in below), sum(least[c][1] for c in below) - (len(below) - 1)
        least[node] = max(must, needed, key=at)
        if at(inside) < at(own):
            most[node], cut[node] = inside, links
    return max(bounds, default=None)


def _words(tree: TierTree, links: tuple[int, ...]) -> str:
    if len(links) == 1:
        return tree.names[links[0]] if np.isfinite(tree.slower[links[0]]) else "no link"
    if set(links) == {node for node, rate in enumerate(tree.slower) if tree.level[node] < 2 and np.isfinite(rate)}:
        return "all hosts' links together"
    groups = [tree.names[link] for link in links if tree.level[link] > 1]
    hosts = [tree.names[link] for link in links if tree.level[link] < 2]
    parts = [*groups[:_NAMED], *([f"{len(groups) - _NAMED} groups' links more"] if len(groups) > _NAMED else [])]
    if hosts:
        parts.append(hosts[0] if len(hosts) == 1 else f"the links of {len(hosts)} hosts ({hosts[0]} to {hosts[-1]})")
    return f"{', '.join(parts)} together"
