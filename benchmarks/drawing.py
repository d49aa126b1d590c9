"""Small charts of a benchmark's figures, as SVG files that follow the reader's light or dark page.

Series differ by mark as well as by colour. What is drawn is in the JSON beside it; a chart adds nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from plink.features.report.colours import MARKS, group_colour
from plink.model.storage import write_text
from plink.pictures import PAGE, Picture, axes, drawing, figure, inline, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _TOP, _BOTTOM, _LEFT, _RIGHT = 7.6, 0.56, 0.5, 0.62, 0.12
_ROW, _LABEL, _HEIGHT = 0.32, 2.3, 2.7
_CYCLE = (0, 6, 8, 5, 1)  # of Petroff's ten those that stand out on white and on black alike
_STYLE = (
    "<style>*{stroke-linejoin:round;stroke-linecap:butt}"
    "svg{--ink:#1b1f24;--muted:#59626d;--line:#c5cbd3;--surface:#fff;--accent:#c4006a;background:var(--surface)}"
    "@media(prefers-color-scheme:dark){"
    "svg{--ink:#e7eaee;--muted:#a3adb9;--line:#424b56;--surface:#14171b;--accent:#ff6bb0}}</style>"
)
_NAMES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'

Samples = Sequence[float]
Curve = tuple[Samples, Samples]


def strips(
    name: str, heading: str, second: str, rows: Mapping[str, Samples], xlabel: str, log: bool = False,
    marks: Mapping[str, float] | None = None, medians: Mapping[str, float] | None = None,
) -> Picture:  # fmt: skip
    """Return a row for each name: every sample a point, their median a bar.

    :param marks: of a row, what another (the thesis) reports: a cross. :param medians: where the bar of a row is not at
    the median of all its samples, but, say, of the medians of several runs.
    """
    bars = {label: median(samples) for label, samples in rows.items()} | dict(medians or {})
    inner = _WIDTH - _LABEL - _RIGHT
    with drawing():
        fig = figure(_WIDTH, _TOP + _ROW * len(rows) + _BOTTOM, PAGE)
        title(fig, heading, PAGE, second)
        ax = axes(fig, (_LABEL, _BOTTOM, inner, _ROW * len(rows)), PAGE, name)
        for row, (label, samples) in enumerate(rows.items()):
            ax.plot(samples, [row] * len(samples), "o", color=group_colour(_CYCLE[0]), alpha=0.7, markersize=5, mew=0)
            ax.plot([bars[label]] * 2, [row - 0.3, row + 0.3], color=PAGE.ink, linewidth=2)
            if marks and label in marks:
                ax.plot([marks[label]], [row], "X", color=PAGE.accent, markersize=6, mew=0)
        ax.set_yticks(range(len(rows)), list(rows))
        ax.set_ylim(len(rows) - 0.4, -0.6)
        if log:
            _logarithmic(ax, "x")
        else:
            ax.set_xlim(left=min(0.0, ax.get_xlim()[0]))
        ax.grid(axis="x", color=PAGE.line, linewidth=0.5)
        _finished(ax, xlabel, "")
    medians_text = "; ".join(f"{label}: median {bars[label]:.3g}" for label in rows)
    return Picture(name, f"{heading}. {medians_text}.", fig)


def curves(
    name: str, heading: str, second: str, series: Mapping[str, Curve], xlabel: str, ylabel: str, log: str = "",
    spans: Mapping[str, tuple[float, float]] | None = None, points: bool = True,
    xticks: Mapping[float, str] | None = None,
) -> Picture:  # fmt: skip
    """Lines, each with a mark of its own.

    :param log: the axes that are logarithmic: ``x``, ``y``, ``xy``. :param spans: stretches of x, shaded and named.
    :param points: whether there are marks. :param xticks: what to write below x, where.
    """
    with drawing():
        fig = figure(_WIDTH, _TOP + _HEIGHT + _BOTTOM, PAGE)
        title(fig, heading, PAGE, second)
        ax = axes(fig, (_LEFT, _BOTTOM, _WIDTH - _LEFT - _RIGHT, _HEIGHT), PAGE, name)
        for place, (label, (x, y)) in enumerate(series.items()):
            look: dict[str, Any] = {"marker": MARKS[place][0], "markersize": 4} if points else {}
            style = ("-", (0, (4, 2)), (0, (1, 1.5)), "-.")[place % 4]
            ax.plot(x, y, color=group_colour(_CYCLE[place]), linewidth=1.3, linestyle=style, label=label, **look)
        for axis in log:
            _logarithmic(ax, axis)
        if xticks:
            ax.set_xticks(list(xticks), list(xticks.values()))
        if "y" not in log:
            ax.set_ylim(bottom=0)
        for label, (begin, end) in (spans or {}).items():
            ax.axvspan(begin, end, color=PAGE.line, alpha=0.35, linewidth=0, zorder=0)
            ax.annotate(label, ((begin + end) / 2, 1), xycoords=("data", "axes fraction"), xytext=(0, -3),
                        textcoords="offset points", ha="center", va="top", size=8, color=PAGE.muted)  # fmt: skip
        if len(series) > 1:
            ax.legend(fontsize=8, frameon=False, labelcolor=PAGE.ink)
        ax.grid(axis="y", color=PAGE.line, linewidth=0.5)
        _finished(ax, xlabel, ylabel)
    return Picture(name, f"{heading}. {second}", fig)


def spreads(
    name: str, heading: str, second: str, rows: Mapping[str, Samples], xlabel: str, begin: float, bins: int = 50
) -> Picture:  # fmt: skip
    """Return a small histogram for each name, one below the other, on one axis from ``begin`` or the least sample."""
    inner, high = _WIDTH - _LABEL - _RIGHT, 0.5
    low, top = min(begin, *map(min, rows.values())), max(map(max, rows.values()))
    with drawing():
        fig = figure(_WIDTH, _TOP + high * len(rows) + _BOTTOM, PAGE)
        title(fig, heading, PAGE, second)
        for row, (label, samples) in enumerate(rows.items()):
            box = (_LABEL, _BOTTOM + high * (len(rows) - 1 - row), inner, high * 0.86)
            ax = axes(fig, box, PAGE, f"{name}-{row}")
            ax.hist(samples, bins, range=(low, top), color=group_colour(_CYCLE[0]))
            ax.axvline(median(samples), color=PAGE.ink, linewidth=1.5)
            ax.set_yticks([])
            ax.text(-0.015, 0.4, label, transform=ax.transAxes, ha="right", va="center", size=8.5, color=PAGE.muted)
            ax.set_xlim(low - 0.02 * (top - low), top + 0.02 * (top - low))
            last = row == len(rows) - 1
            ax.tick_params(labelbottom=last, bottom=last)
            _finished(ax, xlabel if last else "", "")
            ax.spines["left"].set_visible(False)
    return Picture(name, f"{heading}. {second}", fig)


def write(picture: Picture, path: Path) -> None:
    """The picture as an SVG file."""
    svg = inline(picture)
    write_text(path, svg.replace("<svg ", f"<svg {_NAMES} ", 1).replace(">", f">{_STYLE}", 1) + "\n")
    _done(picture.figure)


def _logarithmic(ax: "Axes", axis: str) -> None:
    """With numbers as one writes them, not powers of ten."""
    getattr(ax, f"set_{axis}scale")("log")
    getattr(ax, f"{axis}axis").set_major_formatter("{x:g}")
    ax.minorticks_off()


def _finished(ax: "Axes", xlabel: str, ylabel: str) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_xlabel(xlabel, labelpad=4)
    ax.set_ylabel(ylabel, labelpad=4)


def _done(fig: "Figure") -> None:
    fig.clear()
