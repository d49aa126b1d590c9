"""Search of partition, replication and placement together, by the formulas of :mod:`solvers.pipeline.period`.

Small problems are searched exhaustively: every partition, replication and order of hosts. Else candidates are annealed:

1. shapes: for several bandwidths and numbers of workers, the partition that needs fewest workers on hosts that are all
   alike (:func:`even_threshold`); straight ones, one stage, and two-stage cuts;
2. orders: a plan's traffic is one round of a pattern (:func:`traffic_of`), so the annealing of rank orders
   (:mod:`solvers.ordering.annealing`) places a shape on the network;
3. moves of boundaries, replicas and hosts together, from the best of these.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solvers.costs.patterns import Pattern
from solvers.ordering.annealing import Annealer
from solvers.ordering.constraints import ExchangeClass, moves_of
from solvers.ordering.problem import SearchBudget
from solvers.pipeline.period import Integers, PeriodModel, PlacedPartition
from solvers.pipeline.period_kernels import TRIFLE, score_of
from solvers.pipeline.search_kernels import (
    FIXED,
    FREE,
    ONE_STAGE,
    STRAIGHT,
    anneal_partition,
    best_order,
    fewest_workers_of_bound,
)

Watch = Callable[[int, int], bool]
"""Called with how much is done, and of how much; returns whether to stop with what was found so far."""
Shape = tuple[tuple[int, ...], tuple[int, ...]]
"""Cuts, first and last included, and replicas of each stage."""
MAX_EXHAUSTIVE_ORDERS = 2_000_000
_MAX_SHAPES = 64
_MAX_STARTS = 8
_PLACEMENT_MOVES = 8_000
_MAX_CALL_MOVES = 100_000  # a second: a search can be stopped between calls
_BISECTIONS = 50
_SHAPE_TOLERANCE = 1e-3
_MANY_WORKERS = 64
_RESTARTS = 4
"""From so hot that little of the best is left: small problems have separate optima."""
_SWAP_START, _SWAP_END = 0.05, 1e-4
"""Temperatures over the score."""


@dataclass(frozen=True)
class SearchSpace:
    """What may be planned: ``workers``: the host of each, in the given order. ``mode``: FREE, STRAIGHT, ONE_STAGE or
    FIXED with ``fixed``, (cuts, replicas). ``may_idle``: workers may be left out."""

    workers: tuple[int, ...]
    mode: int = FREE
    may_idle: bool = True
    fixed: Shape | None = None


@dataclass(frozen=True)
class PartitionCandidate:
    """A partition and its score: seconds per minibatch, with a trifle for what does not limit."""

    partition: PlacedPartition
    score: float


def search_partitions(
    model: PeriodModel,
    space: SearchSpace,
    seed: int = 0,
    moves: int = 60_000,
    exhaustive: bool | None = None,
    watch: Watch | None = None,
) -> tuple[PartitionCandidate, ...]:
    """Return candidates of least seconds per minibatch, of different partition or replication, the best first.

    :param moves: how many are tried by annealing. :param exhaustive: try all, or not; None: where there are few.
    :param watch: once it says to stop, the best candidates so far are returned.
    """
    if exhaustive is None:
        exhaustive = _count(model, space) <= MAX_EXHAUSTIVE_ORDERS
    if exhaustive:
        return _distinct(_exhaustive(model, space, watch))
    return _annealed(model, space, seed, moves, watch)


def _count(model: PeriodModel, space: SearchSpace) -> float:
    """Return how many partitions with orders there are, at most."""
    workers = len(space.workers)
    if workers > 10:
        return math.inf
    if space.mode == FIXED:
        return math.factorial(workers)
    layers = len(model.arrays.forward)
    # Choose cuts, and split up to all workers in as many parts.
    shapes = sum(
        math.comb(layers - 1, stages - 1) * (math.comb(workers, stages) if space.mode == FREE else 1)
        for stages in range(1, min(layers, workers) + 1)
    )
    return shapes * math.factorial(workers)


def _exhaustive(model: PeriodModel, space: SearchSpace, watch: Watch | None) -> Iterator[PartitionCandidate]:
    workers = np.array(sorted(space.workers), dtype=np.int64)
    shapes = list(_shapes_in(model, space))
    shown_every = max(1, len(shapes) // 100)
    for number, (cuts, replicas) in enumerate(shapes, 1):
        starts = np.concatenate([[0], np.cumsum(replicas)]).astype(np.int64)
        edges = np.array(cuts, dtype=np.int64)
        order, score = best_order(model.arrays, edges, starts, workers, model.scratch)
        yield PartitionCandidate(PlacedPartition(edges, starts, order), float(score))
        if watch is not None and number % shown_every == 0 and watch(number, len(shapes)):
            return


def _shapes_in(model: PeriodModel, space: SearchSpace) -> Iterator[Shape]:
    """Yield every (cuts, replicas) of a space."""
    if space.fixed is not None:
        yield space.fixed
        return
    layers, workers = len(model.arrays.forward), len(space.workers)
    possible = [k for k in range(1, layers) if model.arrays.allowed[k]]
    most_stages = 1 if space.mode == ONE_STAGE else min(len(possible) + 1, workers)
    for stages in range(1, most_stages + 1):
        totals = range(stages, workers + 1) if space.may_idle else (workers,)
        for total in totals:
            if space.mode == STRAIGHT and total != stages:
                continue
            for inner in itertools.combinations(possible, stages - 1):
                for ends in itertools.combinations(range(1, total), stages - 1):
                    edges = (0, *ends, total)
                    yield (0, *inner, layers), tuple(b - a for a, b in itertools.pairwise(edges))


def _distinct(candidates: Iterable[PartitionCandidate]) -> tuple[PartitionCandidate, ...]:
    """Return the best of each partition and replication, the best first; ties go to fewer workers, earlier cuts."""
    best: dict[tuple[bytes, bytes], PartitionCandidate] = {}
    for candidate in candidates:
        key = candidate.partition.cuts.tobytes(), candidate.partition.starts.tobytes()
        if key not in best or candidate.score < best[key].score:
            best[key] = candidate
    return tuple(sorted(best.values(), key=_rank_of))


def _rank_of(candidate: PartitionCandidate) -> tuple[float, int, list[int]]:
    partition = candidate.partition
    return float(f"{candidate.score:.9g}"), int(partition.starts[-1]), partition.cuts.tolist()


def _annealed(
    model: PeriodModel, space: SearchSpace, seed: int, moves: int, watch: Watch | None
) -> tuple[PartitionCandidate, ...]:
    shapes = list(_starting_shapes(model, space))
    orders = _starting_orders(model, space)
    candidates = [
        _scored(model, PlacedPartition.of(cuts, replicas, order)) for cuts, replicas in shapes for order in orders
    ]
    chosen = list(_distinct(candidates)[:_MAX_STARTS])
    one_stage = [item for item in candidates if item.partition.stages == 1]
    if one_stage and all(item.partition.stages > 1 for item in chosen):
        chosen.append(min(one_stage, key=lambda item: item.score))
    few = chosen if len(space.workers) <= _MANY_WORKERS else chosen[:2]
    placed = [*chosen, *(_placed(model, start, seed + k) for k, start in enumerate(few))]
    starts = sorted(_distinct(placed), key=lambda item: item.score)[:_MAX_STARTS]
    results: list[PartitionCandidate] = [*placed]
    share = max(1, moves // (2 * max(1, len(starts))))
    each = min(share, _MAX_CALL_MOVES)
    temperatures = [(0.2, 0.02, 0.005)[number % 3] for number in range(len(starts))] + _RESTARTS * [1.0]
    again = temperatures * math.ceil(share / each)
    total = len(starts) + len(again)
    for number in range(total):
        if number < len(starts):
            start, salt, temperature = starts[number], number, _SWAP_START
        else:
            start, salt = min(results, key=lambda item: item.score), 100 + number - len(starts)
            temperature = again[number - len(starts)]
        results.append(_improved(model, space, start, each, seed + salt, temperature))
        if watch is not None and watch(number + 1, total):
            break
    return _distinct(results)


def _scored(model: PeriodModel, partition: PlacedPartition) -> PartitionCandidate:
    period = model.period(partition)
    scale = max(1.0, float(model.arrays.weights.sum()))
    return PartitionCandidate(partition, float(score_of((*period.terms, period.excess_bytes), scale, TRIFLE)))


def _improved(
    model: PeriodModel, space: SearchSpace, start: PartitionCandidate, moves: int, seed: int, temperature: float
) -> PartitionCandidate:
    partition = start.partition
    settings = (moves, temperature, min(_SWAP_END, temperature / 2), seed, space.mode, space.may_idle)
    cuts, starts, order, score = anneal_partition(
        model.arrays, (partition.cuts, partition.starts, partition.order), settings, model.scratch
    )
    return PartitionCandidate(PlacedPartition(cuts, starts, order), float(score))


# Shapes


def _starting_shapes(model: PeriodModel, space: SearchSpace) -> Iterator[Shape]:
    if space.fixed is not None:
        yield space.fixed
        return
    workers, layers = len(space.workers), len(model.arrays.forward)
    counts = [workers]
    if space.may_idle:
        fewer = range(workers, workers // 2, -max(1, workers // (8 if workers <= _MANY_WORKERS else 2)))
        counts = sorted({workers - 1, *fewer, *(1 << k for k in range(workers.bit_length()))})
    counts = [count for count in counts if 1 <= count <= workers]
    seen: set[Shape] = set()
    possible = [k for k in range(1, layers) if model.arrays.allowed[k]]
    for count in counts:
        shapes: list[Shape] = []
        if space.mode != STRAIGHT or count == 1:
            shapes.append(((0, layers), (count,)))
        if space.mode == FREE:
            shapes += [shape for rate in _bandwidths(model) if (shape := _even_shape(model, rate, count)) is not None]
            if count == workers:
                shapes += _shapes_of_groups(model, space.workers)
                shapes += [shape for cut in _some(possible) if (shape := _two_stages(model, cut, count)) is not None]
        if space.mode in (FREE, STRAIGHT) and 1 < count <= len(possible) + 1:
            shapes.append((_straight_cuts(model, count), (1,) * count))
        for shape in shapes:
            if shape not in seen and (space.may_idle or sum(shape[1]) == workers):
                seen.add(shape)
                yield shape


def _some(values: Sequence[int]) -> Sequence[int]:
    return values[:: max(1, len(values) // _MAX_SHAPES)]


def _bandwidths(model: PeriodModel) -> list[float]:
    """Return bytes per second that a worker may count on: a host's, its share of a group's, the worst pair's."""
    arrays = model.arrays
    rates = [float(np.median(np.minimum(arrays.out, arrays.into)))]
    for row in arrays.group_of:
        groups, sizes = np.unique(row, return_counts=True)
        share = np.minimum(arrays.group_out[groups], arrays.group_into[groups]) / sizes
        rates.append(float(np.median(share)))
    rates.append(float(arrays.pair.min()))
    return sorted({min(rate, rates[0]) for rate in rates})


def _shapes_of_groups(model: PeriodModel, workers: Sequence[int]) -> Iterator[Shape]:
    """Yield shapes whose stages are whole groups of a tier: each group is one worker as fast as all its hosts, with the
    group's link."""
    arrays = model.arrays
    for row in arrays.group_of:
        groups, sizes = np.unique(row[list(workers)], return_counts=True)
        size = int(np.median(sizes))
        if size < 2 or len(groups) < 2:
            continue
        link = float(np.median(np.minimum(arrays.group_out[groups], arrays.group_into[groups])))
        link = min(link, size * float(np.median(np.minimum(arrays.out, arrays.into))))
        slow = float(np.median(arrays.slow)) / size
        _, shape = even_threshold(model, link, slow, len(workers) // size, _SHAPE_TOLERANCE)
        if shape is not None:
            yield shape[0], tuple(count * size for count in shape[1])


def _even_shape(model: PeriodModel, rate: float, workers: int) -> Shape | None:
    """Return the best shape on hosts that all have this rate."""
    _, shape = even_threshold(model, rate, float(np.median(model.arrays.slow)), workers, _SHAPE_TOLERANCE)
    return shape


def _two_stages(model: PeriodModel, cut: int, workers: int) -> Shape | None:
    """Return two stages with replicas in proportion to their work."""
    if workers < 2:
        return None
    work = model.arrays.forward + model.arrays.backward
    share = float(work[:cut].sum()) / max(float(work.sum()), 1e-12)
    first = min(workers - 1, max(1, round(workers * share)))
    return (0, cut, len(work)), (first, workers - first)


def _straight_cuts(model: PeriodModel, stages: int) -> tuple[int, ...]:
    """Return cuts into stages of about equal work."""
    work = np.concatenate([[0.0], np.cumsum(model.arrays.forward + model.arrays.backward)])
    layers, cuts = len(work) - 1, [0]
    allowed = [k for k in range(1, layers) if model.arrays.allowed[k]]
    for stage in range(1, stages):
        left = [k for k in allowed if k > cuts[-1]]
        left = left[: len(left) - (stages - 1 - stage)]
        target = work[-1] * stage / stages
        cuts.append(min(left, key=lambda k: abs(work[k] - target)))
    return (*cuts, layers)


def even_threshold(
    model: PeriodModel, rate: float, slow: float, workers: int, tolerance: float = 1e-9
) -> tuple[float, Shape | None]:
    """Return seconds that no partition goes below on hosts that all have this rate and speed, and one that meets them.

    Latencies, shared links and what an all-reduce exposes are left out. Layers that a cut may leave frozen count
    forward only.
    """
    arrays = model.arrays
    frozen = int(np.flatnonzero((arrays.back[1:-1] == 0) & arrays.allowed[1:-1]).max(initial=-1)) + 1
    trained = np.arange(len(arrays.forward)) >= frozen
    work = arrays.forward + np.where(trained, arrays.backward + arrays.update, 0.0)
    seconds = np.concatenate([[0.0], np.cumsum(work)])
    weights = np.concatenate([[0.0], np.cumsum(np.where(trained, arrays.weights, 0.0))])
    costs = seconds, weights, arrays.ahead, arrays.back, arrays.allowed
    low, high = 0.0, float(seconds[-1]) * slow
    if high <= 0:
        return 0.0, None
    best = fewest_workers_of_bound(costs, (rate, slow), high, workers)
    low = high / workers * (1 - 1e-9)
    attempt = fewest_workers_of_bound(costs, (rate, slow), low * (1 + 2e-9), workers)
    if attempt[0][-1] <= workers:
        high, best = low * (1 + 2e-9), attempt
    for _ in range(_BISECTIONS):
        if high - low <= tolerance * high:
            break
        middle = (low + high) / 2
        attempt = fewest_workers_of_bound(costs, (rate, slow), middle, workers)
        if attempt[0][-1] <= workers:
            high, best = middle, attempt
        else:
            low = middle
    cuts, replicas, end = [len(seconds) - 1], [], len(seconds) - 1
    while end > 0:
        replicas.append(int(best[2][end]))
        end = int(best[1][end])
        cuts.append(end)
    return low, (tuple(reversed(cuts)), tuple(reversed(replicas)))


def lower_bound_s(model: PeriodModel, workers: Sequence[int]) -> float:
    """Return seconds per minibatch that no plan on these workers goes below: every host as fast as the fastest."""
    arrays, used = model.arrays, sorted(set(workers))
    rate = float(np.maximum(arrays.out, arrays.into)[used].max())
    if len(used) < len(workers):
        rate = float("inf")  # slots of one host exchange for nothing
    return even_threshold(model, rate, float(arrays.slow[used].min()), len(workers))[0]


# Orders


def _starting_orders(model: PeriodModel, space: SearchSpace) -> list[list[int]]:
    """Return the given order, and hosts by groups, from the outermost tier inwards, both ways and by speed."""
    baseline = list(space.workers)
    row = model.arrays.group_of
    tiers = list(range(len(row)))

    def key(host: int) -> tuple[int, ...]:
        return tuple(int(row[tier, host]) for tier in reversed(tiers))

    nested = sorted(baseline, key=lambda host: (key(host), host))
    fast = sorted(baseline, key=lambda host: (float(model.arrays.slow[host]), key(host), host))
    orders = [baseline, nested, nested[::-1], fast]
    return [list(order) for order in dict.fromkeys(map(tuple, orders))]


def traffic_of(model: PeriodModel, partition: PlacedPartition) -> Pattern:
    """Return what a minibatch sends as a pattern of one round: (source, target, bytes) between places of the order.

    Boundaries in both directions, and the rings of replicated stages, once a round of their replicas.
    """
    sizes: dict[tuple[int, int], float] = {}
    arrays, starts = model.arrays, partition.starts.tolist()
    for stage in range(partition.stages):
        begin, end = starts[stage], starts[stage + 1]
        count, first, last = end - begin, int(partition.cuts[stage]), int(partition.cuts[stage + 1])
        if count > 1 and (weights := float(arrays.weights[first:last].sum())) > 0:
            for k in range(count):
                pair = begin + k, begin + (k + 1) % count
                sizes[pair] = sizes.get(pair, 0.0) + 2 * (count - 1) / count * weights / (arrays.accumulate or count)
        if stage + 1 == partition.stages:
            continue
        other = starts[stage + 2] - end
        pairs = math.lcm(count, other)
        for j in range(pairs):
            a, b = begin + j % count, end + j % other
            for pair, size in (((a, b), arrays.ahead[last]), ((b, a), arrays.back[last])):
                if size > 0:
                    sizes[pair] = sizes.get(pair, 0.0) + float(size) / pairs
    keys = sorted(sizes)
    return Pattern(
        len(partition.order),
        np.zeros(len(keys), dtype=np.intp),
        np.array([key[0] for key in keys], dtype=np.intp),
        np.array([key[1] for key in keys], dtype=np.intp),
        np.array([sizes[key] for key in keys]),
        np.array([1.0]),
        np.array([1.0]),
    )


def _placed(model: PeriodModel, start: PartitionCandidate, seed: int) -> PartitionCandidate:
    """Place a shape's traffic by the annealing of rank orders."""
    partition = start.partition
    pattern = traffic_of(model, partition)
    workers = len(partition.order)
    if not len(pattern.source) or workers < 3 or np.isnan(model.fabric.rtt_us).any():
        return start
    annealer = Annealer(pattern, model.fabric, 1.0, "contention")
    moves = moves_of([ExchangeClass(tuple(range(workers)), 1, single_hosts=True)], workers)
    count = _PLACEMENT_MOVES if workers <= _MANY_WORKERS else _PLACEMENT_MOVES // 10
    budget = SearchBudget(count, exhaustive=False)
    result = annealer.search([partition.order.astype(np.intp)], moves, seed, budget)
    order: Integers = result.order.astype(np.int64)
    return _scored(model, PlacedPartition(partition.cuts, partition.starts, order))
