"""What a schedule moves: rounds, bytes on the wire, bytes of each host, bytes that leave a group."""

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Schedule
from plink.model.schedule_file import ScheduleCount


def count(schedule: Schedule, size_bytes: float, group_of: npt.NDArray[np.intp] | None = None) -> ScheduleCount:
    """Count a schedule that works on a vector of ``size_bytes``.

    :param group_of: shape (N,), the group of every rank.
    """
    moved = schedule.count * (size_bytes / schedule.chunks)
    crossing = None
    if group_of is not None:
        crossing = float(moved[group_of[schedule.source] != group_of[schedule.target]].sum())
    sent, received = (
        tuple(np.bincount(ends, moved, schedule.ranks).astype(np.float64).tolist())
        for ends in (schedule.source, schedule.target)
    )
    return ScheduleCount(
        rounds=schedule.rounds,
        transfers=len(schedule),
        bytes_on_wire=float(moved.sum()),
        sent_bytes=sent,
        received_bytes=received,
        cross_group_bytes=crossing,
    )
