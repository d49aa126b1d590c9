"""The driver of an elastic job that is started with it: a process of its own, which outlives the job's.

As a process of its own session it releases what is held also where the job's process is killed; where the driver is
killed, the job's process starts another, and releases at the end.
"""

import contextlib
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from plink.errors import PartlyDone, PlinkError
from plink.model.spot.journal import InstancesRequested
from runners.spot.journal import FOLDER, JOB_END, read_journal, release_is_requested
from runners.spot.release import END_TIMEOUT_S, release_spot

LOG = "spot-driver.log"  # in the run's folder: what the driver printed
_USAGE = 2  # exit code of a driver that is refused
_POLL_S = 0.2
_RESTART_S, _MAX_RESTART_S = 5.0, 60.0


class DriverProcess:
    """The driver of one run, started again where it is lost.

    :param folder: of the run. :param argv: the command. :param note: gets what it says, a line each, and what happens
        to it. :param restart_s: before the first restart; twice as long before each further one.
    """

    def __init__(
        self, folder: Path, argv: Sequence[str], note: Callable[[str], None], restart_s: float = _RESTART_S
    ) -> None:
        self._folder, self._argv, self._note, self._restart_s = folder, [*argv], note, restart_s
        self._log = folder / LOG
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._supervise, daemon=True)

    def start(self) -> None:
        """Begin. :raises PlinkError: when the run is not recorded, which the driver's journal needs."""
        if not (self._folder / "run.json").exists():
            raise PlinkError("nothing can be rented for a run that is not recorded: .plink/runs cannot be written")
        self._thread.start()

    def _supervise(self) -> None:
        pause = self._restart_s
        while True:
            if release_is_requested(self._folder / FOLDER):
                self._note("nothing is rented any more, after `plink spot release`; `plink spot drive` rents again")
                return
            code = self._run_once()
            if code in (0, PartlyDone.exit_code) or self._over.is_set():
                return
            if code == _USAGE and not self._may_hold():
                self._note("the spot driver was refused; the job goes on with the hosts that it has")
                return
            if code == _USAGE:
                self._note("the spot driver was refused; what is held ends with its leases unless one starts")
            if release_is_requested(self._folder / FOLDER):
                continue
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._note(
                f"the spot driver ended with {ended}; another one starts in {pause:.0f} s (if this command is killed "
                f"before that, type `plink spot release {self._folder.name}`)"
            )
            if self._over.wait(pause):
                return
            pause = min(2 * pause, max(self._restart_s, _MAX_RESTART_S))

    def _run_once(self) -> int:
        """Run one driver to its end, and note what it prints. It prints to a file: a pipe would end with this
        process."""
        try:
            with self._log.open("ab") as log:
                start = log.tell()
                self._process = subprocess.Popen(
                    self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            self._note(f"the spot driver cannot be started: {error.strerror}")
            return 1
        with self._log.open("rb") as lines:
            lines.seek(start)
            text = b""
            while True:
                code = self._process.poll()
                *whole, text = (text + lines.read()).split(b"\n")
                for line in filter(None, whole):
                    self._note(line.decode("utf-8", "replace").removeprefix("plink: "))
                if code is not None:
                    return code
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_POLL_S)

    def finish(self, timeout_s: float = END_TIMEOUT_S) -> None:
        """Return when nothing is held any more, after the job's end: the driver releases everything then. Without a
        driver, or where it cannot be informed of the end, it is released here.

        :raises PartlyDone: when something is held still. :raises PlinkError: when nothing can be released.
        """
        self._over.set()
        if self._thread.ident is not None and self._mark_end():
            self._thread.join(timeout_s)
        process = self._process
        if process is not None and process.poll() is None:
            self._note("the spot driver is ended: it has not released everything in its time")
            process.kill()
            process.wait()
        if process is not None and process.returncode == PartlyDone.exit_code:
            run = self._folder.name
            raise PartlyDone(f"a request was never answered; type `plink spot release {run}` again within the hour")
        if (process is None or process.returncode != 0) and self._may_hold():
            self._release()

    def _may_hold(self) -> bool:
        """Return whether anything was ever requested, by the journal; True where that cannot be read."""
        try:
            return any(isinstance(entry, InstancesRequested) for entry in read_journal(self._folder / FOLDER))
        except PlinkError:
            return True

    @property
    def is_running(self) -> bool:
        """Whether a driver runs, which goes on without this process."""
        return self._process is not None and self._process.poll() is None

    def _mark_end(self) -> bool:
        """Inform the driver of the job's end: the run's record may lack it. Return False where that cannot be."""
        try:
            (self._folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
            (self._folder / FOLDER / JOB_END).touch()
        except OSError as error:
            self._note(f"the spot driver cannot be informed of the job's end: {error.strerror}")
            return False
        return True

    def _release(self) -> None:
        """Release what the journal or the tag says is held."""
        run = self._folder.name
        self._note(f"what is held is released here; if that is interrupted, type `plink spot release {run}`")
        try:
            release_spot(self._folder, self._note)
        except PartlyDone:
            raise
        except PlinkError as error:
            raise PartlyDone(
                f"what is held is not released: {error}; type `plink spot release {self._folder.name}`"
            ) from None
