"""Describe a network in sentences: the summary on top of a page."""

from plink.report.report_data import ReportData, Route, TierStatistics

_PROPER = {
    "bcube": "BCube",
    "2lha": "2LHA",
    "nccl": "NCCL",
    "openmpi": "Open MPI",
    "gloo": "Gloo",
    "bml": "BML",
    "ps": "PS",
}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def count(number: int, what: str, many: str | None = None) -> str:
    """``three tiers``, ``1 host``; up to twelve in words."""
    word = _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"
    return f"{word} {what if number == 1 else many or what + 's'}"


def microseconds(value: float) -> str:
    """Return three digits of a round trip: ``41.5 µs``."""
    for unit in ("µs", "ms"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} s"


def measured_of(tier: TierStatistics) -> str:
    """Return how many of a tier's pairs were measured, and of how many where that is not all."""
    return f"{tier.measured:,}" if tier.measured == tier.pairs else f"{tier.measured:,} of {tier.pairs:,}"


def heading(data: ReportData) -> str:
    """Return the page's title."""
    return f"The network between {len(data.names):,} hosts"


def summary(data: ReportData) -> list[str]:
    """Return the summary, the most important first, a sentence or two each."""
    return [_measured(data), _tiers(data), _order(data), *_embedded(data), _wrong(data)]


def _measured(data: ReportData) -> str:
    text = f"{data.measured:,} of {data.possible:,} round trips between {len(data.names):,} hosts were measured"
    if data.measured < data.possible:
        text += f" ({data.measured / data.possible:.1%})"
    if data.left_out:
        text += f"; of {count(len(data.left_out), 'host')} there is none: {_few(data.left_out)}"
    return text + "."


def _tiers(data: ReportData) -> str:
    groups, measured_tiers = data.groups.number, [tier for tier in data.groups.tiers if tier.measured]
    if groups == 1 or len(measured_tiers) < 2:
        span = _span(measured_tiers[0]) if measured_tiers else "no pair"
        return f"No groups of near hosts stand out: the round trips take {span}."
    tier_texts = ", ".join(f"{microseconds(tier.median_us)} {tier.name}" for tier in measured_tiers)
    return f"The hosts form {count(groups, 'group')}. A round trip usually takes {tier_texts}."


def _span(tier: TierStatistics) -> str:
    low, high = microseconds(tier.low_us), microseconds(tier.high_us)
    return f"about {low}" if low == high else f"{low} to {high} (80% of them)"


def _order(data: ReportData) -> str:
    route = data.route
    if route is None:
        return data.no_route
    text = gain(route)
    if route.bottleneck is not None:
        i, j = route.bottleneck
        longest = max(value for value in (data.measured_us[i, j], data.measured_us[j, i]) if value == value)
        text += f" Its longest hop is {data.names[i]} – {data.names[j]}, {microseconds(float(longest))}."
    return text


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
        return f"For {collective(route.algo)} the given order stays: what another would save is within the noise."
    if route.cost_us is None or route.baseline_us is None or route.baseline_us <= 0:
        return f"The order is for {collective(route.algo)}; its file does not say what it saves."
    saved = 1 - route.cost_us / route.baseline_us
    costs = (
        f"costs {microseconds(route.cost_us)} in plink's order and {microseconds(route.baseline_us)} in the given one"
    )
    text = f"{first_upper(collective(route.algo))} {costs}, {abs(saved):.0%} {'less' if saved >= 0 else 'more'}"
    estimate = route.gain
    if estimate is None:
        return f"{text} (by the measurements that it was fitted to)."
    return (
        f"{text}; on held-out samples it saves {estimate.gain:.1%} "
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
