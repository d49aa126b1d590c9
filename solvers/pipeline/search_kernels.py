"""Compiled searches over partition, replication and placement together (Numba)."""

import math
from typing import Any

import numpy as np

from solvers.compilation import njit, njit_inner
from solvers.ordering.move_kernels import copy_into
from solvers.pipeline.period_kernels import TIE, TRIFLE, evaluate, score_of

FREE, STRAIGHT, ONE_STAGE, FIXED = range(4)
"""What a search may change: all; without replicas; one stage; only who takes which place."""
_LONGEST_SHIFT = 4  # a boundary moves by 1, 2, 4 or 8 layers


@njit(cache=True)
def best_order(model: Any, cuts: Any, starts: Any, first: Any, scratch: Any) -> Any:
    """Try every order of the hosts ``first``, ascending; return the best with its score (next permutation)."""
    order = first.copy()
    count = len(order)
    best, best_score = order.copy(), math.inf
    scale = max(1.0, model.weights.sum())
    while True:
        score = score_of(evaluate(model, cuts, starts, order, scratch), scale, TIE)
        if score < best_score:
            copy_into(order, best)
            best_score = score
        k = count - 2
        while k >= 0 and order[k] >= order[k + 1]:
            k -= 1
        if k < 0:
            return best, best_score
        m = count - 1
        while order[m] <= order[k]:
            m -= 1
        order[k], order[m] = order[m], order[k]
        _reverse(order, k + 1, count - 1)


@njit(cache=True)
def anneal_partition(model: Any, start: Any, settings: Any, scratch: Any) -> Any:
    """Anneal a partition; return (cuts, starts, order, score) of the best.

    ``start``: (cuts, starts, order). ``settings``: (moves, first temperature over the score, last one, seed, mode,
    whether workers may be idle).
    """
    moves, first_t, last_t, seed, mode, may_idle = settings
    np.random.seed(seed)
    layers, workers = len(model.forward), len(start[2])
    limit = min(layers, workers)
    cuts, starts = np.zeros(limit + 1, np.int64), np.zeros(limit + 1, np.int64)
    order = start[2].copy()
    stages = len(start[0]) - 1
    copy_into(start[0], cuts)
    copy_into(start[1], starts)
    new_cuts, new_starts, new_order = cuts.copy(), starts.copy(), order.copy()
    scale = max(1.0, model.weights.sum())
    score = score_of(evaluate(model, cuts[: stages + 1], starts[: stages + 1], order, scratch), scale, TRIFLE)
    best = cuts[: stages + 1].copy(), starts[: stages + 1].copy(), order.copy(), score
    temperature, cooling = first_t, (last_t / first_t) ** (1.0 / max(1, moves))
    for _ in range(moves):
        temperature *= cooling
        copy_into(cuts, new_cuts)
        copy_into(starts, new_starts)
        copy_into(order, new_order)
        new_stages = _move(model, (new_cuts, new_starts, new_order), stages, mode, may_idle)
        if new_stages == 0:
            continue
        terms = evaluate(model, new_cuts[: new_stages + 1], new_starts[: new_stages + 1], new_order, scratch)
        new = score_of(terms, scale, TRIFLE)
        if new <= score or np.random.random() < math.exp((score - new) / (temperature * score)):
            score, stages = new, new_stages
            cuts, new_cuts = new_cuts, cuts
            starts, new_starts = new_starts, starts
            order, new_order = new_order, order
            if score < best[3] * (1 - 1e-12):
                best = cuts[: stages + 1].copy(), starts[: stages + 1].copy(), order.copy(), score
    return best


@njit_inner()
def _move(model: Any, partition: Any, stages: Any, mode: Any, may_idle: Any) -> Any:
    """Change the partition; return its stages, 0 when nothing was changed."""
    draw = np.random.random()
    if mode == FIXED:
        return _exchange(partition, stages, draw < 0.2)
    if mode == ONE_STAGE:
        return _exchange(partition, stages, draw < 0.3) if draw < 0.7 else _transfer(partition, stages, may_idle)
    if draw < 0.25:
        return _shift(model, partition, stages)
    if draw < 0.55:
        return _exchange(partition, stages, draw < 0.3)
    if draw < 0.75:
        return _transfer(partition, stages, may_idle) if mode == FREE else _shift(model, partition, stages)
    if draw < 0.88:
        return _split(model, partition, stages)
    return _merge(partition, stages, mode, may_idle)


# Loops: an assignment to a slice takes Numba seconds to compile, for the text of its error.
@njit_inner()
def _reverse(order: Any, first: Any, last: Any) -> None:
    while first < last:
        order[first], order[last] = order[last], order[first]
        first, last = first + 1, last - 1


@njit_inner()
def _move_host(order: Any, place: Any, to: Any) -> None:
    """Move a host to another place; those between move up by one."""
    step = 1 if to > place else -1
    while place != to:
        order[place], order[place + step] = order[place + step], order[place]
        place += step


@njit_inner()
def _shift(model: Any, partition: Any, stages: Any) -> Any:
    """Move the boundary before a stage by a few layers."""
    cuts = partition[0]
    if stages < 2:
        return 0
    s = 1 + np.random.randint(stages - 1)
    cut = cuts[s] + (1 << np.random.randint(_LONGEST_SHIFT)) * (1 if np.random.random() < 0.5 else -1)
    if cut <= cuts[s - 1] or cut >= cuts[s + 1] or not model.allowed[cut]:
        return 0
    cuts[s] = cut
    return stages


@njit_inner()
def _exchange(partition: Any, stages: Any, reverse: Any) -> Any:
    """Exchange the hosts of two places, or turn round a part of the order."""
    order = partition[2]
    a, b = np.random.randint(len(order)), np.random.randint(len(order))
    if a > b:
        a, b = b, a
    if a == b or (order[a] == order[b] and not reverse):
        return 0
    if reverse:
        _reverse(order, a, b)
    else:
        order[a], order[b] = order[b], order[a]
    return stages


@njit_inner()
def _transfer(partition: Any, stages: Any, may_idle: Any) -> Any:
    """Give a replica of a stage, or an idle worker, to another stage or let it be idle."""
    _, starts, order = partition
    idle = len(order) - starts[stages]
    source = np.random.randint(stages + (1 if idle > 0 else 0))
    target = np.random.randint(stages + (1 if may_idle else 0))
    if source == target or (source < stages and starts[source + 1] - starts[source] == 1):
        return 0
    begin = starts[source]
    end = starts[source + 1] if source < stages else len(order)
    place = begin + np.random.randint(end - begin)
    if source < target:  # places between move down by one
        last = starts[target + 1] if target < stages else len(order)
        into = starts[target] + np.random.randint(last - starts[target] + 1)
        _move_host(order, place, into - 1)
        for s in range(source + 1, min(target, stages) + 1):
            starts[s] -= 1
    else:
        into = starts[target] + np.random.randint(starts[target + 1] - starts[target] + 1)
        _move_host(order, place, into)
        for s in range(target + 1, min(source, stages) + 1):
            starts[s] += 1
    return stages


@njit_inner()
def _split(model: Any, partition: Any, stages: Any) -> Any:
    """Split a stage in two, with its replicas, or with an idle worker where it has one replica."""
    cuts, starts, order = partition
    if stages + 1 > len(cuts) - 1:
        return 0
    s = np.random.randint(stages)
    layers, replicas = cuts[s + 1] - cuts[s], starts[s + 1] - starts[s]
    if layers < 2:
        return 0
    cut = cuts[s] + 1 + np.random.randint(layers - 1)
    if not model.allowed[cut]:
        return 0
    share = 1
    if replicas >= 2:
        share = 1 + np.random.randint(replicas - 1)
    elif starts[stages] == len(order):
        return 0
    else:  # the first idle worker comes behind the only replica
        _move_host(order, starts[stages], starts[s + 1])
        for t in range(s + 1, stages + 1):
            starts[t] += 1
    for t in range(stages, s, -1):
        cuts[t + 1], starts[t + 1] = cuts[t], starts[t]
    cuts[s + 1], starts[s + 1] = cut, starts[s] + share
    return stages + 1


@njit_inner()
def _merge(partition: Any, stages: Any, mode: Any, may_idle: Any) -> Any:
    """Join two neighbouring stages; without replicas one worker becomes idle."""
    cuts, starts, order = partition
    if stages < 2 or (mode == STRAIGHT and not may_idle):
        return 0
    s = np.random.randint(stages - 1)
    if mode == STRAIGHT:
        _move_host(order, starts[s + 1], len(order) - 1)
        for t in range(s + 2, stages + 1):
            starts[t] -= 1
    for t in range(s + 1, stages):
        cuts[t], starts[t] = cuts[t + 1], starts[t + 1]
    return stages - 1


@njit(cache=True)
def fewest_workers_of_bound(costs: Any, rates: Any, limit_s: Any, workers: Any) -> Any:
    """Return the workers that layers 0 to N - 1 need at least for ``limit_s``, the cuts and the replicas.

    ``costs``: (prefix sums of seconds and of bytes of parameters, bytes that cross each cut ahead and back, whether a
    cut is allowed). ``rates``: bytes per second of every host, and how many times as long it computes.
    """
    seconds, weights, ahead, back, allowed = costs
    rate, slow = rates
    layers = len(seconds) - 1
    fewest = np.full(layers + 1, 1 << 30, dtype=np.int64)
    cut, replicas = np.zeros(layers + 1, np.int64), np.zeros(layers + 1, np.int64)
    fewest[0] = 0
    for end in range(1, layers + 1):
        if not allowed[end]:
            continue
        for begin in range(end):
            left = fewest[begin]
            if not allowed[begin] or left + 1 > workers or left + 1 >= fewest[end]:
                continue
            work = (seconds[end] - seconds[begin]) * slow
            crossing = max(ahead[end] + back[begin], ahead[begin] + back[end]) / rate
            size = (weights[end] - weights[begin]) / rate
            most = min(workers, fewest[end] - 1) - left
            count = max(1, math.ceil(max(work, crossing) / limit_s - 1e-12))
            while count <= most:
                if max(work, crossing + 2.0 * (count - 1) / count * size) <= limit_s * count * (1 + 1e-12):
                    fewest[end] = left + count
                    cut[end], replicas[end] = begin, count
                    break
                if work <= limit_s * count and crossing + size >= limit_s * count:
                    # 2 (m - 1) / m grows slowly: jump to what the limit allows at least
                    need = crossing + 2.0 * (count - 1) / count * size
                    count = max(count + 1, math.ceil(need / limit_s - 1e-12))
                else:
                    count += 1
    return fewest, cut, replicas
