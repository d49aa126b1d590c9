"""Draw a matrix of pairs as a heat map: round trips, bandwidths, or what departs from an embedding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from plink.features.report.blocks import Indices
from plink.features.report.colours import DEPARTURE, MAGNITUDE, Scale, group_colour, ticks
from plink.model.network import Matrix
from plink.model.units import rate_unit, significant
from plink.pictures import HALF_PAGE_INCHES, PAGE_INCHES, Palette, Picture, axes, drawing, figure, short_names, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIXED = -1  # the group of a row with hosts of several
MAX_NAMED_ROWS = 64  # hosts whose names fit beside the rows and below the columns
MAX_HALF_PAGE_NAMES = 40  # named rows that can be read on half a page; more take the whole width
_MIN_SMOOTH_ROWS = 350  # hosts from which on a cell is less than a pixel
_MAX_NAME_CHARS, _NAME_POINTS, _CHARACTER_WIDTH = 16, 8.0, 0.64  # a character's width is a share of the text's size
_MAX_SIDE, _MAX_WIDE_SIDE = 4.3, 7.6  # inches of the matrix, on half a page and on a whole one
_TOP, _STRIP, _AXIS = 0.78, 0.09, 0.25  # inches: above the matrix, of the strip of groups, of an axis' title
_SCALE_INCHES = 0.74  # of the colour scale and the gap beside it
_NUMBERS_INCHES = 0.3  # of the numbers beside unnamed rows


@dataclass(frozen=True)
class _Layout:
    """Where a heat map is on its figure, inches. ``left``, ``bottom``: below and left of the matrix; ``side``: of the
    matrix; ``name_points``: the size of the hosts' names, None where there are too many."""

    width: float
    left: float
    bottom: float
    side: float
    name_points: float | None


def _layout_of(hosts: "HeatMapRows") -> _Layout:
    n = len(hosts.order)
    named = n <= MAX_NAMED_ROWS
    wide = MAX_HALF_PAGE_NAMES < n <= MAX_NAMED_ROWS
    width, side = (PAGE_INCHES, _MAX_WIDE_SIDE) if wide else (HALF_PAGE_INCHES, _MAX_SIDE)
    characters = max(map(len, short_names(hosts.names, _MAX_NAME_CHARS)))
    points = min(_NAME_POINTS, 72 * side / n * 0.9)
    labels = characters * points * _CHARACTER_WIDTH / 72 if named else _NUMBERS_INCHES
    edge = _STRIP * 1.6 + labels + _AXIS
    return _Layout(width, edge, edge, min(side, width - edge - _SCALE_INCHES), points if named else None)


@dataclass(frozen=True)
class HeatMapRows:
    """Rows of a heat map. ``order``, shape (N,): hosts from the first row on; ``names`` and ``groups`` by host;
    ``axis_unit``: what the axes count (``position in the file``). Not ``whole``: rows are blocks of hosts, whose
    diagonal holds pairs too."""

    order: Indices
    names: tuple[str, ...]
    groups: Indices
    axis_unit: str
    whole: bool = True


@dataclass(frozen=True)
class Shades:
    """How values become colours. ``colours``: name of Matplotlib's map; ``share``: where in it values lie, 0 to 1, NaN
    stays; ``ticks``: texts beside the scale and their positions, 0 to 1; ``label``: of the scale."""

    colours: str
    share: Callable[[Matrix], Matrix]
    ticks: list[tuple[str, float]]
    label: str

    @classmethod
    def of_round_trips(cls, scale: Scale) -> "Shades":
        """Far pairs are bright."""
        return cls(MAGNITUDE, scale.share, _scale_ticks(scale), "round trip (us)")

    @classmethod
    def of_bandwidths(cls, scale: Scale) -> "Shades":
        """Slow pairs are bright, as far ones are among round trips."""
        factor, unit = rate_unit(scale.high)
        return cls(f"{MAGNITUDE}_r", scale.share, _scale_ticks(scale, factor), f"bandwidth ({unit})")

    @classmethod
    def of_departures(cls, ratio: Matrix) -> "Shades":
        """Colours of measured over fitted round trips: one hue for slower, one for faster."""
        magnitudes = np.abs(np.log(ratio[np.isfinite(ratio) & (ratio > 0)]))
        reach = max(float(np.percentile(magnitudes, 98)) if len(magnitudes) else 0.0, np.log(1.1))

        def share(values: Matrix) -> Matrix:
            at = 0.5 + np.log(np.where(np.isnan(values) | (values <= 0), 1.0, values)) / (2 * reach)
            return np.asarray(np.clip(at, 0.0, 1.0), dtype=np.float64)

        signs = {-1.0: "≤ ", 1.0: "≥ "}
        ticks = [
            (f"{signs.get(part, '')}{np.exp(part * reach):.2f}", 0.5 + part / 2) for part in (-1.0, -0.5, 0.0, 0.5, 1.0)
        ]
        return cls(DEPARTURE, share, ticks, "measured / fitted round trip (ratio)")


def heat_map(
    name: str, caption: tuple[str, str], values: Matrix, hosts: HeatMapRows, shades: Shades, palette: Palette
) -> Picture:
    """Draw the values of all pairs, shape (N, N), from row to column in the order of ``hosts``, NaN as a gap."""
    with drawing():
        import matplotlib

        off = ~np.eye(len(values), dtype=bool) | (not hosts.whole)
        fig, ax = _matrix(name, caption, hosts, bool(np.isnan(values[off]).any()), palette)
        ordered = values[np.ix_(hosts.order, hosts.order)]
        colours: Any = matplotlib.colormaps[shades.colours]
        _show(ax, colours(_steps(np.nan_to_num(shades.share(ordered)))), np.isnan(ordered), hosts.whole)
        _bar(ax, name, colours, shades.ticks, shades.label, palette)
    return Picture(name, f"Heat map. {caption[0]}. {caption[1]}.", fig)


def _matrix(
    name: str, caption: tuple[str, str], hosts: HeatMapRows, has_gaps: bool, palette: Palette
) -> "tuple[Figure, Axes]":
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    n, layout = len(hosts.order), _layout_of(hosts)
    fig = figure(layout.width, _TOP + layout.side + layout.bottom, palette)
    title(fig, caption[0], palette, caption[1])
    ax = axes(fig, (layout.left, layout.bottom, layout.side, layout.side), palette, name)
    ax.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    if has_gaps:  # what was not measured is not painted over: it is seen through
        ax.add_patch(
            Rectangle((-0.5, -0.5), n, n, facecolor=palette.line, edgecolor=palette.muted, hatch="/////", linewidth=0)
        )
    diagonal = range(n) if hosts.whole else ()
    corners = [(k - 0.5 + x, k - 0.5 + y) for k in diagonal for x, y in ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(diagonal)
    if hosts.whole:
        ax.add_patch(PathPatch(Path(corners, codes), facecolor=palette.surface, linewidth=0))
    _strips(ax, hosts, layout, palette)
    ax.tick_params(axis="both", pad=9, length=0)
    if layout.name_points is None:
        every = max(1, int(np.ceil(n / 8)))
        step = next(s * 10**p for p in range(6) for s in (1, 2, 5) if s * 10**p >= every)
        ax.set_xticks(range(0, n, step))
        ax.set_yticks(range(0, n, step))
    else:
        shown = short_names(hosts.names, _MAX_NAME_CHARS)
        names = [shown[host] for host in hosts.order.tolist()]
        ax.set_xticks(range(n), names, size=layout.name_points, rotation=90)
        ax.set_yticks(range(n), names, size=layout.name_points)
    unit = "" if layout.name_points is not None else f" ({hosts.axis_unit})"
    ax.set_xlabel(f"to{unit}")
    ax.set_ylabel(f"from{unit}")
    ax.xaxis.set_label_coords(0.5, -(layout.bottom - 0.02) / layout.side)  # at the edges, whatever fonts names get
    ax.xaxis.label.set_verticalalignment("bottom")
    ax.yaxis.set_label_coords(-(layout.left - 0.02) / layout.side, 0.5)
    ax.yaxis.label.set_verticalalignment("top")
    return fig, ax


def _strips(ax: "Axes", hosts: HeatMapRows, layout: _Layout, palette: Palette) -> None:
    """Draw the colour of each host's group along the left and the lower edge."""
    from matplotlib.colors import to_rgb

    n, strip_width = len(hosts.order), _STRIP / layout.side
    if len(set(hosts.groups.tolist())) < 2:
        return
    labels = hosts.groups[hosts.order].tolist()
    colours = np.array([to_rgb(palette.surface if group == MIXED else group_colour(group)) for group in labels])
    for row, box in (
        (False, (-1.35 * strip_width, 0, strip_width, 1)),
        (True, (0, -1.35 * strip_width, 1, strip_width)),
    ):
        strip = ax.inset_axes(box)
        strip.axis("off")
        cells = colours[None, :, :] if row else colours[:, None, :]
        image = strip.imshow(cells, aspect="auto", interpolation="none")
        image.set_gid(f"{'columns' if row else 'rows'}-{'smooth' if n > _MIN_SMOOTH_ROWS else 'cells'}")


def _steps(share: Matrix) -> Matrix:
    """Round shares to so many steps that their colours and a transparent one fit a palette of 256."""
    return np.asarray(np.round(share * 254) / 254, dtype=np.float64)


def _show(ax: "Axes", colours: npt.NDArray[np.float64], unknown: npt.NDArray[np.bool_], whole: bool) -> None:
    """Draw cells as an image, one pixel each; unknown ones, and the diagonal of single hosts, are transparent."""
    pixels = (colours * 255).round().astype(np.uint8)
    pixels[unknown] = 0
    if whole:
        pixels[np.arange(len(pixels)), np.arange(len(pixels))] = 0
    image = ax.imshow(pixels, interpolation="none", aspect="equal", zorder=2)
    image.set_gid("smooth" if len(pixels) > _MIN_SMOOTH_ROWS else "cells")


def _bar(ax: "Axes", name: str, colours: Any, labels: list[tuple[str, float]], label: str, palette: Palette) -> None:
    """Draw the colour scale beside the matrix; ``labels``: texts and positions, 0 to 1."""
    fig = ax.get_figure(root=True)
    assert fig is not None
    width, height = fig.get_size_inches()
    box = ax.get_position()
    bottom, side, left = box.y0 * height, box.height * height, box.x1 * width + 0.12
    ax = axes(fig, (left, bottom, 0.13, side), palette, f"{name}-scale")
    ax.imshow(colours(np.linspace(1, 0, 256))[:, None, :], extent=(0, 1, 0, 1), aspect="auto", interpolation="none")
    ax.set_xticks([])
    ax.set_yticks([at for _, at in labels], [text for text, _ in labels])
    ax.yaxis.tick_right()
    ax.tick_params(axis="y", pad=2, length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    across, up = (left + 0.13) / width, (bottom + side + 0.06) / height
    fig.text(across, up, label, size=8.5, color=palette.muted, ha="right", va="bottom")


def _scale_ticks(scale: Scale, factor: float = 1.0) -> list[tuple[str, float]]:
    """Return round numbers, in the unit of which one of the scale is ``factor``, and their positions; where values lie
    beyond an end, that end instead of its neighbours."""
    numbers = ticks(scale.low * factor, scale.high * factor)
    labels = [(f"{tick:g}", float(scale.share(np.array([tick / factor]))[0])) for tick in numbers]
    if scale.beyond_low:
        labels = [(f"≤ {significant(scale.low * factor)}", 0.0), *((text, at) for text, at in labels if at > 0.05)]
    if scale.beyond_high:
        labels = [*((text, at) for text, at in labels if at < 0.95), (f"≥ {significant(scale.high * factor)}", 1.0)]
    return labels
