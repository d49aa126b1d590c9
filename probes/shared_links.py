"""Capacity of the links that groups of hosts share, into and out of each group.

A pairwise test does not see an oversubscribed uplink: alone, a pair across it gets its hosts' full rate. So several
disjoint pairs send across the boundary of a group at once, more and more of them, until their sum stops growing.

Flows of a group go to others of its own family where it has one (racks of the same pod), so that they do not meet on
links of a higher tier.
"""

import itertools
import random
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probes.methods import MeasurementContext
from probes.scheduler import ProbeTask, Request, RequestBatches, TaskFailed
from probes.session import ProbeSession

_CONTROL_S = 10.0
_MIN_GROWTH = 1.1  # of the sum when flows double: with less the link is full
_MIN_FLOW_SHARE = 0.8  # of the rate of a flow alone: flows with more are limited by their hosts


@dataclass(frozen=True)
class LinkCapacity:
    """Capacity of one direction of one group's boundary.

    ``gbps`` is the median of the runs with the number of flows that filled the link, ``low`` and ``high`` their range.
    ``limited_by``: ``link``, or ``hosts`` when the sum grew to the end (the link then carries at least this much).
    ``one_flow``: the rate of one flow alone.
    """

    gbps: float
    low: float
    high: float
    flows: int
    limited_by: str
    one_flow: float


@dataclass(frozen=True)
class TierGroups:
    """Groups of one tier: indices of hosts near each other.

    ``family_of``: the family of each group, a group of the tier above; None when all are one. ``part_of``: the part of
    its group that a host is in, a group of the tier below; a host that is not in it is a part by itself. ``measured``:
    hosts whose groups are measured; None for all.
    """

    groups: list[list[int]]
    family_of: Sequence[int] | None = None
    part_of: Mapping[int, int] = field(default_factory=dict)
    measured: frozenset[int] | None = None

    def part(self, host: int) -> int:
        """Return the part of a host; negative for one that is a part by itself."""
        return self.part_of.get(host, -1 - host)


_Boundary = tuple[list[int], list[list[int]]]  # a group, and the other groups that its flows go to
_Search = Generator[list[tuple[int, int]], float | None, LinkCapacity | None]


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
) -> list[dict[str, Any]]:
    """Measure the capacity into and out of every group, and return the rows of one tier of ``shared_links``.

    A value that could not be measured is None; the row's ``why`` has the reason. A single group has no boundary and
    gives no rows.

    :param keep_going: called before each batch of groups; once False the rows so far are returned.
    """
    families = _families(session, tier)
    groups = [group for family in families for group in family]
    if len(groups) < 2:
        return []
    measured = [group for group in groups if tier.measured is None or not tier.measured.isdisjoint(group)]
    names = session.measurements.hosts.names
    rows: dict[int, dict[str, Any]] = {}
    for batch in _schedule(families, measured, random.Random(settings.seed)):
        if not keep_going():
            break
        for (group, far_groups), row in zip(batch, _measure(session, tier, batch, settings), strict=True):
            rows[group[0]] = row
            (other, *others) = far_groups
            if not others and other in measured and [group, other] in families:
                rows[other[0]] = _mirrored(row, [names[host] for host in other])
        on_done(len(rows), len(measured))
    return [rows[group[0]] for group in sorted(measured) if group[0] in rows]


def _families(session: ProbeSession, tier: TierGroups) -> list[list[list[int]]]:
    """Return the families of groups, without hosts that are lost."""
    families: dict[int, list[list[int]]] = {}
    for group, family in zip(tier.groups, tier.family_of or [0] * len(tier.groups), strict=True):
        families.setdefault(family, []).extend(_remaining(session, [group]))
    return [family for family in families.values() if family]


def _schedule(
    families: list[list[list[int]]], measured: list[list[int]], rng: random.Random
) -> Iterator[list[_Boundary]]:
    """Yield the groups to measure at the same time: families side by side, then groups whose family is too small.

    Of a family of two only one is measured where that says what the other does: what leaves it enters the other.
    """
    groups = [group for family in families for group in family]
    batches_of_families, others = list[list[list[_Boundary]]](), list[list[int]]()
    for family in families:
        hosts = sum(map(len, family))
        if len(families) > 1 and any(hosts - len(group) < len(group) / 2 for group in family):
            others += [group for group in family if group in measured]
            continue
        batches = [[side for side in batch if side[0] in measured] for batch in _batches(family, rng)]
        batches_of_families.append(batches[:1] if len(family) == 2 and all(batches) else batches)
    for round_of_batches in itertools.zip_longest(*batches_of_families, fillvalue=()):
        if sides := [side for batch in round_of_batches for side in batch]:
            yield sides
    for group in others:
        yield [(group, rng.sample([other for other in groups if other is not group], len(groups) - 1))]


def _mirrored(row: dict[str, Any], members: list[str]) -> dict[str, Any]:
    """Return the row of the only other group: what leaves the one enters the other."""
    directions = {"out": "in", "in": "out"}

    def mirrored(values: dict[str, Any]) -> dict[str, Any]:
        swapped = {}
        for key, value in values.items():
            way, underscore, rest = key.partition("_")
            swapped[directions.get(way, way) + underscore + rest] = value
        return swapped

    return {**mirrored(row), "members": members, "interval": mirrored(row["interval"])}


def _batches(groups: list[list[int]], rng: random.Random) -> Iterator[list[_Boundary]]:
    """Yield the groups to measure at the same time, each with far ends of its own.

    No link between groups is in two measurements at once, and every measured group has as many other groups as it has
    hosts (or all there are).
    """
    at_once = max(1, len(groups) // (1 + max(map(len, groups))))
    for first in range(0, len(groups), at_once):
        near = groups[first : first + at_once]
        far = rng.sample([group for group in groups if group not in near], len(groups) - len(near))
        yield [(group, far[k :: len(near)]) for k, group in enumerate(near)]


def _measure(
    session: ProbeSession, tier: TierGroups, batch: list[_Boundary], settings: SharedLinkSettings
) -> list[dict[str, Any]]:
    """Measure groups at the same time, and return their rows."""
    names = session.measurements.hosts.names
    rows: list[dict[str, Any]] = [{"members": [names[host] for host in group], "interval": {}} for group, _ in batch]
    reasons: list[list[str]] = [[] for _ in batch]
    for direction in ("out", "in"):
        searches = [
            _search(session, tier, side, direction == "out", settings, reasons[k]) for k, side in enumerate(batch)
        ]
        for row, capacity in zip(rows, _run_all(session, searches, settings, reasons), strict=True):
            key = f"{direction}_gbps"
            row[key] = None if capacity is None else round(capacity.gbps, 6)
            row["interval"][key] = None if capacity is None else [round(capacity.low, 6), round(capacity.high, 6)]
            row[f"{direction}_flows"] = 0 if capacity is None else capacity.flows
            row[f"{direction}_limited_by"] = None if capacity is None else capacity.limited_by
            row[f"{direction}_one_flow_gbps"] = None if capacity is None else round(capacity.one_flow, 6)
    return [{**row, **({"why": errors[-1]} if errors else {})} for row, errors in zip(rows, reasons, strict=True)]


def _search(
    session: ProbeSession,
    tier: TierGroups,
    boundary: _Boundary,
    outwards: bool,
    settings: SharedLinkSettings,
    reasons: list[str],
) -> _Search:
    """Yield the pairs of each run, receive its total rate, and return the capacity once it is known."""
    group, far_groups = boundary
    rng = random.Random(f"{settings.seed} {group[0]} {outwards}")
    # A host may have been lost since the groups were formed.
    (group, *far_groups) = _remaining(session, [group, *far_groups]) or [[]]
    max_flows = min(len(group), sum(map(len, far_groups)))
    if max_flows == 0:
        reasons.append("one of the two sides has no hosts left")
        return None
    sums: dict[int, float] = {}
    flows = 1
    while True:
        total = yield _pairs(tier, (group, far_groups), flows, outwards, rng)
        if total is None:
            return None
        grew = not sums or total >= _MIN_GROWTH * max(sums.values())
        sums[flows] = total
        if not grew or flows == max_flows:
            break
        flows = min(2 * flows, max_flows)
    best_flows = max(sums, key=lambda number: sums[number])
    runs = [sums[best_flows]]
    for _ in range(settings.repeats):
        total = yield _pairs(tier, (group, far_groups), best_flows, outwards, rng)
        if total is not None:
            runs.append(total)
    runs.sort()
    is_full = runs[len(runs) // 2] < _MIN_FLOW_SHARE * best_flows * sums[1] or flows != best_flows
    return LinkCapacity(runs[len(runs) // 2], runs[0], runs[-1], best_flows, "link" if is_full else "hosts", sums[1])


def _run_all(
    session: ProbeSession, searches: list[_Search], settings: SharedLinkSettings, reasons: list[list[str]]
) -> list[LinkCapacity | None]:
    """Run searches side by side, one run of each at a time, and return their results."""
    results: list[LinkCapacity | None] = [None for _ in searches]
    totals: dict[int, float | None] = dict.fromkeys(range(len(searches)))
    while totals:
        requested: dict[int, list[tuple[int, int]]] = {}
        for k, total in totals.items():
            try:
                requested[k] = searches[k].send(total)
            except StopIteration as end:
                results[k] = end.value
        rates: dict[int, list[float]] = {k: [] for k in requested}
        session.scheduler.run(
            [
                ProbeTask(
                    tuple(host for pair in pairs for host in pair),
                    _flows(session.context, pairs, settings.seconds, rates[k], reasons[k]),
                    reasons[k].append,
                )
                for k, pairs in requested.items()
            ]
        )
        # A run in which one flow failed has no total.
        totals = {k: sum(rates[k]) if len(rates[k]) == len(pairs) else None for k, pairs in requested.items()}
    return results


def _pairs(
    tier: TierGroups, boundary: _Boundary, flows: int, outwards: bool, rng: random.Random
) -> list[tuple[int, int]]:
    """Return disjoint (source, sink) pairs across the boundary, with ends spread over the parts of the group and over
    the other groups and their parts."""
    group, far_groups = boundary
    near = _spread(tier, group, rng)[:flows]
    columns = [_spread(tier, other, rng) for other in rng.sample(far_groups, len(far_groups))]
    far = [column[k] for k in range(max(map(len, columns))) for column in columns if k < len(column)][:flows]
    return [(a, b) if outwards else (b, a) for a, b in zip(near, far, strict=False)]


def _spread(tier: TierGroups, group: list[int], rng: random.Random) -> list[int]:
    """Return the hosts of a group in random order, one of each part, then a second one of each, and so on."""
    taken = Counter[int]()
    places = list[tuple[int, int, int]]()
    for host in rng.sample(group, len(group)):
        places.append((taken[tier.part(host)], len(places), host))
        taken[tier.part(host)] += 1
    return [host for _, _, host in sorted(places)]


def _remaining(session: ProbeSession, groups: list[list[int]]) -> list[list[int]]:
    remaining = [[host for host in group if host not in session.scheduler.lost_hosts] for group in groups]
    return [group for group in remaining if group]


def _flows(
    context: MeasurementContext, pairs: list[tuple[int, int]], seconds: float, rates: list[float], reasons: list[str]
) -> RequestBatches:
    timeout_s = seconds + _CONTROL_S
    try:
        listening = yield [Request(sink, {"method": "flow_listen"}, _CONTROL_S) for _, sink in pairs]
        tokens = [secrets.token_hex(32) for _ in pairs]
        sinks = [
            Request(sink, {"method": "flow_exchange", "receive_token": token, "seconds": seconds}, timeout_s)
            for (_, sink), token in zip(pairs, tokens, strict=True)
        ]
        sources = [
            Request(
                source,
                {
                    "method": "flow_exchange",
                    "peer": [context.address(sink), answer["port"]],
                    "send_token": token,
                    "seconds": seconds,
                },
                timeout_s,
            )
            for (source, sink), token, answer in zip(pairs, tokens, listening, strict=True)
        ]
        answers = yield [*sinks, *sources]
    except TaskFailed as error:
        reasons.append(str(error))
        return
    reasons += [answer["error"] for answer in answers if "error" in answer][:1]
    rates += [answer["gbps"] for answer in answers[: len(pairs)] if "gbps" in answer]
