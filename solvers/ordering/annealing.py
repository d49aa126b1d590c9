"""Simulated annealing over rank orders, for every objective that a pattern has (PLink thesis, 5.2.3).

Neighbours are swaps of two hosts and of two blocks of ranks (a rack's worth at a time, or a group), and short stretches
of hosts reversed or moved on by one. A run is a number of moves between two temperatures; runs follow each other, each
twice as long, from the best order so far, so that any time is put to use and the best is never lost.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.cooling import Cooling, Plan
from solvers.ordering.moves import Moves
from solvers.ordering.objectives import chain_of, hops_of, loads_of
from solvers.ordering.progress import Progress, SearchBudget

Order = npt.NDArray[np.intp]
_FIRST_RUN = 20_000
_SLICE = 20_000_000  # hops looked at between two looks at the clock, about a quarter of a second
_EPSILON = 1e-9
_PATIENCE = 3  # times the moves that led to the best order: after so many more in vain there will be none better
_LEAST = 300_000  # moves before that is believed
_SAMPLE = 200
_LANES = 2  # runs side by side, on as many cores if there are; always two, so that a seed means the same everywhere


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
        self._rtt = fabric.rtt_us
        chain = model == "latency" and pattern.pace == "chain"
        self._what = "loads" if model != "latency" else "chain" if chain else "hops"
        self._data = (
            loads_of(pattern, fabric, size_bytes, model)
            if self._what == "loads"
            else (chain_of if chain else hops_of)(pattern, fabric.rtt_us)
        )
        self._slice = max(100, int(_SLICE / _looked_at(pattern, fabric, self._what)))

    def run(self, order: Order, moves: Moves, count: int, plan: Plan, seed: int) -> tuple[Order, float, Order]:
        """So many moves: the best order, its cost, the last order.

        :param plan: what it says of smoothness is for ``latency`` only; chains have a smooth stand-in alone.
        """
        start = np.array(order, dtype=np.int64)
        kernel: Any  # compiled, and imported, only when it is used
        if self._what == "loads":
            from solvers.ordering.load_kernels import anneal_loads as kernel
        elif self._what == "chain":
            from solvers.ordering.chain_kernels import anneal_chain as kernel
        else:
            from solvers.ordering.hop_kernels import anneal_hops as kernel
        best, cost = kernel(start, moves, count, plan, np.uint64(seed), self._data)
        return best.astype(np.intp), float(cost), start.astype(np.intp)

    def search(
        self,
        starts: Sequence[Order],
        moves: Moves | None,
        seed: int,
        budget: SearchBudget,
        lower_bound: float | None = None,
    ) -> Annealed:
        """Runs from each of the starts, then from the best so far, two at a time, until the moves or the time are spent
        or the lower bound is met.

        The same seed and moves give the same order, however long they take. Never worse than the best start.

        :param moves: what may be exchanged; None: nothing.
        """
        rng = np.random.default_rng(seed)
        costs = [self.price(start) for start in starts]
        best, cost = starts[int(np.argmin(costs))], min(costs)
        enough = -np.inf if lower_bound is None else lower_bound * (1 + _EPSILON)
        change = 0.0 if moves is None else self._change(starts, moves, rng)
        if moves is None or change <= 0:
            return Annealed(best, cost, 0)
        cooling = Cooling(self._what, change, self._rtt, len(best))
        spent, gained, run, length, watch = 0, 0, 0, _FIRST_RUN, budget.watch
        queue = [start for _, start in sorted(zip(costs, starts, strict=True), key=lambda pair: pair[0])]
        with ThreadPoolExecutor(_LANES) as pool:
            while spent < budget.max_moves and cost > enough and watch(Progress(cost, lower_bound, spent)):
                if not budget.patient and not queue and spent > max(_LEAST, (1 + _PATIENCE) * gained):
                    break
                lanes = min(_LANES, budget.max_moves - spent)
                left = (budget.max_moves - spent) // lanes
                whole = min(length, left)
                plans = cooling.plans(run, lanes, whole)
                run += 1
                at = [queue.pop(0) if queue else best] * lanes
                # Long runs in slices, each a stretch of the same cooling, so that the clock is seen.
                slices = max(1, -(-whole // self._slice))
                for k in range(slices):
                    part = whole // slices + (k < whole % slices)
                    calls = [
                        pool.submit(self.run, order, moves, part, plan.stretch(k, slices), int(draw))
                        for order, plan, draw in zip(at, plans, rng.integers(1 << 63, size=lanes), strict=True)
                    ]
                    results = [call.result() for call in calls]
                    at = [last for _, _, last in results]
                    spent += part * lanes
                    met, found, _ = min(results, key=lambda result: result[1])
                    if found < cost * (1 - 1e-12):
                        best, cost, gained = met, found, spent
                    if cost <= enough or not watch(Progress(cost, lower_bound, spent)):
                        break
                if not queue:
                    length *= 2
        return Annealed(best, self.price(best), spent)

    def _change(self, starts: Sequence[Order], moves: Moves, rng: np.random.Generator) -> float:
        """A typical change of the cost by a swap; where none changes it (a longest hop that many share), what round
        trips differ by."""
        deltas, classes = [], moves.classes
        for start in starts:
            at, cost = np.array(start), self.price(start)
            for _ in range(_SAMPLE // len(starts) + 1):
                c = int(rng.choice(classes.wheel))
                one, other = rng.choice(classes.first[classes.ptr[c] : classes.ptr[c + 1]], 2, replace=False)
                ranks = np.concatenate([first + np.arange(classes.length[c]) for first in (one, other, other, one)])
                there, back = np.split(ranks, 2)
                at[there] = at[back]
                deltas.append(abs(self.price(at) - cost))
                at[there] = at[back]
        changes = [delta for delta in deltas if delta > 0]
        hosts = np.unique(starts[0])
        return float(np.median(changes)) if changes else float(np.ptp(self._rtt[np.ix_(hosts, hosts)]))


def _looked_at(pattern: Pattern, fabric: Fabric, what: str) -> float:
    """About how many numbers a move looks at: the hops of two hosts, in chains those that wait for them, with loads the
    rounds that they are in; several times as many where blocks are moved."""
    hosts, rounds = len(fabric.names), len(pattern.repeat)
    hops = max(1.0, len(pattern.source) / hosts)
    if what == "loads":
        touched = min(float(rounds), 2 * hops)
        return 8 * hops + touched * (16 * len(fabric.group_out_gbps) + 2 * hosts + len(pattern.source) / rounds)
    return 8 * hops * (8 if what == "chain" else 1)
