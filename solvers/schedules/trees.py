"""Trees: what is reduced towards the root comes back the same way. One tree, or two with half of the vector each.

A tree is an array of shape (N,): the parent of every rank, -1 for the root.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from plink.errors import UsageError
from plink.model.schedule import Indices, Schedule, forward_and_reverse, make_schedule
from solvers.schedules.ring import check_segments


def double_binary_tree(ranks: int, segments: int = 1) -> Schedule:
    """The all-reduce along two binary trees, as the PLink thesis describes it in 5.2.1.

    The first is :func:`midpoint_parents`. "A mirrored tree is built by decrementing each node's rank": the second has
    rank r - 1 (modulo N) where the first has r. That is a shift and no mirror image, but it is what two trees are for:
    the leaves of the first have even ranks (exactly so where N + 1 is a power of two), so most of them are inner nodes
    of the second, and the other way round (Sanders, Speck and Träff 2009).

    :raises UsageError: for fewer than two ranks.
    """
    first = midpoint_parents(ranks)
    return all_reduce_along("double-binary-tree", [first, shifted(first, -1)], segments)


def nccl_tree(ranks: int, segments: int = 1, slots: int = 1) -> Schedule:
    """The all-reduce along NCCL's two trees of hosts, with a chain of the ranks of each (``connectTrees``,
    src/graph/connect.cc).

    :param slots: ranks of each host.
    :raises UsageError: for fewer than two ranks, or a number of them that is no multiple of ``slots``.
    """
    if ranks % slots:
        raise UsageError(f"nccl-tree: {ranks} ranks are no hosts of {slots} slots")
    trees = []
    for parents in nccl_tree_parents(ranks // slots):
        rank = np.arange(ranks, dtype=np.int32) - 1  # each sends to the one before it on its host
        rank[::slots] = np.where(parents < 0, -1, parents * slots)
        trees.append(rank)
    return all_reduce_along("nccl-tree", trees, segments)


def nccl_tree_parents(nodes: int) -> list[Indices]:
    """The parents in NCCL's two trees, -1 for the root: :func:`bitwise_parents`, and its mirror image (node n becomes
    N - 1 - n) for even N, or itself moved on by one node for odd N (``ncclGetDtree``, src/graph/trees.cc)."""
    first = bitwise_parents(nodes)
    second = shifted(first, 1) if nodes % 2 else np.where(first < 0, -1, nodes - 1 - first)[::-1].astype(np.int32)
    return [first, second]


def all_reduce_along(algo: str, trees: Sequence[Indices], segments: int = 1, **details: Any) -> Schedule:
    """The reduction along trees, and the way back: of H levels 2H + P - 1 rounds for P ``segments``.

    The root returns a segment in the round after the one in which it is complete, while it still receives the next.

    :raises UsageError: as :func:`reduce_along`.
    """
    whole = forward_and_reverse(reduce_along(algo, trees, **details))
    check_segments(segments)
    if segments == 1:
        return whole
    rows = np.stack(
        [whole.round, whole.source, whole.target, whole.first * segments, whole.count, whole.copies], axis=1
    )
    later = np.arange(segments)[:, None, None] * np.array([1, 0, 0, 1, 0, 0])  # rounds and chunks
    chunks = len(trees) * segments
    return make_schedule(algo, len(trees[0]), chunks, (rows + later).reshape(-1, 6), timing="chain", **details)


def reduce_along(algo: str, trees: Sequence[Indices], segments: int = 1, **details: Any) -> Schedule:
    """The reduction of the k-th part of the vector along the k-th tree, each over the same ranks.

    A rank sends in the round of its height, which is when its whole subtree has arrived.

    :param segments: into how many each part is cut, to be sent one behind the other: a rank passes one on while it
        still receives the next.
    :raises UsageError: for fewer than two ranks, or no segments.
    """
    check_segments(segments)
    rows = []
    for part, parents in enumerate(trees):
        child = np.flatnonzero(parents >= 0)
        first_round = heights(parents)[child]
        rows += [
            np.stack(np.broadcast_arrays(first_round + k, child, parents[child], part * segments + k, 1, 0), axis=1)
            for k in range(segments)
        ]
    roots = np.repeat(np.concatenate([np.flatnonzero(parents < 0) for parents in trees]), segments).astype(np.int32)
    return make_schedule(
        algo, len(trees[0]), len(roots), np.concatenate(rows), "reduce", roots, timing="chain", **details
    )


def heights(parents: Indices) -> Indices:
    """How far every rank is from the lowest leaf below it, shape (N,)."""
    child = np.flatnonzero(parents >= 0)
    height = np.zeros_like(parents)
    for _ in range(len(parents) + 1):
        higher = np.zeros_like(parents)
        np.maximum.at(higher, parents[child], height[child] + 1)
        if np.array_equal(higher, height):
            return height
        height = higher
    raise AssertionError("a circle is no tree")


def heap_parents(ranks: int, fan_out: int) -> Indices:
    """The complete tree in the order of a heap: the children of rank r are r * F + 1 to r * F + F.

    :raises UsageError: for a fan-out below one.
    """
    if fan_out < 1:
        raise UsageError(f"a tree needs a fan-out of one or more, not {fan_out}")
    parents = (np.arange(ranks) - 1) // fan_out
    parents[:1] = -1
    return parents.astype(np.int32)


def midpoint_parents(ranks: int) -> Indices:
    """The balanced tree of the ranks i to j: its root is (i + j) // 2, its subtrees those of the ranks on both sides.

    (The thesis's formula has the root of the left side at (3i + j) / 2 - 1; the middle of i and (i + j) / 2 - 1, which
    its recursion asks for, is half of that.)
    """
    parents = np.full(max(0, ranks), -1, dtype=np.int32)
    remaining = [(0, ranks - 1, -1)]
    while remaining:
        first, last, above = remaining.pop()
        if first <= last:
            middle = (first + last) // 2
            parents[middle] = above
            remaining += [(first, middle - 1, middle), (middle + 1, last, middle)]
    return parents


def bitwise_parents(ranks: int) -> Indices:
    """NCCL's binary tree with root 0 (``ncclGetBtree``): the lowest bit of a rank moves up by one, or where that leads
    beyond the last rank, is cleared."""
    rank = np.arange(ranks)
    lowest = rank & -rank
    parents = (rank ^ lowest) | (lowest << 1)
    parents = np.where(parents >= ranks, rank ^ lowest, parents)
    parents[:1] = -1
    return parents.astype(np.int32)


def shifted(parents: Indices, by: int) -> Indices:
    """The same tree with rank r + ``by`` (modulo N) where rank r was."""
    return np.roll(np.where(parents < 0, -1, (parents + by) % max(1, len(parents))), by).astype(np.int32)
