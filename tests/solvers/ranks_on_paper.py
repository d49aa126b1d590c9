"""Ranks that aggregate on two levels, on a network on paper: what they see of each other, and how long it takes."""

import numpy as np
import numpy.typing as npt

from solvers.autotune.observed import MasterAssignment, ObservedTraffic, sent_bytes
from solvers.schedules.masters import equal_chunks

GROUPS = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
CHUNK = 65536.0
RATE = 25e6


def equal_assignment(groups: list[list[int]], chunks: int) -> MasterAssignment:
    """Masters by size."""
    return MasterAssignment(groups, *equal_chunks(groups, chunks))


def seen(assignment: MasterAssignment, rates: npt.NDArray[np.float64]) -> tuple[ObservedTraffic, float]:
    """(what is observed, seconds of an all-reduce) where each rank sends and receives at its rate, and its connections
    share that by what they carry."""
    sent = sent_bytes(assignment, np.full(len(assignment.global_group), CHUNK))
    out, into = sent.sum(axis=1), sent.sum(axis=0)
    with np.errstate(all="ignore"):
        rate = np.minimum(rates[:, None] * sent / out[:, None], rates[None, :] * sent / into[None, :])
    observed = ObservedTraffic(sent, np.where(sent > 0, rate, np.nan), np.where(sent > 0, 1e-4, np.nan))
    return observed, float(np.maximum(out / rates, into / rates).max())
