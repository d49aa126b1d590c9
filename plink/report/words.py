"""What the pictures show, said in sentences: the summary on top of a page."""

from plink.report.facts import Facts, Route, Tier

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
    """Three digits of a round trip: ``41.5 µs``."""
    for unit in ("µs", "ms"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} s"


def measured_of(tier: Tier) -> str:
    """How many of a tier's pairs were measured, and of how many where that is not all."""
    return f"{tier.measured:,}" if tier.measured == tier.pairs else f"{tier.measured:,} of {tier.pairs:,}"


def heading(facts: Facts) -> str:
    """The page's title."""
    return f"The network between {len(facts.names):,} hosts"


def summary(facts: Facts) -> list[str]:
    """What there is to say, the most important first; a sentence or two each."""
    return [_measured(facts), _tiers(facts), _order(facts), *_embedded(facts), _wrong(facts)]


def _measured(facts: Facts) -> str:
    text = f"{facts.measured:,} of {facts.possible:,} round trips between {len(facts.names):,} hosts were measured"
    if facts.measured < facts.possible:
        text += f" ({facts.measured / facts.possible:.1%})"
    if facts.left_out:
        text += f"; of {count(len(facts.left_out), 'host')} there is none: {_few(facts.left_out)}"
    return text + "."


def _tiers(facts: Facts) -> str:
    groups, known = facts.groups.number, [tier for tier in facts.groups.tiers if tier.measured]
    if groups == 1 or len(known) < 2:
        whole = _span(known[0]) if known else "no pair"
        return f"No groups of near hosts stand out: the round trips take {whole}."
    listed = ", ".join(f"{microseconds(tier.median_us)} {tier.name}" for tier in known)
    return f"The hosts form {count(groups, 'group')}. A round trip usually takes {listed}."


def _span(tier: Tier) -> str:
    low, high = microseconds(tier.low_us), microseconds(tier.high_us)
    return f"about {low}" if low == high else f"{low} to {high} (80% of them)"


def _order(facts: Facts) -> str:
    route = facts.route
    if route is None:
        return facts.no_route
    text = gain(route)
    if route.bottleneck is not None:
        i, j = route.bottleneck
        longest = max(value for value in (facts.measured_us[i, j], facts.measured_us[j, i]) if value == value)
        text += f" Its longest hop is {facts.names[i]} – {facts.names[j]}, {microseconds(float(longest))}."
    return text


def collective(algo: str) -> str:
    """An algorithm in a sentence: ``a ring``, ``an NCCL tree``, ``BCube``."""
    name = " ".join(_PROPER.get(part, part) for part in algo.split("-")) if _is_named(algo) else algo
    return f"{'an' if name[:1] in 'NO' else 'a'} {name}" if algo.endswith(("ring", "tree")) else name


def _is_named(algo: str) -> bool:
    return algo.endswith(("ring", "tree")) or algo.split("-")[0] in _PROPER


def first_upper(text: str) -> str:
    """A text that begins a sentence; what is already upper case stays."""
    return text[:1].upper() + text[1:]


def gain(route: Route) -> str:
    """What the order is expected to save."""
    if route.kept:
        return f"For {collective(route.algo)} the given order stays: what another would save is within the noise."
    if route.cost_us is None or route.given_us is None or route.given_us <= 0:
        return f"The order is for {collective(route.algo)}; its file does not say what it saves."
    saved = 1 - route.cost_us / route.given_us
    costs = f"costs {microseconds(route.cost_us)} in plink's order and {microseconds(route.given_us)} in the given one"
    text = f"{first_upper(collective(route.algo))} {costs}, {abs(saved):.0%} {'less' if saved >= 0 else 'more'}"
    judged = route.judged
    if judged is None:
        return f"{text} (by the measurements that it was fitted to)."
    return (
        f"{text}; on samples it was not fitted to it saves {judged.gain:.1%} "
        f"({judged.low:.1%} to {judged.high:.1%}, {judged.confidence:.0%} confidence)."
    )


def _embedded(facts: Facts) -> list[str]:
    there = facts.map
    if there is None:
        return [facts.no_map] if facts.no_map else []
    what = "the median round trip of two blocks of hosts" if there.by_block else "a round trip"
    return [
        f"An embedding in {count(there.dimension, 'dimension')} tells {what} that it has not seen to within "
        f"{there.held_out_error:.0%}."
    ]


def _wrong(facts: Facts) -> str:
    if not facts.remarks:
        return "Nothing looks wrong with hosts or links."
    kinds: dict[str, int] = {}
    for remark in facts.remarks:
        kinds[remark.kind] = kinds.get(remark.kind, 0) + 1
    listed = ", ".join(f"{kind} ({number})" if number > 1 else kind for kind, number in kinds.items())
    return f"{count(len(facts.remarks), 'thing looks', 'things look').capitalize()} wrong: {listed}."


def _few(names: tuple[str, ...], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
