"""Tree of tiers: ranks below hosts, hosts below groups, groups below the core, and the link above each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]


@dataclass(frozen=True)
class TierTree:
    """V nodes, the root first and every node after the one above it. A node with one child is one with it.

    ``parent``, shape (V,), -1 at the root; ``out``, ``into``, shape (V,): bytes a microsecond of the link above a
    node, away from it and towards it, infinite where nothing limits it; ``rank``, shape (V,): of a leaf, else -1;
    ``level``, shape (V,): 0 for ranks, 1 for hosts, 2 and more for groups; ``names``, of the links, for people.
    """

    parent: Labels
    out: Vector
    into: Vector
    rank: Labels
    level: Labels
    names: tuple[str, ...]

    @cached_property
    def children(self) -> list[list[int]]:
        """Return the nodes below each node."""
        below: list[list[int]] = [[] for _ in self.parent]
        for node, parent in enumerate(self.parent[1:].tolist(), 1):
            below[parent].append(node)
        return below

    @property
    def slower(self) -> Vector:
        """Return each link's rate in its slower direction, shape (V,)."""
        return np.minimum(self.out, self.into)


def tree_of(
    labels: Sequence[Labels], rates: Sequence[tuple[Vector, Vector]], names: Sequence[Sequence[str]]
) -> TierTree:
    """Return the tree of nested groups.

    :param labels: of each level, the innermost first, the group of each rank, shape (N,). :param rates: what groups
        send and receive, bytes a microsecond, shape (G,) each. :param names: of the groups' links.
    """
    nodes: list[tuple[int, float, float, int, int, str]] = []

    def add(members: Labels, level: int, parent: int, out: float, into: float, name: str) -> None:
        while level and len(below := np.unique(labels[level - 1][members])) == 1:
            level -= 1
            inner_out, inner_in = (float(way[below[0]]) for way in rates[level])
            if min(inner_out, inner_in) <= min(out, into):
                name = names[level][below[0]]
            out, into = min(out, inner_out), min(into, inner_in)
        number = len(nodes)
        nodes.append((parent, out, into, -1 if level else int(members[0]), level, name))
        if level:
            for label in below.tolist():
                inside = members[labels[level - 1][members] == label]
                inner_out, inner_in = (float(way[label]) for way in rates[level - 1])
                add(inside, level - 1, number, inner_out, inner_in, names[level - 1][label])

    add(np.arange(len(labels[0])), len(labels), -1, np.inf, np.inf, "")
    parent, out, into, rank, levels, titles = zip(*nodes, strict=True)
    whole = (np.array(column, dtype=np.intp) for column in (parent, rank, levels))
    parents, ranks, level = whole
    ways = np.array([out, into], dtype=np.float64)
    ways[:, 0] = np.inf  # above the root there is nothing
    return TierTree(parents, ways[0], ways[1], ranks, level, titles)


def regrouped(tree: TierTree, groups: Sequence[Sequence[int]]) -> TierTree | None:
    """Return the tree of ranks, their hosts and these groups of ranks; None where a host has ranks in two of them.

    A group has the link of the node with the same ranks; where there is none nothing limits it.
    """
    leaf = np.empty(sum(map(len, groups)), dtype=np.intp)
    leaf[tree.rank[tree.rank >= 0]] = np.flatnonzero(tree.rank >= 0)
    below = (tree.rank >= 0).astype(np.intp)
    for node in range(len(tree.parent) - 1, 0, -1):  # children stand behind their parents
        below[tree.parent[node]] += below[node]
    host = np.where(tree.level[tree.parent[leaf]] == 1, tree.parent[leaf], leaf)  # of each rank
    group_of = np.empty(len(leaf), dtype=np.intp)
    links = np.full((2, len(groups)), np.inf)
    for number, group in enumerate(groups):
        members = np.asarray(group)
        group_of[members] = number
        node = int(leaf[members[0]])
        while below[node] < len(members):
            node = int(tree.parent[node])
        above = leaf[members]
        while (short := above > node).any():
            above = np.where(short, tree.parent[above], above)
        if below[node] == len(members) and (above == node).all() and node:
            links[:, number] = tree.out[node], tree.into[node]
    hosts, host_of = np.unique(host, return_inverse=True)
    if len(set(zip(host_of.tolist(), group_of.tolist(), strict=True))) > len(hosts):
        return None
    free = np.full(len(leaf), np.inf)
    rates = [(free, free), (tree.out[hosts], tree.into[hosts]), (links[0], links[1])]
    names = [[""] * len(free), [tree.names[node] for node in hosts.tolist()], [""] * len(groups)]
    return tree_of([np.arange(len(leaf)), host_of, group_of], rates, names)


def star(ranks: int) -> TierTree:
    """Return the tree of ranks with links alike on one switch."""
    alike = np.ones(ranks)
    return tree_of([np.arange(ranks)], [(alike, alike)], [[f"rank {k}" for k in range(ranks)]])
