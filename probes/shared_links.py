"""Capacity of the links that groups of hosts share, into and out of each group.

A pairwise test does not see an oversubscribed uplink: alone, a pair across it gets its hosts' full rate. So disjoint
pairs send across the boundaries of groups at once, more and more of them, until their sums stop growing.

All groups of a tier, both ways, are measured at once. Flows of a group go to others of its own family where it has one
(racks of the same pod), so that they do not meet on links of a higher tier. Then a usual group and the slow ones are
measured by themselves, one way at a time. If this brings a usual group more, the flows did disturb each other, and all
groups are measured by themselves.
"""

import functools
import itertools
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from probes.boundary_pairs import HostGroup, Pair, TierGroups, pairs_across, pairs_between
from probes.methods import FlowLimits, run_flows
from probes.scheduler import ProbeTask, RequestBatches, TaskFailed
from probes.session import ProbeSession

_MIN_GROWTH = 1.1  # of the sum when flows double: with less the link is full
_MIN_FLOW_SHARE = 0.8  # of the rate of a flow alone: flows with more are limited by their hosts
_MIN_USUAL_SHARE = 0.8  # of the median of the groups: those with less are measured by themselves
_MIN_GAIN = 1.15  # of a group by itself: less is noise
_STEADY_SHARE = 0.85  # of the best run: repeats with less had other traffic beside them
_MAX_SUSPECTS = 8
_SLOW_SHARE = 0.5  # of the median of the groups: with less a group makes those slow that send to it
_WAYS = ("out", "in")
_Rows = dict[int, dict[str, Any]]  # by the first host of a group
_log = logging.getLogger("plink.probe")


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
class SharedLinkSettings:
    """``seconds`` per run; ``repeats`` more runs at the number of flows that filled the link."""

    seconds: float = 0.6
    repeats: int = 2
    seed: int = 0


@dataclass(frozen=True)
class _Run:
    """Total rates of groups in one run, Gbit/s, and the number of their flows, by (first host, way)."""

    totals: dict[tuple[int, str], float]
    flows: dict[tuple[int, str], int]


class _Runs:
    """Runs of groups at the same time, and why flows failed."""

    def __init__(self, session: ProbeSession, groups: list[HostGroup], seconds: float) -> None:
        self._session, self._seconds = session, seconds
        self._group_of = {host: group[0] for group in groups for host in group}
        self.runs = list[_Run]()
        self.errors = dict[int, str]()  # by the first host of a group

    def add(self, flows: list[Pair]) -> _Run:
        """Run (source, sink) flows. A group of which one flow failed has no total in this run."""
        rates, errors = flow_rates(self._session, flows, self._seconds)
        totals, counts, failed = dict[tuple[int, str], float](), dict[tuple[int, str], int](), set[tuple[int, str]]()
        for flow in flows:
            for host, way in zip(flow, _WAYS, strict=True):
                if host not in self._group_of:
                    continue
                side = (self._group_of[host], way)
                counts[side] = counts.get(side, 0) + 1
                totals[side] = totals.get(side, 0.0) + rates.get(flow, 0.0)
                if flow in errors:
                    failed.add(side)
                    self.errors[side[0]] = errors[flow]
        self.runs.append(_Run({side: rate for side, rate in totals.items() if side not in failed}, counts))
        return self.runs[-1]

    def samples(self, side: tuple[int, str]) -> list[tuple[int, float]]:
        """Return (flows, total) of each run that has one of this group and way."""
        return [(run.flows[side], run.totals[side]) for run in self.runs if side in run.totals]


def shared_links(
    session: ProbeSession,
    tier: TierGroups,
    settings: SharedLinkSettings,
    on_done: Callable[[int, int], None],
    keep_going: Callable[[], bool] = lambda: True,
) -> list[dict[str, Any]]:
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
    search = _Search(session, tier, settings, random.Random(settings.seed), keep_going)
    rows: _Rows = {}
    together = [family for family in families if len(families) == 1 or _is_balanced(family)]
    if sum(group in measured for family in together for group in family) > 1:
        rows |= search.at_once(together, measured)
        if not keep_going() and not rows:
            return []
        on_done(len(rows), len(measured))
    for group in measured:
        if group[0] not in rows and keep_going():
            rows |= search.alone(group, [other for other in groups if other is not group])
            on_done(len(rows), len(measured))
    for row in rows.values():
        _log_unsteady(row)
    return [rows[group[0]] for group in sorted(measured) if group[0] in rows]


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


def _shares(rows: _Rows) -> dict[int, float]:
    """Return what share of the usual capacity a group has, by first host, without those of which a way is unknown."""
    complete = {first: row for first, row in rows.items() if all(row[f"{way}_gbps"] is not None for way in _WAYS)}
    # The upper median: of two groups that send to each other a slow one makes both slow.
    usual = {
        way: sorted(row[f"{way}_gbps"] for row in complete.values())[len(complete) // 2] for way in _WAYS if complete
    }
    return {first: min(row[f"{way}_gbps"] / max(usual[way], 1e-12) for way in _WAYS) for first, row in complete.items()}


@dataclass(frozen=True)
class _Search:
    """Searches for the number of flows that fills links. Methods return rows by the first host of their groups."""

    session: ProbeSession
    tier: TierGroups
    settings: SharedLinkSettings
    rng: random.Random
    keep_going: Callable[[], bool]

    def at_once(self, families: list[list[HostGroup]], measured: list[HostGroup]) -> _Rows:
        """Measure all groups of families at the same time, and verify a usual group and slow ones.

        Empty when the flows of the groups disturb each other.
        """
        rows = self._without_slow(families, self._together(families, measured))
        return self._verified(rows, [group for family in families for group in family])

    def _together(self, families: list[list[HostGroup]], measured: list[HostGroup]) -> _Rows:
        """Measure all groups of families at the same time, both ways."""
        groups = [group for family in families for group in family]
        max_flows = max(
            min(len(group), len(groups_hosts(family)) - len(group)) for family in families for group in family
        )
        run_numbers = itertools.count()

        def flows(number: int) -> list[Pair]:
            run_number, pairs = next(run_numbers), list[Pair]()
            for family in families:
                pairs += pairs_between(self.tier, _remaining(self.session, family), number, self.rng, run_number)
            return [flow for a, b in pairs for flow in ((a, b), (b, a))]

        counted = [group for group in groups if group in measured]
        runs = self._saturate(counted, flows, max_flows, len(groups) > 2)
        return {} if runs is None else {group[0]: _row(self.session, group, runs, _WAYS) for group in counted}

    def _without_slow(self, families: list[list[HostGroup]], rows: _Rows) -> _Rows:
        """Measure groups again without slow ones, which those that sent to them waited for; return the larger rows."""
        shares = _shares(rows)
        fast = [[group for group in family if shares.get(group[0], 0.0) >= _SLOW_SHARE] for family in families]
        if fast == families or not self.keep_going():
            return rows
        fast = [family for family in fast if len(family) > 1 and _is_balanced(family)]
        again = self._together(fast, [group for family in fast for group in family if group[0] in rows]) if fast else {}
        return rows | {first: _with_larger(rows[first], row) for first, row in again.items()}

    def _verified(self, rows: _Rows, groups: list[HostGroup]) -> _Rows:
        """Measure a usual group by itself, then slow ones; none is right if the usual one has more by itself."""
        shares = _shares(rows)
        complete = [group for group in groups if group[0] in shares]
        if not complete or not self.keep_going():
            return rows
        usual = min(complete, key=lambda group: abs(shares[group[0]] - 1))
        if self._gains(rows[usual[0]], usual, groups):
            _log.info("flows of several groups disturb each other: each group is measured by itself")
            return {}
        suspects = [group for group in complete if self._is_suspect(rows[group[0]], shares[group[0]], group, groups)]
        for group in sorted(suspects, key=lambda group: shares[group[0]])[:_MAX_SUSPECTS]:
            if group is not usual and self.keep_going() and self._gains(rows[group[0]], group, groups):
                rows = rows | self.alone(group, [other for other in groups if other is not group])
        return rows

    def _is_suspect(self, row: dict[str, Any], share: float, group: HostGroup, groups: list[HostGroup]) -> bool:
        """Return whether a group is slow, or had fewer flows than it can have by itself, and its link is not full."""
        possible = min(len(group), len(groups_hosts(groups)) - len(group))
        return share < _MIN_USUAL_SHARE or any(
            row[f"{way}_limited_by"] == "hosts" and row[f"{way}_flows"] < possible for way in _WAYS
        )

    def _gains(self, row: dict[str, Any], group: HostGroup, groups: list[HostGroup]) -> bool:
        """Return whether a group carries more by itself, one way at a time."""
        others = _remaining(self.session, [other for other in groups if other is not group])
        possible = min(len(group), len(groups_hosts(others)))
        for way in _WAYS:
            # More flows than before: what filled the link then may have been the other groups' flows.
            number = possible if row[f"{way}_limited_by"] == "hosts" else min(possible, 2 * row[f"{way}_flows"])
            flows = self._across(group, others, way, number)
            run = _Runs(self.session, [group], self.settings.seconds).add(flows)
            if run.totals.get((group[0], way), 0.0) > _MIN_GAIN * row[f"{way}_gbps"]:
                return True
        return False

    def alone(self, group: HostGroup, far_groups: list[HostGroup]) -> _Rows:
        """Measure one group, one way after the other, while nothing else is sent."""
        row: dict[str, Any] = {}
        for way in _WAYS:
            remaining = _remaining(self.session, [group])
            others = _remaining(self.session, far_groups)
            max_flows = min(len(groups_hosts(remaining)), len(groups_hosts(others)))
            if max_flows == 0:
                runs = _Runs(self.session, [group], self.settings.seconds)
                runs.errors[group[0]] = "one of the two sides has no hosts left"
            else:
                flows = functools.partial(self._across, group, far_groups, way)
                result = self._saturate([group], flows, max_flows)
                if result is None:
                    return {}
                runs = result
            _merge(row, _row(self.session, group, runs, (way,)))
        return {group[0]: row}

    def _across(self, group: HostGroup, far_groups: list[HostGroup], way: str, number: int) -> list[Pair]:
        near, far = _remaining(self.session, [group]), _remaining(self.session, far_groups)
        if not near or not far:
            return []
        pairs = pairs_across(self.tier, near[0], far, number, self.rng)
        return pairs if way == "out" else [(b, a) for a, b in pairs]

    def _saturate(
        self, groups: list[HostGroup], flows: Callable[[int], list[Pair]], max_flows: int, several: bool = False
    ) -> _Runs | None:
        """Run 1, 2, 4, ... flows of each group until no sum grows, then the best number again; None when stopped."""
        runs = _Runs(self.session, groups, self.settings.seconds)
        best, by_number, number = dict[tuple[int, str], float](), dict[int, dict[tuple[int, str], float]](), 1
        while True:
            totals = by_number.setdefault(number, {})
            for again in range(2):
                if not self.keep_going():
                    return None
                run = runs.add(flows(number))
                totals |= {side: max(total, totals.get(side, 0.0)) for side, total in run.totals.items()}
                # One flow says little where its other end is slow; of an odd number of hosts one has no partner.
                if again or not (several if number == 1 else number - 1 in run.flows.values()):
                    break
            if not totals:  # no flow came through; more of them would not, either
                break
            grew = not best or any(total >= _MIN_GROWTH * best.get(side, 0.0) for side, total in totals.items())
            best |= {side: max(total, best.get(side, 0.0)) for side, total in totals.items()}
            if not grew or number == max_flows:
                break
            number = min(2 * number, max_flows)
        if not best:
            return runs
        best_number = max(by_number, key=lambda number: _share(by_number[number], best))
        repeats = self.settings.repeats
        while repeats > 0 and self.keep_going():
            runs.add(flows(best_number))
            repeats -= 1
        sides = [(group[0], way) for group in groups for way in _WAYS]
        if self.keep_going() and any(_is_unsteady(runs.samples(side)) for side in sides):
            for _ in range(self.settings.repeats):
                runs.add(flows(best_number))
        return runs


def groups_hosts(groups: Sequence[HostGroup]) -> HostGroup:
    """Return the hosts of groups."""
    return [host for group in groups for host in group]


def _share(totals: dict[tuple[int, str], float], best: dict[tuple[int, str], float]) -> float:
    """Return the least share of its best that a group has."""
    return min(totals.get(side, 0.0) / max(rate, 1e-12) for side, rate in best.items())


def _filling(samples: list[tuple[int, float]]) -> tuple[int, list[float]]:
    """Return the number of flows with the largest total, and the totals of all runs with it, lowest first."""
    by_flows = dict[int, list[float]]()
    for flows, total in samples:
        by_flows.setdefault(flows, []).append(total)
    # A number that was repeated counts for more than one that was best once by a little.
    repeated = {flows: totals for flows, totals in by_flows.items() if len(totals) > 2} or by_flows
    top = max(max(totals) for totals in by_flows.values())
    near = [flows for flows, totals in repeated.items() if max(totals) * _MIN_GROWTH >= top] or list(by_flows)
    flows = max(near, key=lambda number: median(by_flows[number]))
    return flows, sorted(by_flows[flows])


def _is_unsteady(samples: list[tuple[int, float]]) -> bool:
    """Return whether a run of those that filled the link had far less than the best."""
    totals = _filling(samples)[1] if samples else [1.0]
    return totals[0] < _STEADY_SHARE * totals[-1]


def _capacity(samples: list[tuple[int, float]]) -> LinkCapacity | None:
    """Return the capacity that runs show; None without any."""
    if not samples:
        return None
    flows, totals = _filling(samples)
    one_flow = max((total for number, total in samples if number == 1), default=totals[-1] / flows)
    gbps = totals[len(totals) // 2]
    if gbps < _STEADY_SHARE * totals[-1]:
        gbps = totals[-1]  # other traffic takes from a link, and nothing adds to it
    is_full = gbps < _MIN_FLOW_SHARE * flows * one_flow or flows < max(number for number, _ in samples)
    return LinkCapacity(gbps, totals[0], totals[-1], flows, "link" if is_full else "hosts", one_flow)


def _row(session: ProbeSession, group: HostGroup, runs: _Runs, ways: Sequence[str]) -> dict[str, Any]:
    """Return the row of a group."""
    names = session.measurements.hosts.names
    row: dict[str, Any] = {"members": [names[host] for host in group], "interval": {}}
    for way in ways:
        capacity = _capacity(runs.samples((group[0], way)))
        key = f"{way}_gbps"
        row[key] = None if capacity is None else round(capacity.gbps, 6)
        row["interval"][key] = None if capacity is None else [round(capacity.low, 6), round(capacity.high, 6)]
        row[f"{way}_flows"] = 0 if capacity is None else capacity.flows
        row[f"{way}_limited_by"] = None if capacity is None else capacity.limited_by
        row[f"{way}_one_flow_gbps"] = None if capacity is None else round(capacity.one_flow, 6)
        if capacity is None:
            row["why"] = runs.errors.get(group[0], "no pair of hosts was left to measure it")
    return row


def _with_larger(row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the larger capacity of two measurements each way."""
    result = dict(row)
    for way in _WAYS:
        if (other[f"{way}_gbps"] or 0.0) > (row[f"{way}_gbps"] or 0.0):
            result |= {key: value for key, value in other.items() if key.startswith(f"{way}_")}
            result["interval"] = {**result["interval"], f"{way}_gbps": other["interval"][f"{way}_gbps"]}
    return result


def _log_unsteady(row: dict[str, Any]) -> None:
    """Say that runs of a group differ by more than noise."""
    for way in _WAYS:
        low, high = row["interval"].get(f"{way}_gbps") or (1.0, 1.0)
        if low < _STEADY_SHARE * high:
            _log.info(
                "%d hosts with %s, %s: %.4g to %.4g Gbit/s, as if others sent meanwhile; the best counts",
                len(row["members"]), row["members"][0], way, low, high,
            )  # fmt: skip


def _merge(row: dict[str, Any], other: dict[str, Any]) -> None:
    """Add the other way's values to a row."""
    row |= {**row, **other, "interval": {**row.get("interval", {}), **other["interval"]}}


def flow_rates(session: ProbeSession, flows: list[Pair], seconds: float) -> tuple[dict[Pair, float], dict[Pair, str]]:
    """Run (source, sink) flows at the same time, and return the rates, Gbit/s, and the reasons of those without one.

    Hosts are in one pair each; both ways of a pair may be in ``flows``.
    """
    rates, errors = dict[Pair, float](), dict[Pair, str]()
    sources = dict[Pair, list[int]]()
    for a, b in flows:
        sources.setdefault((min(a, b), max(a, b)), []).append(a)

    def task(pair: Pair, senders: list[int]) -> ProbeTask:
        def fail(reason: str) -> None:
            errors.update({(sender, sum(pair) - sender): reason for sender in senders})

        def batches() -> RequestBatches:
            try:
                results = yield from run_flows(session.context, pair, senders, FlowLimits(seconds, None))
                rates.update({(source, sink): rate for source, sink, rate in results})
            except TaskFailed as error:
                fail(str(error))

        return ProbeTask(pair, batches(), fail)

    # Flows wait for the network, not for cores.
    session.scheduler.run([task(pair, senders) for pair, senders in sources.items()], cores_per_task=0)
    return rates, errors


def _remaining(session: ProbeSession, groups: Sequence[HostGroup]) -> list[HostGroup]:
    remaining = [[host for host in group if host not in session.scheduler.unavailable_hosts] for group in groups]
    return [group for group in remaining if group]
