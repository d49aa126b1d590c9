"""Backups in other racks than their primaries: a rack that is lost at once must not take both."""

from collections import Counter
from collections.abc import Mapping, Sequence

from solvers.elastic.placement.hosts import Host
from solvers.elastic.placement.partitions import balanced
from solvers.elastic.placement.stages import Stage
from solvers.elastic.placement.state import Cluster


def share_rack(first: Host, second: Host) -> bool:
    """Whether two hosts are known to be in one rack."""
    return bool(first.rack) and first.rack == second.rack


def place_backups(
    current: Sequence[int | None], owners: Sequence[int], reliable: Sequence[Host], hosts: Mapping[int, Host]
) -> tuple[int, ...]:
    """Assign each partition a reliable host: outside the rack of its owner where there is one, as evenly as that
    allows, and with few changes. Where no rack is in the way this is :func:`.partitions.balanced`.

    :param current: backup of each partition, None for none yet. :param owners: who is to serve each partition.
    :param hosts: all of them, by number.
    """
    numbers = [host.number for host in reliable]
    allowed = [
        [host.number for host in reliable if not share_rack(host, hosts[owner])] or numbers for owner in owners
    ]  # fmt: skip
    if all(len(theirs) == len(numbers) for theirs in allowed):
        return balanced(current, numbers)
    load = Counter(backup for backup, theirs in zip(current, allowed, strict=True) if backup in theirs)
    backups: list[int] = []
    for backup, theirs in zip(current, allowed, strict=True):
        if backup is None or backup not in theirs:
            backup = min(theirs, key=lambda host: (load[host], host))
            load[backup] += 1
        backups.append(backup)
    changed = True
    while changed:  # each change makes loads more even, so this ends
        changed = False
        for index, theirs in enumerate(allowed):
            least = min(theirs, key=lambda host: (load[host], host))
            if load[backups[index]] - load[least] > 1:
                load[backups[index]] -= 1
                load[least] += 1
                backups[index], changed = least, True
    return tuple(backups)


def racks_at_risk(state: Cluster) -> list[list[str]]:
    """Names of the hosts of each rack that has primaries and their only backups: state is lost with it. Empty in
    stage 1, where there are no backups at all."""
    if state.stage is Stage.PARAMETER_SERVERS:
        return []
    hosts = state.members
    racks = sorted(
        {
            hosts[partition.owner].rack
            for partition in state.partitions
            if share_rack(hosts[partition.owner], hosts[partition.backup])
        }
    )
    return [[host.name for host in state.hosts if host.rack == rack] for rack in racks]
