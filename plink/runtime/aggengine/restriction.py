"""The schedule of a group of some of the ranks: that of all ranks, with those that are absent taken out.

In nearly every all-reduce each chunk goes up a tree, on which it is added up, and down a tree, on which the sum is
handed out. A rank that is absent leaves its place in a tree to one below it, and trees without anybody are gone. So
what all ranks go by, their order, groups and masters, holds for some of them too: of a ring is left the ring of those
present in their order, of two-level aggregation the two levels of their groups, and whoever was near stays near.

Of the chunks only those are kept whose sum a member has first: the chunks do not know of each other, and these are
dealt to members as they were to all. Where few members have any (a tree has one root) all chunks are kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Indices, Schedule, expanded, make_schedule

Table = npt.NDArray[np.int64]
Edge = tuple[int, int, int]  # from a rank to the one above it in a tree, and how far it is from its lowest leaf
Pick = Callable[[int, list[int]], int]


@dataclass(frozen=True)
class _Trees:
    """One tree a chunk, shape (C, N) each: ``above``, the rank above every rank, -1 for the root; ``when``: in which
    round a rank and the one above it exchange the chunk, more than any for the root on the way up, less than any on the
    way down."""

    above: Table
    when: Table


def restricted(schedule: Schedule, members: Sequence[int]) -> Schedule | None:
    """The all-reduce of the members only, who are numbered from 0 in the order given; None where some chunk does not go
    up one tree and down another, as in recursive doubling.

    :param members: ranks of the schedule, two or more, each once.
    """
    trees = _trees(schedule)
    if trees is None:
        return None
    up, down = trees
    number = {rank: k for k, rank in enumerate(members)}
    roots = np.argmin(up.above, axis=1)  # -1 stands there
    kept = np.flatnonzero(np.isin(roots, members))
    if 2 * len(np.unique(roots[kept])) < len(members):
        kept = np.arange(schedule.chunks)
    deputies = _Deputies(_branchings(up, kept, set(number)))
    rows: list[tuple[int, int, int, int, int]] = []
    for place, chunk in enumerate(kept.tolist()):
        chosen: dict[int, int] = {}

        def going_up(rank: int, those: list[int], chosen: dict[int, int] = chosen) -> int:
            chosen[rank] = deputies.pick(rank, those)
            return chosen[rank]

        there, owner = _contracted(up, chunk, number, 1, going_up)

        def going_down(rank: int, those: list[int], owner: int = owner, chosen: dict[int, int] = chosen) -> int:
            wanted = (owner, chosen.get(rank, -1))
            return next((one for one in wanted if one in those), min(those))

        back, top = _contracted(down, chunk, number, -1, going_down)
        rows += [(0, height, number[child], number[above], place) for child, above, height in there]
        for child, above, height in back if top == owner else there:
            rows.append((1, height, number[above], number[child], place))
    return _schedule(schedule, len(members), len(kept), np.array(rows, dtype=np.int64))


class _Deputies:
    """Who takes an absent rank's place: of those below it each for as many chunks, and for neighbouring ones, which
    travel together.

    :param branchings: for each absent rank, for how many chunks there are two or more below it.
    """

    def __init__(self, branchings: dict[int, int]) -> None:
        self._all, self._done = branchings, dict.fromkeys(branchings, 0)

    def pick(self, rank: int, those: list[int]) -> int:
        """One of ``those`` below it."""
        if len(those) == 1:
            return those[0]
        k = self._done[rank]
        self._done[rank] += 1
        return sorted(those)[k * len(those) // self._all[rank]]


def _trees(schedule: Schedule) -> tuple[_Trees, _Trees] | None:
    """The way up and the way down of each chunk; None where they are no trees."""
    transfer, chunk = expanded(schedule)
    copies = schedule.copies[transfer]
    up = _ways(schedule, transfer[~copies], chunk[~copies], schedule.source, schedule.target, schedule.rounds)
    down = _ways(schedule, transfer[copies], chunk[copies], schedule.target, schedule.source, -1)
    if up is None or down is None or (np.argmin(up.above, axis=1) != np.argmin(down.above, axis=1)).any():
        return None
    # A rank passes on what it has got before, which rules circles out too.
    for trees, sign in ((up, 1), (down, -1)):
        which, child = np.nonzero(trees.above >= 0)
        beyond = trees.when[which, trees.above[which, child]]
        if (sign * trees.when[which, child] >= sign * beyond).any():
            return None
    return up, down


def _ways(
    schedule: Schedule, transfer: Table, chunk: Table, child: Indices, parent: Indices, of_root: int
) -> _Trees | None:
    """Who is above whom by these transfers; None unless each rank but one has one above it."""
    shape = schedule.chunks, schedule.ranks
    times = np.zeros(shape, dtype=np.int64)
    np.add.at(times, (chunk, child[transfer]), 1)
    if (times > 1).any() or ((times == 0).sum(axis=1) != 1).any():
        return None
    above, when = np.full(shape, -1), np.full(shape, of_root)
    above[chunk, child[transfer]] = parent[transfer]
    when[chunk, child[transfer]] = schedule.round[transfer]
    return _Trees(above, when)


def _branchings(trees: _Trees, kept: Table, members: set[int]) -> dict[int, int]:
    """For how many chunks each absent rank has members below it on two sides or more."""
    found: dict[int, int] = {}
    for chunk in kept.tolist():
        sides = [0] * trees.above.shape[1]
        above = trees.above[chunk].tolist()
        for rank in np.argsort(trees.when[chunk], kind="stable").tolist():
            if rank not in members and sides[rank] > 1:
                found[rank] = found.get(rank, 0) + 1
            if (rank in members or sides[rank]) and above[rank] >= 0:
                sides[above[rank]] += 1
    return found


def _contracted(trees: _Trees, chunk: int, members: dict[int, int], sign: int, pick: Pick) -> tuple[list[Edge], int]:
    """The chunk's tree without those who are absent, as its edges from the leaves on, and its root.

    :param sign: 1 for a way up, -1 for a way down. :param pick: who of those below an absent rank takes its place.
    """
    above = trees.above[chunk].tolist()
    below: list[list[int]] = [[] for _ in above]
    height = dict.fromkeys(members, 0)
    edges: list[Edge] = []
    root = -1
    for rank in np.argsort(sign * trees.when[chunk], kind="stable").tolist():
        those = below[rank]
        if rank not in members and not those:
            continue
        stands = rank if rank in members else pick(rank, those)
        for one in those:
            if one != stands:
                edges.append((one, stands, height[one]))
                height[stands] = max(height[stands], height[one] + 1)
        if above[rank] >= 0:
            below[above[rank]].append(stands)
        else:
            root = stands
    return edges, root


def _schedule(whole: Schedule, ranks: int, chunks: int, rows: Table) -> Schedule:
    """From (way back?, height, source, target, chunk): a way up is taken at its height, a way down in the mirror image
    of that; neighbouring chunks that go the same way are one transfer."""
    back, height = rows[:, 0] == 1, rows[:, 1]
    there = int(height[~back].max()) + 1
    when = np.where(back, there + int(height[back].max()) - height, height)
    source, target, chunk = rows[:, 2:].T
    order = np.lexsort((chunk, target, source, when))
    when, source, target, chunk, back = (column[order] for column in (when, source, target, chunk, back))
    same = (np.diff(when) == 0) & (np.diff(source) == 0) & (np.diff(target) == 0) & (np.diff(chunk) == 1)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    count = np.diff(np.append(first, len(chunk)))
    table = np.stack([when[first], source[first], target[first], chunk[first], count, back[first]], axis=1)
    return make_schedule(whole.algo, ranks, chunks, table)
