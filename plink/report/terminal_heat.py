"""Draw a heat map in characters: two pixels per half block in colour, one pixel per shade without."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from plink.model.network import Matrix
from plink.report.colours import MAGNITUDE, Scale
from plink.report.report_data import Indices

if TYPE_CHECKING:
    from rich.text import Text

UPPER_HALF = "▀"
SHADES, PLAIN_SHADES = "·░▒▓█", ".:+*#"
_UNKNOWN = "?"
MIN_PIXELS = 24  # pixels: cells of fewer hosts are enlarged
_UNMEASURED_RGB = (128, 128, 128)


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


def reduce_matrix(measured_us: Matrix, order: Indices, max_rows: int) -> Matrix:
    """Return the matrix in this order, reduced to this many rows: the geometric mean of each block, NaN where nothing
    in it was measured; shape (R, R)."""
    values = measured_us[np.ix_(order, order)].copy()
    np.fill_diagonal(values, np.nan)
    if len(values) <= max_rows:
        return values
    begins = np.linspace(0, len(values), max_rows, endpoint=False).astype(np.intp)
    positive = np.isfinite(values) & (np.nan_to_num(values) > 0)
    logs = np.zeros_like(values)
    logs[positive] = np.log(values[positive])
    total, number = (
        np.add.reduceat(np.add.reduceat(part, begins, axis=0), begins, axis=1)
        for part in (logs, positive.astype(float))
    )
    return np.where(number > 0, np.exp(total / np.maximum(number, 1)), np.nan)


def rows(values: Matrix, scale: Scale, ink: Ink) -> "list[Text]":
    """Return the lines of a heat map, shape (R, R); the diagonal is blank where a pixel is one host."""
    n = len(values)
    one_host_pixels = np.isnan(np.diagonal(values)).all()  # the diagonal stands for itself only
    if not ink.colour:
        level = np.nan_to_num(scale.share(values) * len(ink.shades)).astype(int).clip(0, len(ink.shades) - 1)
        lines = []
        for i in range(n):
            cells = [
                " " if one_host_pixels and i == j else _UNKNOWN if np.isnan(values[i, j]) else ink.shades[level[i, j]]
                for j in range(n)
            ]
            lines.append(Text("".join(cell * ink.across for cell in cells)))
        return lines
    pixels = _pixels(values, scale, bool(one_host_pixels))
    scale_factor = max(1, MIN_PIXELS // n)
    enlarged = [
        [pixels[i // scale_factor][j // scale_factor] for j in range(n * scale_factor)] for i in range(n * scale_factor)
    ]
    if len(enlarged) % 2:
        enlarged.append([None] * len(enlarged))
    lines = []
    for upper, lower in zip(enlarged[::2], enlarged[1::2], strict=True):
        line = Text()
        for top, bottom in zip(upper, lower, strict=True):
            line.append(*_half(top, bottom))
        lines.append(line)
    return lines


def _pixels(values: Matrix, scale: Scale, one_host_pixels: bool) -> list[list[str | None]]:
    """Return the colour of each pixel as Rich names it, None for the diagonal."""
    import matplotlib

    share = np.nan_to_num(scale.share(values))
    colours = (matplotlib.colormaps[MAGNITUDE](share)[:, :, :3] * 255).round().astype(int)
    colours[np.isnan(values)] = _UNMEASURED_RGB
    n = len(values)
    return [
        [None if one_host_pixels and i == j else _hex_colour(*colours[i, j].tolist()) for j in range(n)]
        for i in range(n)
    ]


def _hex_colour(red: int, green: int, blue: int) -> str:
    return f"#{red:02x}{green:02x}{blue:02x}"


def _half(top: str | None, bottom: str | None) -> tuple[str, str]:
    """Return a character and its style: the upper half in one colour, the lower one in the other."""
    if top is None:
        return (" ", "") if bottom is None else ("▄", bottom)
    return (UPPER_HALF, top) if bottom is None else (UPPER_HALF, f"{top} on {bottom}")
