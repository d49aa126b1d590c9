"""Draw a network in a terminal: summary, heat maps as given and in plink's order, tiers, distribution."""

import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from plink.errors import printable
from plink.model.units import format_us
from plink.report.colours import MAGNITUDE, Scale, scale_of
from plink.report.figures import order_caption
from plink.report.histogram import spread
from plink.report.labels import short, short_names
from plink.report.report_data import ReportData
from plink.report.terminal_heat import MIN_PIXELS, Ink, reduce_matrix, rows
from plink.report.words import heading, measured_of, summary

if TYPE_CHECKING:
    from rich.text import Text

_GAP = 4
_NAME_CHARS = (12, 5)  # of a host's name: what is tried before a row
_BINS = 12
_ASCII = str.maketrans({"–": "-", "→": ">", "…": "~", "≤": "<", "≥": ">", "█": "#", "·": "."})


def terminal_lines(data: ReportData, ink: Ink) -> "list[Text]":
    """Return all lines, none wider than the terminal."""
    scale = scale_of(data.values_us())
    sentences = [line for text in summary(data) if text for line in textwrap.wrap(printable(text), ink.width)]
    lines = [Text(printable(heading(data)), "bold"), *map(Text, sentences), Text(), *_heat_maps(data, scale, ink)]
    lines += [Text(), *_tiers(data, ink.width), Text(), *_histogram(data, scale, ink)]
    for line in lines:
        if ink.ascii:
            line.plain = line.plain.translate(_ASCII)
        line.truncate(ink.width)
        line.rstrip()
    return lines


def _heat_maps(data: ReportData, scale: Scale, ink: Ink) -> "list[Text]":
    """Draw both heat maps side by side where that leaves each host a pixel, else one above the other.

    Rows are named where they are hosts, also if the maps are then one above the other.
    """
    n, half = len(data.names), (ink.width - _GAP) // 2
    maps = [(np.arange(n), "Round trips, hosts as given")]
    if data.rearranged:
        maps.append((data.shown_order(), order_caption(data)[0].replace("The same round trips", "The same")))
    columns = (max(n, MIN_PIXELS) if ink.colour else n) * ink.across
    choices = [short_names(data.names, length) for length in _NAME_CHARS]
    room = next((room for room in (half, ink.width) if columns + _width(choices[-1]) <= room), None)
    names = next((names for names in choices if room and columns + _width(names) <= room), None)
    if names is not None:
        side_by_side, max_rows = room == half and data.rearranged, n
    else:
        pixels = half // ink.across
        side_by_side = data.rearranged and (columns <= half or pixels >= 32)
        max_rows = max(2, pixels if side_by_side else ink.width // ink.across)
    drawn = []
    for order, title in maps:
        values = reduce_matrix(data.measured_us, order, max_rows)
        lines = rows(values, scale, ink)
        if names is not None:
            lines = _with_names(lines, [names[host] for host in order], ink)
        drawn.append([Text(short(title, half if side_by_side else ink.width), "bold"), *lines])
    lines = [*drawn[0], *(line for each in drawn[1:] for line in (Text(), *each))]
    if side_by_side:
        left_width, lines = max(len(line) for line in drawn[0]), []
        for left_line, right_line in zip_longest(*drawn, fillvalue=Text()):
            left_line.pad_right(left_width + _GAP - len(left_line))
            lines.append(left_line + right_line)
    return [*lines, _legend(scale, ink, data.measured < data.possible, n > max_rows)]


def _width(names: list[str]) -> int:
    """Return the columns that names take, with the space behind them."""
    return max(map(len, names)) + 1


def _with_names(lines: "list[Text]", names: list[str], ink: Ink) -> "list[Text]":
    """Return the lines of a heat map with the host of each row before it; of two hosts on a line the first is named."""
    pixels, width = (max(1, MIN_PIXELS // len(names)), _width(names)) if ink.colour else (1, _width(names))
    first_pixel = [k * 2 if ink.colour else k for k in range(len(lines))]
    hosts = [-(-pixel // pixels) if -pixel % pixels <= ink.colour else len(names) for pixel in first_pixel]
    return [
        Text((names[host] if host < len(names) else "").ljust(width)) + line
        for host, line in zip(hosts, lines, strict=True)
    ]


def _legend(scale: Scale, ink: Ink, holes: bool, reduce_matrix: bool) -> "Text":
    """Explain the colours or shades."""
    steps = 16 if ink.colour else len(ink.shades)
    line = Text(f"{format_us(scale.low)} ")
    for k in range(steps):
        line.append(*(("█", _colour(k / (steps - 1))) if ink.colour else (ink.shades[k], "")))
    line.append(f" {format_us(scale.high)}")
    if holes:
        line.append("   ").append("█" if ink.colour else "?", "#808080" if ink.colour else "").append(" not measured")
    if reduce_matrix:
        line.append("   several hosts a row")
    return line


def _colour(share: float) -> str:
    import matplotlib
    from matplotlib.colors import to_hex

    return str(to_hex(matplotlib.colormaps[MAGNITUDE](share)))


def _tiers(data: ReportData, width: int) -> "list[Text]":
    """Return the tiers as a table; a narrow terminal gets no number of pairs, then no spread."""
    table = [("tier", "pairs measured", "median", "80% within")]
    for tier in data.groups.tiers:
        pairs = measured_of(tier)
        spread_text = f"{format_us(tier.low_us)} – {format_us(tier.high_us)}"
        table.append((tier.name, pairs, *((format_us(tier.median_us), spread_text) if tier.measured else ("–", "–"))))
    widths = [max(len(row[k]) for row in table) for k in range(4)]
    columns = next(
        (choice for choice in ((1, 2, 3), (2, 3)) if widths[0] + sum(3 + widths[k] for k in choice) <= width), (2,)
    )
    lines = []
    for number, row in enumerate(table):
        cells = [row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in columns)]
        lines.append(Text("   ".join(cells), "bold" if number == 0 else ""))
    return lines


def _histogram(data: ReportData, scale: Scale, ink: Ink) -> "list[Text]":
    edges, counts = spread(data.values_us(), _BINS)
    digits = len(f"{int(counts.max()):,}")
    max_bar = max(8, min(60, ink.width - 22 - digits))
    lines = [Text("round trips", "bold")]
    for low, high, number in zip(edges[:-1], edges[1:], counts.astype(int).tolist(), strict=True):
        length = -(-number * max_bar // int(counts.max()))
        line = Text(f"{low:>7.3g} – {f'{high:.3g} us':<10} ")
        style = _colour(float(scale.share(np.array([np.sqrt(low * high)]))[0])) if ink.colour else ""
        line.append("█" * length, style).append(f" {number:,}" if number else "")
        lines.append(line)
    return lines
