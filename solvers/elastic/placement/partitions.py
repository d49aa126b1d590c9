"""Partitions of the parameters: assigned again and again, never split anew (Harlap thesis, 4.2.3)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from solvers.elastic.member import Member
from solvers.elastic.placement.stages import Stage


@dataclass(frozen=True)
class Move:
    """State under way to host ``to``, in term ``term``.

    ``drain``: to the replica, which needs only what has not been pushed yet, because the primary is to leave.
    """

    to: int
    term: int
    drain: bool = False


@dataclass(frozen=True)
class PartitionPlacement:
    """Placement of a partition. Hosts by their number.

    ``primary`` serves it: a ParamServ where it is the ``replica`` itself, an ActivePS elsewhere. ``term``: of the move
    that made it so. ``clock``: the replica has all updates up to it. ``safe``: the replica holds a copy at the clock
    that all replicas have in common. ``waiting``: the primary's state is still under way from the replica. ``move``:
    who serves it when its copy is complete; the primary goes on until then. ``copy``: the same of the replica.
    """

    primary: int
    term: int
    replica: int
    clock: int
    safe: bool = True
    waiting: bool = False
    move: Move | None = None
    copy: Move | None = None


def partition_count(most_hosts: int) -> int:
    """Return half of the most hosts that the job can ever have (Harlap thesis, 4.2.3), one at least."""
    return max(1, most_hosts // 2)


def serving(stage: Stage, hosts: Iterable[Member], partitions: int) -> tuple[int, ...]:
    """Return the hosts that serve in a stage.

    These are all reliable ones, or half of the transient ones (rounded up): those that have been running longest, and
    never more than there are partitions.
    """
    members = sorted(hosts, key=lambda host: host.number)
    if stage is Stage.PARAMETER_SERVERS:
        return tuple(host.number for host in members if host.reliable)
    transient = [host.number for host in members if not host.reliable]
    return tuple(transient[: min(partitions, (len(transient) + 1) // 2)])


def balanced(current: Sequence[int | None], servers: Sequence[int]) -> tuple[int, ...]:
    """Assign every entry a server, their numbers of entries within one of each other.

    No other such assignment changes fewer of ``current``.
    """
    held = Counter(primary for primary in current if primary in servers)
    least, more = divmod(len(current), len(servers))
    # The odd ones stay with those that have most: each then keeps min(held, quota), which is the most that can stay.
    ranked = sorted(servers, key=lambda server: (-held[server], server))
    room = {server: least + (place < more) for place, server in enumerate(ranked)}
    staying: list[int | None] = []
    for primary in current:
        stays = primary is not None and room.get(primary, 0) > 0
        staying.append(primary if stays else None)
        if stays and primary is not None:
            room[primary] -= 1
    primaries = []
    for primary in staying:
        if primary is None:
            primary = max(room, key=lambda server: (room[server], -server))
            room[primary] -= 1
        primaries.append(primary)
    return tuple(primaries)


def share_rack(first: Member, second: Member) -> bool:
    """Return whether two hosts are known to be in one rack."""
    return bool(first.rack) and first.rack == second.rack


def place_replicas(
    current: Sequence[int | None], primaries: Sequence[int], reliable: Sequence[Member], hosts: Mapping[int, Member]
) -> tuple[int, ...]:
    """Assign each partition a reliable host, outside the rack of its primary where there is one.

    A rack that is lost at once must not take both. Numbers are as even as that allows, and changes few. Where no rack
    is in the way this is :func:`balanced`.

    :param current: replica of each partition, None for none yet. :param primaries: who is to serve each partition.
    :param hosts: all of them, by number.
    """
    numbers = [host.number for host in reliable]
    allowed = [
        [host.number for host in reliable if not share_rack(host, hosts[primary])] or numbers for primary in primaries
    ]
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
