"""Simulated annealing over rank orders, for every objective that a pattern has (PLink thesis, 5.2.3).

Neighbours are swaps of two hosts and of two blocks of ranks (a rack's worth at a time, or a group), and short stretches
of hosts reversed or moved on by one. A run is a number of moves between two temperatures; runs follow each other, each
twice as long, from the best order so far, so that any time is put to use and the best is never lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.moves import Moves
from solvers.ordering.progress import Progress, Watch

Order = npt.NDArray[np.intp]
_FIRST_RUN = 20_000
_SLICE = 20_000_000  # hops looked at between two looks at the clock, about a quarter of a second
_COOLING = 1000  # the first temperature over the last
_EPSILON = 1e-9
_PATIENCE = 3  # times the moves that led to the best order: after so many more in vain there will be none better
_LEAST = 300_000  # moves before that is believed
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

    :param pattern: not one in which everyone sends to everyone: there all orders cost the same.
    :param fabric: complete: every pair is known.
    """

    def __init__(self, pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> None:
        assert not pattern.everyone
        self.price = closed_form(pattern, fabric, size_bytes, model)
        self._rtt = np.ascontiguousarray(fabric.rtt_us)
        # A move of a chain looks at all hops, else at those of two ranks; several times as many with blocks.
        looked_at = len(pattern.source) if pattern.pace == "chain" else 8 * len(pattern.source) / pattern.ranks
        self._slice = max(1000, int(_SLICE / max(looked_at, 1.0)))
        self._chain = model == "latency" and pattern.pace == "chain"
        self._arguments = _chain(pattern) if self._chain else _rounds(pattern, fabric, size_bytes, model)

    def run(self, order: Order, moves: Moves, count: int, hot: float, cold: float, seed: int) -> tuple[Order, float]:
        """So many moves from temperature ``hot`` to ``cold`` (microseconds); the best order and its cost."""
        from solvers.ordering import kernels

        kernel: Any = kernels.anneal_chain if self._chain else kernels.anneal_rounds
        start = np.array(order, dtype=np.int64)
        common = (start, *moves.arrays(), count, hot, cold, np.uint64(seed))
        best, cost = kernel(*common, *self._arguments, *([self._rtt] if self._chain else []))
        return best.astype(np.intp), float(cost)

    def search(
        self,
        starts: Sequence[Order],
        moves: Moves | None,
        seed: int,
        most_moves: int,
        watch: Watch,
        lower_bound: float | None = None,
        patient: bool = True,
    ) -> Annealed:
        """Runs from each of the starts, then from the best so far, until the moves or the time are spent or the lower
        bound is met.

        The same seed and moves give the same order, however long they take. Never worse than the best start.

        :param moves: what may be exchanged; None: nothing. :param patient: go on as long as ``watch`` lets it; else end
            when nothing has come of it for long.
        """
        rng = np.random.default_rng(seed)
        costs = [self.price(start) for start in starts]
        best, cost = starts[int(np.argmin(costs))], min(costs)
        enough = -np.inf if lower_bound is None else lower_bound * (1 + _EPSILON)
        hot = 0.0 if moves is None else self._temperature(starts[0], moves, rng)
        if moves is None or hot <= 0:
            return Annealed(best, cost, 0)
        spent, gained, length = 0, 0, _FIRST_RUN
        queue = [start for _, start in sorted(zip(costs, starts, strict=True), key=lambda pair: pair[0])]
        while spent < most_moves and cost > enough and watch(Progress(cost, lower_bound, spent)):
            if not patient and not queue and spent > max(_LEAST, (1 + _PATIENCE) * gained):
                break
            begun, whole = queue.pop(0) if queue else best, min(length, most_moves - spent)
            # Long runs in slices, each a stretch of the same cooling, so that the clock is seen.
            slices = max(1, -(-whole // self._slice))
            at, here = begun, hot
            for k in range(slices):
                part = whole // slices + (k < whole % slices)
                next_ = hot * (1 / _COOLING) ** ((k + 1) / slices)
                at, found = self.run(at, moves, part, here, next_, int(rng.integers(1 << 63)))
                spent, here = spent + part, next_
                if found < cost * (1 - 1e-12):
                    best, cost, gained = at, found, spent
                if cost <= enough or not watch(Progress(cost, lower_bound, spent)):
                    break
            if not queue:
                length *= 2
        return Annealed(best, self.price(best), spent)

    def _temperature(self, order: Order, moves: Moves, rng: np.random.Generator) -> float:
        """Where a typical swap of two hosts for the worse is taken half of the time."""
        at, deltas = np.array(order), []
        cost = self.price(at)
        for _ in range(_SAMPLE):
            c = int(rng.choice(moves.wheel))
            one, other = rng.choice(moves.first[moves.ptr[c] : moves.ptr[c + 1]], 2, replace=False)
            ranks = np.concatenate([first + np.arange(moves.length[c]) for first in (one, other, other, one)])
            there, back = np.split(ranks, 2)
            at[there] = at[back]
            deltas.append(abs(self.price(at) - cost))
            at[there] = at[back]
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
    n, ranks = len(fabric.names), pattern.ranks
    weight, when = pattern.there if model == "latency" else pattern.repeat, pattern.round
    source, target = pattern.source, pattern.target
    if model == "latency" and pattern.pace == "pipeline":  # every hop counts: each is a round of its own
        links = np.unique(source * ranks + target)
        source, target = links // ranks, links % ranks
        weight, when = np.ones(len(links)), np.arange(len(links))
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys = np.unique((when * ranks + low) * ranks + high)
    low, high = keys // ranks % ranks, keys % ranks
    hop_round = keys // (ranks * ranks)
    rounds = len(weight)
    starts = np.searchsorted(hop_round, np.arange(rounds + 1))
    if model == "latency":  # nothing is loaded
        source = target = when = np.zeros(0, dtype=np.intp)
    moved = pattern.share[: len(source)] * size_bytes
    sent, got = (
        np.bincount(when * ranks + ends, moved, rounds * ranks).reshape(rounds, ranks) for ends in (source, target)
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
        *_by_rank([low, high], ranks),
        np.ascontiguousarray(fabric.rtt_us),
        source.astype(np.int64),
        target.astype(np.int64),
        when.astype(np.int64),
        moved,
        *_by_rank([source, target], ranks),
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
