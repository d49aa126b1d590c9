"""Which updates of an ordered batch are added up on the way, and where (M 5.2, Algorithm 3).

The first updates go straight to the server; those that follow form groups, each added up by an aggregator while the
server receives what comes before. Three things differ from the paper. The first group has until the server's way in is
free, not until time 0: as printed, groups have one member each when the server is busy. A group is closed only when it
has a member, and the last takes all that is left. Aggregators are those with the most free capacity, not random ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from plink.model.transfers.arbiter import Grouper, Groups
from plink.model.transfers.free_capacity import FreeCapacity
from plink.model.transfers.ordering import WaitingUpdate

_EXHAUSTIVE_MAX_UPDATES = 32  # of larger batches, not every number of straight updates is tried but so many
_LATE = 1 + 1e-9


@dataclass(frozen=True)
class Aggregator:
    """The ways of a host that can add updates up. What its own workers send it takes no way."""

    way_out: int
    way_in: int


@dataclass(frozen=True)
class AggregationGroup:
    """Updates that travel to the server as one: positions in the ordered batch, rising."""

    aggregator: Aggregator
    members: tuple[int, ...]


@dataclass(frozen=True)
class Grouping:
    """The first ``straight`` updates go straight to the server, then the groups come in this order. ``end_s``: when the
    last of all has arrived."""

    straight: int
    groups: tuple[AggregationGroup, ...]
    end_s: float


def best_first(
    aggregators: Sequence[Aggregator], free: FreeCapacity, size_bytes: float, ready_s: float
) -> list[Aggregator]:
    """Return aggregators by how soon both of their ways could carry so many bytes."""
    return sorted(aggregators, key=lambda each: free.arrival(each.way_out, each.way_in, size_bytes, ready_s))


def grouped(
    updates: Sequence[WaitingUpdate], free: FreeCapacity, way_in: int, aggregators: Sequence[Aggregator], ready_s: float
) -> Grouping:
    """Return the groups with which an ordered batch has arrived at the server of ``way_in`` soonest.

    Each aggregator adds up one group at most, the first ones first. A sum is as large as the largest update in it.
    Sending all straight is always among the possibilities, so the end is never later than without aggregators. Of equal
    ends, the one with more straight updates wins.
    """
    number = len(updates)
    prefix, end_s = [(free, ready_s)], ready_s
    for update in updates:
        reserved, arrival_s = free.reserve(update.way_out, way_in, update.size_bytes, ready_s)
        free, end_s = reserved, max(end_s, arrival_s)
        prefix.append((free, end_s))
    best = Grouping(number, (), end_s)
    if not aggregators:
        return best
    busy_s = prefix[0][0].first_free_s(way_in, ready_s)

    def attempt(straight: int) -> None:
        nonlocal best
        free, end_s = prefix[straight]
        if end_s < best.end_s:  # else it cannot be better
            for choices in (1,) if step > 1 else (1, len(aggregators)):
                network = free, way_in, ready_s, max(end_s, busy_s)
                result = _groups(updates, straight, network, aggregators, choices)
                if result.end_s * _LATE < best.end_s:
                    best = result

    step = 1 + number // _EXHAUSTIVE_MAX_UPDATES
    for straight in range(number - 1, -1, -step):
        attempt(straight)
    stride = step
    while stride > 1:
        stride //= 2
        around = best.straight
        for straight in (around - stride, around + stride):
            if 0 <= straight < number:
                attempt(straight)
    return best


def _groups(
    updates: Sequence[WaitingUpdate],
    straight: int,
    network: tuple[FreeCapacity, int, float, float],
    aggregators: Sequence[Aggregator],
    choices: int,
) -> Grouping:
    """The groups of those that do not go straight, each as large as can be added up while the server is busy, by that
    one of the next ``choices`` aggregators which adds up most."""
    free, way_in, ready_s, busy_until_s = network
    unused, groups, first = list(aggregators), list[AggregationGroup](), straight

    def group(aggregator: Aggregator) -> tuple[int, float, FreeCapacity]:
        """Where the largest group through an aggregator would end in the batch, when it has arrived, what is left."""
        left, added_s, last = free, ready_s, first
        while last < len(updates):
            update, reserved, arrival_s = updates[last], left, ready_s
            if update.way_out != aggregator.way_out:
                reserved, arrival_s = left.reserve(update.way_out, aggregator.way_in, update.size_bytes, ready_s)
            if last > first and len(unused) > 1 and arrival_s > busy_until_s * _LATE:
                break
            left, added_s, last = reserved, max(added_s, arrival_s), last + 1
        size_bytes = max(update.size_bytes for update in updates[first:last])
        left, end_s = left.reserve(aggregator.way_out, way_in, size_bytes, added_s)
        return last, end_s, left

    while first < len(updates):
        results = [(aggregator, *group(aggregator)) for aggregator in unused[:choices]]
        aggregator, last, end_s, free = min(results, key=lambda result: (-result[1], result[2]))
        unused.remove(aggregator)
        groups.append(AggregationGroup(aggregator, tuple(range(first, last))))
        busy_until_s, first = max(busy_until_s, end_s), last
    return Grouping(straight, tuple(groups), busy_until_s)


def through(number: int) -> Grouper:
    """Return how an arbiter has updates added up on the way, by so many aggregators at once at most."""

    def group(updates: Sequence[WaitingUpdate], free: FreeCapacity, size_bytes: float, ready_s: float) -> Groups:
        hosts, server = len(free.ways) // 2, len(free.ways) - 1
        chosen = best_first([Aggregator(host, hosts + host) for host in range(hosts)], free, size_bytes, ready_s)
        result = grouped(updates, free, server, chosen[:number], ready_s)
        return result.straight, [(each.aggregator.way_out, each.members) for each in result.groups]

    return group
