"""Shards of the input data: whose they are, whose they were, and who has them in memory (Harlap thesis, 4.2.3).

Hosts by their number; ``slots`` maps those that may work to the workers that each has.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Loading:
    """Shard under way into a host's memory; ``ticket``: of the order to load. ``ahead``: for later, nobody waits."""

    ticket: int
    ahead: bool


@dataclass(frozen=True)
class Shard:
    """Shard of the input data.

    ``owner``: works on it, or will once it is loaded. ``previous``: who did before and still has it, the latest last.
    ``loaded``: who has it in memory; ``loading``: who soon will. ``next_owner``: who works on it once it is loaded
    there; the owner does until then.
    """

    owner: int
    previous: tuple[int, ...] = ()
    loaded: frozenset[int] = frozenset()
    loading: Mapping[int, Loading] = field(default_factory=dict)
    next_owner: int | None = None

    @property
    def near(self) -> set[int]:
        """Return the hosts that have it or soon will."""
        return {*self.loaded, *self.loading}


Shards = tuple[Shard, ...]


def proportions(number: int, slots: Mapping[int, int], held: Mapping[int, int]) -> dict[int, int]:
    """Return how many shards each host is due, in proportion to its slots, off by less than one.

    The odd shards go to the hosts that are due the most of one, then to those that hold most.
    """
    total = sum(slots.values())
    due = {host: number * count // total for host, count in slots.items()}
    rest = sorted(slots, key=lambda host: (-(number * slots[host] % total), -held.get(host, 0), host))
    for host in rest[: number - sum(due.values())]:
        due[host] += 1
    return due


def quickest(number: int, speeds: Mapping[int, float], held: Mapping[int, int]) -> dict[int, int]:
    """Return how many shards each host is due for all to be done soonest, where hosts have speeds.

    Each shard in turn goes to the host that would be through with it first, which makes the longest time as short as
    can be. Every host gets one, if there are so many: or its speed would never be measured again. Of two that are alike
    the one is due more that holds more.
    """
    due = {host: int(number >= len(speeds)) for host in sorted(speeds)}

    def after_next(host: int) -> tuple[float, bool, int]:
        return (due[host] + 1) / speeds[host], due[host] >= held.get(host, 0), host

    queue = [after_next(host) for host in due]
    heapq.heapify(queue)
    for _ in range(number - sum(due.values())):
        host = queue[0][2]
        due[host] += 1
        heapq.heapreplace(queue, after_next(host))
    return due


def first_assignment(number: int, slots: Mapping[int, int]) -> Shards:
    """Assign all shards for the first time, each host a run of them (they are likely to lie together in a file)."""
    due = proportions(number, slots, {})
    return tuple(Shard(host) for host in sorted(due) for _ in range(due[host]))


def without(shards: Shards, lost: Collection[int], slots: Mapping[int, int]) -> Shards:
    """Reassign the shards of hosts that are gone.

    First choice is the latest previous owner that is still there. Else a host that has the shard in memory, else one
    that is loading it, else the host with the least to do, which must load it.
    """
    shards = tuple(_forget(shard, lost) for shard in shards)
    held = Counter(shard.owner for shard in shards)
    results = []
    for shard in shards:
        if shard.owner in lost:
            next_owner = _successor(shard, slots, held)
            held[next_owner] += 1
            previous = tuple(host for host in shard.previous if host != next_owner)
            shard = replace(shard, owner=next_owner, previous=previous, next_owner=None)
        results.append(shard)
    return tuple(results)


def _forget(shard: Shard, lost: Collection[int]) -> Shard:
    if not ({*shard.previous, *shard.near, shard.next_owner} & set(lost)):
        return shard
    return replace(
        shard,
        previous=tuple(host for host in shard.previous if host not in lost),
        loaded=shard.loaded - frozenset(lost),
        loading={host: loading for host, loading in shard.loading.items() if host not in lost},
        next_owner=None if shard.next_owner in lost else shard.next_owner,
    )


def _successor(shard: Shard, slots: Mapping[int, int], held: Mapping[int, int]) -> int:
    for host in reversed(shard.previous):
        if host in slots and host in shard.loaded:
            return host
    for owners in (shard.loaded, shard.loading, slots):
        if able := [host for host in owners if host in slots]:
            return min(able, key=lambda host: (held[host] / slots[host], host))
    raise AssertionError("shards without anybody who works")


def rebalanced(shards: Shards, slots: Mapping[int, int], *, by_speed: bool = False) -> Shards:
    """Name next owners so that every host gets its share and the fewest shards change hands. ``by_speed``: ``slots``
    are speeds, and shares those of :func:`quickest`.

    Among these, shards that need not be loaded come first. An owner that is not among ``slots`` gives up all.
    """
    now = [_bound_for(shard, slots) for shard in shards]
    held = Counter(host for host in now if host is not None)
    due = (quickest if by_speed else proportions)(len(shards), slots, held)
    room = {host: due[host] - held[host] for host in slots}
    # Shards that nobody may keep come first; of a host that has too many, those first that it has not loaded yet.
    order = sorted(range(len(now)), key=lambda i: (now[i] is not None, now[i] in shards[i].loaded, -i))
    for has_it in (lambda shard: shard.loaded, lambda shard: shard.loading, lambda shard: slots):
        for index in order:
            giver, shard = now[index], shards[index]
            if giver is not None and room[giver] >= 0:
                continue
            if able := [host for host in has_it(shard) if room.get(host, 0) > 0]:
                last = {host: place for place, host in enumerate(shard.previous)}
                to = max(able, key=lambda host: (last.get(host, -1), room[host], -host))
                now[index], room[to] = to, room[to] - 1
                if giver is not None:
                    room[giver] += 1
    assert not any(room.values())
    return tuple(
        shard
        if shard.next_owner == (next_owner := None if to == shard.owner else to)
        else replace(shard, next_owner=next_owner)
        for shard, to in zip(shards, now, strict=True)
    )


def _bound_for(shard: Shard, slots: Mapping[int, int]) -> int | None:
    if shard.next_owner in slots:
        return shard.next_owner
    return shard.owner if shard.owner in slots else None


def taken_over(shards: Shards, able: Collection[int]) -> Shards:
    """Make next owners the owners of shards that they have loaded and are ``able`` to work on.

    So it is with shards that the owner has not even begun to load. The former owner becomes a previous owner.
    """
    return tuple(
        _taken(shard)
        if shard.next_owner in able and (shard.next_owner in shard.loaded or shard.owner not in shard.near)
        else shard
        for shard in shards
    )


def _taken(shard: Shard) -> Shard:
    assert shard.next_owner is not None
    previous = tuple(host for host in shard.previous if host not in (shard.next_owner, shard.owner))
    if shard.owner in shard.loaded:
        previous += (shard.owner,)
    return replace(shard, owner=shard.next_owner, previous=previous, next_owner=None)


def with_homes(shards: Shards, homes: Sequence[int]) -> Shards:
    """Put a reliable host at the bottom of every shard's stack, so that a previous owner always exists (Harlap thesis,
    4.2.3). It loads the shard before it is needed."""
    held = Counter(host for shard in shards for host in shard.near if host in homes)
    results = []
    for shard in shards:
        if not {*shard.near, shard.owner, shard.next_owner} & set(homes):
            home = min(homes, key=lambda host: (held[host], host))
            held[home] += 1
            shard = replace(shard, previous=(home, *shard.previous))
        results.append(shard)
    return tuple(results)


def spares(shards: Shards, host: int, number: int, transient: Collection[int]) -> tuple[int, ...]:
    """Return shards that a newcomer loads beside its share, so that it can take over from whoever leaves (Figure 4.4:
    it loads twice what it works on): those that the fewest transient hosts have, then its givers', of which it has
    some."""
    givers = {shard.owner for shard in shards if shard.next_owner == host}
    able = [i for i, shard in enumerate(shards) if host not in shard.near and shard.next_owner != host]

    def rank(index: int) -> tuple[int, bool, int]:
        shard = shards[index]
        near = {*shard.near, shard.owner} if shard.next_owner is None else {*shard.near, shard.owner, shard.next_owner}
        return len(near & set(transient)), shard.owner not in givers, index

    return tuple(sorted(able, key=rank)[:number])


def to_load(shards: Shards) -> dict[tuple[int, bool], tuple[int, ...]]:
    """Return what hosts have to load and are not loading as urgently yet, by host and whether it is ``ahead`` of need:
    shards that they own or will, and those at the bottom of whose stack they are."""
    results: dict[tuple[int, bool], list[int]] = {}
    for index, shard in enumerate(shards):
        for host in dict.fromkeys((shard.owner, shard.next_owner)):
            if host is None or host in shard.loaded:
                continue
            if host not in shard.loading or shard.loading[host].ahead:
                results.setdefault((host, False), []).append(index)
        for host in shard.previous:
            if host not in shard.near and host != shard.next_owner:
                results.setdefault((host, True), []).append(index)
    return {key: tuple(results[key]) for key in sorted(results)}


def ordered(shards: Shards, host: int, which: Iterable[int], loading: Loading) -> Shards:
    """Note that the host was ordered to load these."""
    chosen = set(which)
    return tuple(
        replace(shard, loading={**shard.loading, host: loading}) if index in chosen else shard
        for index, shard in enumerate(shards)
    )


def arrived(shards: Shards, host: int, ticket: int) -> Shards:
    """Note that the host has loaded what that order named."""
    return tuple(
        replace(
            shard,
            loaded=shard.loaded | {host},
            loading={other: loading for other, loading in shard.loading.items() if other != host},
        )
        if host in shard.loading and shard.loading[host].ticket == ticket
        else shard
        for shard in shards
    )


def worked_on(shards: Shards) -> dict[int, tuple[int, ...]]:
    """Return what each host works on: shards that it owns and has in memory."""
    results: dict[int, list[int]] = {}
    for index, shard in enumerate(shards):
        if shard.owner in shard.loaded:
            results.setdefault(shard.owner, []).append(index)
    return {host: tuple(results[host]) for host in sorted(results)}


def unready(shards: Shards, host: int) -> bool:
    """Return whether the host still has to load something before it can do its share."""
    return any(host in (shard.next_owner, shard.owner) and host not in shard.loaded for shard in shards)
