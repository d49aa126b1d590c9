"""The capacity of what groups of hosts share: their way out and their way in.

A pairwise test cannot see an oversubscribed uplink: alone, a pair across it gets its hosts' full rate. So several
disjoint pairs send across the boundary of a group at once, more and more of them, until their sum stops growing.
"""

import random
import secrets
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from probes.conductor import Command, Errand, ErrandFailed, Steps
from probes.methods import Work
from probes.survey import Survey

_CONTROL_S = 10.0
_GROWS = 1.1  # twice the flows must bring at least this much more, or the link is full
_PER_FLOW = 0.8  # flows that get this share of what one flow gets alone are limited by their hosts


@dataclass(frozen=True)
class Capacity:
    """One direction of one group. ``gbps``: median of the runs with the number of flows that filled the link; ``low``
    and ``high``: the range of these runs; ``limited_by``: ``link``, or ``hosts`` when the sum grew to the end (then the
    link carries at least so much); ``one_flow``: what one flow got alone."""

    gbps: float
    low: float
    high: float
    flows: int
    limited_by: str
    one_flow: float


_Side = tuple[list[int], list[list[int]]]  # a group, and the groups beyond it that its flows go to
_Search = Generator[list[tuple[int, int]], float | None, Capacity | None]


@dataclass(frozen=True)
class Settings:
    """``seconds`` a run; ``repeats`` more runs at the number of flows that filled the link."""

    seconds: float = 0.6
    repeats: int = 2
    seed: int = 0


def shared_links(
    survey: Survey,
    groups: list[list[int]],
    settings: Settings,
    on_done: Callable[[int, int], None],
    keep_going: Callable[[], bool] = lambda: True,
) -> list[dict[str, Any]]:
    """Measure the way out and the way in of every group that has hosts beyond it; the rows of ``shared_links``.

    What could not be measured is None, and ``why`` says why.

    :param groups: indices of hosts that are near each other; one group alone has no boundary and gives no rows.
    :param keep_going: asked before each batch of groups; once False the rows so far are returned.
    """
    usable = _there(survey, groups)
    if len(usable) < 2:
        return []
    rows: list[dict[str, Any]] = []
    for batch in _batches(usable, random.Random(settings.seed)):
        if not keep_going():
            break
        rows += _measure(survey, batch, settings)
        on_done(len(rows), len(usable))
    return rows


def _batches(groups: list[list[int]], rng: random.Random) -> Iterator[list[_Side]]:
    """Groups that are measured side by side, each with far ends of its own: no link between groups is in two
    measurements at once, and every measured group has as many groups beyond it as it has hosts (or all there are)."""
    at_once = max(1, len(groups) // (1 + max(map(len, groups))))
    for first in range(0, len(groups), at_once):
        near = groups[first : first + at_once]
        far = rng.sample([group for group in groups if group not in near], len(groups) - len(near))
        yield [(group, far[k :: len(near)]) for k, group in enumerate(near)]


def _measure(survey: Survey, batch: list[_Side], settings: Settings) -> list[dict[str, Any]]:
    """Rows of groups that are measured at the same time."""
    names = survey.found.hosts.names
    rows: list[dict[str, Any]] = [{"members": [names[host] for host in group], "interval": {}} for group, _ in batch]
    why: list[list[str]] = [[] for _ in batch]
    for direction in ("out", "in"):
        searches = [_search(survey, *side, direction == "out", settings, why[k]) for k, side in enumerate(batch)]
        for row, found in zip(rows, _run_all(survey, searches, settings, why), strict=True):
            key = f"{direction}_gbps"
            row[key] = None if found is None else round(found.gbps, 6)
            row["interval"][key] = None if found is None else [round(found.low, 6), round(found.high, 6)]
            row[f"{direction}_flows"] = 0 if found is None else found.flows
            row[f"{direction}_limited_by"] = None if found is None else found.limited_by
            row[f"{direction}_one_flow_gbps"] = None if found is None else round(found.one_flow, 6)
    return [{**row, **({"why": said[-1]} if said else {})} for row, said in zip(rows, why, strict=True)]


def _search(
    survey: Survey, group: list[int], others: list[list[int]], outwards: bool, settings: Settings, why: list[str]
) -> _Search:
    """Asks for runs (by yielding the pairs of each, sent what they got in all) until the capacity is known."""
    rng = random.Random(f"{settings.seed} {group[0]} {outwards}")
    # A host may have gone since the groups were made.
    (group, *others) = _there(survey, [group, *others]) or [[]]
    most = min(len(group), sum(map(len, others)))
    if most == 0:
        why.append("no host is left on one of the two sides")
        return None
    sums: dict[int, float] = {}
    flows = 1
    while True:
        total = yield _pairs(group, others, flows, outwards, rng)
        if total is None:
            return None
        grew = not sums or total >= _GROWS * max(sums.values())
        sums[flows] = total
        if not grew or flows == most:
            break
        flows = min(2 * flows, most)
    best = max(sums, key=lambda number: sums[number])
    runs = [sums[best]]
    for _ in range(settings.repeats):
        again = yield _pairs(group, others, best, outwards, rng)
        if again is not None:
            runs.append(again)
    runs.sort()
    full = runs[len(runs) // 2] < _PER_FLOW * best * sums[1] or flows != best
    return Capacity(runs[len(runs) // 2], runs[0], runs[-1], best, "link" if full else "hosts", sums[1])


def _run_all(
    survey: Survey, searches: list[_Search], settings: Settings, why: list[list[str]]
) -> list[Capacity | None]:
    """Searches side by side, a run of each at a time, to their results."""
    results: list[Capacity | None] = [None for _ in searches]
    totals: dict[int, float | None] = dict.fromkeys(range(len(searches)))
    while totals:
        asked: dict[int, list[tuple[int, int]]] = {}
        for k, total in totals.items():
            try:
                asked[k] = searches[k].send(total)
            except StopIteration as end:
                results[k] = end.value
        rates: dict[int, list[float]] = {k: [] for k in asked}
        survey.conductor.run(
            [
                Errand(
                    tuple(host for pair in pairs for host in pair),
                    _flows(survey.work, pairs, settings.seconds, rates[k], why[k]),
                    why[k].append,
                )
                for k, pairs in asked.items()
            ]
        )
        # A run of which one flow failed tells nothing.
        totals = {k: sum(rates[k]) if len(rates[k]) == len(pairs) else None for k, pairs in asked.items()}
    return results


def _pairs(
    group: list[int], others: list[list[int]], flows: int, outwards: bool, rng: random.Random
) -> list[tuple[int, int]]:
    """Disjoint (source, sink) pairs across the boundary, the far ends spread over the other groups."""
    near = rng.sample(group, len(group))[:flows]
    columns = [rng.sample(other, len(other)) for other in rng.sample(others, len(others))]
    far = [column[k] for k in range(max(map(len, columns))) for column in columns if k < len(column)][:flows]
    return [(a, b) if outwards else (b, a) for a, b in zip(near, far, strict=False)]


def _there(survey: Survey, groups: list[list[int]]) -> list[list[int]]:
    found = [[host for host in group if host not in survey.conductor.gone] for group in groups]
    return [group for group in found if group]


def _flows(work: Work, pairs: list[tuple[int, int]], seconds: float, rates: list[float], why: list[str]) -> Steps:
    limit = seconds + _CONTROL_S
    try:
        listening = yield [Command(sink, {"method": "flow_listen"}, _CONTROL_S) for _, sink in pairs]
        tokens = [secrets.token_hex(32) for _ in pairs]
        sinks = [
            Command(sink, {"method": "flow_receive", "token": token, "seconds": seconds}, limit)
            for (_, sink), token in zip(pairs, tokens, strict=True)
        ]
        sources = [
            Command(
                source,
                {
                    "method": "flow_send",
                    "peer": [work.address(sink), answer["port"]],
                    "token": token,
                    # A little longer, so that the last one to begin still sends when the first one is counted out.
                    "seconds": seconds + 0.1,
                },
                limit,
            )
            for (source, sink), token, answer in zip(pairs, tokens, listening, strict=True)
        ]
        answers = yield [*sinks, *sources]
    except ErrandFailed as error:
        why.append(str(error))
        return
    why += [answer["error"] for answer in answers if "error" in answer][:1]
    rates += [answer["gbps"] for answer in answers[: len(pairs)] if "gbps" in answer]
