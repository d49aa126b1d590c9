"""Many fits on two cores: two batches side by side, each with one thread of PyTorch.

PyTorch's own threads wait for each other by spinning, at every one of some ten thousand small steps: where something
else runs on one of the cores each wait lasts as long as the scheduler leaves that something alone, and fitting 64 hosts
took a minute instead of two seconds. Batches that never meet lose what the others take and no more.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import numpy as np
import torch

from solvers.embedding.fitting import STEPS, Fits, Floats, Trial, fit
from solvers.prediction.observed import ObservedPairs

_WORKERS = 2  # always: what is found must not depend on how many cores there are


def fit_all(
    pairs: ObservedPairs,
    trials: Sequence[Trial],
    seed: int,
    steps: int = STEPS,
    device: str = "cpu",
    keep_going: Callable[[], bool] = lambda: True,
) -> Fits:
    """:func:`solvers.embedding.fitting.fit`, faster; a GPU takes all fits as one batch."""
    workers = 1 if device != "cpu" else min(_WORKERS, len(trials))
    stopped = Event()

    def fit_part(k: int) -> Fits:
        going = lambda: keep_going() and not stopped.is_set()  # noqa: E731
        own = _WORKERS * seed + k  # no other seed's thread draws the same
        return fit(pairs, trials[k::workers], own, steps, device, going)

    with _single_thread(), ThreadPoolExecutor(workers) as pool:
        try:
            parts = list(pool.map(fit_part, range(workers)))
        except BaseException:
            stopped.set()  # Ctrl-C: the pool waits for its threads
            raise
    checks = min(len(part.checks) for part in parts)  # a thread that was stopped may have come less far
    order = np.argsort(np.concatenate([np.arange(len(trials))[k::workers] for k in range(workers)]))
    return Fits(
        np.concatenate([_padded(part.coordinates, parts) for part in parts])[order],
        np.concatenate([part.heights_us for part in parts])[order],
        np.concatenate([part.loss for part in parts])[order],
        parts[0].checks[:checks],
        np.concatenate([part.held_out[:, :checks] for part in parts])[order],
    )


def _padded(coordinates: Floats, parts: Sequence[Fits]) -> Floats:
    """With zeros up to the largest dimension of all parts."""
    widest = max(part.coordinates.shape[2] for part in parts)
    return np.pad(coordinates, ((0, 0), (0, 0), (0, widest - coordinates.shape[2])))


@contextmanager
def _single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
