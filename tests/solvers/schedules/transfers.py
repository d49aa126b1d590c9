"""What schedules send, for tests."""

import numpy as np

from plink.model.schedule import Schedule


def sent(schedule: Schedule) -> list[float]:
    """The vectors that each rank sends."""
    return (np.bincount(schedule.source, schedule.count, schedule.ranks) / schedule.chunks).tolist()  # type: ignore[no-any-return]


def moves(schedule: Schedule) -> set[tuple[int, ...]]:
    """(round, source, target, first, count, copies) of all transfers."""
    columns = (schedule.round, schedule.source, schedule.target, schedule.first, schedule.count, schedule.copies)
    return set(zip(*(np.asarray(a).astype(int).tolist() for a in columns), strict=True))
