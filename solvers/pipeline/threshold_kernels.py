"""Compiled test of a bottleneck time: how few workers suffice (Numba)."""

import math
from typing import Any

import numpy as np

from solvers.compilation import njit
from solvers.pipeline.stage_times import THESIS, stage_s

_TOO_MANY = 1 << 30


@njit(cache=True)
def fewest_replicas(model: Any, compute_s: Any, weights_s: Any, limit_s: Any) -> Any:
    """Return the fewest replicas with which a stage takes at most ``limit_s``, or 2^30 if none do.

    Time is compared by the very expression of :func:`stage_s`; the square root only finds where to look.
    """
    if compute_s <= limit_s:
        return 1
    if limit_s <= 0.0:
        return _TOO_MANY
    guess = compute_s / limit_s
    if guess >= _TOO_MANY / 4:
        return _TOO_MANY
    replicas = max(2, math.ceil(guess))
    while replicas > 2 and compute_s / (replicas - 1) <= limit_s:
        replicas -= 1
    while compute_s / replicas > limit_s:
        replicas += 1
    if stage_s(model, compute_s, weights_s, replicas) <= limit_s:
        return replicas
    if model == THESIS:
        return _TOO_MANY  # 2 (m-1)/m w/B grows with m
    # 2 (m-1)/m^2 w/B falls from m = 2 on: the larger root of limit m^2 - 2 w/B m + 2 w/B
    root = (weights_s + math.sqrt(max(0.0, weights_s * weights_s - 2.0 * weights_s * limit_s))) / limit_s
    if root >= _TOO_MANY / 4:
        return _TOO_MANY
    replicas = max(replicas, math.floor(root) - 1)
    while stage_s(model, compute_s, weights_s, replicas) > limit_s:
        replicas += 1
    return replicas


@njit(cache=True)
def fewest_workers(model: Any, seconds: Any, weights_s: Any, crossing_s: Any, limits: Any) -> Any:
    """Return f, the cuts and the replicas of each prefix; ``limits``: (seconds, workers).

    ``seconds``, ``weights_s``: prefix sums of N layers, ``crossing_s``: of the cut before each layer, all of shape
    (N + 1,). f(j), the fewest workers on which layers 0 to j - 1 take at most ``limits[0]``, is the least of
    f(k) + fewest replicas for layers k to j - 1, over cuts k that take no longer either.
    """
    limit_s, workers = limits
    layers = len(seconds) - 1
    fewest = np.full(layers + 1, _TOO_MANY, dtype=np.int64)
    cut = np.zeros(layers + 1, dtype=np.int64)
    replicas = np.zeros(layers + 1, dtype=np.int64)
    fewest[0] = 0
    for end in range(1, layers + 1):
        for begin in range(end):
            left = fewest[begin]
            # One more stage takes one worker at least.
            if left + 1 > workers or left + 1 >= fewest[end] or crossing_s[begin] > limit_s:
                continue
            needed = fewest_replicas(model, seconds[end] - seconds[begin], weights_s[end] - weights_s[begin], limit_s)
            if left + needed < fewest[end]:
                fewest[end] = left + needed
                cut[end] = begin
                replicas[end] = needed
    return fewest, cut, replicas


@njit(cache=True)
def least_traffic(model: Any, seconds: Any, weights_s: Any, crossing_s: Any, limits: Any) -> Any:
    """Return c and the cuts: c(j, k) is the least traffic of layers 0 to j - 1 on at most k workers, of stages and cuts
    that take at most ``limits[0]`` seconds; infinite where there are none. Arguments as of :func:`fewest_workers`.

    Traffic: what all workers send for a minibatch, over the bandwidth. It grows with a stage's replicas, so a stage has
    the fewest that suffice. Of equal ones the earliest cut is kept.
    """
    limit_s, workers = limits
    layers = len(seconds) - 1
    traffic = np.full((layers + 1, workers + 1), np.inf)
    cut = np.zeros((layers + 1, workers + 1), dtype=np.int32)
    traffic[0, :] = 0.0
    for end in range(1, layers + 1):
        for begin in range(end):
            if crossing_s[begin] > limit_s:
                continue
            stage_weights_s = weights_s[end] - weights_s[begin]
            needed = fewest_replicas(model, seconds[end] - seconds[begin], stage_weights_s, limit_s)
            if needed > workers:
                continue
            added = crossing_s[begin] + 2.0 * (needed - 1) / needed * stage_weights_s
            for count in range(needed, workers + 1):
                total = traffic[begin, count - needed] + added
                if total < traffic[end, count]:
                    traffic[end, count] = total
                    cut[end, count] = begin
    return traffic, cut
