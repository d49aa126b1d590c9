"""Hosts that will be taken away: what they serve goes elsewhere while there is time (Harlap thesis, 4.2.3)."""

from collections.abc import Mapping

from solvers.elastic.placement import eviction
from solvers.elastic.placement.hosts import Tier
from solvers.elastic.placement.moving import begin, cancel, owner_targets
from solvers.elastic.placement.recovery import recover
from solvers.elastic.placement.state import Step


def evacuate(step: Step, unpushed: Mapping[int, float]) -> None:
    """Begin to move or drain partitions of the leaving transient hosts, in the order that brings most to safety. Where
    one cannot be in time it is an effective failure: nobody waits for the deadline to roll back.

    :param unpushed: bytes by partition that its backup lacks; of others, all of it. Transfers may be kept back for a
        part of the warning, so that what is planned fits into the rest of it.
    """
    _free_from_leaving_heirs(step)
    plan = eviction.rescue(
        _threatened(step, unpushed),
        {host: (1 - eviction.WAIT) * seconds for host, seconds in step.state.leaving.items()},
        {host.number: host.bytes_per_s for host in step.state.hosts if host.bytes_per_s is not None},
    )
    failed = [one for one in plan if one.fate is eviction.Fate.FAIL]
    # Going back to the backups saves nothing that they do not have: that is sent as far as it gets.
    if late := [one for one in failed if step.state.partitions[one.partition].safe]:
        step.cause = f"{step.cause}: partition {late[0].partition} cannot be saved ({late[0].reason})"
        recover(step, (), effective=True)
        return
    for one in plan:
        if one.to is not None:
            begin(step, one.partition, one.to, f"{step.cause}: {one.reason}")


def _free_from_leaving_heirs(step: Step) -> None:
    servers, leaving = step.state.servers, step.state.leaving
    for index, partition in enumerate(step.state.partitions):
        heir = partition.heir
        if heir and heir.to in leaving and heir.to not in servers and not heir.drain:
            cancel(step, index, f"{step.cause}: who was to take partition {index} leaves too")


def _threatened(step: Step, unpushed: Mapping[int, float]) -> list[eviction.Threatened]:
    state, found = step.state, []
    for index, (one, target) in enumerate(zip(state.partitions, owner_targets(state), strict=True)):
        # A ParamServ that leaves has nobody to drain to, and one that waits has nothing yet: settling sees to them.
        if one.owner not in state.leaving or one.owner == one.backup or one.waiting or one.heir:
            continue
        size = state.partition_bytes[index]
        lacks = min(size, unpushed.get(index, size)) if one.safe else size
        heir = target if state.members[target].tier is Tier.TRANSIENT else None
        found.append(eviction.Threatened(index, one.owner, one.backup, heir, size, lacks))
    return found
