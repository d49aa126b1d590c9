"""The order in which a batch of updates is sent to a server, so that none is committed too late (M 5.1, Algorithm 2).

As printed, Algorithm 2 takes an update to be urgent when its deadline *equals* the number of the round: of two with one
deadline the second is late, one whose deadline has passed is sent nevertheless, and rounds that drop count as
positions. :func:`ordered` keeps as many updates as deadlines allow at any time instead (earliest-deadline
feasibility, Jackson 1955), and takes the shortest transfer among those that leave it so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.transfers.free_capacity import FreeCapacity

_SAME_TIME = 1e-9  # relative difference below which two arrivals count as equal


@dataclass(frozen=True)
class WaitingUpdate:
    """An update that waits to be sent. ``way_out``: its sender's. ``deadline``: the last position in the batch, from 1,
    at which it may be committed. ``members``: updates that travel as one in it; they take as many positions, of which
    ``deadline`` is the last one's."""

    way_out: int
    size_bytes: float
    deadline: int
    members: int = 1


@dataclass(frozen=True)
class Order:
    """Numbers of updates in the order of their arrival, with the seconds of each, and those that are dropped."""

    sent: tuple[int, ...]
    arrivals_s: tuple[float, ...]
    dropped: tuple[int, ...]

    def is_in_time(self, updates: Sequence[WaitingUpdate]) -> bool:
        """Whether every update has its position by its deadline."""
        ends = np.cumsum([updates[k].members for k in self.sent])
        return all(end <= updates[k].deadline for k, end in zip(self.sent, ends, strict=True))


def ordered(updates: Sequence[WaitingUpdate], free: FreeCapacity, way_in: int, ready_s: float) -> Order:
    """Return the order in which updates are sent to the server of ``way_in``, shortest transfer first.

    An update is dropped when deadlines leave no place for all (of those in question the one that would arrive last),
    when it must come next but another that is sent after it would arrive before it (M 5.1.3: server and link would
    idle), or when its sender has no capacity.
    """
    outs = np.array([update.way_out for update in updates], dtype=np.int64)
    sizes = np.array([update.size_bytes for update in updates], dtype=np.float64)
    deadlines = np.array([update.deadline for update in updates], dtype=np.int64)
    members = np.array([update.members for update in updates], dtype=np.int64)
    rest, sent, ends, dropped, position = np.arange(len(updates)), list[int](), list[float](), list[int](), 1

    def drop(number: int) -> None:
        nonlocal rest
        dropped.append(number)
        rest = rest[rest != number]

    while len(rest):
        arrivals = free.arrivals(outs[rest], way_in, sizes[rest], ready_s)
        places = int(members[rest].sum())
        due = np.clip(deadlines[rest] - position + 1, 0, places)
        demand = np.cumsum(np.bincount(due, members[rest], minlength=places + 1))
        slack = np.where(demand > 0, np.arange(places + 1) - demand, places)
        if slack.min() < 0:
            until = int(np.argmax(slack < 0))
            drop(int(rest[np.argmax(np.where(due <= until, arrivals, -1.0))]))
            continue
        # Whoever comes next moves all with earlier deadlines back by its members.
        room = np.minimum.accumulate(np.concatenate([[places, places], slack[1:]]))[due]
        allowed = room >= members[rest]
        choice = np.flatnonzero(allowed)[np.argmin(arrivals[allowed])]
        number, end = int(rest[choice]), float(arrivals[choice])
        reserved, _ = free.reserve(int(outs[number]), way_in, float(sizes[number]), ready_s)
        others = rest[rest != number]
        if end == np.inf or (
            not allowed.all()
            and len(others)
            and end > reserved.arrivals(outs[others], way_in, sizes[others], ready_s).min() * (1 + _SAME_TIME)
        ):
            drop(number)
            continue
        sent.append(number)
        ends.append(end)
        free, rest, position = reserved, others, position + updates[number].members
    return Order(tuple(sent), tuple(ends), tuple(dropped))
