"""Schedule of a sub-group: the schedule of all ranks, without the absent ones.

In nearly every all-reduce each chunk goes up a tree, on which it is reduced, and down a tree, on which the sum is
broadcast. An absent rank's place in a tree is taken by one below it, and trees without members vanish. So the order,
groups and masters of all ranks hold for the sub-group, too: a ring becomes the ring of the members in their order,
two-level aggregation keeps the two levels of its groups, and neighbours stay neighbours.

Only chunks whose sum a member completes are used: chunks are independent, and these are distributed over members as
they were over all ranks. Where few members complete any (a tree has one root), all chunks are used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Schedule, expanded, make_schedule

Table = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Edge = tuple[int, int, int]  # a rank, its parent in a tree, and its height over the lowest leaf below it
Pick = Callable[[int, list[int]], int]


@dataclass(frozen=True)
class _Trees:
    """One tree for each chunk, shape (C, N) each.

    ``parent``: the parent of every rank, -1 for the root. ``round_``: the round in which a rank and its parent exchange
    the chunk; for the root more than any in the reduce phase, less than any in the broadcast phase.
    """

    parent: Table
    round_: Table


def subgroup_schedule(schedule: Schedule, members: Sequence[int]) -> Schedule | None:
    """Return the all-reduce of the members only, who are numbered from 0 in the given order.

    None where some chunk is not reduced up one tree and broadcast down another, as in recursive doubling.

    :param members: ranks of the schedule, two or more, each once.
    """
    trees = _trees(schedule)
    if trees is None:
        return None
    up, down = trees
    local_rank = {rank: k for k, rank in enumerate(members)}
    roots = np.argmin(up.parent, axis=1)  # the root has -1
    used_chunks = np.flatnonzero(np.isin(roots, members))
    if 2 * len(np.unique(roots[used_chunks])) < len(members):
        used_chunks = np.arange(schedule.chunks)
    substitutes = _Substitutes(_branch_counts(up, used_chunks, set(local_rank)))
    rows: list[tuple[int, int, int, int, int]] = []
    for index, chunk in enumerate(used_chunks.tolist()):
        chosen: dict[int, int] = {}

        def pick_up(rank: int, candidates: list[int], chosen: dict[int, int] = chosen) -> int:
            chosen[rank] = substitutes.pick(rank, candidates)
            return chosen[rank]

        reduce_edges, owner = _contract(up, chunk, local_rank, 1, pick_up)

        def pick_down(rank: int, candidates: list[int], owner: int = owner, chosen: dict[int, int] = chosen) -> int:
            preferred = (owner, chosen.get(rank, -1))
            return next((candidate for candidate in preferred if candidate in candidates), min(candidates))

        broadcast_edges, broadcast_root = _contract(down, chunk, local_rank, -1, pick_down)
        rows += [(0, height, local_rank[child], local_rank[parent], index) for child, parent, height in reduce_edges]
        for child, parent, height in broadcast_edges if broadcast_root == owner else reduce_edges:
            rows.append((1, height, local_rank[parent], local_rank[child], index))
    return _schedule(schedule, len(members), len(used_chunks), np.array(rows, dtype=np.int64))


class _Substitutes:
    """Choice of the rank that takes an absent rank's place: each of those below it for equally many chunks.

    Neighbouring chunks, which travel together, have the same substitute.

    :param branch_counts: for each absent rank, the number of chunks for which it has two branches or more.
    """

    def __init__(self, branch_counts: dict[int, int]) -> None:
        self._all, self._done = branch_counts, dict.fromkeys(branch_counts, 0)

    def pick(self, rank: int, candidates: list[int]) -> int:
        """Return one of the candidates below the rank."""
        if len(candidates) == 1:
            return candidates[0]
        k = self._done[rank]
        self._done[rank] += 1
        return sorted(candidates)[k * len(candidates) // self._all[rank]]


def _trees(schedule: Schedule) -> tuple[_Trees, _Trees] | None:
    """Return the reduce trees and the broadcast trees of all chunks; None where they are no trees."""
    transfer, chunk = expanded(schedule)
    idle = np.ones((schedule.chunks, schedule.ranks), dtype=bool)  # the hub of another chunk
    idle[chunk, schedule.source[transfer]] = idle[chunk, schedule.target[transfer]] = False
    up, down = _parents(schedule, False, idle), _parents(schedule, True, idle)
    if up is None or down is None or (np.argmin(up.parent, axis=1) != np.argmin(down.parent, axis=1)).any():
        return None
    # A rank forwards what it received earlier, which also excludes cycles.
    for trees, sign in ((up, 1), (down, -1)):
        chunk_index, child = np.nonzero(trees.parent >= 0)
        parent_round = trees.round_[chunk_index, trees.parent[chunk_index, child]]
        if (sign * trees.round_[chunk_index, child] >= sign * parent_round).any():
            return None
    return up, down


def _parents(schedule: Schedule, copied: bool, idle: Mask) -> _Trees | None:
    """Return the parents of all ranks in the reduce trees, or broadcast trees (``copied``); None unless each rank but
    one has exactly one.

    :param idle: shape (C, N), ranks that take no part in a chunk: they are put below its root.
    """
    transfer, chunk = (column[schedule.copies[expanded(schedule)[0]] == copied] for column in expanded(schedule))
    child, parent = (schedule.target, schedule.source) if copied else (schedule.source, schedule.target)
    shape = schedule.chunks, schedule.ranks
    times = np.zeros(shape, dtype=np.int64)
    np.add.at(times, (chunk, child[transfer]), 1)
    is_root = (times == 0) & ~idle
    if (times > 1).any() or (is_root.sum(axis=1) != 1).any():
        return None
    parents, round_ = np.full(shape, -1), np.full(shape, -1 if copied else schedule.rounds)
    parents[chunk, child[transfer]] = parent[transfer]
    round_[chunk, child[transfer]] = schedule.round[transfer]
    parents[idle], round_[idle] = np.argmax(is_root, axis=1)[np.nonzero(idle)[0]], 0
    return _Trees(parents, round_)


def _branch_counts(trees: _Trees, used_chunks: Table, members: set[int]) -> dict[int, int]:
    """Return for each absent rank the number of chunks for which members are below it on two branches or more."""
    counts: dict[int, int] = {}
    for chunk in used_chunks.tolist():
        branches = [0] * trees.parent.shape[1]
        parents = trees.parent[chunk].tolist()
        for rank in np.argsort(trees.round_[chunk], kind="stable").tolist():
            if rank not in members and branches[rank] > 1:
                counts[rank] = counts.get(rank, 0) + 1
            if (rank in members or branches[rank]) and parents[rank] >= 0:
                branches[parents[rank]] += 1
    return counts


def _contract(trees: _Trees, chunk: int, members: dict[int, int], sign: int, pick: Pick) -> tuple[list[Edge], int]:
    """Return the chunk's tree without absent ranks, as its edges from the leaves on, and its root.

    :param sign: 1 for a reduce tree, -1 for a broadcast tree.
    :param pick: returns the candidate below an absent rank that takes its place.
    """
    parents = trees.parent[chunk].tolist()
    children: list[list[int]] = [[] for _ in parents]
    height = dict.fromkeys(members, 0)
    edges: list[Edge] = []
    root = -1
    for rank in np.argsort(sign * trees.round_[chunk], kind="stable").tolist():
        candidates = children[rank]
        if rank not in members and not candidates:
            continue
        substitute = rank if rank in members else pick(rank, candidates)
        for candidate in candidates:
            if candidate != substitute:
                edges.append((candidate, substitute, height[candidate]))
                height[substitute] = max(height[substitute], height[candidate] + 1)
        if parents[rank] >= 0:
            children[parents[rank]].append(substitute)
        else:
            root = substitute
    return edges, root


def _schedule(full: Schedule, ranks: int, chunks: int, rows: Table) -> Schedule:
    """Return the schedule of rows (is broadcast, height, source, target, chunk).

    A reduce edge is used at its height, a broadcast edge at the mirror image of it. Neighbouring chunks with the same
    route form one transfer.
    """
    is_broadcast, height = rows[:, 0] == 1, rows[:, 1]
    reduce_rounds = int(height[~is_broadcast].max()) + 1
    round_ = np.where(is_broadcast, reduce_rounds + int(height[is_broadcast].max()) - height, height)
    source, target, chunk = rows[:, 2:].T
    order = np.lexsort((chunk, target, source, round_))
    round_, source, target, chunk, is_broadcast = (
        column[order] for column in (round_, source, target, chunk, is_broadcast)
    )
    same = (np.diff(round_) == 0) & (np.diff(source) == 0) & (np.diff(target) == 0) & (np.diff(chunk) == 1)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    count = np.diff(np.append(first, len(chunk)))
    table = np.stack([round_[first], source[first], target[first], chunk[first], count, is_broadcast[first]], axis=1)
    return make_schedule(full.algo, ranks, chunks, table)
