"""Edges that a cheap ring can have, found a second time: a cheapest 1-tree by the shortest edges first, each edge
forced into it in turn."""

import numpy as np
import pytest

from solvers.ordering.circuit import _needed
from solvers.ordering.one_tree import one_tree
from tests.solvers.synthetic import random_costs

Edge = tuple[int, int]


def spanning(priced: list[list[int]], forced: Edge | None = None) -> list[Edge]:
    """The cheapest tree of all hosts, with a forced edge if there is one (Kruskal 1956)."""
    n = len(priced)
    part, tree = list(range(n)), []
    edges = sorted(((a, b) for a in range(n) for b in range(a + 1, n)), key=lambda edge: priced[edge[0]][edge[1]])
    for a, b in [*([forced] if forced else []), *edges]:
        if part[a] != part[b]:
            tree.append((a, b))
            part = [part[a] if one == part[b] else one for one in part]
    return tree


def length(priced: list[list[int]], edges: list[Edge]) -> int:
    return sum(priced[a][b] for a, b in edges)


@pytest.mark.parametrize("n", [4, 5, 6, 9])
def test_an_edge_is_left_out_where_the_cheapest_tree_that_has_it_is_too_dear(n: int) -> None:
    """One leaf of the tree has a second edge. An edge of that leaf takes the place of its second one, where it is
    dearer; any other one takes the place of the dearest edge that it closes a circle with."""
    for seed in range(4):
        whole = random_costs(n, seed, 1, 10**6).astype(np.int64)
        penalty = np.rint(one_tree(whole.astype(float), lambda: True).penalty).astype(np.int64).tolist()
        priced = [[int(whole[a, b]) + penalty[a] + penalty[b] for b in range(n)] for a in range(n)]
        tree = spanning(priced)
        ends = [host for edge in tree for host in edge]
        second = {host: sorted(priced[host][k] for k in range(n) if k != host)[1] for host in range(n)}
        leaf = max((host for host in range(n) if ends.count(host) == 1), key=second.__getitem__)
        least = length(priced, tree) + second[leaf] - 2 * sum(penalty)
        forced = {}
        for a in range(n):
            for b in range(a + 1, n):
                if leaf in (a, b):
                    forced[a, b] = least + max(0, priced[a][b] - second[leaf])
                else:
                    forced[a, b] = least + length(priced, spanning(priced, (a, b))) - length(priced, tree)
        for most in (least - 1, least, sorted(forced.values())[len(forced) // 2], max(forced.values())):
            bound, needed = _needed(whole, most)
            assert bound == max(0, least)
            for (a, b), paid in forced.items():
                assert needed[a, b] == needed[b, a] == (paid <= most)
            assert not needed.diagonal().any()
