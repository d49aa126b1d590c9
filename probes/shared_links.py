"""Capacity of the links that groups of hosts share, into and out of each group.

A pairwise test does not see an oversubscribed uplink: alone, a pair across it gets its hosts' full rate. So several
disjoint pairs send across the boundary of a group at once, more and more of them, until their sum stops growing.
"""

import random
import secrets
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from probes.methods import MeasurementContext
from probes.scheduler import AgentRequest, ProbeTask, RequestBatches, TaskFailed
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
    groups: list[list[int]],
    settings: SharedLinkSettings,
    on_done: Callable[[int, int], None],
    keep_going: Callable[[], bool] = lambda: True,
) -> list[dict[str, Any]]:
    """Measure the capacity into and out of every group, and return the rows of ``shared_links``.

    A value that could not be measured is None; the row's ``reasons`` has the reason.

    :param groups: indices of hosts near each other; a single group has no boundary and gives no rows.
    :param keep_going: called before each batch of groups; once False the rows so far are returned.
    """
    remaining = _remaining(session, groups)
    if len(remaining) < 2:
        return []
    rows: list[dict[str, Any]] = []
    for batch in _batches(remaining, random.Random(settings.seed)):
        if not keep_going():
            break
        rows += _measure(session, batch, settings)
        on_done(len(rows), len(remaining))
    return rows


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


def _measure(session: ProbeSession, batch: list[_Boundary], settings: SharedLinkSettings) -> list[dict[str, Any]]:
    """Measure groups at the same time, and return their rows."""
    names = session.measurements.hosts.names
    rows: list[dict[str, Any]] = [{"members": [names[host] for host in group], "interval": {}} for group, _ in batch]
    reasons: list[list[str]] = [[] for _ in batch]
    for direction in ("out", "in"):
        searches = [_search(session, *side, direction == "out", settings, reasons[k]) for k, side in enumerate(batch)]
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
    group: list[int],
    far_groups: list[list[int]],
    outwards: bool,
    settings: SharedLinkSettings,
    reasons: list[str],
) -> _Search:
    """Yield the pairs of each run, receive its total rate, and return the capacity once it is known."""
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
        total = yield _pairs(group, far_groups, flows, outwards, rng)
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
        total = yield _pairs(group, far_groups, best_flows, outwards, rng)
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
    group: list[int], far_groups: list[list[int]], flows: int, outwards: bool, rng: random.Random
) -> list[tuple[int, int]]:
    """Return disjoint (source, sink) pairs across the boundary, with far ends spread over the other groups."""
    near = rng.sample(group, len(group))[:flows]
    columns = [rng.sample(other, len(other)) for other in rng.sample(far_groups, len(far_groups))]
    far = [column[k] for k in range(max(map(len, columns))) for column in columns if k < len(column)][:flows]
    return [(a, b) if outwards else (b, a) for a, b in zip(near, far, strict=False)]


def _remaining(session: ProbeSession, groups: list[list[int]]) -> list[list[int]]:
    remaining = [[host for host in group if host not in session.scheduler.lost_hosts] for group in groups]
    return [group for group in remaining if group]


def _flows(
    context: MeasurementContext, pairs: list[tuple[int, int]], seconds: float, rates: list[float], reasons: list[str]
) -> RequestBatches:
    timeout_s = seconds + _CONTROL_S
    try:
        listening = yield [AgentRequest(sink, {"method": "flow_listen"}, _CONTROL_S) for _, sink in pairs]
        tokens = [secrets.token_hex(32) for _ in pairs]
        sinks = [
            AgentRequest(sink, {"method": "flow_exchange", "receive_token": token, "seconds": seconds}, timeout_s)
            for (_, sink), token in zip(pairs, tokens, strict=True)
        ]
        sources = [
            AgentRequest(
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
