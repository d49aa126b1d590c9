"""Capacity of the links that groups of hosts share, into and out of each group.

A pairwise test does not see an oversubscribed uplink: alone, a pair across it gets its hosts' full rate. So disjoint
pairs send across the boundaries of groups at once, more and more of them, until their sums stop growing.

All groups of a tier, both ways, are measured at once. Flows of a group go to others of its own family where it has one
(racks of the same pod), so that they do not meet on links of a higher tier. What limits a group then may be its own
link, or those of the groups that it sends to. So each group sends more flows to, and receives more from, groups that
have carried far more together; those tests run at the same time, as far as their groups differ. A group that gets no
more is limited by its own link. One that gets more is tested with still more groups, in the end with all of them.

Then a usual group and the slow ones are measured by themselves, one way at a time. If this brings a usual group more,
the flows did disturb each other, and all groups are measured by themselves.
"""

import itertools
import logging
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from plink.model.network_file import SharedLinkEntry
from plink.model.units import format_gbps, numbered
from probes.boundary_pairs import HostGroup, Pair, TierGroups, pairs_across, pairs_between
from probes.group_runs import (
    MIN_GROWTH,
    STEADY_SHARE,
    WAYS,
    Capacities,
    FlowRun,
    GroupRuns,
    LimitTest,
    Side,
    carried,
    flows_to_fill,
    is_unsteady,
    limit_tests,
    may_gain,
)
from probes.session import ProbeSession

_MIN_USUAL_SHARE = 0.8  # of the median of the groups: those with less are measured by themselves
_MIN_GAIN = 1.15  # of a group by itself, or of what the others carry to what it carries: less is noise
_MIN_UNSTEADY_GROWTH = 1.05  # of a group whose runs differ, for it sent to different others
_USUAL_GROUPS = 2  # that show whether flows disturb each other
_MAX_SUSPECTS = 8
_MAX_TEST_ROUNDS = 16  # more than any number of like groups takes
_log = logging.getLogger("plink.probe")


@dataclass(frozen=True)
class SharedLinkSettings:
    """``seconds`` per run; ``repeats`` more runs at the number of flows that filled the link."""

    seconds: float = 0.6
    repeats: int = 2
    seed: int = 0


def shared_links(
    session: ProbeSession,
    tier: TierGroups,
    settings: SharedLinkSettings,
    on_done: Callable[[int, int], None],
    keep_going: Callable[[], bool] = lambda: True,
) -> list[SharedLinkEntry]:
    """Measure the capacity into and out of every group, and return the rows of one tier of ``shared_links``.

    A value that could not be measured is None; the row's ``why`` has the reason. A single group has no boundary and
    gives no rows.

    :param keep_going: called before each run of a search; once False the rows so far are returned.
    """
    families = _families(session, tier)
    groups = [group for family in families for group in family]
    if len(groups) < 2:
        return []
    measured = [group for group in groups if tier.measured is None or not tier.measured.isdisjoint(group)]
    search = _Search(session, tier, settings, random.Random(settings.seed), keep_going, families)
    runs, done = GroupRuns(session, groups, settings.seconds), list[HostGroup]()

    def measure_alone(group: HostGroup) -> None:
        if keep_going() and search.alone(group, runs):
            done.append(group)
            on_done(len(done), len(measured))

    together = [family for family in families if len(families) == 1 or _is_balanced(family)]
    at_once = [group for family in together for group in family if group in measured]
    if len(at_once) > 1:
        if not search.at_once(together, runs):
            return []
        done += at_once
        on_done(len(done), len(measured))
    for group in measured:
        if group not in done:
            measure_alone(group)
    tested = search.test_limits(done, runs)
    if len(at_once) > 1 and search.is_disturbed(done, tested, runs):
        _log.info("flows of several groups disturb each other: each group is measured by itself")
        tested = set()
        for group in done:
            if keep_going() and search.alone(group, runs):
                tested.add(group[0])
    rows = [_row(session, tier, group, groups, runs, tested) for group in sorted(done)]
    for row in rows:
        _log_unsteady(row)
    return rows


def _families(session: ProbeSession, tier: TierGroups) -> list[list[HostGroup]]:
    """Return the families of groups, without hosts that are lost."""
    families: dict[int, list[HostGroup]] = {}
    for group, family in zip(tier.groups, tier.family_of or [0] * len(tier.groups), strict=True):
        families.setdefault(family, []).extend(_remaining(session, [group]))
    return [family for family in families.values() if family]


def _is_balanced(family: list[HostGroup]) -> bool:
    """Return whether each group finds others at least half its size in its family."""
    hosts = sum(map(len, family))
    return all(hosts - len(group) >= len(group) / 2 for group in family)


def _shares(groups: Sequence[HostGroup], capacities: Capacities) -> dict[int, float]:
    """Return what share of the usual capacity a group has, by first host, without those of which a way is unknown."""
    complete = [group[0] for group in groups if all((group[0], way) in capacities for way in WAYS)]
    # The upper median: of two groups that send to each other a slow one makes both slow.
    usual = {
        way: sorted(capacities[first, way].gbps for first in complete)[len(complete) // 2] for way in WAYS if complete
    }
    return {first: min(capacities[first, way].gbps / max(usual[way], 1e-12) for way in WAYS) for first in complete}


@dataclass(frozen=True)
class _Search:
    """Searches for the number of flows that fills links, and tests of what is their limit."""

    session: ProbeSession
    tier: TierGroups
    settings: SharedLinkSettings
    rng: random.Random
    keep_going: Callable[[], bool]
    families: list[list[HostGroup]]

    def at_once(self, families: list[list[HostGroup]], runs: GroupRuns) -> bool:
        """Measure all groups of families at the same time, both ways; return whether that was not stopped."""
        groups = [group for family in families for group in family]
        max_flows = max(
            min(len(group), len(groups_hosts(family)) - len(group)) for family in families for group in family
        )
        run_numbers = itertools.count()

        def flows(number: int) -> list[Pair]:
            run_number, pairs = next(run_numbers), list[Pair]()
            for family in families:
                pairs += pairs_between(self.tier, _remaining(self.session, family), number, self.rng, run_number)
            return _both_ways(pairs)

        return self._saturate(groups, flows, max_flows, runs, len(groups) > 2)

    def test_limits(self, groups: Sequence[HostGroup], runs: GroupRuns) -> set[int]:
        """Test groups with others that carry far more than they do, and add what they carry then to the runs.

        Return the first hosts of the groups that were tested so, or need no test.
        """
        capacities = runs.capacities()
        pending = [group for group in groups if may_gain(group, self._others(group), capacities)]
        tested, gained = {group[0] for group in groups if group not in pending}, set[int]()
        for _ in range(_MAX_TEST_ROUNDS):
            if not pending or not self.keep_going():
                break
            tests = limit_tests(pending, self.families, capacities)
            run, before = self._tested(tests, capacities, runs), capacities
            more = dict[Side, float]()
            for side, total in run.totals.items():
                earlier = before.get(side)
                if earlier is None or total > max(_MIN_UNSTEADY_GROWTH * earlier.gbps, MIN_GROWTH * earlier.low):
                    runs.supersede(side)
                    gained.add(side[0])
                if earlier is None or side[0] in gained or run.flows[side] > earlier.flows:
                    more[side] = total
            runs.runs.append(FlowRun(more, run.flows))
            capacities, finished = runs.capacities(), list[LimitTest]()
            for test in tests:
                others, sides = self._others(test.group), [(test.group[0], way) for way in WAYS]
                with_all = len(test.far_groups) == len(others) and test.flows >= len(test.group)
                grew = any(
                    run.totals.get(side, 0.0) > MIN_GROWTH * before[side].gbps for side in sides if side in before
                )
                if with_all or not grew or not may_gain(test.group, others, capacities):
                    pending.remove(test.group)
                    tested.add(test.group[0])
                    finished.append(test)
            # What a group carried in one test only has no repeats yet.
            repeated = [test for test in finished if test.group[0] in gained]
            for _ in range(self.settings.repeats if repeated else 0):
                if self.keep_going():
                    runs.runs.append(self._tested(repeated, capacities, runs))
            capacities = runs.capacities()
        return tested

    def _tested(self, tests: Sequence[LimitTest], capacities: Capacities, runs: GroupRuns) -> FlowRun:
        """Run tests at once, both ways, and return what the tested groups carried."""
        alone = GroupRuns(self.session, [test.group for test in tests], self.settings.seconds)
        pairs = [self._across(test.group, test.far_groups, test.flows, capacities) for test in tests]
        run = alone.add(_both_ways([*itertools.chain(*pairs)]))
        runs.errors |= alone.errors
        return run

    def is_disturbed(self, groups: Sequence[HostGroup], tested: Collection[int], runs: GroupRuns) -> bool:
        """Return whether usual groups carry more by themselves; if not, measure others that do by themselves.

        :param tested: the first hosts of groups that the others' links do not limit.
        """
        capacities = runs.capacities()
        shares = _shares(groups, capacities)
        complete = sorted((group for group in groups if group[0] in shares), key=lambda group: shares[group[0]])
        usual = sorted((group for group in complete if group[0] in tested), key=lambda group: abs(shares[group[0]] - 1))
        if not usual or not self.keep_going():
            return False
        gaining = [*itertools.takewhile(lambda group: self._gains(group, capacities), usual[:_USUAL_GROUPS])]
        if len(gaining) == len(usual[:_USUAL_GROUPS]):
            return True
        slow = [group for group in complete if shares[group[0]] < _MIN_USUAL_SHARE and group is not usual[0]]
        for group in gaining + slow[:_MAX_SUSPECTS]:
            if self.keep_going() and (group in gaining or self._gains(group, capacities)):
                self.alone(group, runs)
        return False

    def _gains(self, group: HostGroup, capacities: Capacities) -> bool:
        """Return whether a group carries more by itself, one way at a time."""
        for way in WAYS:
            capacity = capacities[group[0], way]
            # More flows than before: what filled the link then may have been the other groups' flows.
            number = len(group) if capacity.limited_by == "hosts" else 2 * capacity.flows
            flows = _one_way(self._across(group, self._others(group), number, capacities), way)
            run = GroupRuns(self.session, [group], self.settings.seconds).add(flows)
            if run.totals.get((group[0], way), 0.0) > _MIN_GAIN * capacity.gbps:
                return True
        return False

    def alone(self, group: HostGroup, runs: GroupRuns) -> bool:
        """Measure one group, one way after the other, while nothing else is sent; return whether nothing stopped it."""
        capacities = runs.capacities()
        for way in WAYS:
            others = self._others(group)
            max_flows = min(len(groups_hosts(side)) for side in (_remaining(self.session, [group]), others))
            if max_flows == 0:
                runs.errors[group[0]] = "one of the two sides has no hosts left"
                continue

            def flows(number: int, way: str = way) -> list[Pair]:
                return _one_way(self._across(group, self._others(group), number, capacities), way)

            one_way = GroupRuns(self.session, [group], self.settings.seconds)
            if not self._saturate([group], flows, max_flows, one_way):
                return False
            runs.merge(one_way)
        return True

    def _others(self, group: HostGroup) -> list[HostGroup]:
        """Return the other groups that have hosts left, those of its family first."""
        families = sorted(self.families, key=lambda family: group not in family)
        return [
            other for other in itertools.chain(*families) if other is not group and _remaining(self.session, [other])
        ]

    def _across(
        self, group: HostGroup, far_groups: Sequence[HostGroup], number: int, capacities: Capacities
    ) -> list[Pair]:
        """Return pairs of a group with others, of which the first are filled first by what they are known to carry."""
        near = _remaining(self.session, [group])
        far = [(other[0], left[0]) for other in far_groups if (left := _remaining(self.session, [other]))]
        if not near or not far:
            return []
        needs = [flows_to_fill(first, group, capacities) for first, _ in far]
        return pairs_across(self.tier, near[0], [left for _, left in far], number, self.rng, needs)

    def _saturate(
        self,
        groups: list[HostGroup],
        flows: Callable[[int], list[Pair]],
        max_flows: int,
        runs: GroupRuns,
        several: bool = False,
    ) -> bool:
        """Run 1, 2, 4, ... flows of each group until no sum grows, then the best number again; False when stopped."""
        best, by_number, number = dict[Side, float](), dict[int, dict[Side, float]](), 1
        while True:
            totals = by_number.setdefault(number, {})
            for again in range(2):
                if not self.keep_going():
                    return False
                run = runs.add(flows(number))
                totals |= {side: max(total, totals.get(side, 0.0)) for side, total in run.totals.items()}
                # One flow says little where its other end is slow; of an odd number of hosts one has no partner.
                if again or not (several if number == 1 else number - 1 in run.flows.values()):
                    break
            if not totals:  # no flow came through; more of them would not, either
                break
            grew = not best or any(total >= MIN_GROWTH * best.get(side, 0.0) for side, total in totals.items())
            best |= {side: max(total, best.get(side, 0.0)) for side, total in totals.items()}
            if not grew or number == max_flows:
                break
            number = min(2 * number, max_flows)
        if not best:
            return True
        best_number = max(by_number, key=lambda number: _share(by_number[number], best))
        repeats = self.settings.repeats
        while repeats > 0 and self.keep_going():
            runs.add(flows(best_number))
            repeats -= 1
        sides = [(group[0], way) for group in groups for way in WAYS]
        if self.keep_going() and any(is_unsteady(runs.samples(side)) for side in sides):
            for _ in range(self.settings.repeats):
                runs.add(flows(best_number))
        return True


def groups_hosts(groups: Sequence[HostGroup]) -> HostGroup:
    """Return the hosts of groups."""
    return [host for group in groups for host in group]


def _share(totals: dict[Side, float], best: dict[Side, float]) -> float:
    """Return the least share of its best that a group has."""
    return min(totals.get(side, 0.0) / max(rate, 1e-12) for side, rate in best.items())


def _both_ways(pairs: Sequence[Pair]) -> list[Pair]:
    return [flow for a, b in pairs for flow in ((a, b), (b, a))]


def _one_way(pairs: Sequence[Pair], way: str) -> list[Pair]:
    return [(a, b) if way == "out" else (b, a) for a, b in pairs]


def _row(
    session: ProbeSession,
    tier: TierGroups,
    group: HostGroup,
    groups: Sequence[HostGroup],
    runs: GroupRuns,
    tested: Collection[int],
) -> SharedLinkEntry:
    """Return the row of a group."""
    names = session.measurements.hosts.names
    figures: dict[str, Any] = {"interval": {}}
    capacities = runs.capacities()
    for way, far_way in zip(WAYS, reversed(WAYS), strict=True):
        capacity = capacities.get((group[0], way))
        key = f"{way}_gbps"
        if capacity is None:
            figures |= {key: None, f"{way}_flows": 0, f"{way}_limited_by": None, f"{way}_one_flow_gbps": None}
            figures["interval"][key] = None
            figures["reason"] = runs.errors.get(group[0], "no pair of hosts was left to measure it")
            continue
        limited_by = capacity.limited_by
        if limited_by == "link":
            others = sum(
                max(carried(capacities, other[0], far_way), tier.known_gbps.get((other[0], far_way), 0.0))
                for other in groups
                if other is not group
            )
            if group[0] not in tested or _MIN_GAIN * capacity.gbps > others:
                limited_by = "others"
        figures |= {key: round(capacity.gbps, 6), f"{way}_flows": capacity.flows, f"{way}_limited_by": limited_by}
        figures[f"{way}_one_flow_gbps"] = round(capacity.one_flow, 6)
        figures["interval"][key] = (round(capacity.low, 6), round(capacity.high, 6))
    return SharedLinkEntry(members=[names[host] for host in group], **figures)


def _log_unsteady(row: SharedLinkEntry) -> None:
    """Say that runs of a group differ by more than noise."""
    for way in WAYS:
        low, high = row.range_gbps(way) or (1.0, 1.0)
        if low < STEADY_SHARE * high:
            span = f"{format_gbps(low)} to {format_gbps(high)}, as if others sent meanwhile; the best counts"
            _log.info(f"{numbered(len(row.members), 'host')} with {row.members[0]}, {way}: {span}")


def _remaining(session: ProbeSession, groups: Sequence[HostGroup]) -> list[HostGroup]:
    remaining = [[host for host in group if host not in session.scheduler.unavailable_hosts] for group in groups]
    return [group for group in remaining if group]
