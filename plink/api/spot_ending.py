"""The end of a driver that runs, where everything is to be released although its job goes on."""

from collections.abc import Callable
from pathlib import Path

from plink.errors import PartlyDone
from plink.records.spot_journal import FOLDER, driver_of, request_release

_POLL_S = 0.5
END_TIMEOUT_S = 600.0  # for a driver to release everything


def await_driver_end(
    folder: Path, note: Callable[[str], None], timeout_s: float, clock: Callable[[], float],
    pause: Callable[[float], None],
) -> None:  # fmt: skip
    """Have the driver of a run release everything, and return when it has ended. :raises PartlyDone: when it has not
    in its time."""
    if not request_release(folder / FOLDER):
        return
    deadline, process = clock() + timeout_s, driver_of(folder / FOLDER)
    if process is not None:
        note(f"{folder.name}: the driver (process {process}) releases everything, and ends")
    while driver_of(folder / FOLDER) is not None:
        if clock() > deadline:
            raise PartlyDone(
                f"{folder.name}: the driver (process {process}) has not released everything yet; end it, then type "
                f"`plink spot release {folder.name}` again"
            )
        pause(_POLL_S)
