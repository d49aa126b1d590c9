"""Round trips from what a provider says of its network: an order without probing, or what fills the gaps of one.

The distance of two hosts is the height of their nearest common ancestor in the tree of their paths, counted in levels
from the deepest leaf below it: hosts under one leaf are 0 apart (they hang off the same switch, or, where the provider
names physical hosts, run on the same one), those that first meet one switch above the leaves 1, and so on; hosts with
no ancestor in common meet above all, at the length of the longest path. For paths without gaps that is an ultrametric,
also where the leaves are not equally deep.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from plink.errors import InputError, NoAnswer
from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.network import Matrix, Network
from plink.model.network_file import NetworkDetails, SharedLinkEntry, SharedTierEntry
from plink.model.topology import Path, Topology, hosts_of, paths_for
from solvers.hierarchy.shared_tiers import HostGroups

Levels = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]

MAX_HOSTS = 8192
# Round trips of three tiers as they are usual between rented machines; each level above doubles the one below.
_ASSUMED_US = (25.0, 60.0, 120.0)
_UNNAMED, _ENDED = -1, -2


def levels_apart(paths: Sequence[Path | None]) -> Levels:
    """Return how many levels up from the leaf each two hosts meet, shape (N, N), symmetric, 0 on the diagonal.

    :param paths: of each host what it hangs under, top first; None for a level that is not named, and in place of the
        path of a host that nothing is said about.

    Below 0, ``~level``, where two hosts agree as far as both are named and one of them is not named from there on: they
    meet at that level or below (:func:`at_most`), and no farther up than any of which it is known. Hosts that differ
    above a gap are as far apart as the level says at which they differ.
    """
    named_paths = [path if path is not None else (None,) for path in paths]
    n, deepest = len(named_paths), max((len(path) for path in named_paths), default=0)
    number: dict[Path, int] = {}
    heights: list[int] = []
    code = np.full((n, deepest), _ENDED, dtype=np.int64)
    for host, path in enumerate(named_paths):
        for depth, name in enumerate(path):
            if name is None:
                code[host, depth:] = _UNNAMED
                break
            code[host, depth] = ancestor = number.setdefault(path[: depth + 1], len(number))
            if ancestor == len(heights):
                heights.append(0)
            heights[ancestor] = max(heights[ancestor], len(path) - depth - 1)
    height = np.array([*heights, 0], dtype=np.int16)  # the last for those without an ancestor there
    levels = np.full((n, n), deepest, dtype=np.int16)
    together = np.ones((n, n), dtype=bool)
    for at in code.T:
        unnamed, ended = at == _UNNAMED, at == _ENDED
        gap = (unnamed[:, None] | unnamed) & ~(ended[:, None] | ended)
        np.copyto(levels, ~levels, where=together & gap)
        together &= (at[:, None] == at) & (at >= 0)
        np.copyto(levels, height[at.clip(_UNNAMED)], where=together)
    np.fill_diagonal(levels, 0)
    return np.where(levels < 0, np.maximum(levels, ~levels.max(initial=0)), levels)


def at_most(levels: Levels) -> Levels:
    """Return how many levels up from the leaf each two hosts meet at most, shape (N, N), given those of
    :func:`levels_apart`."""
    return np.maximum(levels, ~levels)


def tiers_of(levels: Levels) -> list[HostGroups]:
    """Return the tiers of groups of hosts, the innermost first: each a partition of the N hosts into those that meet
    below one more level. Hosts of unknown place are groups of their own, as far as it is not known. A tier of one
    group, or of hosts alone, or the same as the one below, is none.

    :param levels: as of :func:`levels_apart`.
    """
    tiers: list[HostGroups] = []
    height_of_pair = at_most(levels)
    for height in range(int(height_of_pair.max(initial=0))):
        partition = sorted(np.flatnonzero(row).tolist() for row in np.unique(height_of_pair <= height, axis=0))
        if 1 < len(partition) < len(levels) and partition not in tiers[-1:]:
            tiers.append(partition)
    return tiers


def latencies_of(levels: Levels) -> Matrix:
    """Return round trips to assume where nothing was measured, shape (N, N), microseconds, 0 on the diagonal.

    25, 60 and 120 us for hosts 0, 1 and 2 levels apart and twice as much for each level above: only that farther is
    longer can be relied on. Unknown pairs are taken to be as far as they may be.
    """
    height = at_most(levels)
    rtt_us = _assumed_us(int(height.max(initial=0)))[height]
    np.fill_diagonal(rtt_us, 0.0)
    return rtt_us


def filled(rtt_us: Matrix, levels: Levels) -> Matrix:
    """Fill all gaps (NaN) of ``rtt_us``, shape (N, N), microseconds; what was measured stays.

    A pair measured in one direction has that time in the other. A pair without gets the median of the measured pairs
    (the worse of both directions) as many levels apart, made to grow with the level by weighted isotonic regression
    (pool adjacent violators). A level of which no pair was measured lies between its neighbours as the assumed times do
    (:func:`latencies_of`), or as far beyond the last measured one. Unknown pairs get the median of the measured ones
    that meet at the same level at most, and without any the time of that level.
    """
    pairs_us = np.fmax(rtt_us, rtt_us.T)
    above = np.triu(np.isfinite(pairs_us), 1)
    measured_us, apart = pairs_us[above], levels[above]
    assumed_us = _assumed_us(int(at_most(levels).max(initial=0)))
    levels_measured, count = np.unique(apart[apart >= 0], return_counts=True)
    by_level_us = assumed_us
    if len(levels_measured):
        medians_us = np.array([np.median(measured_us[apart == level]) for level in levels_measured])
        by_level_us = _through(assumed_us[levels_measured], _growing(medians_us, count), assumed_us)
    expected_us = by_level_us[at_most(levels)]
    for unknown in np.unique(apart[apart < 0]).tolist():
        expected_us[levels == unknown] = np.median(measured_us[apart == unknown])
    expected_us = np.where(np.isfinite(pairs_us), pairs_us, expected_us)
    whole_us = np.where(np.isfinite(rtt_us), rtt_us, expected_us)
    np.fill_diagonal(whole_us, 0.0)
    return whole_us


def assumed_network(topology: Topology, hosts: Hosts | None = None) -> Network:
    """Return a network in which nothing was measured: assumed round trips, and in ``details`` the format they are from
    and the groups of hosts, whose links' capacities are not known.

    :param hosts: those of the job where the file lists more; None: all hosts of the file, in its order.
    :raises InputError: when the file has none of them, or there are too many for a matrix of their pairs.
    :raises NoAnswer: when the file says of no two hosts how far apart they are.
    """
    hosts_or_all = hosts if hosts is not None else hosts_of(topology)
    n = len(hosts_or_all)
    if n > MAX_HOSTS:
        raise InputError(topology.location, f"{n} hosts are more than the {MAX_HOSTS} that plink orders at once")
    levels = levels_apart(paths_for(topology, hosts_or_all) if hosts is not None else list(topology.paths.values()))
    if n > 1 and not np.any(levels[~np.eye(n, dtype=bool)] >= 0):
        advice = topology.hint or "; measure them: plink probe"
        raise NoAnswer(f"{topology.location} says of no two hosts how far apart they are{advice}")
    names, reason = hosts_or_all.names, f"not measured; the group is from {topology.location}"
    links = [
        SharedTierEntry(
            groups=[
                SharedLinkEntry(members=[names[host] for host in group], reason=reason)
                for group in groups
                if len(group) > 1
            ]
        )
        for groups in tiers_of(levels)
    ]
    details = NetworkDetails(assumed_from=topology.kind, shared_links=links or UNSET)
    return Network(hosts_or_all, latencies_of(levels), details=details, location=topology.location)


def _assumed_us(farthest: int) -> Floats:
    """Return the assumed round trip of each level from 0 to ``farthest``, shape (farthest + 1,)."""
    doubled = _ASSUMED_US[-1] * 2.0 ** np.arange(1, max(farthest - 1, 1))
    return np.array([*_ASSUMED_US, *doubled])[: farthest + 1]


def _growing(values: Floats, weight: npt.NDArray[np.intp]) -> Floats:
    """Return the nearest values, shape (K,), by weighted squares, that do not fall: pool adjacent violators."""
    pools: list[tuple[float, int, int]] = []  # mean, weight, how many values
    for value, count in zip(values.tolist(), weight.tolist(), strict=True):
        pool = (value, count, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, before, length = pools.pop()
            total = before + pool[1]
            pool = ((mean * before + pool[0] * pool[1]) / total, total, length + pool[2])
        pools.append(pool)
    return np.repeat([mean for mean, _, _ in pools], [length for _, _, length in pools])


def _through(x: Floats, y: Floats, x_new: Floats) -> Floats:
    """Return the line through the points (x, y), each of shape (K,), at ``x_new``; in proportion beyond its ends."""
    between = np.interp(x_new, x, y)
    beyond = np.where(x_new < x[0], x_new / x[0] * y[0], x_new / x[-1] * y[-1])
    return np.where((x_new < x[0]) | (x_new > x[-1]), beyond, between)
