"""Two-level hierarchical aggregation, 2LHA (PLink thesis, 4.1.2): local masters add up groups, global masters all.

Everything is said by two arrays over C chunks and G groups: ``local_masters``, shape (C, G), the rank that aggregates a
chunk in each group, and ``global_group``, shape (C,), the group whose local master of that chunk is its global master.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.schedule import Indices, Schedule, expanded, forward_and_reverse, make_schedule
from solvers.schedules.hubs import busiest_time
from solvers.schedules.masters import Groups, Weights, check_groups, equal_chunks, work_weights
from solvers.spanning.tier_tree import TierTree, regrouped

Rows = npt.NDArray[np.int64]
CHUNKS_PER_RANK = 8  # where masters have other weights than sizes
_GAIN = 1.1
_MAX_TRANSFERS_BY_LINKS = 50_000  # the costs of many more are by rounds, by which masters by links are late
_CHUNKS_PER_HUB = 16  # at least, so that chunks follow weights


def two_level_reduce_scatter(groups: Groups, local_masters: Indices, global_group: Indices) -> Schedule:
    """Two rounds: every rank sends each chunk to its group's local master, and these to the global master, which ends
    with it. One group, or groups of one rank only, take one round.

    :raises UsageError: when the groups are not those of the ranks 0 to N-1, or a master is not in its group.
    """
    ranks = _checked(groups, local_masters, global_group)
    return make_schedule(
        "2lha", ranks, len(global_group), _rows(groups, local_masters, global_group), "reduce-scatter",
        _global_masters(local_masters, global_group), groups=[[int(rank) for rank in group] for group in groups],
    )  # fmt: skip


def flat_reduce_scatter(ranks: int) -> Schedule:
    """Every rank sends every other one its chunk: rank r ends with chunk r.

    :raises UsageError: for fewer than two ranks.
    """
    masters = np.arange(ranks, dtype=np.int32)
    rows = _rows([range(ranks)], masters[:, None], np.zeros_like(masters))
    return make_schedule("flat", ranks, ranks, rows, "reduce-scatter", masters)


def hub_reduce_scatter(groups: Groups, hubs: int, weights: Sequence[float] | None = None) -> Schedule:
    """Two-level aggregation with the last ``hubs`` ranks as its only masters: these contribute nothing and need no
    result, and what stands there in the beginning has to be zero. One group takes one round.

    There are chunks enough for each worker to have some where a group without hubs uses the schedule.

    :param weights: what each hub can take, shape (H,); only proportions count. Default: all the same.
    :raises UsageError: when the groups are not those of the ranks 0 to N-1, one has no hub, or weights do not fit.
    """
    ranks = check_groups(groups)
    if not 1 <= hubs < ranks:
        raise UsageError(f"phub: {hubs} hubs of {ranks} ranks leave no worker or no hub; 1 to {ranks - 1} do")
    if any(max(group) < ranks - hubs for group in groups):
        raise UsageError(
            f"phub-2l needs a hub in each group, and hubs are the last ranks, here {hubs} of {ranks} (servers={hubs}); "
            "6 ranks with servers=2 are in groups like 0,1,4/2,3,5"
        )
    if weights is not None and len(weights) != hubs:
        raise UsageError(f"phub: {hubs} hubs need a weight each, not {len(weights)} weights")
    workers = ranks - hubs
    strength = np.repeat([0.0, 1.0], [workers, hubs])
    if weights is not None:
        strength[workers:] = weights
    by_group = np.array([strength[np.asarray(group)].sum() for group in groups])
    local_masters, global_group = equal_chunks(
        groups, hubs * max(workers, _CHUNKS_PER_HUB), Weights(by_group, strength)
    )
    rows = _rows(groups, local_masters, global_group)
    sums_nothing = (rows[:, 1] >= workers) & (local_masters[rows[:, 3]] != rows[:, 1, None]).all(axis=1)
    owners = _global_masters(local_masters, global_group)
    return make_schedule(
        "phub", ranks, len(global_group), rows[~sums_nothing], "reduce-scatter", owners,
        contributors=list(range(workers)),
    )  # fmt: skip


def pipelined(reduction: Schedule, pieces: int) -> Schedule:
    """The all-reduce of a reduce-scatter whose sums are sent back piece by piece, while the next piece is reduced.

    A hub's workers send in one half of the time and receive in the other, unless these overlap.

    :param pieces: of what each rank masters, 1 or more; no more than it has chunks.
    """
    assert reduction.owners is not None
    order = np.argsort(reduction.owners, kind="stable")
    begin = np.searchsorted(reduction.owners[order], reduction.owners)
    piece = np.empty(reduction.chunks, dtype=np.int64)
    piece[order] = (np.arange(reduction.chunks) - begin[order]) % pieces
    transfer, chunk = expanded(reduction)
    source, target, when = (a[transfer] for a in (reduction.source, reduction.target, reduction.round))
    there = np.stack(np.broadcast_arrays(when + piece[chunk], source, target, chunk, 1, 0), axis=1)
    back = np.stack(
        np.broadcast_arrays(2 * reduction.rounds - 1 - when + piece[chunk], target, source, chunk, 1, 1), axis=1
    )
    rows = np.concatenate([there, back])
    schedule = make_schedule(reduction.algo, reduction.ranks, reduction.chunks, rows)
    return replace(schedule, contributors=reduction.contributors, groups=reduction.groups, timing=reduction.timing)


def two_level_masters(groups: Groups, tree: TierTree | None = None) -> tuple[Indices, Indices]:
    """``local_masters`` and ``global_group`` for N chunks, as even as can be: every rank is global master of one chunk,
    so a group is as often as it has ranks, and local master of as many as the others of its group, or one more or less.

    :param tree: links of ranks; where they gain (:func:`masters_by_links`), masters are those of the least time.
    :raises UsageError: when the groups are not those of the ranks 0 to N-1.
    """
    by_links = None if tree is None else masters_by_links(groups, tree)
    return equal_chunks(groups, check_groups(groups)) if by_links is None else by_links


def masters_by_links(groups: Groups, tree: TierTree) -> tuple[Indices, Indices] | None:
    """Masters of the least time in 8 chunks a rank, where they keep the busiest link a tenth less busy than masters by
    sizes; else None, for their chunks are smaller and their messages more, which costs small vectors time. None, too,
    where a host has ranks in two groups, and for more than 50,000 transfers (some 600 ranks).

    :param tree: links of ranks, all tiers of them.
    """
    ranks = check_groups(groups)
    of_groups = regrouped(tree, groups)
    if of_groups is None:
        return None
    by_links = equal_chunks(groups, CHUNKS_PER_RANK * ranks, work_weights(of_groups, groups))
    inside = sum((len(group) - 1) * len(_runs(by_links[0][:, g].astype(np.int64))[0]) for g, group in enumerate(groups))
    if inside > _MAX_TRANSFERS_BY_LINKS:
        return None
    reduction = two_level_reduce_scatter(groups, *by_links)
    if len(reduction) > _MAX_TRANSFERS_BY_LINKS:
        return None
    links_us, sizes_us = (
        busiest_time(tree, forward_and_reverse(schedule))
        for schedule in (reduction, two_level_reduce_scatter(groups, *equal_chunks(groups, ranks)))
    )
    return by_links if sizes_us > _GAIN * links_us else None


def _rows(groups: Groups, local_masters: Indices, global_group: Indices) -> Rows:
    """One transfer for all the neighbouring chunks that go the same way."""
    global_masters = _global_masters(local_masters, global_group).astype(np.int64)
    rows = [np.empty((0, 6), dtype=np.int64)]
    for g, group in enumerate(groups):
        masters = local_masters[:, g].astype(np.int64)
        start, length = _runs(masters)
        member, run = (axis.ravel() for axis in np.meshgrid(np.asarray(group), np.arange(len(start)), indexing="ij"))
        rows.append(_moves(0, member, masters[start[run]], start[run], length[run]))
        start, length = _runs(masters * (int(local_masters.max(initial=0)) + 1) + global_masters)
        rows.append(_moves(1, masters[start], global_masters[start], start, length))
    together = np.concatenate(rows)
    together[:, 0] = np.unique(together[:, 0], return_inverse=True)[1]  # no round in which nothing happens
    return together


def _runs(values: Rows) -> tuple[Rows, Rows]:
    """Where neighbours that are equal begin, and how many they are."""
    start = np.flatnonzero(np.diff(values, prepend=-1))
    return start, np.diff(start, append=len(values))


def _moves(when: int, source: Rows, target: Rows, first: Rows, count: Rows) -> Rows:
    """The rows, without those of a master to itself."""
    rows: Rows = np.stack(np.broadcast_arrays(when, source, target, first, count, 0), axis=1)
    return rows[np.flatnonzero(source != target)]


def _global_masters(local_masters: Indices, global_group: Indices) -> Indices:
    return local_masters[np.arange(len(global_group)), global_group]


def _checked(groups: Groups, local_masters: Indices, global_group: Indices) -> int:
    ranks = check_groups(groups)
    if local_masters.shape != (len(global_group), len(groups)):
        raise UsageError(f"masters: {len(global_group)} chunks and {len(groups)} groups need a local master each")
    for g, group in enumerate(groups):
        foreign = local_masters[~np.isin(local_masters[:, g], np.asarray(group)), g]
        if len(foreign):
            raise UsageError(f"masters: rank {foreign[0]} is not in group {g} and cannot be its local master")
    if not np.isin(global_group, np.arange(len(groups))).all():
        raise UsageError(f"masters: a global master stands in one of the groups 0 to {len(groups) - 1}")
    return ranks
