"""Write the pictures as files: PNG for slides and chats, SVG for print."""

import io
from pathlib import Path

import numpy as np

from plink.errors import UsageError
from plink.model.storage import check_writable, write_bytes
from plink.report.canvas import as_png, as_svg
from plink.report.colours import PAPER
from plink.report.figures import figures
from plink.report.report_data import ReportData

_GAP_PIXELS = 40  # between pictures of one file


def check_target(target: Path) -> None:
    """Refuse before anything is drawn what could not be written after it.

    :raises UsageError: when it is no folder and its name does not end in .png, or its folder is missing.
    :raises PlinkError: when nothing can be written there.
    """
    if target.is_dir():
        check_writable(target / "given.png")
        return
    if target.suffix.lower() != ".png":
        raise UsageError(f"--png {target}: there is no such folder; make it, or name a file that ends in .png")
    if not target.parent.is_dir():
        raise UsageError(f"--png {target}: there is no folder {target.parent}")
    check_writable(target)


def write_pictures(data: ReportData, target: Path) -> list[Path]:
    """Write the pictures and return the files: in a folder each as PNG and SVG, else all in the one PNG file, two
    beside each other.

    :raises PlinkError: when one cannot be written.
    """
    pictures = figures(data, PAPER)
    if not target.is_dir():
        write_bytes(target, _side_by_side([as_png(picture) for picture in pictures.values()]))
        return [target]
    written = []
    for name, picture in pictures.items():
        for kind, content in ((".png", as_png(picture)), (".svg", as_svg(picture).encode())):
            write_bytes(target / (name + kind), content)
            written.append(target / (name + kind))
    return written


def _side_by_side(pictures: list[bytes]) -> bytes:
    """Return PNG pictures as one, in two columns, each next picture in the shorter one."""
    from matplotlib.image import imread, imsave

    images = [imread(io.BytesIO(picture))[:, :, :3] for picture in pictures]
    width = max(image.shape[1] for image in images) + _GAP_PIXELS
    heights, places = [0, 0], list[tuple[int, int]]()
    for image in images:
        column = int(heights[1] < heights[0])
        places.append((heights[column], column * width))
        heights[column] += image.shape[0] + _GAP_PIXELS
    page = np.ones((max(heights) + _GAP_PIXELS, width * min(2, len(images)) + _GAP_PIXELS, 3), dtype=np.float32)
    for image, place in zip(images, places, strict=True):
        top, left = place[0] + _GAP_PIXELS, place[1] + _GAP_PIXELS
        page[top : top + image.shape[0], left : left + image.shape[1]] = image
    content = io.BytesIO()
    imsave(content, page, format="png")
    return content.getvalue()
