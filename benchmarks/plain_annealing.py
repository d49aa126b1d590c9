"""What a search is measured against: ranks swapped one by one, annealed, and nothing else (PLink thesis, 5.2.3).

Its runs are long, so what they found is kept in a file, from which a benchmark takes them.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.optimize import brentq

from benchmarks.record import _commit
from plink.model.storage import write_text
from solvers.costs.closed_forms import CostFunction, Order
from solvers.costs.patterns import Pattern
from solvers.ordering.move_kernels import random_below, random_unit

SWAPS = 100_000_000
_COOLING = 1e-3  # the last temperature over the first
_SAMPLES = 2000
_Numbers = npt.NDArray[np.int64]


def annealed(
    pattern: Pattern, rtt_us: npt.NDArray[np.float64], cost_of: CostFunction, swaps: int, seed: int
) -> tuple[Order, float, float]:  # fmt: skip
    """Return one run from a random order: the best order, shape (N,), its cost under ``latency`` (microseconds), the
    CPU seconds it took, without those of compiling.

    :param pattern: of the timing ``rounds`` or ``chain``. :param rtt_us: shape (N, N), complete.
    """
    rng = np.random.default_rng(seed)
    start = rng.permutation(pattern.ranks)
    hot = _temperature(start, cost_of, rng)
    kernel: Any = _anneal_chain if pattern.timing == "chain" else _anneal_rounds
    arguments = (_chain if pattern.timing == "chain" else _rounds)(pattern)
    rtt = np.ascontiguousarray(rtt_us)
    kernel(start.astype(np.int64), *arguments, rtt, 1, hot, np.uint64(seed))
    began = time.process_time()
    order, cost = kernel(start.astype(np.int64), *arguments, rtt, swaps, hot, np.uint64(seed))
    took = time.process_time() - began
    best = np.asarray(order, dtype=np.intp)
    assert math.isclose(cost, cost_of(best), rel_tol=1e-9)
    return best, cost_of(best), took


def fingerprint(pattern: Pattern, rtt_us: npt.NDArray[np.float64]) -> str:
    """Of what is searched: the round trips to a millionth of a microsecond, and who exchanges with whom."""
    digest = hashlib.blake2b(np.round(rtt_us * 1e6).astype(np.int64).tobytes(), digest_size=8)
    for part in (pattern.round, pattern.source, pattern.target):
        digest.update(part.astype(np.int64).tobytes())
    return digest.hexdigest()


def recorded_run(file: Path, key: str, run: Callable[[], dict[str, Any]], fresh: bool = False) -> dict[str, Any]:
    """Return what a run found: as the file has it under that key; else (or for ``fresh``) run now and put there."""
    rows = json.loads(file.read_text()) if file.exists() else {}
    if fresh or key not in rows or disturbed(rows[key]):
        new_row = run() | {"commit": _commit()}
        rows = json.loads(file.read_text()) if file.exists() else {}  # another process may have put something there
        rows[key] = new_row
        lines = (f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
        write_text(file, "{\n" + ",\n".join(lines) + "\n}\n")
    row: dict[str, Any] = rows[key]
    return row


def disturbed(row: dict[str, Any]) -> bool:
    """Return whether other programs took more than a tenth of a run's time that ended by the clock."""
    return row.get("ended_by") == "clock" and row["cpu_s"] < 0.9 * row["seconds"]


def _temperature(start: Order, cost_of: CostFunction, rng: np.random.Generator) -> float:
    """At which half of the swaps for the worse are taken, by the mean of exp(-worse / T); microseconds."""
    at, cost, worse = start.copy(), cost_of(start), []
    for _ in range(_SAMPLES):
        pair = rng.choice(len(at), 2, replace=False)
        at[pair] = at[pair[::-1]]
        worse.append(cost_of(at) - cost)
        at[pair] = at[pair[::-1]]
    deltas = np.array([delta for delta in worse if delta > 1e-9 * cost])
    if not len(deltas):
        return 1e-3 * cost
    return float(brentq(lambda t: np.exp(-deltas / t).mean() - 0.5, 1e-3 * deltas.min(), 1e3 * deltas.max()))


def _rounds(pattern: Pattern) -> tuple[Any, ...]:
    """Return each pair of ranks once a round, and the hops that touch each rank: arguments of ``_anneal_rounds``."""
    n, used = pattern.ranks, pattern.reduce_repeat[pattern.round] > 0
    low, high = np.minimum(pattern.source, pattern.target)[used], np.maximum(pattern.source, pattern.target)[used]
    keys = np.unique((pattern.round[used] * n + low) * n + high).astype(np.int64)
    when, low, high = keys // (n * n), keys // n % n, keys % n
    starts = np.searchsorted(when, np.arange(len(pattern.reduce_repeat) + 1))
    return low, high, when, starts.astype(np.int64), *_touching(low, high, n), pattern.reduce_repeat.astype(np.float64)


def _chain(pattern: Pattern) -> tuple[Any, ...]:
    """Hops in the order of their levels, those that each waits for and the one that waits for it: arguments of
    ``_anneal_chain``."""
    edges = np.concatenate([level.edges for level in pattern.chain]).astype(np.int64)
    places = np.concatenate([level.places for level in pattern.chain])
    row = np.empty(int(places.max()) + 1, dtype=np.int64)
    row[places] = np.arange(len(places))
    waits = np.concatenate([row[level.waits] for level in pattern.chain])
    lengths = np.concatenate([np.diff(np.append(level.starts, len(level.waits))) for level in pattern.chain])
    next_ = np.full(len(edges), -1, dtype=np.int64)
    next_[waits] = np.repeat(np.arange(len(edges)), lengths)
    assert len(np.unique(waits)) == len(waits)  # in a tree one hop waits for each at most
    source, target = edges // pattern.ranks, edges % pattern.ranks
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return source, target, offsets, waits, next_, *_touching(source, target, pattern.ranks)


def _touching(low: _Numbers, high: _Numbers, ranks: int) -> tuple[_Numbers, _Numbers]:
    rank, hop = np.concatenate([low, high]), np.tile(np.arange(len(low)), 2)
    order = np.argsort(rank, kind="stable")
    return np.searchsorted(rank[order], np.arange(ranks + 1)).astype(np.int64), hop[order].astype(np.int64)


@njit(cache=True, fastmath=True)
def _longest(value: Any, start: Any, end: Any) -> Any:
    most = 0.0
    for hop in range(start, end):
        most = max(most, value[hop])
    return most


@njit(cache=True)
def _anneal_rounds(order: Any, low: Any, high: Any, when: Any, starts: Any, ptr: Any, hops: Any, weight: Any, rtt: Any,
                   swaps: Any, hot: Any, seed: Any) -> Any:  # fmt: skip
    """Return the sum over rounds of weight times longest hop; a round is looked through only when its longest got
    shorter."""
    n, rounds = len(order), len(weight)
    state = np.array([seed], dtype=np.uint64)
    value, longest, stale = np.empty(len(low)), np.zeros(rounds), np.zeros(rounds, np.bool_)
    for h in range(len(low)):
        value[h] = rtt[order[low[h]], order[high[h]]]
    cost = 0.0
    for r in range(rounds):
        longest[r] = _longest(value, starts[r], starts[r + 1])
        cost += weight[r] * longest[r]
    best, best_cost, before = order.copy(), cost, longest.copy()
    changed, was = np.empty(len(hops), np.int64), np.empty(len(hops))
    temperature, cooling = hot, _COOLING ** (1.0 / swaps)
    for _ in range(swaps):
        temperature *= cooling
        a = random_below(state, n)
        b = random_below(state, n - 1)
        b += b >= a
        order[a], order[b] = order[b], order[a]
        before[:] = longest
        count = 0
        for rank in (a, b):
            for k in range(ptr[rank], ptr[rank + 1]):
                h = hops[k]
                r, old, new = when[h], value[h], rtt[order[low[h]], order[high[h]]]
                changed[count], was[count] = h, old
                count += 1
                value[h] = new
                if new >= longest[r]:
                    longest[r], stale[r] = new, False
                elif old == longest[r]:
                    stale[r] = True
        new_cost = 0.0
        for r in range(rounds):
            if stale[r]:
                longest[r], stale[r] = _longest(value, starts[r], starts[r + 1]), False
            new_cost += weight[r] * longest[r]
        if new_cost <= cost or random_unit(state) < math.exp((cost - new_cost) / temperature):
            cost = new_cost
            if cost < best_cost:
                best_cost = cost
                best[:] = order
        else:
            order[a], order[b] = order[b], order[a]
            longest[:] = before
            for k in range(count - 1, -1, -1):
                value[changed[k]] = was[k]
    return best, best_cost


@njit(cache=True, inline="always")
def _done(h: Any, order: Any, source: Any, target: Any, offsets: Any, waits: Any, rtt: Any, done: Any) -> Any:
    at = 0.0
    for w in range(offsets[h], offsets[h + 1]):
        at = max(at, done[waits[w]])
    return at + rtt[order[source[h]], order[target[h]]]


@njit(cache=True)
def _follow(rank: Any, order: Any, source: Any, target: Any, offsets: Any, waits: Any, next_: Any, ptr: Any, hops: Any,
            rtt: Any, done: Any, changed: Any, was: Any, count: Any) -> Any:  # fmt: skip
    """When the hops of a rank are done now, and those that wait for them, as far as it changes. Hops to the rank come
    first: what waits for them are the hops from it."""
    for way in range(2):
        for k in range(ptr[rank], ptr[rank + 1]):
            h = hops[k]
            if (source[h] == rank) != (way == 1):
                continue
            while h >= 0:
                at = _done(h, order, source, target, offsets, waits, rtt, done)
                if at == done[h]:
                    break
                changed[count], was[count] = h, done[h]
                count += 1
                done[h] = at
                h = next_[h] if way == 1 else -1
    return count


@njit(cache=True)
def _anneal_chain(order: Any, source: Any, target: Any, offsets: Any, waits: Any, next_: Any, ptr: Any, hops: Any,
                  rtt: Any, swaps: Any, hot: Any, seed: Any) -> Any:  # fmt: skip
    """Return the longest path through hops that wait for others."""
    n = len(order)
    state = np.array([seed], dtype=np.uint64)
    done = np.zeros(len(source))
    last: Any = np.flatnonzero(next_ < 0)
    for h in range(len(source)):
        done[h] = _done(h, order, source, target, offsets, waits, rtt, done)
    cost = done[last].max()
    best, best_cost = order.copy(), cost
    changed, was = np.empty(4 * len(hops), np.int64), np.empty(4 * len(hops))
    temperature, cooling = hot, _COOLING ** (1.0 / swaps)
    for _ in range(swaps):
        temperature *= cooling
        a = random_below(state, n)
        b = random_below(state, n - 1)
        b += b >= a
        order[a], order[b] = order[b], order[a]
        count = 0
        for rank in (a, b):
            count = _follow(rank, order, source, target, offsets, waits, next_, ptr, hops, rtt, done, changed, was,
                            count)  # fmt: skip
        new_cost = 0.0
        for h in last:
            new_cost = max(new_cost, done[h])
        if new_cost <= cost or random_unit(state) < math.exp((cost - new_cost) / temperature):
            cost = new_cost
            if cost < best_cost:
                best_cost = cost
                best[:] = order
        else:
            order[a], order[b] = order[b], order[a]
            for k in range(count - 1, -1, -1):
                done[changed[k]] = was[k]
    return best, best_cost
