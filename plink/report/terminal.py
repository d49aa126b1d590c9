"""A network in a terminal: the summary, heat maps as given and in plink's order, tiers, and how round trips spread."""

import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from plink.report.album import order_caption
from plink.report.colours import MAGNITUDE, Scale, scale_of
from plink.report.facts import Facts
from plink.report.histogram import spread
from plink.report.labels import short
from plink.report.terminal_heat import LEAST, Ink, reduced, rows, width_of
from plink.report.words import heading, measured_of, microseconds, summary

if TYPE_CHECKING:
    from rich.text import Text

_GAP = 4
_BINS = 12
_ASCII = str.maketrans({"µ": "u", "–": "-", "→": ">", "…": "~", "≤": "<", "≥": ">", "█": "#", "·": "."})


def drawn(facts: Facts, ink: Ink) -> "list[Text]":
    """All lines, none wider than the terminal."""
    from rich.text import Text

    scale = scale_of(facts.values_us())
    said = [line for text in summary(facts) if text for line in textwrap.wrap(text, ink.width)]
    lines = [Text(heading(facts), "bold"), *map(Text, said), Text(), *_heat_maps(facts, scale, ink)]
    lines += [Text(), *_tiers(facts, ink.width), Text(), *_histogram(facts, scale, ink)]
    for line in lines:
        if ink.ascii:
            line.plain = line.plain.translate(_ASCII)
        line.truncate(ink.width)
        line.rstrip()
    return lines


def _heat_maps(facts: Facts, scale: Scale, ink: Ink) -> "list[Text]":
    """Both beside each other where that leaves each host a pixel, else one above the other."""
    from rich.text import Text

    n = len(facts.names)
    if not facts.rearranged:
        values = reduced(facts.measured_us, np.arange(n), max(2, ink.width // ink.across))
        alone = Text("Round trips, hosts as given", "bold")
        return [alone, *rows(values, scale, ink), _legend(scale, ink, facts.measured < facts.possible, len(values) < n)]
    half = (ink.width - _GAP) // 2 // ink.across
    beside = (max(n, LEAST) if ink.colour else n) <= half or half >= 32
    most = max(2, half if beside else ink.width // ink.across)
    maps = []
    for order, title in (
        (np.arange(n), "Round trips, hosts as given"),
        (facts.shown_order(), order_caption(facts)[0].replace("The same round trips", "The same")),
    ):
        values = reduced(facts.measured_us, order, most)
        width = max(width_of(values, ink), (ink.width - _GAP) // 2) if beside else ink.width
        maps.append([Text(short(title, width), "bold"), *rows(values, scale, ink)])
    lines = []
    if beside:
        left = max(width_of(reduced(facts.measured_us, np.arange(n), most), ink), len(maps[0][0]), len(maps[1][0]))
        left = min(left, (ink.width - _GAP) // 2)
        for one, other in zip_longest(*maps, fillvalue=Text()):
            one.pad_right(left + _GAP - len(one))
            lines.append(one + other)
    else:
        lines = [*maps[0], Text(), *maps[1]]
    return [*lines, _legend(scale, ink, facts.measured < facts.possible, n > most)]


def _legend(scale: Scale, ink: Ink, holes: bool, reduced: bool) -> "Text":
    """What the colours or shades mean."""
    from rich.text import Text

    steps = 16 if ink.colour else len(ink.shades)
    line = Text(f"{microseconds(scale.low)} ")
    for k in range(steps):
        line.append(*(("█", _colour(k / (steps - 1))) if ink.colour else (ink.shades[k], "")))
    line.append(f" {microseconds(scale.high)}")
    if holes:
        line.append("   ").append("█" if ink.colour else "?", "#808080" if ink.colour else "").append(" not measured")
    if reduced:
        line.append("   several hosts a row")
    return line


def _colour(share: float) -> str:
    import matplotlib
    from matplotlib.colors import to_hex

    return str(to_hex(matplotlib.colormaps[MAGNITUDE](share)))


def _tiers(facts: Facts, width: int) -> "list[Text]":
    """The tiers as a table; where that is too wide, without how many pairs there are, then without their spread."""
    from rich.text import Text

    table = [("tier", "pairs measured", "median", "80% within")]
    for tier in facts.groups.tiers:
        pairs = measured_of(tier)
        within = f"{tier.low_us:.3g} – {microseconds(tier.high_us)}"
        table.append((tier.name, pairs, *((microseconds(tier.median_us), within) if tier.measured else ("–", "–"))))
    widths = [max(len(row[k]) for row in table) for k in range(4)]
    columns = next(
        (some for some in ((1, 2, 3), (2, 3)) if widths[0] + sum(3 + widths[k] for k in some) <= width), (2,)
    )
    lines = []
    for number, row in enumerate(table):
        cells = [row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in columns)]
        lines.append(Text("   ".join(cells), "bold" if number == 0 else ""))
    return lines


def _histogram(facts: Facts, scale: Scale, ink: Ink) -> "list[Text]":
    from rich.text import Text

    edges, counts = spread(facts.values_us(), _BINS)
    digits = len(f"{int(counts.max()):,}")
    longest = max(8, min(60, ink.width - 22 - digits))
    lines = [Text("round trips", "bold")]
    for low, high, number in zip(edges[:-1], edges[1:], counts.astype(int).tolist(), strict=True):
        length = -(-number * longest // int(counts.max()))
        line = Text(f"{low:>7.3g} – {f'{high:.3g} µs':<10} ")
        style = _colour(float(scale.share(np.array([np.sqrt(low * high)]))[0])) if ink.colour else ""
        line.append("█" * length, style).append(f" {number:,}" if number else "")
        lines.append(line)
    return lines
