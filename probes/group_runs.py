"""Runs of flows of groups of hosts, what each group carried, and tests of what limits it.

The limit is its own link, or those of the groups that it sends to and receives from. A group that has sent to narrower
ones has carried what their links carry. It gets no more from others that have carried far more together only where its
own link is full.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from probes.boundary_pairs import HostGroup, Pair
from probes.methods import FlowLimits, Listening, listen_for_flows, run_flows
from probes.scheduler import ProbeTask, RequestBatches, TaskFailed
from probes.session import ProbeSession

_MIN_SLACK = 1.8  # of what the others carry to what the group carries that is tested with them
MIN_GROWTH = 1.1  # of a sum: with less it is the same
STEADY_SHARE = 0.85  # of the best run: repeats with less had other traffic beside them
WAYS = ("out", "in")
_MIN_FLOW_SHARE = 0.8  # of the rate of a flow alone: flows with more are limited by their hosts

Side = tuple[int, str]  # the first host of a group, and the way


@dataclass(frozen=True)
class LinkCapacity:
    """Capacity of one direction of one group's boundary.

    ``gbps``: the median of the runs with the number of flows that filled the link, or the best where one had far less;
    ``low`` and ``high``: their range. ``limited_by``: ``link``, or ``hosts`` when the sum grew to the end (the link
    then carries at least this much). ``one_flow``: the rate of one flow alone.
    """

    gbps: float
    low: float
    high: float
    flows: int
    limited_by: str
    one_flow: float


@dataclass(frozen=True)
class FlowRun:
    """Total rates of groups in one run, Gbit/s, and the number of their flows, by (first host, way)."""

    totals: dict[Side, float]
    flows: dict[Side, int]


class GroupRuns:
    """Runs of groups at the same time, and why flows failed."""

    def __init__(self, session: ProbeSession, groups: Sequence[HostGroup], seconds: float) -> None:
        self._session, self._seconds = session, seconds
        self._group_of = {host: group[0] for group in groups for host in group}
        self.runs = list[FlowRun]()
        self.errors = dict[int, str]()  # by the first host of a group

    def add(self, flows: list[Pair]) -> FlowRun:
        """Run (source, sink) flows. A group of which one flow failed has no total in this run."""
        rates, errors = flow_rates(self._session, flows, self._seconds)
        totals, counts, failed = dict[Side, float](), dict[Side, int](), set[Side]()
        for flow in flows:
            for host, way in zip(flow, WAYS, strict=True):
                if host not in self._group_of:
                    continue
                side = (self._group_of[host], way)
                counts[side] = counts.get(side, 0) + 1
                totals[side] = totals.get(side, 0.0) + rates.get(flow, 0.0)
                if flow in errors:
                    failed.add(side)
                    self.errors[side[0]] = errors[flow]
        self.runs.append(FlowRun({side: rate for side, rate in totals.items() if side not in failed}, counts))
        return self.runs[-1]

    def merge(self, other: "GroupRuns") -> None:
        """Add the runs of another search; of each group and way only those count in which it carried more."""
        before, after = self.capacities(), other.capacities()
        for side, capacity in after.items():
            if side in before and capacity.gbps <= before[side].gbps:
                for run in other.runs:
                    run.totals.pop(side, None)
            else:
                self.supersede(side)
        self.runs += other.runs
        self.errors |= other.errors

    def supersede(self, side: Side) -> None:
        """Forget what several flows carried, for something else was their limit."""
        for run in self.runs:
            if run.flows.get(side, 0) > 1:
                run.totals.pop(side, None)

    def samples(self, side: Side) -> list[tuple[int, float]]:
        """Return (flows, total) of each run that has one of this group and way."""
        return [(run.flows[side], run.totals[side]) for run in self.runs if side in run.totals]

    def capacities(self) -> dict[Side, LinkCapacity]:
        """Return the capacity of each group and way that runs show."""
        sides = {side for run in self.runs for side in run.totals}
        return {side: _capacity(self.samples(side)) for side in sides}


def _filling(samples: list[tuple[int, float]]) -> tuple[int, list[float]]:
    """Return the number of flows with the largest total, and the totals of all runs with it, lowest first."""
    by_flows = dict[int, list[float]]()
    for flows, total in samples:
        by_flows.setdefault(flows, []).append(total)
    # A number that was repeated counts for more than one that was best once by a little.
    repeated = {flows: totals for flows, totals in by_flows.items() if len(totals) > 2} or by_flows
    top = max(max(totals) for totals in by_flows.values())
    near = [flows for flows, totals in repeated.items() if max(totals) * MIN_GROWTH >= top] or list(by_flows)
    flows = max(near, key=lambda number: median(by_flows[number]))
    return flows, sorted(by_flows[flows])


def is_unsteady(samples: list[tuple[int, float]]) -> bool:
    """Return whether a run of those that filled the link had far less than the best."""
    totals = _filling(samples)[1] if samples else [1.0]
    return totals[0] < STEADY_SHARE * totals[-1]


def _capacity(samples: list[tuple[int, float]]) -> LinkCapacity:
    """Return the capacity that runs show."""
    flows, totals = _filling(samples)
    one_flow = max(total / number for number, total in samples)  # alone it may have had a slow partner
    gbps = totals[len(totals) // 2]
    if gbps < STEADY_SHARE * totals[-1]:
        gbps = totals[-1]  # other traffic takes from a link, and nothing adds to it
    most = max(number for number, _ in samples)
    is_full = max(total for number, total in samples if number == most) < _MIN_FLOW_SHARE * most * one_flow
    return LinkCapacity(gbps, totals[0], totals[-1], flows, "link" if is_full else "hosts", one_flow)


def flow_rates(session: ProbeSession, flows: list[Pair], seconds: float) -> tuple[dict[Pair, float], dict[Pair, str]]:
    """Run (source, sink) flows at the same time, and return the rates, Gbit/s, and the reasons of those without one.

    No flow begins before all receivers listen: what a link carries is the sum of flows only while all of them last. An
    agent is late by seconds where a flow before failed, for it waited for the other end. Hosts are in one pair each;
    both ways of a pair may be in ``flows``.
    """
    rates, errors = dict[Pair, float](), dict[Pair, str]()
    sources = dict[Pair, list[int]]()
    for a, b in flows:
        sources.setdefault((min(a, b), max(a, b)), []).append(a)

    listening = dict[Pair, Listening]()

    def listen(pair: Pair) -> RequestBatches:
        listening[pair] = yield from listen_for_flows(pair, sources[pair])

    def send(pair: Pair) -> RequestBatches:
        limits = FlowLimits(seconds, None)
        results = yield from run_flows(session.context, pair, sources[pair], limits, listening=listening[pair])
        rates.update({(source, sink): rate for source, sink, rate in results})

    def task(pair: Pair, work: RequestBatches) -> ProbeTask:
        def fail(reason: str) -> None:
            errors.update({(sender, sum(pair) - sender): reason for sender in sources[pair]})

        def batches() -> RequestBatches:
            try:
                yield from work
            except TaskFailed as error:
                fail(str(error))

        return ProbeTask(pair, batches(), fail)

    # Flows wait for the network, not for cores.
    session.scheduler.run([task(pair, listen(pair)) for pair in sources], cores_per_task=0)
    session.scheduler.run([task(pair, send(pair)) for pair in listening], cores_per_task=0)
    return rates, errors


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
