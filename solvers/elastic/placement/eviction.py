"""What of the hosts that are about to be taken away can still be saved (Harlap thesis, 4.2.3, evictions)."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

WAIT_SHARE = 0.25  # of a warning, for which transfers may be kept back until they are in nobody's way
_ROUNDING = 1 + 1e-9


class EvacuationKind(StrEnum):
    """Outcome of a partition at risk. MOVE: as a whole to a host that survives. DRAIN: what its replica lacks goes
    there, as a last message. FAIL: neither can be done in time."""

    MOVE = "move"
    DRAIN = "drain"
    FAIL = "fail"


@dataclass(frozen=True)
class AtRiskPartition:
    """A partition on a host that leaves. ``target``: the survivor that would serve it, None where there is none."""

    partition: int
    host: int
    replica: int
    target: int | None
    move_bytes: float
    drain_bytes: float


@dataclass(frozen=True)
class Evacuation:
    """Planned outcome of a partition at risk. ``to``: where it goes; None: nowhere. ``reason``: a line."""

    partition: int
    kind: EvacuationKind
    to: int | None
    reason: str


@dataclass(frozen=True)
class _Transfer:
    what: AtRiskPartition
    to: int
    size: float
    deadline: float

    @property
    def ends(self) -> tuple[tuple[int, str], tuple[int, str]]:
        """Return the links it takes: out of one host and into another. They are full-duplex, so these are two
        things."""
        return (self.what.host, "out"), (self.to, "in")


def plan_evacuation(
    at_risk: Sequence[AtRiskPartition], deadlines: Mapping[int, float], rates: Mapping[int, float]
) -> tuple[Evacuation, ...]:
    """Plan the outcome of each partition, in the order in which to send them: earliest deadline first, then the
    smallest.

    As many as possible get through, which is what decides whether the job has to be rolled back: first all as drains,
    the cheaper way, where of a line that cannot carry all of them in time the largest are given up (Moore, 1968, "An n
    job, one machine sequencing algorithm": the most jobs in time, for one line; with several lines short at once it is
    a heuristic). Then as many as still fit become moves, which spares the copy from the replica afterwards. A line's
    time is counted by itself: the estimate is the best case, and who misses it nevertheless has failed.

    :param deadlines: seconds that each leaving host has left.
    :param rates: bytes a second of hosts, in each direction; a host that is missing is taken to be fast enough.
    """
    drains = [_Transfer(threat, threat.replica, threat.drain_bytes, deadlines[threat.host]) for threat in at_risk]
    drains = [transfer for transfer in drains if transfer.deadline > 0]
    going: list[_Transfer] = []
    for transfer in sorted(drains, key=_send_order):
        going.append(transfer)
        while (late := _late(going, rates)) is not None:
            in_the_way = (transfer for transfer in going if late in transfer.ends)
            going.remove(max(in_the_way, key=lambda transfer: (transfer.size, _send_order(transfer))))
    for drain in sorted(going, key=lambda move: (move.what.move_bytes - move.size, _send_order(move))):
        threat = drain.what
        if threat.target is None:
            continue
        tried = [other for other in going if other is not drain]
        tried.append(_Transfer(threat, threat.target, threat.move_bytes, drain.deadline))
        # The lines on which others wait for this one were in time before: only lines that get more can be late now.
        if _late(tried, rates) is None:
            going = tried
    transfers = {transfer.what.partition: transfer for transfer in going}
    order = sorted(at_risk, key=lambda threat: _order(threat, transfers.get(threat.partition), deadlines))
    return tuple(
        _evacuation_of(threat, transfers.get(threat.partition), deadlines[threat.host], rates) for threat in order
    )


def _send_order(transfer: _Transfer) -> tuple[float, float, int]:
    return transfer.deadline, transfer.size, transfer.what.partition


def _order(
    threat: AtRiskPartition, transfer: _Transfer | None, deadlines: Mapping[int, float]
) -> tuple[bool, float, float, int]:
    if transfer is None:
        return True, deadlines[threat.host], threat.drain_bytes, threat.partition
    return False, *_send_order(transfer)


def _late(going: Sequence[_Transfer], rates: Mapping[int, float]) -> tuple[int, str] | None:
    """Return a link on which a transfer is late when they go in the order of their deadlines; None where all are in
    time."""
    sent: dict[tuple[int, str], float] = defaultdict(float)
    for transfer in sorted(going, key=_send_order):
        for line in transfer.ends:
            sent[line] += transfer.size
            if sent[line] > rates.get(line[0], math.inf) * transfer.deadline * _ROUNDING:
                return line
    return None


def _evacuation_of(
    threat: AtRiskPartition, transfer: _Transfer | None, deadline: float, rates: Mapping[int, float]
) -> Evacuation:
    if transfer is None:
        rate = min(rates.get(threat.host, math.inf), rates.get(threat.replica, math.inf))
        reason = (
            "the warning leaves no time" if deadline <= 0 else f"{deadline:g} s at {rate / 1e6:.3g} MB/s are not enough"
        )
        return Evacuation(
            threat.partition, EvacuationKind.FAIL, None, f"{threat.drain_bytes / 1e6:.3g} MB, and {reason}"
        )
    if transfer.to == threat.target:
        return Evacuation(
            threat.partition, EvacuationKind.MOVE, transfer.to, f"{deadline:g} s are enough to move it to a survivor"
        )
    reason = (
        "nobody survives to take it" if threat.target is None else f"{deadline:g} s are not enough to move all of it"
    )
    return Evacuation(
        threat.partition, EvacuationKind.DRAIN, transfer.to, f"{reason}: what the replica lacks goes there"
    )
