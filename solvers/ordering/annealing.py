"""Simulated annealing over rank orders, for every objective that a pattern has (PLink thesis, 5.2.3).

Neighbours are swaps of two ranks and of two blocks of ranks (a rack's worth at a time, with racks that are powers of
two). A run is a number of moves between two temperatures; runs follow each other, each twice as long, from the best
order so far, so that any time is put to use and the best is never lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric
from solvers.costs.patterns import Pattern

Order = npt.NDArray[np.intp]
_FIRST_RUN = 20_000
_SLICE = 200_000  # moves between two looks at the clock
_SAMPLE = 200
_MODES = {"latency": 0, "contention": 1, "alpha-beta": 2}


@dataclass(frozen=True)
class Annealed:
    """The best order, shape (N,), its cost (by the closed form), and how many moves were tried."""

    order: Order
    cost: float
    moves: int


class Annealer:
    """An objective, compiled once, annealed from any order.

    :param pattern: not one in which everyone sends to everyone (all orders cost the same) and not a pipeline (rings
        under ``latency`` have a search of their own).
    :param fabric: complete: every pair is known.
    """

    def __init__(self, pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> None:
        assert not pattern.everyone
        self.price = closed_form(pattern, fabric, size_bytes, model)
        self._rtt = np.ascontiguousarray(fabric.rtt_us)
        self._chain = model == "latency" and pattern.pace == "chain"
        self._arguments = _chain(pattern) if self._chain else _rounds(pattern, fabric, size_bytes, model)

    def run(
        self, order: Order, moves: int, hot: float, cold: float, seed: int, movable: Order, blocks: Sequence[int]
    ) -> tuple[Order, float]:
        """One run of so many moves from temperature ``hot`` to ``cold`` (microseconds); the best order and its cost."""
        from solvers.ordering import kernels

        kernel: Any = kernels.anneal_chain if self._chain else kernels.anneal_rounds
        start = np.array(order, dtype=np.int64)
        common = (start, movable.astype(np.int64), np.array(blocks, dtype=np.int64), moves, hot, cold, np.uint64(seed))
        best, cost = kernel(*common, *self._arguments, *([self._rtt] if self._chain else []))
        return best.astype(np.intp), float(cost)

    def search(
        self,
        starts: Sequence[Order],
        seed: int,
        most_moves: int,
        keep_going: Callable[[], bool],
        movable: Order | None = None,
        blocks: Sequence[int] = (1,),
    ) -> Annealed:
        """Runs from each of the starts, then from the best so far, until the moves or the time are spent.

        The same seed and moves give the same order, however long they take. Never worse than the best start.
        """
        rng = np.random.default_rng(seed)
        free = np.arange(len(starts[0])) if movable is None else movable
        costs = [self.price(start) for start in starts]
        best, cost = starts[int(np.argmin(costs))], min(costs)
        if len(free) < 2:
            return Annealed(best, cost, 0)
        hot = self._temperature(starts[0], free, rng)
        spent, length = 0, _FIRST_RUN
        queue = [start for _, start in sorted(zip(costs, starts, strict=True), key=lambda pair: pair[0])]
        while spent < most_moves and hot > 0 and keep_going():
            begun, whole = queue.pop(0) if queue else best, min(length, most_moves - spent)
            # Long runs in slices, each a stretch of the same cooling, so that the clock is seen.
            slices = max(1, -(-whole // _SLICE))
            at, here = begun, hot
            cold = hot / 1000
            for k in range(slices):
                part = whole // slices + (k < whole % slices)
                next_ = hot * (cold / hot) ** ((k + 1) / slices)
                at, found = self.run(at, part, here, next_, int(rng.integers(1 << 63)), free, blocks)
                spent, here = spent + part, next_
                if found < cost * (1 - 1e-12):
                    best, cost = at, found
                if not keep_going():
                    break
            if not queue:
                length *= 2
        return Annealed(best, self.price(best), spent)

    def _temperature(self, order: Order, free: Order, rng: np.random.Generator) -> float:
        """Where a typical swap for the worse is taken half of the time."""
        at, deltas = np.array(order), []
        cost = self.price(at)
        for _ in range(_SAMPLE):
            a, b = rng.choice(free, 2, replace=False)
            at[[a, b]] = at[[b, a]]
            deltas.append(abs(self.price(at) - cost))
            at[[a, b]] = at[[b, a]]
        changes = [delta for delta in deltas if delta > 0]
        return float(np.median(changes)) if changes else 0.0


def _by_rank(ends: Sequence[npt.NDArray[np.intp]], ranks: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(offsets, numbers) of the hops that touch each rank."""
    rank = np.concatenate(ends)
    number = np.tile(np.arange(len(ends[0])), len(ends))
    order = np.argsort(rank, kind="stable")
    return np.searchsorted(rank[order], np.arange(ranks + 1)).astype(np.int64), number[order].astype(np.int64)


def _rounds(pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> tuple[object, ...]:
    """The arguments of ``anneal_rounds`` from ``mode`` on."""
    weight = pattern.there if model == "latency" else pattern.repeat
    low, high = np.minimum(pattern.source, pattern.target), np.maximum(pattern.source, pattern.target)
    keys = np.unique((pattern.round * pattern.ranks + low) * pattern.ranks + high)
    low, high = keys // pattern.ranks % pattern.ranks, keys % pattern.ranks
    hop_round = keys // (pattern.ranks * pattern.ranks)
    rounds, n = len(weight), len(fabric.names)
    starts = np.searchsorted(hop_round, np.arange(rounds + 1))
    moved = pattern.share * size_bytes
    sent, got = (
        np.bincount(pattern.round * pattern.ranks + ends, moved, rounds * pattern.ranks).reshape(rounds, pattern.ranks)
        for ends in (pattern.source, pattern.target)
    )
    rates = [fabric.host_out_gbps * BYTES_PER_US, fabric.host_in_gbps * BYTES_PER_US]
    slow = np.zeros((1, 1))
    if model == "alpha-beta":
        slow = 1 / (pair_rates(fabric) * BYTES_PER_US)
        np.fill_diagonal(slow, 0.0)
    return (
        _MODES[model],
        1.0 if model == "latency" else 0.5,
        weight.astype(np.float64),
        low.astype(np.int64),
        high.astype(np.int64),
        hop_round.astype(np.int64),
        starts.astype(np.int64),
        *_by_rank([low, high], pattern.ranks),
        np.ascontiguousarray(fabric.rtt_us),
        pattern.source.astype(np.int64),
        pattern.target.astype(np.int64),
        pattern.round.astype(np.int64),
        moved,
        *_by_rank([pattern.source, pattern.target], pattern.ranks),
        fabric.group_of.astype(np.int64),
        fabric.group_out_gbps * BYTES_PER_US,
        fabric.group_in_gbps * BYTES_PER_US,
        np.ascontiguousarray(slow),
        sent.astype(np.float64),
        got.astype(np.float64),
        *rates,
        bool(np.ptp(rates[0]) == 0 and np.ptp(rates[1]) == 0 and n > 0),
    )


def _chain(pattern: Pattern) -> tuple[object, ...]:
    """The arguments of ``anneal_chain`` from ``source`` on; hops in the order of their levels."""
    edges = np.concatenate([level.edges for level in pattern.chain])
    places = np.concatenate([level.places for level in pattern.chain])
    row = np.empty(int(places.max()) + 1, dtype=np.int64)
    row[places] = np.arange(len(places))
    waits, lengths = [], []
    for level in pattern.chain:
        ends = np.append(level.starts[1:], len(level.waits))
        lengths.append(ends - level.starts)
        waits.append(row[level.waits])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return (
        (edges // pattern.ranks).astype(np.int64),
        (edges % pattern.ranks).astype(np.int64),
        offsets.astype(np.int64),
        np.concatenate(waits).astype(np.int64),
    )
