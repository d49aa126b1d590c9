"""Draw the tree of shared links: what each can carry both ways, and what an order loads on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plink.features.report.colours import group_colour, group_mark
from plink.features.report.data import LinkDirection, ReportData, SharedLink
from plink.features.report.words import collective
from plink.model.hostlist import fold_hostlist
from plink.model.units import count, format_bytes, format_gbps, format_us, rate_unit, significant
from plink.pictures import PAGE_INCHES, Palette, Picture, axes, drawing, figure, title
from solvers.costs.by_name import MESH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_DRAWN_GROUPS = 40  # groups without others inside: rows of the drawing
_ROW, _TOP, _BOTTOM = 0.62, 0.55, 0.1  # inches
_LINK_INCHES = {1: 4.0, 2: 3.9}  # length of a link by the number of tiers
_MAX_LARGE_TIERS = 2  # tiers with room for larger texts
_MIN_LINK_INCHES, _ROOT_INCHES, _NODE_INCHES = 2.7, 0.2, 0.18
_POINTS, _SMALL_POINTS, _CHARACTER_WIDTH = 8.0, 7.0, 0.55  # a character's width is a share of the text's size
_THIN, _THICK = 0.8, 4.5  # points: of a link that is never busy, and of the busiest
_LIMITS = {"hosts": "its hosts", "groups": "links below", "others": "it or other groups' links"}
_PAD_INCHES = 0.1  # on either side of a link's texts
_BESIDE = 0.045  # inches from the middle of a link to the line of each direction


@dataclass(frozen=True)
class _Node:
    """A group in the drawing: its tier (0 the innermost), its number there, its link and the groups inside it."""

    tier: int
    number: int
    link: SharedLink
    children: "tuple[_Node, ...]"

    @property
    def rows(self) -> int:
        return sum(child.rows for child in self.children) or 1


def link_tree(data: ReportData, palette: Palette) -> Picture:
    """Draw the tree, the core on the left, hosts on the right; of very many groups the busiest.

    :param data: with one shared link at least.
    """
    roots, omitted = _roots(data)
    depth, rows = len(data.bandwidths.tiers), sum(root.rows for root in roots)
    with drawing():
        fig = figure(PAGE_INCHES, _TOP + _ROW * rows + _BOTTOM, palette)
        title(fig, _heading(data), palette, _subtitle(data, omitted))
        ax = axes(fig, (0, _BOTTOM, PAGE_INCHES, _ROW * rows), palette, "links")
        ax.set(xlim=(0, PAGE_INCHES), ylim=(_ROW * rows, 0))
        ax.axis("off")
        _Drawing(data, ax, palette, depth, _link_inches(data, depth)).draw(roots)
    return Picture("links", f"Tree of shared links. {_heading(data)}. {_subtitle(data, omitted)}.", fig)


def _link_inches(data: ReportData, depth: int) -> float:
    """Return the length of a link: what its texts take, as far as names of hosts leave it."""
    links, character = data.bandwidths.tiers, _points(depth) * _CHARACTER_WIDTH / 72
    texts = [
        _label(name, way) for tier in links for link in tier for name, way in (("out", link.out), ("in", link.into))
    ]
    names = max(len(_hosts(data, link)) for link in links[0])
    spare = (PAGE_INCHES - _ROOT_INCHES - _NODE_INCHES - character * names) / depth
    least = _LINK_INCHES.get(depth, max(_MIN_LINK_INCHES, (PAGE_INCHES - 3) / depth))
    return max(least, min(spare, (max(map(len, texts)) + 1) * character + 2 * _PAD_INCHES))


def _points(depth: int) -> float:
    return _POINTS if depth <= _MAX_LARGE_TIERS else _SMALL_POINTS


def _label(name: str, way: LinkDirection) -> str:
    return " · ".join(part for part in (f"{name} {capacity(way)}", load(way)) if part)


def _hosts(data: ReportData, link: SharedLink) -> str:
    names = fold_hostlist([data.names[host] for host in link.members], ", ")
    return f"{count(len(link.members), 'host')}: {names}"


def _roots(data: ReportData) -> tuple[list[_Node], int]:
    """Return the outermost groups with all inside them, in the order in which hosts are shown, and how many groups are
    left out: not those that are busy longest, or else carry least."""
    tiers, place = data.bandwidths.tiers, np.argsort(data.shown_order()).tolist()
    parents = {link.parent for links in tiers for link in links}
    keys = [(tier, number) for tier, links in enumerate(tiers) for number in range(len(links))]
    leaves = sorted((key for key in keys if key not in parents), key=lambda key: _urgency(tiers[key[0]][key[1]]))
    chosen = set(leaves[:MAX_DRAWN_GROUPS])
    children: dict[tuple[int, int] | None, list[_Node]] = {}
    for tier, number in keys:
        link, inside = tiers[tier][number], children.get((tier, number), [])
        if inside or (tier, number) in chosen:
            children.setdefault(link.parent, []).append(_Node(tier, number, link, tuple(inside)))
            children[link.parent].sort(key=lambda node: min(place[host] for host in node.link.members))
    return children[None], max(0, len(leaves) - MAX_DRAWN_GROUPS)


def _urgency(link: SharedLink) -> tuple[float, float]:
    ways = (link.out, link.into)
    busy = max((way.busy_us for way in ways if way.busy_us is not None), default=0.0)
    return -busy, min((way.gbps for way in ways if way.gbps is not None), default=0.0)


def _heading(data: ReportData) -> str:
    if data.route is None or data.bandwidths.size_bytes is None:
        return "What groups of hosts share"
    size = "a step" if data.route.algo == MESH else format_bytes(data.bandwidths.size_bytes)
    return f"What groups of hosts share, and what {collective(data.route.algo)} of {size} in plink's order loads on it"


def _subtitle(data: ReportData, omitted: int) -> str:
    text = "above each link what the group sends to others (lowest to highest of the repeats), below what it receives"
    if data.bandwidths.size_bytes is not None:
        text += "; the wider a line, the longer it is busy"
    return f"{text}; {count(omitted, 'group')} less busy: see the table" if omitted else text


def capacity(way: LinkDirection) -> str:
    """Return what one direction of a link can carry: ``1.03 Gbit/s (0.98 to 1.05)``, ``≥ 2 Gbit/s (limit: its
    hosts)``."""
    if way.gbps is None:
        return "not measured" if way.assumed_gbps is None else f"not measured, assumed {format_gbps(way.assumed_gbps)}"
    if way.is_least:
        return f"≥ {format_gbps(way.gbps)} (limit: {_LIMITS[way.limited_by]})"
    if way.low is None or way.high is None:
        return f"{format_gbps(way.gbps)} (interval unknown)"
    if way.low >= way.high:
        return format_gbps(way.gbps)
    scale, _ = rate_unit(way.gbps)
    return f"{format_gbps(way.gbps)} ({significant(way.low * scale)} to {significant(way.high * scale)})"


def load(way: LinkDirection) -> str:
    """Return what an order puts on one direction: ``188 MB, 1.46 s``; empty without an order."""
    if way.load_bytes is None:
        return ""
    if way.load_bytes == 0:
        return "nothing"
    size = format_bytes(way.load_bytes)
    return size if way.busy_us is None else f"{size}, {format_us(way.busy_us)}"


@dataclass(frozen=True)
class _Drawing:
    """What one tree is drawn with; ``length`` of a link in inches."""

    data: ReportData
    ax: "Axes"
    palette: Palette
    depth: int
    length: float

    @property
    def points(self) -> float:
        """Size of the texts."""
        return _points(self.depth)

    def draw(self, roots: Sequence[_Node]) -> None:
        """Draw all of it."""
        first_row, heights = 0, []
        for root in roots:
            heights.append(self._node(root, first_row, self.depth))
            first_row += root.rows
        self._trunk(_ROOT_INCHES, heights)

    def _x(self, tier: int) -> float:
        return _ROOT_INCHES + (self.depth - tier) * self.length

    def _trunk(self, x: float, heights: Sequence[float]) -> None:
        ends = [min(heights) - _BESIDE, max(heights) + _BESIDE]
        self.ax.plot([x, x], ends, color=self.palette.ink, linewidth=2.5, solid_capstyle="round", zorder=3)

    def _node(self, node: _Node, first_row: int, parent_tier: int) -> float:
        """Draw a group, what is inside it, and its link to ``parent_tier``; return its height."""
        heights, row = [], first_row
        for child in node.children:
            heights.append(self._node(child, row, node.tier))
            row += child.rows
        y = (heights[0] + heights[-1]) / 2 if heights else (first_row + 0.5) * _ROW
        left, right = self._x(parent_tier), self._x(node.tier)
        self._link(node, left, right, y)
        if heights:
            self._trunk(right, heights)
        else:
            self._group(node.link, right, y)
        return y

    def _link(self, node: _Node, left: float, right: float, y: float) -> None:
        busiest, route = self.data.bandwidths.busiest_us, self.data.route
        blamed = () if route is None or route.bottleneck is None else route.bottleneck.links
        for name, way, side in (("out", node.link.out, -1), ("in", node.link.into, 1)):
            share = 0.0 if way.busy_us is None or not busiest else way.busy_us / busiest
            is_blamed = (node.tier, node.number, side < 0) in blamed
            colour = self.palette.accent if is_blamed else self.palette.muted
            width = _THIN + (_THICK - _THIN) * share if busiest else 1.4
            style = "-" if way.gbps is not None and not way.is_least else (0, (3, 2))
            at = y + side * (_BESIDE + width / 144)
            self.ax.plot([left, right], [at, at], color=colour, linewidth=width, linestyle=style, zorder=2)
            at = y + side * (_BESIDE + width / 72 + 0.03)
            align = "bottom" if side < 0 else "top"
            text, ends = _label(name, way), (left + _PAD_INCHES, right - _PAD_INCHES)
            self._write(ends[0], at, text, ends[1], colour if is_blamed else self.palette.ink, align)

    def _write(self, x: float, y: float, text: str, right: float, colour: str, align: str = "center_baseline") -> None:
        """Write a text from ``x`` on, cut where it would go beyond ``right``."""
        room = int((right - x) * 72 / (self.points * _CHARACTER_WIDTH))
        self.ax.text(x, y, short_end(text, room), size=self.points, color=colour, ha="left", va=align)

    def _group(self, link: SharedLink, x: float, y: float) -> None:
        """Draw the mark of a group without others inside, and the names of its hosts."""
        labels = {int(self.data.groups.of[host]) for host in link.members}
        mark, colour = "o", self.palette.muted
        if len(labels) == 1 and self.data.groups.number > 1:
            (group,) = labels
            mark, colour = group_mark(group)[0], group_colour(group)
        edge: Any = {"markeredgecolor": self.palette.ink, "markeredgewidth": 0.5}
        self.ax.plot([x], [y], mark, color=colour, markersize=7, zorder=4, **edge)
        above = 0.08 if link.reason else 0.0
        self._write(x + _NODE_INCHES, y - above, _hosts(self.data, link), PAGE_INCHES, self.palette.ink)
        if link.reason:
            self._write(x + _NODE_INCHES, y + above, link.reason, PAGE_INCHES, self.palette.muted)


def short_end(text: str, max_chars: int) -> str:
    """Return a text that is cut at its end where it is too long, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= max_chars else f"{line[: max(1, max_chars - 1)]}…"
