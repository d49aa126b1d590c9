"""Draw hosts as points of a plane: groups by colour and mark, the route of the order over them."""

from typing import TYPE_CHECKING

import numpy as np

from plink.features.report.blocks import Indices
from plink.features.report.colours import group_colour, group_mark
from plink.features.report.data import HostMap, ReportData, Route
from plink.features.report.words import collective, first_upper
from plink.model.units import count, format_us
from plink.pictures import (
    PAGE_INCHES,
    Floats,
    Palette,
    Picture,
    axes,
    drawing,
    figure,
    short_names,
    title,
    write_labels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_NAMED_HOSTS = 40  # hosts whose names fit beside their points
_HEIGHT, _TOP, _BOTTOM, _LEFT, _RIGHT = 6.6, 0.62, 0.5, 0.62, 0.05
_BOX = (PAGE_INCHES * 0.64 - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM)
_MARGIN_FACTOR = 1.14
_MAX_FORCED_LABELS, _MAX_LABELLED_GROUPS = 24, 60  # groups whose numbers fit


def host_map(data: ReportData, layout: HostMap, palette: Palette) -> Picture:
    """Draw the map of the hosts, without those of which nothing was measured."""
    from matplotlib.collections import LineCollection

    n, xy = len(data.names), layout.xy
    route = data.route
    with drawing():
        fig = figure(PAGE_INCHES * 0.64, _HEIGHT, palette)
        across, up = _BOX
        ax = axes(fig, (_LEFT, _BOTTOM, across, up), palette, "map")
        low, high = _limits(xy, across / up)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        has_route = route is not None and len(route.hops) > 0
        route_text = (
            f"{first_upper(collective(route.algo))} in plink's order" if has_route and route is not None else ""
        )
        heading = route_text or "The hosts by their distances"
        title(fig, heading, palette, _subtitle(layout))
        if has_route and route is not None:
            lines = xy[route.hops]
            width = 1.4 if n <= 64 else 0.8
            ax.add_collection(LineCollection(list(lines), colors=palette.muted, linewidths=width, zorder=1))
        marked = _marked_hops(route)
        if len(marked):
            ax.add_collection(LineCollection(list(xy[marked]), colors=palette.accent, linewidths=2.8, zorder=2))
        size = 64 if n <= 40 else 36 if n <= 128 else 16
        for group, members in enumerate(data.groups.members()):
            mark = group_mark(group)[0]
            ax.scatter(
                xy[members, 0], xy[members, 1], s=size, marker=mark, zorder=3,
                color=group_colour(group), edgecolors=palette.ink, linewidths=0.5,
            )  # fmt: skip
        _names(ax, data, layout, palette)
        directions = ("across", "up") if layout.plane.kind == "moved" else ("first direction", "second direction")
        ax.set_xlabel(f"{directions[0]} ({layout.unit})", labelpad=4)
        ax.set_ylabel(f"{directions[1]} ({layout.unit})", labelpad=4)
    route_alt = f"{route_text}; " if route_text else ""
    groups = f" in {data.groups.number} groups" if data.groups.number > 1 else ""
    alt = f"Map of {n} hosts{groups}. {route_alt}{_subtitle(layout)}."
    return Picture("map", alt, fig)


def _marked_hops(route: Route | None) -> Indices:
    """Return the hops over what the cost model blames, shape (H, 2)."""
    if route is None or route.bottleneck is None:
        return np.empty((0, 2), dtype=np.intp)
    return route.bottleneck.hops


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
    low, high = _limits(layout.xy, _BOX[0] / _BOX[1])
    return np.asarray((layout.xy - low) / (high - low), dtype=np.float64)


def _limits(xy: Floats, ratio: float) -> tuple[Floats, Floats]:
    """Return the lower left and upper right corner: the same scale both ways, with margins for names."""
    low, high = np.nanmin(xy, axis=0), np.nanmax(xy, axis=0)
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
