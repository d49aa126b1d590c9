"""Describe a network in sentences: the summary on top of a page."""

import calendar
import datetime

from plink.features.report.data import ProbeSummary, ReportData, Route, TierStatistics
from plink.model.units import count, format_gbps, format_us
from solvers.costs.loads import Bottleneck

_PROPER = {
    "bcube": "BCube",
    "2lha": "2LHA",
    "nccl": "NCCL",
    "openmpi": "Open MPI",
    "gloo": "Gloo",
    "bml": "BML",
    "ps": "PS",
    "mesh": "the mesh's traffic",
}
_MAX_NAMED_LINKS = 4  # links that are named in a sentence


def tier_table(data: ReportData) -> list[tuple[str, str, str, str]]:
    """Return the heads, then a row a tier: its name, how many pairs were measured, their median and spread."""
    rows = [("tier", "pairs measured", "median", "80% within")]
    for tier in data.groups.tiers:
        pairs = f"{tier.measured:,}" if tier.measured == tier.pairs else f"{tier.measured:,} of {tier.pairs:,}"
        median, spread = format_us(tier.median_us), f"{format_us(tier.low_us)} – {format_us(tier.high_us)}"
        rows.append((tier.name, pairs, *((median, spread) if tier.measured else ("–", "–"))))
    return rows


def heading(data: ReportData) -> str:
    """Return the page's title."""
    return f"The network between {len(data.names):,} hosts"


def summary(data: ReportData) -> list[str]:
    """Return the summary, the most important first, a sentence or two each."""
    return [
        _measured(data),
        *_probed(data.probes),
        *([f"{data.predictions}."] if data.predictions else []),
        *([f"{data.interfaces}."] if data.interfaces else []),
        _tiers(data),
        *_links(data),
        _order(data),
        *_embedded(data),
        _wrong(data),
    ]


def _measured(data: ReportData) -> str:
    text = f"{data.measured:,} of {data.possible:,} round trips between {len(data.names):,} hosts were measured"
    if data.measured < data.possible:
        text += f" ({data.measured / data.possible:.1%})"
    if data.left_out:
        text += f"; of {count(len(data.left_out), 'host')} there is none: {_few(data.left_out)}"
    return text + "."


def _probed(probes: ProbeSummary) -> list[str]:
    """Say when and how round trips were measured, as far as it is known."""
    if probes.assumed_from:
        return [f"The round trips are assumed, from a topology file ({probes.assumed_from})."]
    parts = []
    if probes.measured_at:
        parts.append(f"on {date(probes.measured_at)}")
    if len(probes.methods) == 1:
        parts.append(f"by {probes.methods[0][0]}")
    elif probes.methods:
        parts.append("by " + ", ".join(f"{name} ({number:,})" for name, number in probes.methods))
    if probes.probes is not None:
        fewest, usual, most = probes.probes
        number = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,} (median {usual:,})"
        parts.append(f"with {number} probes a pair")
    if probes.plan == "adaptive":
        parts.append("pairs chosen adaptively")
    return [f"They were measured {', '.join(parts)}."] if parts else []


def date(text: str) -> str:
    """Return a time of RFC 3339 for people, in UTC: ``24 November 2026, 09:12 UTC``; another text as it is."""
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return text
        moment = moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return text
    return f"{moment.day} {calendar.month_name[moment.month]} {moment.year}, {moment:%H:%M} UTC"


def _links(data: ReportData) -> list[str]:
    """Describe the shared links of every tier, the innermost first."""
    tiers, texts = data.bandwidths.tiers, []
    for number, tier in enumerate(tiers, 1):
        what = count(len(tier), "group") + ("" if len(tiers) == 1 else f" of tier {number}")
        unknown = sum(link.out.gbps is None or link.into.gbps is None for link in tier)
        remarks = [f"{unknown} not measured"] if 0 < unknown < len(tier) else []
        confidence = data.bandwidths.confidences[number - 1] if data.bandwidths.confidences else None
        remarks += [] if confidence is None else [f"confidence {confidence:.0%}"]
        what += f" ({', '.join(remarks)})" if remarks else ""
        ways = [way for link in tier for way in (link.out, link.into) if way.gbps is not None]
        rates = [
            f"{'at least ' * is_least}{format_gbps(gbps)}"
            for gbps, is_least in sorted((way.gbps or 0.0, way.is_least) for way in ways)
        ]
        span = " to ".join(dict.fromkeys([*rates[:1], *rates[-1:]]))
        texts.append(f"{span} each way for {what}" if rates else f"an unknown rate for {what}")
    return [f"Shared links carry {', '.join(texts)}."] if texts else []


def _tiers(data: ReportData) -> str:
    groups, measured_tiers = len(data.measured_groups), [tier for tier in data.groups.tiers if tier.measured]
    if len(measured_tiers) < 2:
        span = _span(measured_tiers[0]) if measured_tiers else "no pair"
        return f"No groups of near hosts stand out: the round trips take {span}."
    tier_texts = ", ".join(f"{format_us(tier.median_us)} {tier.name}" for tier in measured_tiers)
    formed = f"The hosts form {count(groups, 'group')}. " if groups > 1 else ""
    return f"{formed}A round trip usually takes {tier_texts}."


def _span(tier: TierStatistics) -> str:
    low, high = format_us(tier.low_us), format_us(tier.high_us)
    return f"about {low}" if low == high else f"{low} to {high} (80% of them)"


def _order(data: ReportData) -> str:
    route = data.route
    if route is None:
        return data.no_route
    text = gain(route)
    return text if route.bottleneck is None else f"{text} {blame(data, route.bottleneck)}"


def blame(data: ReportData, bottleneck: Bottleneck) -> str:
    """Say in a sentence what takes most of the time, by the cost model."""
    if bottleneck.kind == "hop":
        a, b = (data.names[host] for host in bottleneck.hosts)
        return f"Its longest hop is {a} – {b}, {format_us(bottleneck.time_us)}."
    if bottleneck.kind == "latency":
        return f"Most of the time, {bottleneck.share:.0%}, is latency."
    links = bottleneck.resources
    named = links[0] if len(links) == 1 else f"{count(len(links), 'link')} that are equally busy"
    if 1 < len(links) <= _MAX_NAMED_LINKS:
        named += f" ({'; '.join(links)})"
    if bottleneck.kind == "links" and _is_inferred(data, bottleneck):
        named += ", of a capacity that is inferred from round trips, not measured"
    return f"The bottleneck, for {bottleneck.share:.0%} of the time, is {named}."


def _is_inferred(data: ReportData, bottleneck: Bottleneck) -> bool:
    """Whether the cost model assumed the capacity of what it blames."""
    tiers = data.bandwidths.tiers
    ways = [
        tiers[tier][link].out if is_out else tiers[tier][link].into
        for tier, link, is_out in bottleneck.links
        if tier < len(tiers) and link < len(tiers[tier])
    ]
    return not ways or any(way.gbps is None for way in ways)


def collective(algo: str) -> str:
    """Return an algorithm in a sentence: ``a ring``, ``an NCCL tree``, ``BCube``."""
    name = " ".join(_PROPER.get(part, part) for part in algo.split("-")) if _is_named(algo) else algo
    return f"{'an' if name[:1] in 'NO' else 'a'} {name}" if algo.endswith(("ring", "tree")) else name


def _is_named(algo: str) -> bool:
    return algo.endswith(("ring", "tree")) or algo.split("-")[0] in _PROPER


def first_upper(text: str) -> str:
    """Return a text that begins a sentence; what is already upper case stays."""
    return text[:1].upper() + text[1:]


def gain(route: Route) -> str:
    """Describe what the order is expected to save."""
    if route.baseline_kept:
        return f"For {collective(route.algo)} the given order stays: no other saves more than the noise."
    if route.cost_us is None or route.baseline_us is None or route.baseline_us <= 0:
        return f"The order is for {collective(route.algo)}; what it saves on these measurements is not known."
    saved = 1 - route.cost_us / route.baseline_us
    what = " of latency" * route.by_latency
    ours, theirs = format_us(route.cost_us), format_us(route.baseline_us)
    costs = f"costs {ours}{what} in plink's order and {theirs}{what} in the given one"
    text = f"{first_upper(collective(route.algo))} {costs}, {abs(saved):.0%} {'less' if saved >= 0 else 'more'}"
    estimate = route.gain
    if estimate is None:
        return f"{text} (by the measurements that it was fitted to)."
    return (
        f"{text}; found by half of the measurements and checked on the other it saves {estimate.gain:.1%} "
        f"({estimate.low:.1%} to {estimate.high:.1%}, {estimate.confidence:.0%} confidence)."
    )


def _embedded(data: ReportData) -> list[str]:
    host_map = data.map
    if host_map is None:
        return [data.no_map] if data.no_map else []
    subject = "the median round trip of two blocks of hosts" if host_map.by_block else "a round trip"
    return [
        f"An embedding in {count(host_map.dimension, 'dimension')} predicts {subject} that it was not fitted to within "
        f"{host_map.held_out_error:.0%}."
    ]


def _wrong(data: ReportData) -> str:
    if not data.remarks:
        return "Nothing looks wrong with hosts or links."
    kinds: dict[str, int] = {}
    for remark in data.remarks:
        kinds[remark.kind] = kinds.get(remark.kind, 0) + 1
    kinds_text = ", ".join(f"{kind} ({number})" if number > 1 else kind for kind, number in kinds.items())
    return f"{count(len(data.remarks), 'thing looks', 'things look').capitalize()} wrong: {kinds_text}."


def _few(names: tuple[str, ...], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
