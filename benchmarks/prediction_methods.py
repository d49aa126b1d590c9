"""Other ways to predict unmeasured pairs, to measure the one plink uses against: each gives a full (N, N) matrix."""

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.prediction.observed import ObservedPairs

Floats = npt.NDArray[np.float64]


def coordinates(pairs: ObservedPairs, dimensions: int, heights: bool, seed: int, steps: int = 400) -> Matrix:
    """Network coordinates: ``||v_i - v_j|| + h_i + h_j`` (T eq. 4.1 with alpha 1), squared relative error, by Adam."""
    import torch

    torch.manual_seed(seed)
    i, j = torch.from_numpy(pairs.i.astype(np.int64)), torch.from_numpy(pairs.j.astype(np.int64))
    scale = float(np.median(pairs.rtt_us))
    target = torch.from_numpy(pairs.rtt_us / scale)
    place = (0.5 * torch.randn(pairs.n, dimensions, dtype=torch.float64)).requires_grad_()
    height = torch.full((pairs.n,), 0.1, dtype=torch.float64, requires_grad=heights)
    optimiser = torch.optim.Adam([place, height] if heights else [place], lr=0.05)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        fitted = ((place[i] - place[j]).square().sum(1) + 1e-6).sqrt() + (height[i] + height[j]) * heights
        loss = ((fitted - target) / target).square().mean()
        loss.backward()
        optimiser.step()
        decay.step()
        if heights:
            with torch.no_grad():
                height.clamp_(min=0.0)
    with torch.no_grad():
        full = torch.cdist(place, place) + (height[:, None] + height[None, :]) * heights
    return np.asarray(full.numpy() * scale, dtype=np.float64)


def low_rank(pairs: ObservedPairs, rank: int = 16, steps: int = 60) -> Matrix:
    """Hard-impute (Mazumder et al., JMLR 2010): the unmeasured filled with the best matrix of ``rank``, again and
    again, after the mean and the hosts' own means are taken off."""
    n = pairs.n
    known_us = np.full((n, n), np.nan)
    known_us[pairs.i, pairs.j] = known_us[pairs.j, pairs.i] = pairs.rtt_us
    mean = float(np.mean(pairs.rtt_us))
    own = np.nan_to_num(np.nanmean(known_us, axis=1) - mean) / 2
    base = mean + own[:, None] + own[None, :]
    measured = np.isfinite(known_us)
    rest = np.where(measured, known_us - base, 0.0)
    filled = rest
    for _ in range(steps):
        filled = np.where(measured, rest, _truncated(filled, rank))
    return np.asarray(base + _truncated(filled, rank), dtype=np.float64)


def _truncated(matrix: Matrix, rank: int) -> Matrix:
    """Return the nearest symmetric matrix of ``rank``, by the eigenvalues of largest magnitude."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    largest = np.argsort(-np.abs(values))[:rank]
    return np.asarray((vectors[:, largest] * values[largest]) @ vectors[:, largest].T, dtype=np.float64)
