"""The figures of a report as a document, and drawn in the terminal."""

import math
import textwrap
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from rich.text import Text

from plink.errors import printable
from plink.features.report.blocks import Blocks, Indices, between
from plink.features.report.charts import spread
from plink.features.report.colours import MAGNITUDE, Scale, scale_of
from plink.features.report.data import ReportData
from plink.features.report.figures import order_caption
from plink.features.report.words import date, heading, summary, tier_table
from plink.model.document import UNSET
from plink.model.network import Matrix, Network
from plink.model.network_file import format_host_costs
from plink.model.picture import NetworkPicture, OrderBottleneck, SharedTierSummary, TierSpread
from plink.model.units import format_us, significant
from plink.pictures import Floats, short, short_names
from plink.terminal.screen import result_console

_GAP = 4
_NAME_CHARS = (12, 5)  # of a host's name: what is tried before a row
_BINS = 12
_ASCII = str.maketrans({"–": "-", "→": ">", "…": "~", "≤": "<", "≥": ">", "█": "#", "·": "."})
SHADES, PLAIN_SHADES = "·░▒▓█", ".:+*#"
_UNKNOWN = "?"
MIN_PIXELS = 24  # pixels: cells of fewer hosts are enlarged
_UNMEASURED = "#808080"


@dataclass(frozen=True)
class Ink:
    """Capabilities of the terminal: ``width`` in columns, ``colour``, and Unicode or only ``ascii``."""

    width: int
    colour: bool
    ascii: bool

    @property
    def shades(self) -> str:
        """From near to far."""
        return PLAIN_SHADES if self.ascii else SHADES

    @property
    def across(self) -> int:
        """Columns of one pixel: shades are twice as high as they are wide."""
        return 1 if self.colour else 2


def print_picture(network: Network, data: ReportData) -> None:
    """Draw the network: in colour where the terminal has it and NO_COLOR is not set, else in shades."""
    console = result_console(highlight=False, markup=False)
    colour = console.is_terminal and console.color_system is not None and not console.no_color
    ascii_only = console.options.ascii_only
    for line in terminal_lines(data, Ink(console.width, colour and not ascii_only, ascii_only)):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    if (costs := network.host_costs) is not None:
        console.print(f"\n{format_host_costs(costs)} ({date(costs.measured_at)})", soft_wrap=True)


def picture_of(network: Network, data: ReportData) -> NetworkPicture:
    """Return the figures."""
    names, route, links = data.names, data.route, data.bandwidths
    return NetworkPicture(
        hosts=len(names),
        measured=data.measured,
        possible=data.possible,
        predicted_pairs=network.predicted_pairs or UNSET,
        groups=tuple(tuple(names[host] for host in members) for members in data.measured_groups),
        tiers=tuple(
            TierSpread(
                name=tier.name,
                pairs=tier.pairs,
                measured=tier.measured,
                low_us=_rounded(tier.low_us),
                median_us=_rounded(tier.median_us),
                high_us=_rounded(tier.high_us),
            )
            for tier in data.groups.tiers
        ),
        shared_tiers=tuple(
            SharedTierSummary(groups=len(tier), confidence=confidence)
            for tier, confidence in zip(links.tiers, links.confidences, strict=True)
        ),
        order=None if route is None else tuple(names[host] for host in route.order.tolist()),
        bottleneck=None
        if route is None or (most := route.bottleneck) is None
        else OrderBottleneck(
            kind=most.kind,
            links=tuple(most.resources),
            hosts=tuple(names[host] for host in most.hosts),
            time_us=round(most.time_us, 3),
            cost_us=round(most.cost_us, 3),
        ),
        left_out=tuple(data.left_out),
        suspects=len(data.remarks),
        host_costs=network.host_costs,
        interfaces=data.interfaces or None,
    )


def _rounded(us: float) -> float | None:
    return None if math.isnan(us) else round(us, 3)


def terminal_lines(data: ReportData, ink: Ink) -> list[Text]:
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


def _heat_maps(data: ReportData, scale: Scale, ink: Ink) -> list[Text]:
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
        lines = heat_rows(values, scale, ink)
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


def _with_names(lines: list[Text], names: list[str], ink: Ink) -> list[Text]:
    """Return the lines of a heat map with the host of each row before it; of two hosts on a line the first is named."""
    pixels, width = (max(1, MIN_PIXELS // len(names)), _width(names)) if ink.colour else (1, _width(names))
    first_pixel = [k * 2 if ink.colour else k for k in range(len(lines))]
    hosts = [-(-pixel // pixels) if -pixel % pixels <= ink.colour else len(names) for pixel in first_pixel]
    return [
        Text((names[host] if host < len(names) else "").ljust(width)) + line
        for host, line in zip(hosts, lines, strict=True)
    ]


def _legend(scale: Scale, ink: Ink, holes: bool, reduce_matrix: bool) -> Text:
    """Explain the colours or shades."""
    line = Text(f"{format_us(scale.low)} ")
    for colour in _colours(np.linspace(0, 1, 16)) if ink.colour else ():
        line.append("█", colour)
    if not ink.colour:
        line.append(ink.shades)
    line.append(f" {format_us(scale.high)}")
    if holes:
        line.append("   ").append("█" if ink.colour else "?", _UNMEASURED if ink.colour else "").append(" not measured")
    if reduce_matrix:
        line.append("   several hosts a row")
    return line


def _colours(shares: Floats) -> list[str]:
    import matplotlib
    from matplotlib.colors import to_hex

    return [str(to_hex(colour)) for colour in matplotlib.colormaps[MAGNITUDE](shares)]


def _tiers(data: ReportData, width: int) -> list[Text]:
    """Return the tiers as a table; a narrow terminal gets no number of pairs, then no spread."""
    table = tier_table(data)
    widths = [max(len(row[k]) for row in table) for k in range(4)]
    columns = next(
        (choice for choice in ((1, 2, 3), (2, 3)) if widths[0] + sum(3 + widths[k] for k in choice) <= width), (2,)
    )
    lines = []
    for number, row in enumerate(table):
        cells = [row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in columns)]
        lines.append(Text("   ".join(cells), "bold" if number == 0 else ""))
    return lines


def _histogram(data: ReportData, scale: Scale, ink: Ink) -> list[Text]:
    edges, counts = spread(data.values_us(), _BINS)
    digits = len(f"{int(counts.max()):,}")
    max_bar = max(8, min(60, ink.width - 22 - digits))
    lines = [Text("round trips", "bold")]
    for low, high, number in zip(edges[:-1], edges[1:], counts.astype(int).tolist(), strict=True):
        length = -(-number * max_bar // int(counts.max()))
        line = Text(f"{significant(low):>7} – {f'{significant(high)} us':<10} ")
        style = _colours(scale.share(np.sqrt([low * high])))[0] if ink.colour else ""
        line.append("█" * length, style).append(f" {number:,}" if number else "")
        lines.append(line)
    return lines


def reduce_matrix(measured_us: Matrix, order: Indices, max_rows: int) -> Matrix:
    """Return the matrix in this order with at most so many rows: medians of blocks of hosts, NaN where nothing was
    measured, 0 on the diagonal where a row is one host."""
    if len(order) > max_rows:
        begins = np.linspace(0, len(order), max_rows, endpoint=False).astype(np.intp)
        values = between(measured_us, Blocks(order, begins)).median
        alone = np.flatnonzero(np.diff(begins, append=len(order)) == 1)
        values[alone, alone] = 0.0
        return values
    values = measured_us[np.ix_(order, order)].copy()
    np.fill_diagonal(values, 0.0)
    return values


def heat_rows(values: Matrix, scale: Scale, ink: Ink) -> list[Text]:
    """Return the lines of a heat map, shape (R, R): in colour two pixels per half block, else a shade a pixel; the
    diagonal is blank where it is 0: there a pixel is one host."""
    n = len(values)
    blank = np.eye(n, dtype=bool) & (values == 0)
    share = np.nan_to_num(scale.share(np.where(blank, np.nan, values)))
    if not ink.colour:
        level = (share * len(ink.shades)).astype(int).clip(0, len(ink.shades) - 1)
        cells = np.where(np.isnan(values), _UNKNOWN, np.array(list(ink.shades))[level])
        cells[blank] = " "
        return [Text("".join(cell * ink.across for cell in row)) for row in cells.tolist()]
    pixels = np.array([_colours(row) for row in share], dtype=object)
    pixels[np.isnan(values)], pixels[blank] = _UNMEASURED, None
    factor = max(1, MIN_PIXELS // n)
    enlarged = pixels.repeat(factor, axis=0).repeat(factor, axis=1).tolist()
    lines = []
    for upper, lower in zip_longest(enlarged[::2], enlarged[1::2], fillvalue=[None] * len(enlarged)):
        line = Text()
        for top, bottom in zip(upper, lower, strict=True):
            if top is None:
                line.append(*((" ", "") if bottom is None else ("▄", bottom)))
            else:
                line.append("▀", top if bottom is None else f"{top} on {bottom}")
        lines.append(line)
    return lines
