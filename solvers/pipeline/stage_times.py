"""Seconds per minibatch of a stage, by three models of one even network (Numba).

C: seconds of its layers, w: bytes of their parameters, m: replicas, B: bytes per second of a worker's link.

- ``ring``: max(C, 2 (m-1)/m w/B) / m. A ring all-reduce sends 2 (m-1)/m w on every link, once per round of m
  minibatches, while the backward pass goes on.
- ``thesis``: max(C, 2 (m-1) w/B) / m, as printed (Harlap thesis, 5.3.1): all bytes of all workers through one link.
- ``published``: (C + 4 (m-1) w / (B m)) / m, as the authors' optimiser computes it: nothing overlaps.

A cut is crossed by activations and gradients, 2 a / B in both. In ``published`` they are divided by the replicas of the
stage after the cut, and each split pays for the input and the output of its last stage.
"""

from typing import Any, Literal, get_args

from solvers.compilation import njit

EvenModel = Literal["ring", "thesis", "published"]
EVEN_MODELS: tuple[EvenModel, ...] = get_args(EvenModel)
RING, THESIS, PUBLISHED = range(3)


@njit(cache=True, inline="always")
def reduce_s(model: Any, weights_s: Any, replicas: Any) -> Any:
    """Return the seconds of an all-reduce; ``weights_s``: bytes of the parameters over the bandwidth."""
    if model == RING:
        return 2.0 * (replicas - 1) / replicas * weights_s
    if model == THESIS:
        return 2.0 * (replicas - 1) * weights_s
    return 4.0 * (replicas - 1) * weights_s / replicas


@njit(cache=True, inline="always")
def stage_s(model: Any, compute_s: Any, weights_s: Any, replicas: Any) -> Any:
    """Return the seconds per minibatch of a stage."""
    network_s = reduce_s(model, weights_s, replicas)
    if model == PUBLISHED:
        return (compute_s + network_s) / replicas
    return max(compute_s, network_s) / replicas
