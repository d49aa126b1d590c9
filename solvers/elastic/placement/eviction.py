"""What of the hosts that are about to be taken away can still be saved (Harlap thesis, 4.2.3, evictions)."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

WAIT = 0.25  # of a warning, for which transfers may be kept back until they are in nobody's way
_ROUNDING = 1 + 1e-9


class Fate(StrEnum):
    """MOVE: as a whole to a host that survives. DRAIN: what its backup lacks goes there, as a last message.
    FAIL: neither can be done in time."""

    MOVE = "move"
    DRAIN = "drain"
    FAIL = "fail"


@dataclass(frozen=True)
class Threatened:
    """A partition on a host that leaves. ``heir``: the survivor that would serve it, None where there is none."""

    partition: int
    host: int
    backup: int
    heir: int | None
    move_bytes: float
    drain_bytes: float


@dataclass(frozen=True)
class Rescue:
    """What becomes of a partition. ``to``: where it goes; None: nowhere. ``reason``: a line."""

    partition: int
    fate: Fate
    to: int | None
    reason: str


@dataclass(frozen=True)
class _Transfer:
    what: Threatened
    to: int
    size: float
    deadline: float

    @property
    def ends(self) -> tuple[tuple[int, str], tuple[int, str]]:
        """The lines it takes: out of one host and into another. They are full-duplex, so these are two things."""
        return (self.what.host, "out"), (self.to, "in")


def rescue(
    threatened: Sequence[Threatened], deadlines: Mapping[int, float], rates: Mapping[int, float]
) -> tuple[Rescue, ...]:
    """The fate of each partition, in the order in which to send them: earliest deadline first, then the smallest.

    As many as possible get through, which is what decides whether the job has to be rolled back: first all as drains,
    the cheaper way, where of a line that cannot carry all of them in time the largest are given up (Moore, 1968, "An n
    job, one machine sequencing algorithm": the most jobs in time, for one line; with several lines short at once it is
    a heuristic). Then as many as still fit become moves, which spares the copy from the backup afterwards. A line's
    time is counted by itself: the estimate is the best case, and who misses it nevertheless has failed.

    :param deadlines: seconds that each leaving host has left.
    :param rates: bytes a second of hosts, in each direction; a host that is missing is taken to be fast enough.
    """
    drains = [_Transfer(one, one.backup, one.drain_bytes, deadlines[one.host]) for one in threatened]
    drains = [transfer for transfer in drains if transfer.deadline > 0]
    going: list[_Transfer] = []
    for transfer in sorted(drains, key=_turn):
        going.append(transfer)
        while (late := _late(going, rates)) is not None:
            going.remove(max((one for one in going if late in one.ends), key=lambda one: (one.size, _turn(one))))
    for drain in sorted(going, key=lambda one: (one.what.move_bytes - one.size, _turn(one))):
        one = drain.what
        if one.heir is None:
            continue
        tried = [other for other in going if other is not drain]
        tried.append(_Transfer(one, one.heir, one.move_bytes, drain.deadline))
        # The lines on which others wait for this one were in time before: only lines that get more can be late now.
        if _late(tried, rates) is None:
            going = tried
    found = {transfer.what.partition: transfer for transfer in going}
    order = sorted(threatened, key=lambda one: _order(one, found.get(one.partition), deadlines))
    return tuple(_told(one, found.get(one.partition), deadlines[one.host], rates) for one in order)


def _turn(transfer: _Transfer) -> tuple[float, float, int]:
    return transfer.deadline, transfer.size, transfer.what.partition


def _order(
    one: Threatened, transfer: _Transfer | None, deadlines: Mapping[int, float]
) -> tuple[bool, float, float, int]:
    if transfer is None:
        return True, deadlines[one.host], one.drain_bytes, one.partition
    return False, *_turn(transfer)


def _late(going: Sequence[_Transfer], rates: Mapping[int, float]) -> tuple[int, str] | None:
    """A line on which a transfer is late when they go in the order of their deadlines; None where all are in time."""
    sent: dict[tuple[int, str], float] = defaultdict(float)
    for transfer in sorted(going, key=_turn):
        for line in transfer.ends:
            sent[line] += transfer.size
            if sent[line] > rates.get(line[0], math.inf) * transfer.deadline * _ROUNDING:
                return line
    return None


def _told(one: Threatened, transfer: _Transfer | None, deadline: float, rates: Mapping[int, float]) -> Rescue:
    if transfer is None:
        rate = min(rates.get(one.host, math.inf), rates.get(one.backup, math.inf))
        why = (
            "the warning leaves no time" if deadline <= 0 else f"{deadline:g} s at {rate / 1e6:.3g} MB/s are not enough"
        )
        return Rescue(one.partition, Fate.FAIL, None, f"{one.drain_bytes / 1e6:.3g} MB, and {why}")
    if transfer.to == one.heir:
        return Rescue(one.partition, Fate.MOVE, transfer.to, f"{deadline:g} s are enough to move it to a survivor")
    why = "nobody survives to take it" if one.heir is None else f"{deadline:g} s are not enough to move all of it"
    return Rescue(one.partition, Fate.DRAIN, transfer.to, f"{why}: what the backup lacks goes there")
