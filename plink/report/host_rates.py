"""Draw what each host sends and receives at best."""

import numpy as np

from plink.model.units import format_gbps, rate_unit
from plink.report.canvas import HALF_PAGE_INCHES, PAGE_INCHES, Picture, axes, drawing, figure, title
from plink.report.colours import Palette
from plink.report.heat_map import MAX_HALF_PAGE_NAMES, MAX_NAMED_ROWS
from plink.report.labels import short_names
from plink.report.report_data import Floats, ReportData

_PLOT, _TOP, _LEFT, _RIGHT, _AXIS = 3.4, 0.7, 0.62, 0.08, 0.4  # inches
_MAX_NAME_CHARS, _POINTS, _CHARACTER_WIDTH = 16, 8.0, 0.64


def host_rates(data: ReportData, palette: Palette) -> Picture:
    """Draw two marks for each host, in the order in which hosts are shown.

    :param data: with a rate of one host at least.
    """
    order, n = data.shown_order(), len(data.names)
    sent, received = _measured(data.bandwidths.out_gbps, n)[order], _measured(data.bandwidths.in_gbps, n)[order]
    both = np.concatenate([sent, received])
    top = float(np.nanmax(both))
    scale, unit = rate_unit(top)
    named = n <= MAX_NAMED_ROWS
    page_width = PAGE_INCHES if MAX_HALF_PAGE_NAMES < n <= MAX_NAMED_ROWS else HALF_PAGE_INCHES
    width = page_width - _LEFT - _RIGHT
    names = short_names(data.names, _MAX_NAME_CHARS)
    points = min(_POINTS, 72 * width / n * 0.9)
    bottom = _AXIS + (max(map(len, names)) * points * _CHARACTER_WIDTH / 72 if named else 0.1)
    with drawing():
        fig = figure(page_width, _TOP + _PLOT + bottom, palette)
        title(fig, "What each host sends and receives at best", palette, "▲ sends, ▽ receives; none where unknown")
        ax = axes(fig, (_LEFT, bottom, width, _PLOT), palette, "rates")
        at = np.arange(n)
        size = 6 if n <= MAX_NAMED_ROWS else 3
        ax.vlines(at, 0, np.fmax(sent, received) * scale, color=palette.line, linewidth=min(3.0, 200 / n))
        ax.plot(at, sent * scale, "^", color=palette.ink, markersize=size)
        ax.plot(at, received * scale, "v", color="none", markeredgecolor=palette.ink, markersize=size)
        ax.set(xlim=(-0.7, n - 0.3), ylim=(0, top * scale * 1.08))
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        if named:
            ax.set_xticks(at, [names[host] for host in order.tolist()], size=points, rotation=90)
        else:
            ax.set_xlabel("host, by " + ("place in the order" if data.route is not None else "group"), labelpad=4)
        ax.set_ylabel(f"bandwidth ({unit})", labelpad=4)
    low, high = format_gbps(float(np.nanmin(both))), format_gbps(top)
    return Picture("rates", f"What each host sends and receives at best: {low} to {high}.", fig)


def _measured(rates: Floats | None, n: int) -> Floats:
    return np.full(n, np.nan) if rates is None else rates
