"""The driver of an elastic job that is started with it: a process of its own, which outlives the job's.

It is `plink spot drive`. As a process of its own session it releases what is held also where the job's process is
killed; where the driver is killed, the job's process starts another, and releases at the end.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plink.api.spot_driving import check_deadline, check_on_demand, check_zones
from plink.api.spot_release import END_TIMEOUT_S, release_spot
from plink.errors import PartlyDone, PlinkError, UsageError
from plink.model.hosts import Hosts
from plink.model.spot.journal import InstancesRequested
from plink.model.spot.market_file import MarketFile, read_market_file
from plink.records.spot_journal import FOLDER, JOB_END, read_journal, release_is_requested
from runners.spot.choice import choose_provider

LOG = "spot-driver.log"  # in the run's folder: what the driver printed
RUNNERS = ("ssh", "local")
MAX_INSTANCES = 10_000  # of a job that is started with its driver
_USAGE = 2  # exit code of a driver that is refused
_POLL_S = 0.2
_RESTART_S, _MAX_RESTART_S = 5.0, 60.0


@dataclass(frozen=True)
class SpotRequest:
    """What a job rents. ``market_file``: its path; ``prices``: histories; ``budget`` and ``max_hourly`` replace those
    of the market file; ``deadline_s``, ``iterations`` and ``falls_back``: as of
    :class:`plink.api.spot_driving.DriveRequest`."""

    market_file: Path
    prices: tuple[Path, ...] = ()
    budget: float | None = None
    max_hourly: float | None = None
    deadline_s: float | None = None
    iterations: int | None = None
    falls_back: bool = False

    def words(self, run: str) -> list[str]:
        """Return the command that drives a run."""
        words = ["spot", "drive", str(self.market_file), run]
        for path in self.prices:
            words += ["--prices", str(path)]
        for option, value in (("--budget", self.budget), ("--per-hour", self.max_hourly)):
            if value is not None:
                words += [option, repr(value)]
        if self.deadline_s is not None:
            words += ["--deadline", f"{self.deadline_s!r}s", "--iterations", str(self.iterations)]
        return words + ["--fallback"] * self.falls_back


def max_instances(market_file: MarketFile, has_deadline: bool = False, own_hosts: Hosts | None = None) -> int:
    """Return how many instances a driver may hold at once, at most.

    :param has_deadline: whether it may fall back to the reference machines. :param own_hosts: of a provider that has a
        list of them.
    :raises UsageError: when there is no bound that a job could be prepared for.
    """
    anchors = market_file.anchors
    working = anchors.count * anchors.type.cores if anchors is not None and market_file.anchors_work else 0.0
    cores = max(0.0, market_file.limits.max_cores - working)
    if own_hosts is not None:
        cores = min(cores, len(own_hosts) * max(kind.cores for kind in market_file.types))
    smallest = min(kind.cores for kind in market_file.types)
    if cores / smallest > MAX_INSTANCES:
        raise UsageError(f"{market_file.path}: limits.max_cores allows more than {MAX_INSTANCES} instances; lower it")
    count = int(cores // smallest) + (market_file.reference.count if has_deadline else 0)
    return count if own_hosts is None else min(count, len(own_hosts))


def checked_max_hosts(request: SpotRequest, hosts: Hosts, runner: str, max_hosts: int | None) -> int:
    """Return ``--max-hosts`` of a job: what was given, or what it and its driver need.

    :raises PlinkError: for what the driver would refuse once the job runs; no host is asked, and no provider.
    """
    if runner not in RUNNERS:
        raise UsageError(f"--spot: choose --runner {' or '.join(RUNNERS)}, not {runner}")
    market_file = read_market_file(request.market_file)
    with tempfile.TemporaryDirectory(prefix="plink-spot-") as scratch:
        chosen = choose_provider(market_file, "check", Path(scratch), "dry run")
    _check_commands(market_file)
    if chosen.hosts is not None and chosen.hosts.lab != hosts.lab:
        raise UsageError(f"{market_file.path}: the provider's hosts are not where the job's hosts are")
    check_deadline(request.deadline_s, request.iterations, request.falls_back)
    if request.falls_back or request.deadline_s is not None:
        check_on_demand(market_file, chosen)
    if request.deadline_s is not None:
        check_zones(market_file)
    reliable = sum(host.tier == "reliable" for host in hosts)
    if market_file.anchors is not None and market_file.anchors.count != reliable:
        raise UsageError(
            f"{market_file.path}: anchors.count is {market_file.anchors.count}, and the hosts file has {reliable} "
            "reliable hosts; costs would be wrong"
        )
    rented = max_instances(market_file, request.deadline_s is not None, chosen.hosts)
    needed = len(hosts) + rented
    if max_hosts is not None and max_hosts < needed:
        raise UsageError(
            f"--max-hosts {max_hosts}: {len(hosts)} hosts and up to {rented} instances that {market_file.path} "
            f"allows (limits.max_cores) are {needed}; give --max-hosts {needed}, or lower max_cores"
        )
    return needed if max_hosts is None else max_hosts


def _check_commands(market_file: MarketFile) -> None:
    entry = market_file.provider
    assert entry is not None
    programs = ["aws"] if entry["kind"] == "aws" else []
    if entry["kind"] == "command":
        programs = [entry[key][0] for key in ("prices", "acquire", "listing", "release")]
    for program in programs:
        if shutil.which(program) is None:
            raise UsageError(f"{market_file.path}: there is no command {program} to rent instances with")


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


def driver_command(request: SpotRequest, run: str) -> list[str]:
    """Return the argument vector of a driver; ``-P``: files of the working folder are no modules."""
    return [sys.executable, "-P", "-m", "plink", *request.words(run), "--supervised"]
