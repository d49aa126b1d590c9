"""Replicas in other racks than their primaries: a rack that is lost at once must not take both."""

from collections import Counter
from collections.abc import Mapping, Sequence

from solvers.elastic.placement.hosts import JobHost
from solvers.elastic.placement.partitions import balanced
from solvers.elastic.placement.stages import Stage
from solvers.elastic.placement.state import Cluster


def share_rack(first: JobHost, second: JobHost) -> bool:
    """Return whether two hosts are known to be in one rack."""
    return bool(first.rack) and first.rack == second.rack


def place_replicas(
    current: Sequence[int | None], primaries: Sequence[int], reliable: Sequence[JobHost], hosts: Mapping[int, JobHost]
) -> tuple[int, ...]:
    """Assign each partition a reliable host, outside the rack of its primary where there is one.

    Numbers are as even as that allows, and changes few. Where no rack is in the way this is
    :func:`.partitions.balanced`.

    :param current: replica of each partition, None for none yet. :param primaries: who is to serve each partition.
    :param hosts: all of them, by number.
    """
    numbers = [host.number for host in reliable]
    allowed = [
        [host.number for host in reliable if not share_rack(host, hosts[primary])] or numbers for primary in primaries
    ]  # fmt: skip
    if all(len(candidates) == len(numbers) for candidates in allowed):
        return balanced(current, numbers)
    load = Counter(replica for replica, candidates in zip(current, allowed, strict=True) if replica in candidates)
    replicas: list[int] = []
    for replica, candidates in zip(current, allowed, strict=True):
        if replica is None or replica not in candidates:
            replica = min(candidates, key=lambda host: (load[host], host))
            load[replica] += 1
        replicas.append(replica)
    changed = True
    while changed:  # each change makes loads more even, so this ends
        changed = False
        for index, candidates in enumerate(allowed):
            least = min(candidates, key=lambda host: (load[host], host))
            if load[replicas[index]] - load[least] > 1:
                load[replicas[index]] -= 1
                load[least] += 1
                replicas[index], changed = least, True
    return tuple(replicas)


def racks_at_risk(state: Cluster) -> list[list[str]]:
    """Return the hosts of each rack that has primaries and their only replicas: state is lost with it.

    Empty in stage 1, where there are no replicas at all.
    """
    if state.stage is Stage.PARAMETER_SERVERS:
        return []
    hosts = state.members
    racks = sorted(
        {
            hosts[partition.primary].rack
            for partition in state.partitions
            if share_rack(hosts[partition.primary], hosts[partition.replica])
        }
    )
    return [[host.name for host in state.hosts if host.rack == rack] for rack in racks]
