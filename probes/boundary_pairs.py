"""Which hosts send to each other when groups are measured: pairs across the boundaries of groups.

The ends of the flows are spread over the other groups, and over the parts of each group, so that they do not meet on
links of other tiers.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Pair = tuple[int, int]
HostGroup = list[int]


@dataclass(frozen=True)
class TierGroups:
    """Groups of one tier: indices of hosts near each other.

    ``family_of``: the family of each group, a group of the tier above; None when all are one. ``part_of``: the part of
    its group that a host is in, a group of the tier below; a host that is not in it is a part by itself. ``measured``:
    hosts whose groups are measured; None for all. ``known_gbps``: what others carry, by their first host and ``out`` or
    ``in``.
    """

    groups: list[HostGroup]
    family_of: Sequence[int] | None = None
    part_of: Mapping[int, int] = field(default_factory=dict)
    measured: frozenset[int] | None = None
    known_gbps: Mapping[tuple[int, str], float] = field(default_factory=dict)

    def part(self, host: int) -> int:
        """Return the part of a host; negative for one that is a part by itself."""
        return self.part_of.get(host, -1 - host)


def pairs_between(
    tier: TierGroups, groups: list[HostGroup], flows: int, rng: random.Random, fewer: int = 0
) -> list[Pair]:
    """Return disjoint pairs of hosts of different groups, ``flows`` of each group where it has and finds so many.

    :param fewer: which of the largest groups has one less where not all hosts can have a partner.
    """
    waiting = [_spread(tier, group, rng)[:flows] for group in groups]
    if sum(map(len, waiting)) % 2 and waiting:
        largest = [hosts for hosts in waiting if len(hosts) == max(map(len, waiting))]
        largest[fewer % len(largest)].pop()
    met, pairs = Counter[frozenset[int]](), list[Pair]()
    while True:
        # The largest two of what is left, so that as few as possible remain; among equals those that met least.
        order = sorted((k for k in range(len(groups)) if waiting[k]), key=lambda k: (-len(waiting[k]), rng.random()))
        if len(order) < 2:
            return pairs
        first = order[0]
        second = min(order[1:], key=lambda k: (-len(waiting[k]), met[frozenset((first, k))], rng.random()))
        met[frozenset((first, second))] += 1
        pairs.append((waiting[first].pop(0), waiting[second].pop(0)))


def pairs_across(
    tier: TierGroups,
    group: HostGroup,
    far_groups: list[HostGroup],
    flows: int,
    rng: random.Random,
    needs: Sequence[float] = (),
) -> list[Pair]:
    """Return disjoint (near, far) pairs across the boundary of one group.

    :param needs: how many flows fill the link of each far group: the first ones are filled first. None, or 0:
        all groups have as many.
    """
    columns = [_spread(tier, other, rng) for other in far_groups]
    if not any(needs):
        rng.shuffle(columns)
    ranked = sorted(
        (k >= need, *((place, k) if k < need else (k, place)), host)
        for place, (column, need) in enumerate(zip(columns, needs or [0.0] * len(columns), strict=True))
        for k, host in enumerate(column)
    )
    return list(zip(_spread(tier, group, rng)[:flows], [host for *_, host in ranked], strict=False))


def _spread(tier: TierGroups, group: HostGroup, rng: random.Random) -> HostGroup:
    """Return the hosts of a group in random order, one of each part, then a second one of each, and so on."""
    taken = Counter[int]()
    places = list[tuple[int, int, int]]()
    for host in rng.sample(group, len(group)):
        places.append((taken[tier.part(host)], len(places), host))
        taken[tier.part(host)] += 1
    return [host for _, _, host in sorted(places)]
