"""Draw charts: the distribution of the round trips, rates of hosts, orders as predicted and as run, a map of hosts."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plink.features.report.colours import MAGNITUDE, Scale, group_colour, group_mark, ticks
from plink.features.report.data import HostMap, ReportData, TimedOrder
from plink.features.report.heat_map import MAX_HALF_PAGE_NAMES, MAX_NAMED_ROWS
from plink.features.report.words import collective, first_upper
from plink.model.units import count, format_gbps, format_us, rate_unit, significant, time_unit
from plink.pictures import (
    HALF_PAGE_INCHES,
    PAGE_INCHES,
    Floats,
    Palette,
    Picture,
    axes,
    drawing,
    figure,
    short,
    short_names,
    title,
    write_labels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 60
_TOP, _BOTTOM, _LEFT, _RIGHT = 0.62, 0.5, 0.62, 0.05  # inches
_WIDTH = PAGE_INCHES * 0.64 - _LEFT - _RIGHT  # inches: of a chart beside a table
_BARS_INCHES, _ROW = 2.2, 0.3
_ACHIEVED_INCHES = 4.2 - _TOP - _BOTTOM
_RATES_INCHES, _RATES_TOP, _RATES_RIGHT, _AXIS = 3.4, 0.7, 0.08, 0.4
_MAX_NAME_CHARS, _POINTS, _CHARACTER_WIDTH = 16, 8.0, 0.64  # a character's width is a share of the text's size
_MAX_NAMED_HOSTS = 40  # hosts whose names fit beside their points
_MAP_INCHES = 6.6 - _TOP - _BOTTOM
_MARGIN_FACTOR = 1.14
_MAX_FORCED_LABELS, _MAX_LABELLED_GROUPS = 24, 60  # groups whose numbers fit
_NO_HOPS = np.empty((0, 2), dtype=np.intp)


def spread(values: Floats, bins: int) -> tuple[Floats, Floats]:
    """Return (edges, counts) of even steps of the logarithm; round trips of zero count as the shortest there is.

    :param values: microseconds, shape (M,), M at least 1.
    """
    positive = values[values > 0]
    if not len(positive):
        return np.array([0.5, 1.5]), np.array([float(len(values))])
    low, high = float(positive.min()) * 0.98, float(positive.max()) * 1.02
    edges = np.geomspace(low, high, bins + 1)
    counts, _ = np.histogram(np.clip(values, low * 1.001, None), edges)
    return edges, counts.astype(np.float64)


def histogram(data: ReportData, scale: Scale, palette: Palette) -> Picture:
    """Draw bars in the heat maps' colours, and above them each tier from its 10th to its 90th percentile, with its
    median."""
    edges, counts = spread(data.values_us(), _BINS)
    tiers = [tier for tier in data.groups.tiers if tier.measured]
    number, above = len(tiers), _ROW * len(tiers) + 0.08
    with drawing():
        import matplotlib

        fig = figure(_LEFT + _WIDTH + _RIGHT, _TOP + above + _BARS_INCHES + _BOTTOM, palette)
        heading = f"The round trips fall into {count(number, 'tier') if number > 1 else 'no tiers'}"
        title(fig, heading, palette, "bars in the colours of the heat maps; a line spans 80% of its tier")
        ax = axes(fig, (_LEFT, _BOTTOM, _WIDTH, _BARS_INCHES), palette, "histogram", is_open=True)
        colours = matplotlib.colormaps[MAGNITUDE](scale.share(np.sqrt(edges[:-1] * edges[1:])))
        widths, edge = np.diff(edges), palette.surface
        ax.bar(edges[:-1], counts, widths, align="edge", color=colours, edgecolor=edge, linewidth=0.5)
        ax.set(xscale="log", xlim=(edges[0], edges[-1]))
        ax.minorticks_off()
        marks = ticks(edges[0], edges[-1], 10)
        ax.set_xticks(marks, [f"{mark:g}" for mark in marks])
        ax.locator_params(axis="y", integer=True, nbins=5)
        ax.yaxis.set_major_formatter("{x:,.0f}")
        ax.set_xlabel("round trip (us, logarithmic)", labelpad=4)
        ax.set_ylabel("round trips (number)", labelpad=4)
        upper = axes(fig, (_LEFT, _BOTTOM + _BARS_INCHES, _WIDTH, above), palette, "tiers")
        upper.set(xscale="log", xlim=(edges[0], edges[-1]), ylim=(number, 0))
        upper.axis("off")
        for row, tier in enumerate(tiers):
            upper.plot([tier.low_us, tier.high_us], [row + 0.7] * 2, color=palette.ink, linewidth=2)
            upper.plot([tier.median_us], [row + 0.7], "o", color=palette.ink, markersize=5)
            on_left = tier.median_us > np.sqrt(edges[0] * edges[-1])  # in the right half of the logarithmic axis
            upper.annotate(
                f"{tier.name}: {significant(tier.median_us)} us",
                (tier.low_us if on_left else tier.high_us, row + 0.7),
                xytext=(-7 if on_left else 7, 0),
                textcoords="offset points",
                ha="right" if on_left else "left",
                va="center_baseline",
                size=8.5,
                color=palette.ink,
            )
    alt = "; ".join(f"{tier.name}: median {significant(tier.median_us)} us" for tier in tiers)
    return Picture("histogram", f"Histogram of {int(counts.sum())} round trips. {alt}.", fig)


def achieved(runs: tuple[TimedOrder, ...], palette: Palette) -> Picture:
    """Draw a point for the median of each order that has a prediction, and a line from its fastest to its slowest
    run."""
    shown = [run for run in runs if run.predicted_us is not None]
    x = np.array([run.predicted_us or 0.0 for run in shown]) / 1e6
    medians = np.array([float(np.median(run.achieved_s)) for run in shown])
    ends = np.array([(min(run.achieved_s), max(run.achieved_s)) for run in shown])
    across, x_unit = time_unit(float(x.max()))
    up, y_unit = time_unit(float(ends.max()))
    with drawing():
        fig = figure(_LEFT + _WIDTH + _RIGHT, _TOP + _ACHIEVED_INCHES + _BOTTOM, palette)
        heading = f"Predicted against achieved, {len(shown)} order{'s' if len(shown) > 1 else ''}"
        title(fig, heading, palette, "median of the runs; the line spans the fastest and the slowest")
        ax = axes(fig, (_LEFT, _BOTTOM, _WIDTH, _ACHIEVED_INCHES), palette, "achieved", is_open=True)
        ax.vlines(x * across, ends[:, 0] * up, ends[:, 1] * up, color=palette.muted, linewidth=1.5)
        ax.plot(x * across, medians * up, "o", color=palette.ink, markersize=6)
        ax.set(xlim=(0, float(x.max()) * across * 1.1 or 1.0), ylim=(0, float(ends.max()) * up * 1.12 or 1.0))
        ax.set_xlabel(f"predicted cost ({x_unit})", labelpad=4)
        ax.set_ylabel(f"achieved time ({y_unit})", labelpad=4)
        points = np.stack([x * across, medians * up], axis=1)
        texts = [(short(run.order), palette.ink) for run in shown]
        write_labels(ax, points, texts, points, size=8.5)
    return Picture("achieved", f"{heading}; the table beside it has the figures.", fig)


def host_rates(data: ReportData, palette: Palette) -> Picture:
    """Draw what each host sends and receives at best, two marks for each, in the order in which hosts are shown.

    :param data: with a rate of one host at least.
    """
    order, n = data.shown_order(), len(data.names)
    unknown = np.full(n, np.nan)
    rates = (data.bandwidths.out_gbps, data.bandwidths.in_gbps)
    sent, received = ((unknown if rate is None else rate)[order] for rate in rates)
    low, high = float(np.nanmin([sent, received])), float(np.nanmax([sent, received]))
    scale, unit = rate_unit(high)
    named = n <= MAX_NAMED_ROWS
    page_width = PAGE_INCHES if MAX_HALF_PAGE_NAMES < n <= MAX_NAMED_ROWS else HALF_PAGE_INCHES
    width = page_width - _LEFT - _RATES_RIGHT
    names = short_names(data.names, _MAX_NAME_CHARS)
    points = min(_POINTS, 72 * width / n * 0.9)
    bottom = _AXIS + (max(map(len, names)) * points * _CHARACTER_WIDTH / 72 if named else 0.1)
    with drawing():
        fig = figure(page_width, _RATES_TOP + _RATES_INCHES + bottom, palette)
        title(fig, "What each host sends and receives at best", palette, "▲ sends, ▽ receives; none where unknown")
        ax = axes(fig, (_LEFT, bottom, width, _RATES_INCHES), palette, "rates", is_open=True)
        at = np.arange(n)
        size = 6 if named else 3
        ax.vlines(at, 0, np.fmax(sent, received) * scale, color=palette.line, linewidth=min(3.0, 200 / n))
        ax.plot(at, sent * scale, "^", color=palette.ink, markersize=size)
        ax.plot(at, received * scale, "v", color="none", markeredgecolor=palette.ink, markersize=size)
        ax.set(xlim=(-0.7, n - 0.3), ylim=(0, high * scale * 1.08))
        if named:
            ax.set_xticks(at, [names[host] for host in order.tolist()], size=points, rotation=90)
        else:
            ax.set_xlabel("host, by " + ("place in the order" if data.route is not None else "group"), labelpad=4)
        ax.set_ylabel(f"bandwidth ({unit})", labelpad=4)
    span = f"{format_gbps(low)} to {format_gbps(high)}"
    return Picture("rates", f"What each host sends and receives at best: {span}.", fig)


def host_map(data: ReportData, layout: HostMap, palette: Palette) -> Picture:
    """Draw hosts as points of a plane, without those of which nothing was measured: groups by colour and mark, the
    route of the order over them."""
    from matplotlib.collections import LineCollection

    n, xy, route = len(data.names), layout.xy, data.route
    hops = _NO_HOPS if route is None else route.hops
    marked = _NO_HOPS if route is None or route.bottleneck is None else route.bottleneck.hops
    route_text = f"{first_upper(collective(route.algo))} in plink's order" if route is not None and len(hops) else ""
    with drawing():
        fig = figure(_LEFT + _WIDTH + _RIGHT, _TOP + _MAP_INCHES + _BOTTOM, palette)
        ax = axes(fig, (_LEFT, _BOTTOM, _WIDTH, _MAP_INCHES), palette, "map")
        low, high = _limits(xy)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        title(fig, route_text or "The hosts by their distances", palette, _subtitle(layout))
        for lines, colour, width in ((hops, palette.muted, 1.4 if n <= 64 else 0.8), (marked, palette.accent, 2.8)):
            if len(lines):
                ax.add_collection(LineCollection(list(xy[lines]), colors=colour, linewidths=width, zorder=1))
        style: Any = {"s": 64 if n <= 40 else 36 if n <= 128 else 16, "edgecolors": palette.ink, "linewidths": 0.5}
        for group, members in enumerate(data.groups.members()):
            points = xy[members]
            mark, colour = group_mark(group)[0], group_colour(group)
            ax.scatter(points[:, 0], points[:, 1], marker=mark, color=colour, zorder=3, **style)
        _names(ax, data, layout, palette)
        directions = ("across", "up") if layout.plane.kind == "moved" else ("first direction", "second direction")
        ax.set_xlabel(f"{directions[0]} ({layout.unit})", labelpad=4)
        ax.set_ylabel(f"{directions[1]} ({layout.unit})", labelpad=4)
    route_alt = f"{route_text}; " if route_text else ""
    number = len(data.measured_groups)
    groups = f" in {number} groups" if number > 1 else ""
    return Picture("map", f"Map of {n} hosts{groups}. {route_alt}{_subtitle(layout)}.", fig)


def _subtitle(layout: HostMap) -> str:
    remaining = f"it keeps {layout.plane.kept_variance:.0%} of the spread in {layout.dimension} dimensions"
    text = {
        "spread": f"the plane of most spread: {remaining}",
        "groups": f"the plane that separates the groups: {remaining}",
        "moved": "no plane separates the groups, so they are moved apart: only near and far can be read from it",
    }[layout.plane.kind]
    if layout.dimension <= 2 and layout.plane.kind == "spread":
        text = "the embedding has two dimensions, so nothing is lost in drawing it"
    if layout.plane.overlaps:
        text += f"; {count(layout.plane.overlaps, 'pair')} of groups overlap all the same"
    return f"{text}; hosts of a block share a place" if layout.by_block else text


def shares(layout: HostMap) -> Floats:
    """Return where each host is drawn, shape (N, 2): shares of the width and height of the axes from their lower left
    corner; NaN for hosts that are not on the map."""
    low, high = _limits(layout.xy)
    return np.asarray((layout.xy - low) / (high - low), dtype=np.float64)


def _limits(xy: Floats) -> tuple[Floats, Floats]:
    """Return the lower left and upper right corner: the same scale both ways, with margins for names."""
    low, high, ratio = np.nanmin(xy, axis=0), np.nanmax(xy, axis=0), _WIDTH / _MAP_INCHES
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-9) * _MARGIN_FACTOR
    across = max(float(half[0]), float(half[1]) * ratio)
    reach = np.array([across, across / ratio])
    return middle - reach, middle + reach


def _names(ax: "Axes", data: ReportData, layout: HostMap, palette: Palette) -> None:
    """Write the names of few hosts, the numbers of groups for many, and the ends of the longest hop always."""
    from matplotlib.patheffects import withStroke

    n, xy, names = len(data.names), layout.xy, short_names(data.names)
    on_map = np.flatnonzero(np.isfinite(xy).all(axis=1)).tolist()
    labels: list[tuple[Floats, str, str]] = []
    bottleneck = None if data.route is None else data.route.bottleneck
    if bottleneck is not None and bottleneck.kind == "hop":
        i, j = bottleneck.hosts
        labels.append(((xy[i] + xy[j]) / 2, f"longest hop {format_us(bottleneck.time_us)}", palette.accent))
        labels += [(xy[host], names[host], palette.ink) for host in (i, j)] if n > _MAX_NAMED_HOSTS else []
    if n <= _MAX_NAMED_HOSTS:
        labels += [(xy[host], names[host], palette.ink) for host in on_map]
    elif 1 < data.groups.number <= _MAX_LABELLED_GROUPS:
        for group, members in enumerate(data.groups.members()):
            group_hosts = [host for host in members if host in set(on_map)]
            if group_hosts:
                labels.append((np.median(xy[group_hosts], axis=0), f"{group + 1}", palette.ink))
    if not labels:
        return
    cover = 0.0  # rather no number of a group than a blot
    if n > _MAX_NAMED_HOSTS:
        cover = np.inf if data.groups.number <= _MAX_FORCED_LABELS else 2.0
    halo = [withStroke(linewidth=2.5, foreground=palette.surface)]
    texts = [(text, colour) for _, text, colour in labels]
    write_labels(
        ax, np.array([at for at, _, _ in labels]), texts, xy[on_map], cover, size=8, path_effects=halo, zorder=5
    )
