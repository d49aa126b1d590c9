"""Write the pictures as files: PNG for slides and chats, SVG for print."""

from pathlib import Path

from plink.errors import UsageError
from plink.model.storage import check_writable, write_bytes
from plink.report.canvas import as_png, as_svg
from plink.report.colours import PAPER
from plink.report.figures import figures
from plink.report.report_data import ReportData

_KINDS = (".png", ".svg")


def check_target(target: Path) -> None:
    """Refuse before anything is drawn what could not be written after it.

    :raises UsageError: when it is no folder and its name ends neither in .png nor in .svg, or its folder is missing.
    :raises PlinkError: when nothing can be written there.
    """
    if target.is_dir():
        check_writable(_picture_path(target, "given.png"))
        return
    if target.suffix.lower() not in _KINDS:
        raise UsageError(f"--png {target}: there is no such folder; make it, or name a file that ends in .png or .svg")
    if not target.parent.is_dir():
        raise UsageError(f"--png {target}: there is no folder {target.parent}")
    check_writable(_picture_path(target, "given.png"))


def write_pictures(data: ReportData, target: Path) -> list[Path]:
    """Write every picture as PNG and SVG and return the files: in a folder under its name, else beside a file named
    ``x.png`` as ``x-given.png`` and so on.

    :raises PlinkError: when one cannot be written.
    """
    written = []
    for name, picture in figures(data, PAPER).items():
        for path, content in (
            (_picture_path(target, f"{name}.png"), as_png(picture)),
            (_picture_path(target, f"{name}.svg"), as_svg(picture).encode()),
        ):
            write_bytes(path, content)
            written.append(path)
    return written


def _picture_path(target: Path, name: str) -> Path:
    """Return the file of one picture."""
    return target / name if target.is_dir() else target.with_name(f"{target.stem}-{name}")
