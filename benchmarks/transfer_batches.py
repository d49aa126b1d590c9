"""Batches of updates on a star of hosts, and the best that could be made of them: for tests and benchmarks."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp

from benchmarks.transfer_aggregation import Aggregator
from plink.model.transfers.free_capacity import FreeCapacity
from plink.model.transfers.ordering import Order, WaitingUpdate

# Links of M 7, and how often each is so wide in its setting N2.
RATES_BYTES_S = (1.25e8, 3.125e8, 4.125e8, 6.25e8, 1.25e9)
_N2 = (0, 0.1, 0.1, 0.1, 0.7)


@dataclass(frozen=True)
class Batch:
    """H hosts: way k is host k's way out, way H + k its way in, way 2 H the server's way in."""

    updates: tuple[WaitingUpdate, ...]
    rates_bytes_s: tuple[float, ...]

    @property
    def server(self) -> int:
        """The server's way in."""
        return len(self.rates_bytes_s) - 1

    @property
    def free(self) -> FreeCapacity:
        """The ways with nothing reserved."""
        return FreeCapacity.idle(self.rates_bytes_s)

    def aggregators(self, number: int) -> list[Aggregator]:
        """The first hosts."""
        hosts = self.server // 2
        return [Aggregator(host, hosts + host) for host in range(min(number, hosts))]


def random_batch(number: int, rng: np.random.Generator, hosts: int | None = None) -> Batch:
    """Return what M 7.4 measures: deadlines Uniform(1, 2 |U|), on |U|/2 hosts; rates as in its setting N2."""
    hosts = hosts or max(1, number // 2)
    rates = rng.choice(RATES_BYTES_S, 2 * hosts, p=_N2)
    updates = tuple(WaitingUpdate(k % hosts, 1e8, int(rng.integers(1, 2 * number + 1))) for k in range(number))
    return Batch(updates, (*rates.tolist(), RATES_BYTES_S[-1]))


def ordered_as_printed(batch: Batch) -> Order:
    """Return what Algorithm 2 of the paper does, mistakes included."""
    updates, capacity = batch.updates, batch.free
    outs, sizes = np.array([update.way_out for update in updates]), np.array([u.size_bytes for u in updates])
    deadlines = np.array([update.deadline for update in updates])
    rest, sent, ends, dropped = np.arange(len(updates)), list[int](), list[float](), list[int]()

    def next_of(place: int, numbers: npt.NDArray[np.int64], free: FreeCapacity) -> tuple[int, float]:
        arrivals = free.arrivals(outs[numbers], batch.server, sizes[numbers], 0.0)
        urgent = np.flatnonzero(deadlines[numbers] == place)
        choice = int(urgent[0]) if len(urgent) else int(np.argmin(arrivals))
        return int(numbers[choice]), float(arrivals[choice])

    for place in range(1, len(updates) + 1):
        number, end = next_of(place, rest, capacity)
        rest = rest[rest != number]
        reserved, _ = capacity.reserve(int(outs[number]), batch.server, float(sizes[number]), 0.0)
        if len(rest) and end > next_of(place + 1, rest, reserved)[1] * (1 + 1e-9):
            dropped.append(number)
            continue
        sent.append(number)
        ends.append(end)
        capacity = reserved
    return Order(tuple(sent), tuple(ends), tuple(dropped))


def most_kept(batch: Batch) -> int:
    """Return how many updates the best of all orders keeps: each in its position by its deadline, sent in that order
    with all that is free, none of which arrives before one ahead of it. Exhaustive: for up to 7."""
    updates = batch.updates
    bound = 0
    for deadline in sorted(update.deadline for update in updates):
        bound += deadline > bound  # what deadlines alone allow
    best = 0

    def extend(sent: tuple[int, ...], capacity: FreeCapacity, last_s: float) -> None:
        nonlocal best
        best = max(best, len(sent))
        rest = [k for k in range(len(updates)) if k not in sent and updates[k].deadline > len(sent)]
        if best == bound or len(sent) + len(rest) <= best:
            return
        for k in sorted(rest, key=lambda k: updates[k].deadline):
            reserved, end_s = capacity.reserve(updates[k].way_out, batch.server, updates[k].size_bytes, 0.0)
            if end_s >= last_s * (1 - 1e-9):
                extend((*sent, k), reserved, end_s)

    extend((), batch.free, 0.0)
    return best


def best_end_in_order_s(batch: Batch, order: Sequence[int], aggregators: int) -> float:
    """Return the least time in which an ordered batch can be at the server so that it arrives in this order: straight
    ones first, then groups of neighbours, of any sizes, by any aggregators. Exhaustive: for up to 6 and 2."""
    places, best, size_bytes = batch.aggregators(aggregators), np.inf, max(u.size_bytes for u in batch.updates)
    for targets in itertools.product(range(len(places) + 1), repeat=len(order)):
        runs = [target for target, _ in itertools.groupby(targets)]
        if len(runs) > len(set(runs)) or 0 in runs[1:]:
            continue
        free, end_s, added_s = batch.free, 0.0, dict.fromkeys(runs, 0.0)
        for number, target in zip(order, targets, strict=True):
            update, into = batch.updates[number], places[target - 1].way_in if target else batch.server
            if not target or places[target - 1].way_out != update.way_out:
                free, at_s = free.reserve(update.way_out, into, update.size_bytes, 0.0)
                added_s[target] = max(added_s[target], at_s)
        for target in runs:
            if target:
                free, at_s = free.reserve(places[target - 1].way_out, batch.server, size_bytes, added_s[target])
            end_s = max(end_s, at_s if target else added_s[0])
        best = min(best, end_s)
    return float(best)


def best_end_s(batch: Batch, aggregators: int) -> float:
    """Return the least time in which all updates can be at the server, in any order, straight or added up: the integer
    programme of M 10.1 with its objective (16), in continuous time, by SciPy's HiGHS."""
    places = batch.aggregators(aggregators)
    return min(_best_end_s(batch, order) for order in itertools.permutations(places))


def _best_end_s(batch: Batch, places: Sequence[Aggregator]) -> float:
    """The same, where each place has all of its group before the next one has: then phase p ends, and its sum may go.

    Columns: whether update g goes to target t (0 is the server), seconds of each phase, units of g sent to t in phase
    p, units of the sum of a place sent in p. A unit is the largest update. Rates within a phase are free.
    """
    updates, phases, targets = batch.updates, len(places) + 1, len(places) + 1
    unit = max(update.size_bytes for update in updates)
    sizes = [update.size_bytes / unit for update in updates]
    counts = (len(updates) * targets, phases, len(updates) * targets * phases, len(places) * phases)
    begins = np.cumsum((0, *counts))
    goes, seconds, sent, summed = (np.arange(a, b) for a, b in itertools.pairwise(begins))
    goes, sent = goes.reshape(-1, targets), sent.reshape(-1, targets, phases)
    summed = summed.reshape(-1, phases)
    rows: list[tuple[dict[int, float], float, float]] = []
    upper = np.full(begins[-1], np.inf)
    upper[: counts[0]] = 1
    for g, size in enumerate(sizes):
        rows.append((dict.fromkeys(goes[g].tolist(), 1.0), 1, 1))
        for t in range(targets):
            if t == 0 or places[t - 1].way_out != updates[g].way_out:
                rows.append((dict.fromkeys(sent[g, t].tolist(), 1.0) | {int(goes[g, t]): -size}, 0, 0))
                upper[sent[g, t, t if t else phases :]] = 0
            else:
                upper[sent[g, t]] = 0
            if t:  # the sum is as large as the largest in it
                rows.append((dict.fromkeys(summed[t - 1].tolist(), 1.0) | {int(goes[g, t]): -size}, 0, np.inf))
                upper[summed[t - 1, :t]] = 0
    for way, rate in enumerate(batch.rates_bytes_s):
        for p in range(phases):
            row = {int(seconds[p]): -rate / unit}
            for t in range(targets):
                into = batch.server if t == 0 else places[t - 1].way_in
                users = [g for g, update in enumerate(updates) if way in (update.way_out, into)]
                row |= dict.fromkeys(sent[users, t, p].tolist(), 1.0)
                if t and way in (places[t - 1].way_out, batch.server):
                    row[int(summed[t - 1, p])] = 1.0
            rows.append((row, -np.inf, 0))
    matrix = np.zeros((len(rows), begins[-1]))
    for k, (row, _, _) in enumerate(rows):
        matrix[k, list(row)] = list(row.values())
    cost, integer = np.zeros(begins[-1]), np.zeros(begins[-1])
    cost[seconds], integer[: counts[0]] = 1, 1
    limits = LinearConstraint(matrix, *(np.array([row[k] for row in rows]) for k in (1, 2)))
    return float(milp(cost, integrality=integer, bounds=Bounds(0, upper), constraints=limits).fun)
