"""Place names beside points without overlap: each takes the freest position around its point, or is omitted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from plink.report.report_data import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = 8.0  # of the text, points
_WIDTH = 0.64  # of a character, as a share of the size of the text: names are wider than prose
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_MAX_NAME_CHARS = 18


def short(name: str, max_chars: int = _MAX_NAME_CHARS) -> str:
    """Shorten a name in its middle: hosts differ in how their names end."""
    if len(name) <= max_chars:
        return name
    tail = max_chars * 2 // 3
    return f"{name[: max_chars - tail - 1]}…{name[-tail:]}"


def short_names(names: Sequence[str], max_chars: int = _MAX_NAME_CHARS) -> list[str]:
    """Shorten the names of hosts: without the domain that all share, then without the beginning that all share, then
    each in its middle. Nothing is left out where all fit."""
    shown = list(names)
    if len(shown) > 1 and max(map(len, shown)) > max_chars:
        ends = _common_start([name[::-1] for name in shown])[::-1]
        domain = ends[ends.index(".") :] if "." in ends else ""
        if domain and all(len(name) > len(domain) for name in shown):
            shown = [name[: -len(domain)] for name in shown]
    if len(shown) > 1 and max(map(len, shown)) > max_chars:
        start = _common_start(shown)
        cut = max(start.rfind(separator) for separator in "-_.") + 1
        if cut > 1:
            shown = [f"…{name[cut:]}" for name in shown]
    return [short(name, max_chars) for name in shown]


def _common_start(texts: Sequence[str]) -> str:
    """Return what all texts begin with; of the first and the last in the alphabet is enough."""
    first, last = min(texts), max(texts)
    same = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]


def place(
    at: Floats, texts: Sequence[str], extent: tuple[float, float], obstacles: Floats, cover: float = 0.0
) -> list[tuple[float, float, str] | None]:
    """Return where each text goes: (x, y, alignment) of the middle of its end next to the point, None where all is
    taken.

    :param at: points, shape (K, 2), in points (1/72 inch) from the lower left corner.
    :param extent: width and height of the axes in points.
    :param obstacles: what texts should not cover, shape (M, 2), in the same unit; the place that covers least is taken,
        and none if even that covers more than ``cover`` of them.
    """
    boxes: list[tuple[float, float, float, float]] = []
    places: list[tuple[float, float, str] | None] = []
    for (x, y), text in zip(at.tolist(), texts, strict=True):
        width, best, fewest_hidden = len(text) * _SIZE * _WIDTH, None, cover + 0.5
        for right, up in _SIDES:
            left = x + 7 if right > 0 else x - 7 - width if right < 0 else x - width / 2
            middle = y + up * (9 if right == 0 else 6)
            box = (left, middle - _SIZE * 0.6, left + width, middle + _SIZE * 0.6)
            if box[0] < 0 or box[1] < 0 or box[2] > extent[0] or box[3] > extent[1]:
                continue
            if any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in boxes):
                continue
            inside = (obstacles[:, 0] > box[0] - 3) & (obstacles[:, 0] < box[2] + 3)
            inside &= (obstacles[:, 1] > box[1] - 3) & (obstacles[:, 1] < box[3] + 3)
            hidden = float(inside.sum())
            if hidden < fewest_hidden:
                best, fewest_hidden = (box, right), hidden
        if best is None:
            places.append(None)
            continue
        box, right = best
        boxes.append(box)
        align = "left" if right > 0 else "right" if right < 0 else "center"
        end = box[0] if right > 0 else box[2] if right < 0 else (box[0] + box[2]) / 2
        places.append((end, (box[1] + box[3]) / 2, align))
    return places


def in_points(ax: "Axes", values: Floats) -> Floats:
    """Return points of the data, shape (K, 2), in 1/72 inch from the lower left corner of the axes."""
    shown = ax.transData.transform(values) - np.asarray(ax.bbox.min)
    return np.asarray(shown * 72.0 / ax.figure.dpi, dtype=np.float64)
