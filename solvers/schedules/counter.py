"""What a schedule moves: rounds, bytes on the wire, bytes of each host, bytes that leave a group."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Schedule


@dataclass(frozen=True)
class Count:
    """``sent_bytes`` and ``received_bytes``, shape (N,), of each rank; ``cross_group_bytes``: what leaves a group, None
    without groups."""

    rounds: int
    transfers: int
    bytes_on_wire: float
    sent_bytes: npt.NDArray[np.float64]
    received_bytes: npt.NDArray[np.float64]
    cross_group_bytes: float | None

    def to_json(self) -> dict[str, Any]:
        """As ``plink schedule count`` prints it."""
        return {
            "schema": "plink.count/1",
            "rounds": self.rounds,
            "transfers": self.transfers,
            "bytes_on_wire": self.bytes_on_wire,
            "sent_bytes": self.sent_bytes.tolist(),
            "received_bytes": self.received_bytes.tolist(),
            "cross_group_bytes": self.cross_group_bytes,
        }


def count(schedule: Schedule, size_bytes: float, group_of: npt.NDArray[np.intp] | None = None) -> Count:
    """Count a schedule that works on a vector of ``size_bytes``.

    :param group_of: shape (N,), the group of every rank.
    """
    moved = schedule.count * (size_bytes / schedule.chunks)
    crossing = None
    if group_of is not None:
        crossing = float(moved[group_of[schedule.source] != group_of[schedule.target]].sum())
    return Count(
        schedule.rounds,
        len(schedule),
        float(moved.sum()),
        np.bincount(schedule.source, moved, schedule.ranks).astype(np.float64),
        np.bincount(schedule.target, moved, schedule.ranks).astype(np.float64),
        crossing,
    )
