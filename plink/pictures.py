"""Pictures in a palette: Matplotlib figures with axes and labels, as SVG of a page or as files.

On a page ink and paper are CSS variables, so that one drawing serves light, dark and print: pictures for a page are
drawn in colours that occur nowhere else, and those are exchanged for the variables afterwards.
"""

import base64
import html
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from plink.errors import UsageError
from plink.model.storage import check_writable, write_bytes, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
PAGE_INCHES, HALF_PAGE_INCHES = 12.0, 5.9  # inches: the page's width, and half of it with a gap between
_DPI = 160
_FILE: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.1}  # labels beyond the edge, too
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read out, searched, and takes the page's font
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "hatch.linewidth": 0.8,
    "axes.unicode_minus": True,
}
_MAX_COLOURS = 256  # colours of a PNG's palette
_IMAGE = re.compile(r"(data:image/png;base64,)([^\"]*)")
_SIZE = 8.0  # of the text, points
_WIDTH = 0.64  # of a character, as a share of the size of the text: names are wider than prose
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_MAX_NAME_CHARS = 18


@dataclass(frozen=True)
class Palette:
    """Colours of a picture besides those of its data."""

    ink: str
    muted: str
    line: str
    surface: str
    accent: str


PAPER = Palette(ink="#1b1f24", muted="#59626d", line="#c5cbd3", surface="#ffffff", accent="#c4006a")
PAGE = Palette(ink="#010102", muted="#010103", line="#010104", surface="#010105", accent="#010106")


def with_variables(svg: str) -> str:
    """Return a drawing in :data:`PAGE` with CSS variables for its colours."""
    for name, colour in vars(PAGE).items():
        svg = re.sub(rf'(fill|stroke)="{colour}"', rf'style="\1: var(--{name})"', svg)
        svg = svg.replace(colour, f"var(--{name})")
    return svg


@dataclass(frozen=True)
class Picture:
    """One drawing. ``name``: of its file and its elements; ``alt``: what it shows, for those who do not see it."""

    name: str
    alt: str
    figure: "Figure" = field(repr=False)


@contextmanager
def drawing() -> Iterator[None]:
    """Draw and write with plink's settings in this context, whatever the user's own are."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the page's fonts may well have it
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(_SETTINGS)
        yield


def figure(width: float, height: float, palette: Palette) -> "Figure":
    """Return an empty figure, inches, transparent."""
    from matplotlib.figure import Figure

    result = Figure(figsize=(width, height))
    result.patch.set_alpha(0.0)
    result.set_edgecolor(palette.surface)
    return result


def axes(
    drawn_figure: "Figure", box: tuple[float, float, float, float], palette: Palette, name: str, is_open: bool = False
) -> "Axes":
    """Axes in a box of (left, bottom, width, height) inches, with quiet lines; the page's script finds them by name.

    :param is_open: no line above them and to their right.
    """
    width, height = drawn_figure.get_size_inches()
    left, bottom, across, up = box
    ax = drawn_figure.add_axes((left / width, bottom / height, across / width, up / height))
    ax.set_facecolor("none")
    ax.patch.set_gid(f"frame-{name}")
    for spine in ax.spines.values():
        spine.set_color(palette.line)
        spine.set_linewidth(0.8)
    if is_open:
        ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(colors=palette.muted, labelcolor=palette.muted, labelsize=8, length=3, width=0.8)
    ax.xaxis.label.set(color=palette.muted, size=8.5)
    ax.yaxis.label.set(color=palette.muted, size=8.5)
    return ax


def title(drawn_figure: "Figure", text: str, palette: Palette, second: str = "") -> None:
    """Write a heading top left, and a quieter line below it."""
    height = drawn_figure.get_size_inches()[1]
    drawn_figure.text(0.0, 1 - 0.02 / height, text, size=11, weight="bold", color=palette.ink, va="top", ha="left")
    if second:
        drawn_figure.text(0.0, 1 - 0.25 / height, second, size=8.5, color=palette.muted, va="top", ha="left")


def inline(picture: Picture) -> str:
    """Return the SVG element for a page, drawn in :data:`PAGE`; it names nothing outside
    itself."""
    import matplotlib

    with drawing():
        matplotlib.rcParams["svg.hashsalt"] = picture.name
        text = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        picture.figure.savefig(text, format="svg", metadata=nothing)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)  # it would rule the page
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box is not None
    # Identifiers are hashes of what they name; two pictures of one page must not share them.
    svg = re.sub(r'(id="|url\(#|href="#)(?!frame-)', rf"\g<1>{picture.name}-", svg)
    head = f'<svg viewBox="{box[1]}" role="img" aria-label="{html.escape(picture.alt)}">'
    return _with_palettes(with_variables(re.sub(r"^<svg[^>]*>", lambda _: head, svg, count=1)))


def as_png(picture: Picture) -> bytes:
    """Return the picture on its palette's surface, PNG."""
    data = io.BytesIO()
    with drawing():
        picture.figure.savefig(data, format="png", dpi=_DPI, **_FILE, facecolor=picture.figure.get_edgecolor())
    return data.getvalue()


def as_svg(picture: Picture) -> str:
    """Return the picture as a file of its own, SVG with real text."""
    import matplotlib

    text = io.StringIO()
    with drawing():
        matplotlib.rcParams["svg.hashsalt"] = picture.name
        metadata = {"Date": None, "Creator": "plink", "Title": picture.alt}
        picture.figure.savefig(text, format="svg", metadata=metadata, **_FILE, facecolor=picture.figure.get_edgecolor())
    return text.getvalue()


def _with_palettes(svg: str) -> str:
    """Return the drawing with each embedded image as a PNG with a palette, where its colours fit: a
    third of the size, and no pixel changes."""
    return _IMAGE.sub(lambda image: image[1] + _as_palette_png(image[2]), svg)


def _as_palette_png(text: str) -> str:
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA"))
    colours, index = np.unique(np.ascontiguousarray(pixels).view(np.uint32), return_inverse=True)
    if len(colours) > _MAX_COLOURS:
        return text
    image = Image.fromarray(index.reshape(pixels.shape[:2]).astype(np.uint8), mode="P")
    palette = colours.view(np.uint8).reshape(-1, 4)
    image.putpalette(palette[:, :3].tobytes())
    data = io.BytesIO()
    image.save(data, format="png", optimize=True, transparency=palette[:, 3].tobytes())
    return base64.b64encode(data.getvalue()).decode()


def check_picture(path: Path) -> None:
    """Refuse a file that no picture can be written to, before anything is computed.

    :raises UsageError: for another ending. :raises InputError: where it cannot be written.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"--picture {path}: a picture's name ends in .svg or .png")
    check_writable(path)


def write_picture(picture: Picture, path: Path) -> None:
    """Write a picture by the file's ending."""
    if path.suffix.lower() == ".png":
        write_bytes(path, as_png(picture))
    else:
        write_text(path, as_svg(picture))


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


def write_labels(
    ax: "Axes", at: Floats, labels: Sequence[tuple[str, str]], obstacles: Floats, cover: float = 0.0, **style: Any
) -> None:
    """Write (text, colour) labels beside points, shape (K, 2) as ``obstacles``, in the unit of the axes.

    :param cover: as :func:`place` has it. :param style: of the texts, as Matplotlib has it.
    """

    def in_points(values: Floats) -> Floats:
        shown = ax.transData.transform(values) - np.asarray(ax.bbox.min)
        return np.asarray(shown * 72.0 / ax.figure.dpi, dtype=np.float64)

    width, height = (float(side) * 72 / ax.figure.dpi for side in (ax.bbox.width, ax.bbox.height))
    spots = place(in_points(at), [text for text, _ in labels], (width, height), in_points(obstacles), cover)
    for spot, (text, colour) in zip(spots, labels, strict=True):
        if spot is not None:
            x, y, align = spot
            where: Any = {"transform": ax.transAxes, "ha": align, "va": "center_baseline"}
            ax.text(x / width, y / height, text, color=colour, **where, **style)
