"""Patterns as arrays for the compiled loops of annealing."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric
from solvers.costs.patterns import Pattern

Numbers = npt.NDArray[np.int64]
Ends = npt.NDArray[np.intp]
_MODES = {"contention": 1, "alpha-beta": 2}


def hops_of(pattern: Pattern) -> tuple[object, ...]:
    """The arguments of :func:`solvers.ordering.hop_kernels.anneal_hops` from ``weight`` on.

    In a pipeline every hop counts: each is a round of its own.
    """
    ranks = pattern.ranks
    if pattern.pace == "pipeline":
        links = np.unique(pattern.source * ranks + pattern.target)
        ends = np.stack([links // ranks, links % ranks])
        return (np.ones(len(links)), *_pairs(np.arange(len(links)), ends[0], ends[1], ranks, len(links)))
    return (pattern.there.astype(np.float64), *_pairs(*_listed(pattern), ranks, len(pattern.there)))


def chain_of(pattern: Pattern) -> tuple[object, ...]:
    """The arguments of :func:`solvers.ordering.chain_kernels.anneal_chain` from ``source`` on; hops by their levels."""
    edges = np.concatenate([level.edges for level in pattern.chain])
    places = np.concatenate([level.places for level in pattern.chain])
    row = np.empty(int(places.max()) + 1, dtype=np.int64)
    row[places] = np.arange(len(places))
    waits = np.concatenate([row[level.waits] for level in pattern.chain]).astype(np.int64)
    lengths = np.concatenate([np.diff(np.append(level.starts, len(level.waits))) for level in pattern.chain])
    assert len(np.unique(waits)) == len(waits)  # in trees one hop at most waits for each
    after = np.full(len(edges), -1, dtype=np.int64)
    after[waits] = np.repeat(np.arange(len(edges)), lengths)
    source, target = edges // pattern.ranks, edges % pattern.ranks
    return (
        source.astype(np.int64),
        target.astype(np.int64),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        waits,
        after,
        np.flatnonzero(after < 0),
        len(pattern.chain),
        *_by_rank([target, source], pattern.ranks),
    )


def loads_of(pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> tuple[object, ...]:
    """The arguments of :func:`solvers.ordering.load_kernels.anneal_loads` from ``mode`` on."""
    ranks, rounds = pattern.ranks, len(pattern.repeat)
    low, high, hop_round, starts, hop_ptr, hop_of = _pairs(*_listed(pattern), ranks, rounds)
    moved = pattern.share * size_bytes
    slow = np.zeros((1, 1))
    if model == "alpha-beta":
        slow = 1 / (pair_rates(fabric) * BYTES_PER_US)
        np.fill_diagonal(slow, 0.0)
    return (
        _MODES[model],
        pattern.repeat.astype(np.float64),
        low,
        high,
        hop_round,
        starts,
        hop_ptr,
        hop_of,
        np.ascontiguousarray(fabric.rtt_us),
        pattern.source.astype(np.int64),
        pattern.target.astype(np.int64),
        pattern.round.astype(np.int64),
        moved,
        *_by_rank([pattern.source, pattern.target], ranks),
        fabric.group_of.astype(np.int64),
        fabric.group_out_gbps * BYTES_PER_US,
        fabric.group_in_gbps * BYTES_PER_US,
        np.ascontiguousarray(slow),
        fabric.host_out_gbps * BYTES_PER_US,
        fabric.host_in_gbps * BYTES_PER_US,
    )


def _listed(pattern: Pattern) -> tuple[Ends, Ends, Ends]:
    return pattern.round, pattern.source, pattern.target


def _pairs(when: Ends, source: Ends, target: Ends, ranks: int, rounds: int) -> tuple[Numbers, ...]:
    """Each pair of ranks once a round: (low, high, round), where rounds begin, and the pairs of each rank."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys = np.unique((when * ranks + low) * ranks + high)
    low, high, when = keys // ranks % ranks, keys % ranks, keys // (ranks * ranks)
    starts = np.searchsorted(when, np.arange(rounds + 1))
    return (*(part.astype(np.int64) for part in (low, high, when, starts)), *_by_rank([low, high], ranks))


def _by_rank(ends: Sequence[Ends], ranks: int) -> tuple[Numbers, Numbers]:
    """(offsets, numbers) of the hops that touch each rank."""
    rank = np.concatenate(ends)
    number = np.tile(np.arange(len(ends[0])), len(ends))
    order = np.argsort(rank, kind="stable")
    return np.searchsorted(rank[order], np.arange(ranks + 1)).astype(np.int64), number[order].astype(np.int64)
