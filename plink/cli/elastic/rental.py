"""What is rented for an elastic job that runs (``plink elastic run --spot``): started, released, accounted for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from plink.api.spot_process import DriverProcess, SpotRequest, driver_command
from plink.cli.rented import cost_line, rented_document
from plink.errors import PartlyDone, PlinkError
from plink.terminal.screen import say, say_error


class Rental:
    """The instances of one job. ``document``: `plink.spot-status/1` once they are released, None where there is none;
    ``failure``: an exit code where something is held still."""

    def __init__(self, request: SpotRequest | None, note: Callable[[str], None]) -> None:
        self._request, self._note = request, note
        self._driver: DriverProcess | None = None
        self._folder: Path | None = None
        self.document: dict[str, Any] | None = None
        self.failure = 0

    def start(self, folder: Path) -> None:
        """Start the driver of a run. :raises PlinkError: when the run is not recorded."""
        if self._request is not None:
            self._folder = folder
            self._driver = DriverProcess(folder, driver_command(self._request, folder.name), self._note)
            self._driver.start()

    def finish(self) -> None:
        """Return when nothing is held, and say what it cost. The run's record has its end already."""
        if self._driver is None or self._folder is None:
            return
        try:
            self._driver.finish()
        except PartlyDone as error:
            say_error(f"error: {error}")
            self.failure = error.exit_code
        except KeyboardInterrupt:
            run = self._folder.name
            if self._driver.is_running:
                say_error(f"the spot driver goes on releasing; see `plink spot status {run}`")
            else:
                say_error(f"instances may be held still, and no driver runs; type `plink spot release {run}`")
            raise
        try:
            self.document = rented_document(self._folder)
        except PlinkError as error:
            say_error(f"what it cost is not known: {error}")
        if self.document is not None:
            say(cost_line(self.document))
