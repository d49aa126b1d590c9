"""Pictures that commands draw into a file of the user's choice."""

from pathlib import Path
from typing import TYPE_CHECKING

from plink.errors import UsageError
from plink.model.storage import check_writable, write_bytes, write_text
from plink.report.canvas import as_png, as_svg

if TYPE_CHECKING:
    from plink.report.canvas import Picture


def check_picture(path: Path) -> None:
    """Refuse a file that no picture can be written to, before anything is computed.

    :raises UsageError: for another ending. :raises InputError: where it cannot be written.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"--picture {path}: a picture's name ends in .svg or .png")
    check_writable(path)


def write_picture(picture: "Picture", path: Path) -> None:
    """Write a picture by the file's ending."""
    if path.suffix.lower() == ".png":
        write_bytes(path, as_png(picture))
    else:
        write_text(path, as_svg(picture))
