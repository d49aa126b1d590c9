"""Patterns as contiguous arrays for the compiled loops of annealing.

Also its cooling schedules: initial and final temperatures, and the weight of the smoothed cost.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector
from solvers.costs.patterns import Pattern

_COOLING, _CHAIN_COOLING = 1000.0, 30.0  # the first temperature over the last
# Of each run: (initial temperature over the typical change, weight of the smoothed cost). A low temperature keeps what
# a start order has of the hierarchy. Few ranks, and loads, of which there are few different ones, need a higher one.
_HOPS = ((0.05, 1.0), (0.2, 1.0), (0.05, 0.0), (1.0, 0.5))
_HOPS_OF_SMALL_JOBS = ((1.0, 0.5), (0.2, 1.0), (0.05, 0.0))
_SMALL_JOB_MAX_RANKS = 32
_LOADS = ((1.0, 0.0), (0.2, 0.0))
# Chains: initial temperatures of the two parallel runs. The first run: over the deviation of nearby round trips. The
# second: the same in long runs, over the deviation of all round trips in short ones.
_FIRST_OVER_NEARBY, _SECOND_OVER_NEARBY, _SECOND_OVER_ALL = 0.1, 0.05, 0.5
_SHORT_RUN_MAX_MOVES = 640_000
_NEARBY_FRACTION = 4  # one in so many hosts is nearby
_MAX_OVER_NEARBY = 2.0  # longer round trips are cut at so many times the nearby ones
Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
_MODES = {"contention": 1, "alpha-beta": 2}
_NO_PATHS = np.zeros((0, 0, 0), dtype=np.int32)
_NEAREST_HOSTS = 8  # that an aimed move draws from
_SMOOTHING_WIDTH = 0.25  # over the deviation of nearby round trips, for each hop of a chain


class CoolingSchedule(NamedTuple):
    """Initial and final temperature of a run, microseconds, and the weight of the smoothed cost, 0 to 1."""

    initial: float
    final: float
    smoothing: float = 0.0

    def part(self, k: int, slices: int) -> "CoolingSchedule":
        """Return the schedule of the k-th slice of the run."""
        ratio = self.final / self.initial
        return CoolingSchedule(
            self.initial * ratio ** (k / slices), self.initial * ratio ** ((k + 1) / slices), self.smoothing
        )


class CoolingSchedules:
    """The cooling schedules of all runs of a search.

    :param kind: ``hops``, ``chain`` or ``loads``. :param change: typical change of the cost by a swap; positive.
    :param rtt_us: shape (N, N). :param ranks: how many.
    """

    def __init__(self, kind: str, change: float, rtt_us: Matrix, ranks: int) -> None:
        self._chain: tuple[CoolingSchedule, ...] = ()
        if kind == "chain":
            # Mostly the differences between hosts of one site tell good orders from bad ones. Where sites are far
            # apart, short hot runs move hosts between them and find the site for each branch.
            nearby, overall = spread_nearby(rtt_us), float(rtt_us.std())
            temperatures = (nearby * _FIRST_OVER_NEARBY, nearby * _SECOND_OVER_NEARBY, overall * _SECOND_OVER_ALL)
            self._chain = tuple(
                CoolingSchedule(temperature, min(temperatures) / _CHAIN_COOLING) for temperature in temperatures
            )
        small_job = kind == "hops" and ranks <= _SMALL_JOB_MAX_RANKS
        heats = _LOADS if kind == "loads" else _HOPS_OF_SMALL_JOBS if small_job else _HOPS
        self._cycle = [
            CoolingSchedule(change * temperature, change * temperature / _COOLING, smoothing)
            for temperature, smoothing in heats
        ]

    def schedules(self, run: int, parallel: int, moves: int) -> Sequence[CoolingSchedule]:
        """Return one schedule for each parallel run; ``run``: how many came before, ``moves``: of each."""
        if self._chain:
            first, second_long, second_short = self._chain
            return (first, second_short if moves <= _SHORT_RUN_MAX_MOVES else second_long)[:parallel]
        return [self._cycle[(run * parallel + k) % len(self._cycle)] for k in range(parallel)]


def spread_nearby(rtt_us: Matrix) -> float:
    """Return the standard deviation of the round trips between nearby hosts, microseconds.

    Round trips much longer than those to the nearest quarter of the hosts are cut, or the differences within a site
    would be lost. (With four distant sites or more they are, but there the number of hops between sites counts.)
    Where all pairs are equally far, a host's round trip to itself counts too.
    """
    n = len(rtt_us)
    if n < 2:
        return 0.0
    pairs = rtt_us[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    nearby = np.median(np.sort(pairs, axis=1)[:, (n - 1) // _NEARBY_FRACTION])
    return float(np.minimum(pairs, _MAX_OVER_NEARBY * nearby).std()) or float(rtt_us.std())


class Distances(NamedTuple):
    """``rtt_us``, shape (H, H): round trips between hosts; ``near``, shape (H, K): the hosts nearest to each."""

    rtt_us: Matrix
    near: Integers


class Hops(NamedTuple):
    """Input of :func:`solvers.ordering.latency_kernels.anneal_hops`: E hops, pairs of ranks, in R rounds.

    ``weight``, shape (R,): of a round's longest hop; ``low``, ``high`` and ``round``, shape (E,), by rounds, which
    begin at ``starts``, shape (R + 1,); the hops of a rank are ``hop_of[hop_ptr[rank] : hop_ptr[rank + 1]]``.
    """

    weight: Vector
    low: Integers
    high: Integers
    round: Integers
    starts: Integers
    hop_ptr: Integers
    hop_of: Integers
    distances: Distances


class Chain(NamedTuple):
    """Input of :func:`solvers.ordering.latency_kernels.anneal_chain`: E hops, each after those that it waits for.

    ``source`` and ``target``, shape (E,): ranks; a hop waits for ``waits[wait_ptr[hop] : wait_ptr[hop + 1]]``;
    ``after``: the hop that waits for each and begins where it ends, -1 for those in ``last``; ``levels``: hops in the
    longest chain; ``hop_of``: as in :class:`Hops`, first the hops to a rank, then those from it; ``width_us``: width of
    the smoothed maximum (:func:`solvers.ordering.latency_kernels.smooth_max`) for each hop.
    """

    source: Integers
    target: Integers
    wait_ptr: Integers
    waits: Integers
    after: Integers
    last: Indices
    levels: int
    hop_ptr: Integers
    hop_of: Integers
    distances: Distances
    width_us: float


class Loads(NamedTuple):
    """Input of :func:`solvers.ordering.load_kernels.anneal_loads`: hops, and T transfers that load resources.

    ``mode``: 1 for ``contention``, 2 for ``alpha-beta``; ``source``, ``target``, ``round`` and ``bytes``, shape (T,);
    ``edge_ptr``, ``edge_of``: the transfers of each rank; ``group_of``, shape (T, H): groups by tiers, those of all
    tiers numbered through; ``out_rate`` and ``in_rate`` of groups, ``host_out`` and ``host_in`` of hosts or interfaces:
    bytes per microsecond; ``paths_out`` and ``paths_in``, shape (P, H, H): the interfaces that a pair crosses, -1 for
    none; P = 0 where hosts have one each; ``slow``, shape (H, H): microseconds per byte; ``pipelined``: the mean of a
    round's hops counts, not the longest; ``hops_in``, shape (R,): how many hops that is the mean of.
    """

    hops: Hops
    mode: int
    source: Integers
    target: Integers
    round: Integers
    bytes: Vector
    edge_ptr: Integers
    edge_of: Integers
    group_of: Integers
    out_rate: Vector
    in_rate: Vector
    slow: Matrix
    host_out: Vector
    host_in: Vector
    paths_out: npt.NDArray[np.int32]
    paths_in: npt.NDArray[np.int32]
    pipelined: bool
    hops_in: Vector


def hops_of(pattern: Pattern, rtt_us: Matrix) -> Hops:
    """Return the hops of a pattern; in a pipeline each is a round of its own, for every hop counts."""
    ranks = pattern.ranks
    if pattern.timing == "pipeline":
        links = np.unique(pattern.source * ranks + pattern.target)
        round_of = np.arange(len(links))
        return _hops(np.ones(len(links)), round_of, links // ranks, links % ranks, ranks, rtt_us)
    return _hops(pattern.reduce_repeat, pattern.round, pattern.source, pattern.target, ranks, rtt_us)


def chain_of(pattern: Pattern, rtt_us: Matrix) -> Chain:
    """Return the hops of a chain by their levels."""
    edges = np.concatenate([level.edges for level in pattern.chain])
    hop_ids = np.concatenate([level.places for level in pattern.chain])
    row = np.empty(int(hop_ids.max()) + 1, dtype=np.int64)
    row[hop_ids] = np.arange(len(hop_ids))
    waits = np.concatenate([row[level.waits] for level in pattern.chain]).astype(np.int64)
    lengths = np.concatenate([np.diff(np.append(level.starts, len(level.waits))) for level in pattern.chain])
    assert len(np.unique(waits)) == len(waits)  # in trees at most one hop waits for each
    after = np.full(len(edges), -1, dtype=np.int64)
    after[waits] = np.repeat(np.arange(len(edges)), lengths)
    source, target = edges // pattern.ranks, edges % pattern.ranks
    return Chain(
        source.astype(np.int64),
        target.astype(np.int64),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        waits,
        after,
        np.flatnonzero(after < 0),
        len(pattern.chain),
        *_by_rank([target, source], pattern.ranks),
        _distances(rtt_us),
        _SMOOTHING_WIDTH * spread_nearby(rtt_us),
    )


def loads_of(pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> Loads:
    """Return hops and loads under ``contention`` or ``alpha-beta``."""
    slow = np.zeros((1, 1))
    if model == "alpha-beta":
        slow = 1 / (pair_rates(fabric) * BYTES_PER_US)
        np.fill_diagonal(slow, 0.0)
    starts = np.cumsum([0, *(len(tier.out_gbps) for tier in fabric.tiers[:-1])])
    sending, receiving = fabric.resources
    return Loads(
        _hops(pattern.repeat, pattern.round, pattern.source, pattern.target, pattern.ranks, fabric.rtt_us),
        _MODES[model],
        pattern.source.astype(np.int64),
        pattern.target.astype(np.int64),
        pattern.round.astype(np.int64),
        pattern.share * size_bytes,
        *_by_rank([pattern.source, pattern.target], pattern.ranks),
        np.stack([first + tier.group_of for first, tier in zip(starts, fabric.tiers, strict=True)]).astype(np.int64),
        np.concatenate([tier.out_gbps for tier in fabric.tiers]) * BYTES_PER_US,
        np.concatenate([tier.in_gbps for tier in fabric.tiers]) * BYTES_PER_US,
        np.ascontiguousarray(slow),
        sending.gbps * BYTES_PER_US,
        receiving.gbps * BYTES_PER_US,
        _NO_PATHS if sending.paths is None else sending.paths,
        _NO_PATHS if receiving.paths is None else receiving.paths,
        model == "contention" and pattern.timing == "pipeline",
        np.maximum(1.0, np.bincount(pattern.round, minlength=len(pattern.repeat))),
    )


def _distances(rtt_us: Matrix) -> Distances:
    n = len(rtt_us)
    others = rtt_us + np.diag(np.full(n, np.inf))
    count = min(_NEAREST_HOSTS, n - 1)
    near = np.argpartition(others, count - 1, axis=1)[:, :count].astype(np.int64)
    # Writable, too: kernels are compiled once more for arrays that are not.
    return Distances(np.require(rtt_us, requirements=["C", "W"]), near)


def _hops(weight: Vector, round_of: Indices, source: Indices, target: Indices, ranks: int, rtt_us: Matrix) -> Hops:
    """Return the hops by rounds, each pair of ranks once a round."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys = np.unique((round_of * ranks + low) * ranks + high)
    low, high, round_of = keys // ranks % ranks, keys % ranks, keys // (ranks * ranks)
    starts = np.searchsorted(round_of, np.arange(len(weight) + 1))
    return Hops(
        weight.astype(np.float64),
        low.astype(np.int64),
        high.astype(np.int64),
        round_of.astype(np.int64),
        starts.astype(np.int64),
        *_by_rank([low, high], ranks),
        _distances(rtt_us),
    )


def _by_rank(ends: Sequence[Indices], ranks: int) -> tuple[Integers, Integers]:
    """Return (offsets, hop numbers) of the hops that each rank has."""
    rank = np.concatenate(ends)
    number = np.tile(np.arange(len(ends[0])), len(ends))
    order = np.argsort(rank, kind="stable")
    return np.searchsorted(rank[order], np.arange(ranks + 1)).astype(np.int64), number[order].astype(np.int64)
