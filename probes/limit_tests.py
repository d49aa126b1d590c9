"""Tests of what limits a group: its own link, or those of the groups that it sends to and receives from.

A group that has sent to narrower ones has carried what their links carry. It gets no more from others that have carried
far more together only where its own link is full.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from probes.boundary_pairs import HostGroup
from probes.group_runs import MIN_GROWTH, WAYS, LinkCapacity, Side

_MIN_SLACK = 1.8  # of what the others carry to what the group carries that is tested with them
Capacities = Mapping[Side, LinkCapacity]  # those that are known


@dataclass(frozen=True)
class LimitTest:
    """A group that sends to others, and receives from them: ``flows`` pairs, where there are so many."""

    group: HostGroup
    far_groups: list[HostGroup]
    flows: int


def may_gain(group: HostGroup, others: Sequence[HostGroup], capacities: Capacities) -> bool:
    """Return whether a group may carry more with partners of other groups, or with more of them."""
    possible = min(len(group), sum(map(len, others)))
    measured = [capacities[side] for way in WAYS if (side := (group[0], way)) in capacities]
    one_flow = median(way.one_flow for way in capacities.values()) if capacities else 0.0
    return len(others) > 1 and any(MIN_GROWTH * way.gbps < possible * max(one_flow, way.one_flow) for way in measured)


def carried(capacities: Capacities, first: int, way: str) -> float:
    """Return what a group is known to carry, Gbit/s; 0 where nothing is."""
    return capacities[first, way].gbps if (first, way) in capacities else 0.0


def flows_to_fill(first: int, group: HostGroup, capacities: Capacities) -> float:
    """Return how many flows of a group fill the slower way of the link of the group of that first host; 0 where one of
    both is not known."""
    one_flow = max((capacities[side].one_flow for way in WAYS if (side := (group[0], way)) in capacities), default=0.0)
    return min(carried(capacities, first, way) for way in WAYS) / one_flow if one_flow else 0.0


def limit_tests(
    pending: Sequence[HostGroup], families: Sequence[Sequence[HostGroup]], capacities: Capacities
) -> list[LimitTest]:
    """Return tests that can run at once, at least one: no group is in two of them.

    A group is tested with others of its family as far as they suffice; links above the families may be the limit of a
    test across them, so that no two such tests have a family in common.
    """
    family_of = {group[0]: number for number, family in enumerate(families) for group in family}
    groups = [group for family in families for group in family]
    least = {group[0]: min(carried(capacities, group[0], way) for way in WAYS) for group in groups}
    tests, used, crossed = list[LimitTest](), set[int](), set[int]()
    for group in sorted(pending, key=lambda group: least[group[0]]):
        first, far, suffices = group[0], list[HostGroup](), False
        free = [other for other in groups if other[0] not in used and other is not group]
        for other in sorted(free, key=lambda other: (family_of[other[0]] != family_of[first], -least[other[0]])):
            far.append(other)
            if suffices := _suffice(group, far, capacities):
                break
        if first in used or (tests and not suffices):
            continue
        across = {family_of[other[0]] for other in (group, *far)}
        if len(across) > 1:
            if not across.isdisjoint(crossed):
                continue
            crossed |= across
        used |= {other[0] for other in (group, *far)}
        # Across families all hosts send, so that those of its own family are sure to be full.
        tests.append(LimitTest(group, far, len(group) if len(across) > 1 else 2 * _flows(group, capacities)))
    return tests


def _flows(group: HostGroup, capacities: Capacities) -> int:
    return max(capacities[side].flows for way in WAYS if (side := (group[0], way)) in capacities)


def _suffice(group: HostGroup, far: Sequence[HostGroup], capacities: Capacities) -> bool:
    """Return whether groups carry far more than one does, both ways, and have hosts for all its flows."""
    return sum(map(len, far)) >= min(len(group), 2 * _flows(group, capacities)) and all(
        sum(carried(capacities, other[0], far_way) for other in far) >= _MIN_SLACK * carried(capacities, group[0], way)
        for way, far_way in zip(WAYS, reversed(WAYS), strict=True)
    )
