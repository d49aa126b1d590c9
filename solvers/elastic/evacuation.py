"""Hosts that will be taken away: what they serve goes elsewhere while there is time (Harlap thesis, 4.2.3)."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from solvers.elastic import migration
from solvers.elastic.context import PlacementDecision
from solvers.elastic.moving import begin, cancel, primary_targets
from solvers.elastic.recovery import recover

_ROUNDING = 1 + 1e-9


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
    """Planned outcome of a partition at risk.

    ``to``: a survivor, to which it goes as a whole; or its replica, to which what that lacks goes as a last message;
    None: neither can be done in time. ``reason``: a line.
    """

    partition: int
    to: int | None
    reason: str


def evacuate(decision: PlacementDecision, deadlines: Mapping[int, float], unreplicated: Mapping[int, float]) -> None:
    """Begin to move or drain partitions of the leaving transient hosts.

    The order is the one that brings most to safety. Where one cannot be in time it is an effective failure: nobody
    waits for the deadline to roll back.

    :param deadlines: seconds that each leaving host has left.
    :param unreplicated: bytes by partition that its replica lacks; of others, all of it. Transfers may be kept back for
        a part of the warning, so that what is planned fits into the rest of it.
    """
    _cancel_moves_to_leaving(decision)
    plan = plan_evacuation(
        _at_risk(decision, unreplicated),
        {host: (1 - migration.WAIT_SHARE) * deadlines[host] for host in decision.cluster.leaving},
        {host.number: host.rate for host in decision.cluster.hosts if host.rate is not None},
    )
    failed = [partition for partition in plan if partition.to is None]
    # Going back to the replicas saves nothing that they do not have: that is sent as far as it gets.
    if late := [partition for partition in failed if decision.cluster.partitions[partition.partition].safe]:
        decision.cause = f"{decision.cause}: partition {late[0].partition} cannot be saved ({late[0].reason})"
        recover(decision, (), effective=True)
        return
    for partition in plan:
        if partition.to is not None:
            begin(decision, partition.partition, partition.to, f"{decision.cause}: {partition.reason}")


def _cancel_moves_to_leaving(decision: PlacementDecision) -> None:
    servers, leaving = decision.cluster.servers, decision.cluster.leaving
    for index, partition in enumerate(decision.cluster.partitions):
        move = partition.move
        if move and move.to in leaving and move.to not in servers and not move.drain:
            cancel(decision, index, f"{decision.cause}: who was to take partition {index} leaves too")


def _at_risk(decision: PlacementDecision, unreplicated: Mapping[int, float]) -> list[AtRiskPartition]:
    state, threats = decision.cluster, []
    for index, (partition, target) in enumerate(zip(state.partitions, primary_targets(state), strict=True)):
        # A ParamServ that leaves has nobody to drain to, and one that waits has nothing yet: settling sees to them.
        if (
            partition.primary not in state.leaving
            or partition.primary == partition.replica
            or partition.waiting
            or partition.move
        ):
            continue
        size = state.partition_bytes[index]
        lacks = min(size, unreplicated.get(index, size)) if partition.safe else size
        survivor = None if state.members[target].reliable else target
        threats.append(AtRiskPartition(index, partition.primary, partition.replica, survivor, size, lacks))
    return threats


@dataclass(frozen=True)
class _Transfer:
    what: AtRiskPartition
    to: int
    size: float
    deadline: float

    @property
    def ends(self) -> tuple[tuple[int, str], tuple[int, str]]:
        """Return the links it takes: out of one host and into another.

        They are full-duplex, so these are two things.
        """
        return (self.what.host, "out"), (self.to, "in")


def plan_evacuation(
    at_risk: Sequence[AtRiskPartition], deadlines: Mapping[int, float], rates: Mapping[int, float]
) -> tuple[Evacuation, ...]:
    """Plan the outcome of each partition, in the order in which to send them.

    The earliest deadline comes first, then the smallest.

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
    """Return a link on which a transfer is late when they go in the order of their deadlines.

    None where all are in time.
    """
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
        reason = f"{deadline:g} s at {rate / 1e6:.3g} MB/s are not enough"
        reason = reason if deadline > 0 else "the warning leaves no time"
        return Evacuation(threat.partition, None, f"{threat.drain_bytes / 1e6:.3g} MB, and {reason}")
    if transfer.to == threat.target:
        return Evacuation(threat.partition, transfer.to, f"{deadline:g} s are enough to move it to a survivor")
    reason = "nobody survives to take it"
    if threat.target is not None:
        reason = f"{deadline:g} s are not enough to move all of it"
    return Evacuation(threat.partition, transfer.to, f"{reason}: what the replica lacks goes there")
