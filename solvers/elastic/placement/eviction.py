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
    """A partition on a host that leaves. ``target``: the survivor that would serve it, None where there is none."""

    partition: int
    host: int
    backup: int
    target: int | None
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
    drains = [_Transfer(threat, threat.backup, threat.drain_bytes, deadlines[threat.host]) for threat in threatened]
    drains = [transfer for transfer in drains if transfer.deadline > 0]
    going: list[_Transfer] = []
    for transfer in sorted(drains, key=_turn):
        going.append(transfer)
        while (late := _late(going, rates)) is not None:
            in_the_way = (transfer for transfer in going if late in transfer.ends)
            going.remove(max(in_the_way, key=lambda transfer: (transfer.size, _turn(transfer))))
    for drain in sorted(going, key=lambda move: (move.what.move_bytes - move.size, _turn(move))):
        threat = drain.what
        if threat.target is None:
            continue
        tried = [other for other in going if other is not drain]
        tried.append(_Transfer(threat, threat.target, threat.move_bytes, drain.deadline))
        # The lines on which others wait for this one were in time before: only lines that get more can be late now.
        if _late(tried, rates) is None:
            going = tried
    transfers = {transfer.what.partition: transfer for transfer in going}
    order = sorted(threatened, key=lambda threat: _order(threat, transfers.get(threat.partition), deadlines))
    return tuple(_rescue_of(threat, transfers.get(threat.partition), deadlines[threat.host], rates) for threat in order)


def _turn(transfer: _Transfer) -> tuple[float, float, int]:
    return transfer.deadline, transfer.size, transfer.what.partition


def _order(
    threat: Threatened, transfer: _Transfer | None, deadlines: Mapping[int, float]
) -> tuple[bool, float, float, int]:
    if transfer is None:
        return True, deadlines[threat.host], threat.drain_bytes, threat.partition
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


def _rescue_of(threat: Threatened, transfer: _Transfer | None, deadline: float, rates: Mapping[int, float]) -> Rescue:
    if transfer is None:
        rate = min(rates.get(threat.host, math.inf), rates.get(threat.backup, math.inf))
        reason = (
            "the warning leaves no time" if deadline <= 0 else f"{deadline:g} s at {rate / 1e6:.3g} MB/s are not enough"
        )
        return Rescue(threat.partition, Fate.FAIL, None, f"{threat.drain_bytes / 1e6:.3g} MB, and {reason}")
    if transfer.to == threat.target:
        return Rescue(threat.partition, Fate.MOVE, transfer.to, f"{deadline:g} s are enough to move it to a survivor")
    reason = (
        "nobody survives to take it" if threat.target is None else f"{deadline:g} s are not enough to move all of it"
    )
    return Rescue(threat.partition, Fate.DRAIN, transfer.to, f"{reason}: what the backup lacks goes there")
