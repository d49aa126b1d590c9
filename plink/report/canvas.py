"""Matplotlib figures in a palette, and their conversion to a page's SVG or to files."""

import base64
import html
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from plink.report.colours import Palette, with_variables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE_INCHES, HALF_PAGE_INCHES = 12.0, 5.9  # inches: the page's width, and half of it with a gap between
_DPI = 160
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


def axes(drawn_figure: "Figure", box: tuple[float, float, float, float], palette: Palette, name: str) -> "Axes":
    """Axes in a box of (left, bottom, width, height) inches, with quiet lines; the page's script finds them by name."""
    width, height = drawn_figure.get_size_inches()
    left, bottom, across, up = box
    ax = drawn_figure.add_axes((left / width, bottom / height, across / width, up / height))
    ax.set_facecolor("none")
    ax.patch.set_gid(f"frame-{name}")
    for spine in ax.spines.values():
        spine.set_color(palette.line)
        spine.set_linewidth(0.8)
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
    """Return the SVG element for a page, drawn in :data:`plink.report.colours.PAGE`; it names nothing outside
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
        picture.figure.savefig(data, format="png", dpi=_DPI, facecolor=picture.figure.get_edgecolor())
    return data.getvalue()


def as_svg(picture: Picture) -> str:
    """Return the picture as a file of its own, SVG with real text."""
    import matplotlib

    text = io.StringIO()
    with drawing():
        matplotlib.rcParams["svg.hashsalt"] = picture.name
        metadata = {"Date": None, "Creator": "plink", "Title": picture.alt}
        picture.figure.savefig(text, format="svg", metadata=metadata, facecolor=picture.figure.get_edgecolor())
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
