"""Hubs: at each switch of a tree of tiers each chunk has one child that adds up what the others hold.

What a switch receives from above goes there, too, so a node's head is its hub's head. A hub works for k - 1 others, and
for those that its switch works for, so children are hubs in proportion to what they can work in the least time,
``o T/S - 1``, and not to their rates. A group that can work less than its own need dissolves in some chunks: its
children are then its parent's.
"""

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.plan import MAX_TRANSFERS
from plink.model.schedule import Indices, Schedule, expanded, forward_and_reverse, make_schedule, mirrored
from solvers.schedules.masters import apportioned
from solvers.spanning.least_time import alike_both_ways, least_time, other_way_round, work
from solvers.spanning.tier_tree import TierTree, Vector

MIN_CHUNKS, MAX_CHUNKS = 64, 1024
TOLERANCE = 0.01  # of the least time: chunks are as few as keep the busiest link's within it
Heads = npt.NDArray[np.int64]


def hubs(tree: TierTree) -> tuple[Schedule, Schedule]:
    """Return the reduce-scatter and the all-gather of the fewest chunks, 64 to 1,024, that keep every link within 1 %
    of the least time, or of the most chunks that a plan's file has room for.

    Where links carry other rates out than in, the two have trees of their own, from one root for each chunk.

    :raises UsageError: for fewer than two ranks.
    """
    if not tree.children[0]:
        raise UsageError("a collective needs two ranks or more, not 1")
    slower = alike_both_ways(tree)
    if least_time(slower).us_per_byte <= (1 + TOLERANCE) * least_time(tree).us_per_byte:
        tree = slower  # one tree a chunk has fewer rounds than two
    chunks, enough = MIN_CHUNKS, (1 + TOLERANCE) * least_time(tree).us_per_byte
    wanted = [work(tree)]
    if tree is not slower:
        back = other_way_round(tree)
        wanted = [work(tree, beside=np.minimum(work(back), 0.0))]  # leaves room for what a reduction must export
        wanted = [work(back, beside=wanted[0]), *wanted]
    best = _halves(tree, wanted, chunks)
    while chunks < MAX_CHUNKS and busiest_time(tree, forward_and_reverse(*best)) > enough:
        chunks *= 2
        finer = _halves(tree, wanted, chunks)
        if sum(map(len, finer)) > MAX_TRANSFERS:
            break
        best = finer
    return best


def busiest_time(tree: TierTree, schedule: Schedule) -> float:
    """Return how long a schedule keeps the busiest link, microseconds a byte of the vector."""
    sent, received = np.zeros((2, len(tree.parent)))
    leaf = np.zeros(schedule.ranks, dtype=np.intp)
    leaf[tree.rank[tree.rank >= 0]] = np.flatnonzero(tree.rank >= 0)
    source, target, count = leaf[schedule.source], leaf[schedule.target], schedule.count
    while (apart := source != target).any():  # towards where the ways meet: a parent stands before its children
        source, target, count = source[apart], target[apart], count[apart]
        up = source > target
        sent += np.bincount(source[up], count[up], len(sent))
        received += np.bincount(target[~up], count[~up], len(sent))
        source, target = np.where(up, tree.parent[source], source), np.where(up, target, tree.parent[target])
    return float(max((sent / tree.out).max(), (received / tree.into).max()) / schedule.chunks)


def _halves(tree: TierTree, wanted: list[Vector], chunks: int) -> tuple[Schedule, Schedule]:
    there, *other = (_reduction(tree, each, chunks) for each in wanted)
    return there, _gathering(other[0], there.owners) if other and there.owners is not None else mirrored(there)


def _gathering(reduction: Schedule, owners: Indices) -> Schedule:
    """The all-gather over a reduce-scatter's trees, but from other roots: chunks climb to what was the root, and from
    everywhere on their way they go down. Which rank is the root changes no link's load."""
    transfer, chunk = expanded(reduction)
    above, when = np.full((2, reduction.ranks, reduction.chunks), -1)
    above[reduction.source[transfer], chunk] = reduction.target[transfer]
    when[reduction.source[transfer], chunk] = reduction.round[transfer]
    climbs, at, every = np.zeros(above.shape, dtype=bool), owners.astype(np.int64), np.arange(reduction.chunks)
    while (is_below := above[at, every] >= 0).any():
        climbs[at[is_below], every[is_below]] = True
        at = np.where(is_below, above[at, every], at)
    lower, chunk = np.nonzero(above >= 0)
    upper, up, when = above[lower, chunk], climbs[lower, chunk], when[lower, chunk]
    ways = np.where(up, [when, lower, upper], [2 * reduction.rounds - 1 - when, upper, lower])
    start = np.flatnonzero((np.diff([*ways, chunk - np.arange(len(chunk))], prepend=-2) != 0).any(axis=0))
    rows = np.stack([*ways[:, start], chunk[start], np.diff(start, append=len(chunk)), np.ones_like(start)], axis=1)
    rows[:, 0] = np.unique(rows[:, 0], return_inverse=True)[1]
    return make_schedule("hubs", reduction.ranks, reduction.chunks, rows, "all-gather", owners)


def _reduction(tree: TierTree, wanted: Vector, chunks: int) -> Schedule:
    dissolved, parts = _dissolved(tree, wanted, chunks)
    hub = _hubs(tree, wanted, dissolved, parts)
    head = np.repeat(tree.rank[:, None], chunks, axis=1)
    for node in reversed(range(len(hub))):
        if tree.children[node]:
            head[node] = head[hub[node], np.arange(chunks)]
    rows = [np.empty((0, 6), dtype=np.int64)]
    every = np.arange(chunks)
    for node in range(1, len(hub)):
        above = np.full(chunks, tree.parent[node])
        while (higher := dissolved[above, every]).any():
            above = np.where(higher, tree.parent[above], above)
        source, target = head[node], head[above, every]
        sends = ~dissolved[node] & (source != target)
        ways = np.where(sends, (source * chunks + target) * len(hub) + above, -1)
        start = np.flatnonzero(np.diff(ways, prepend=-2))
        length = np.diff(start, append=chunks)
        start, length = start[sends[start]], length[sends[start]]
        columns = tree.level[above[start]], source[start], target[start], start, length, 0
        rows.append(np.stack(np.broadcast_arrays(*columns), axis=1))
    together = np.concatenate(rows)
    together[:, 0] = np.unique(together[:, 0], return_inverse=True)[1]
    ranks = int(tree.rank.max()) + 1
    return make_schedule("hubs", ranks, chunks, together, "reduce-scatter", head[0].astype(np.int32))


def _dissolved(tree: TierTree, wanted: Vector, chunks: int) -> tuple[npt.NDArray[np.bool_], Heads]:
    """Whether each group is dissolved in each chunk, and how many parts it then has, shape (V, C) both."""
    dissolved = np.zeros((len(wanted), chunks), dtype=bool)
    parts = np.ones((len(wanted), chunks), dtype=np.int64)
    begin = 0  # groups take turns, so that no chunk has many more parts than others
    for node in reversed(range(len(wanted))):
        if not (below := tree.children[node]):
            continue
        parts[node] = np.where(dissolved[below], parts[below], 1).sum(axis=0)
        if node and wanted[node] < 0:
            turn = np.roll(np.arange(chunks), -begin)
            exported = np.cumsum(parts[node, turn] - 1)
            number = int(np.argmin(np.abs(np.append(0, exported) + wanted[node] * chunks)))
            dissolved[node, turn[:number]] = True
            begin = (begin + number) % chunks
    return dissolved, parts


def _hubs(tree: TierTree, wanted: Vector, dissolved: npt.NDArray[np.bool_], parts: Heads) -> Heads:
    """The child that is hub of each chunk at each switch, shape (V, C). That of a dissolved one adds up nothing.

    Where no group dissolves, each kind of chunk goes round all children, in as many lumps as they have ranks, so that
    what heads of two groups send each other is even: a few large flows starve beside many small ones. Dissolved groups
    make many kinds, and their ranks send to every head by themselves; then one child after the other, who can work most
    first, takes as much as it can, which is far fewer messages.
    """
    hub, worked = np.zeros(dissolved.shape, dtype=np.int64), np.zeros(dissolved.shape)
    left = wanted * dissolved.shape[1]
    in_turns = not dissolved.any()
    lumps = np.ones(len(hub), dtype=np.int64)  # of a child, in a kind of chunks
    for node in reversed(range(len(hub))):
        if in_turns and tree.children[node]:
            lumps[node] = lumps[tree.children[node]].sum()
    for node, below in enumerate(tree.children):
        if not below:
            continue
        children = np.array([child for child in below if wanted[child] >= 0] or below, dtype=np.intp)
        amount = np.where(dissolved[node], 0.0, parts[node] - 1.0 - (node == 0) + worked[node])
        # The largest first: what they leave over or take too much is made up by the smaller ones.
        for value in np.unique(amount)[::-1].tolist():
            kind = np.flatnonzero(amount == value)
            able = np.maximum(left[children], 0.0)
            number = np.zeros(len(children), dtype=np.intp)
            if not in_turns and value > 0:
                most_first = np.argsort(-able, kind="stable")
                ends = np.minimum(np.cumsum(able[most_first] // value), len(kind))
                number[most_first] = np.diff(ends, prepend=0)
            choices = np.maximum(able - number * value, 0.0), np.maximum(wanted[children], 0.0), np.ones(len(children))
            number += apportioned(len(kind) - number.sum(), next(each for each in choices if each.sum() > 0))
            lump = [np.arange(n) * lumps[c] // max(n, 1) for n, c in zip(number.tolist(), children, strict=True)]
            middle = [(own + 0.5) / lumps[child] for own, child in zip(lump, children, strict=True)]
            chosen = np.repeat(children, number)[np.argsort(np.concatenate(middle), kind="stable")]
            hub[node, kind], worked[chosen, kind] = chosen, value
            np.subtract.at(left, chosen, value)
    return hub
