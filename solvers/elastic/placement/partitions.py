"""Partitions of the parameters: assigned again and again, never split anew (Harlap thesis, 4.2.3)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from solvers.elastic.placement.hosts import Host, Tier
from solvers.elastic.placement.stages import Stage


@dataclass(frozen=True)
class Move:
    """State under way to host ``to``; ``epoch`` tells it from moves before. ``drain``: to the backup, which needs only
    what has not been pushed yet, because the owner is to leave."""

    to: int
    epoch: int
    drain: bool = False


@dataclass(frozen=True)
class Partition:
    """Where a partition is. Hosts by their number.

    ``owner`` serves it: a ParamServ where it is the ``backup`` itself, an ActivePS elsewhere. ``epoch``: of the move
    that made it so. ``clock``: the backup has all updates up to it. ``safe``: the backup holds a copy at the clock that
    all backups have in common. ``waiting``: the owner's state is still under way from the backup. ``move``: who serves
    it when its copy is complete; the owner goes on until then. ``copy``: the same of the backup.
    """

    owner: int
    epoch: int
    backup: int
    clock: int
    safe: bool = True
    waiting: bool = False
    move: Move | None = None
    copy: Move | None = None


def partition_count(most_hosts: int) -> int:
    """Half of the most hosts that the job can ever have (Harlap thesis, 4.2.3), one at least."""
    return max(1, most_hosts // 2)


def serving(stage: Stage, hosts: Iterable[Host], partitions: int) -> tuple[int, ...]:
    """Numbers of the hosts that serve in a stage: all reliable ones, or half of the transient ones (rounded up), those
    that have been running longest, and never more than there are partitions."""
    members = sorted(hosts, key=lambda host: host.number)
    if stage is Stage.PARAMETER_SERVERS:
        return tuple(host.number for host in members if host.tier is Tier.RELIABLE)
    transient = [host.number for host in members if host.tier is Tier.TRANSIENT]
    return tuple(transient[: min(partitions, (len(transient) + 1) // 2)])


def balanced(current: Sequence[int | None], servers: Sequence[int]) -> tuple[int, ...]:
    """Every entry given one of the servers, their numbers of entries within one of each other, and no assignment
    that is so even changes fewer of ``current``."""
    held = Counter(owner for owner in current if owner in servers)
    least, more = divmod(len(current), len(servers))
    # The odd ones stay with those that have most: each then keeps min(held, quota), which is the most that can stay.
    ranked = sorted(servers, key=lambda server: (-held[server], server))
    room = {server: least + (place < more) for place, server in enumerate(ranked)}
    staying: list[int | None] = []
    for owner in current:
        stays = owner is not None and room.get(owner, 0) > 0
        staying.append(owner if stays else None)
        if stays and owner is not None:
            room[owner] -= 1
    owners = []
    for owner in staying:
        if owner is None:
            owner = max(room, key=lambda server: (room[server], -server))
            room[owner] -= 1
        owners.append(owner)
    return tuple(owners)
