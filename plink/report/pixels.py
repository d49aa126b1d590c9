"""Compress images inside drawings: a heat map has few colours, and a palette of them is a third of the size."""

import base64
import io
import re

import numpy as np

_MAX_COLOURS = 256  # colours of a PNG's palette
_IMAGE = re.compile(r"(data:image/png;base64,)([^\"]*)")


def with_palettes(svg: str) -> str:
    """Return the drawing with each embedded image as a PNG with a palette, where its colours fit; no pixel changes."""
    return _IMAGE.sub(lambda image: image[1] + _as_palette_png(image[2]), svg)


def _as_palette_png(text: str) -> str:
    from PIL import Image

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
