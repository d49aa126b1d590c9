"""The driver of an elastic job that is started with it: a process of its own, which outlives the job's.

As a process of its own session it releases what is held also where the job's process is killed; where the driver is
killed, the job's process starts another, and releases at the end.
"""

import contextlib
import math
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plink.errors import InputError, PartlyDone, PlinkError, UsageError
from plink.model.hosts import Host
from plink.model.spot.journal import InstancesRequested, JournalEntry, JournalOpened
from plink.model.spot.market_file import Limits, read_market_file
from plink.model.spot.prices import Market
from runners.job.placement import new_id
from runners.spot.brain import RentalChoice
from runners.spot.choice import ChosenProvider, checked_account, choose_provider, host_maker
from runners.spot.driver import Driver
from runners.spot.driver_parts import DriverParts
from runners.spot.elastic_job import JobView
from runners.spot.journal import (
    FOLDER,
    JOB_END,
    MARKET_COPY,
    NAME,
    Journal,
    JournalError,
    driver_of,
    read_journal,
    read_opening,
    release_is_requested,
    request_release,
)
from runners.spot.provider import ProviderError
from runners.spot.status import doubt_of
from solvers.spot.deciding import Quote
from solvers.spot.ledger import Ledger, RentedInstance
from solvers.spot.reconciling import run_of

RELEASE_TIMEOUT_S = 300.0  # at least
_LAST_LISTINGS_S = 60.0  # of a release, after a request without an answer is given up
_NO_MONEY_LIMIT = Limits(math.inf, math.inf)
_RELEASE_POLL_S = 0.5
END_TIMEOUT_S = 600.0  # for a driver to release everything


LOG = "spot-driver.log"  # in the run's folder: what the driver printed
_USAGE = 2  # exit code of a driver that is refused
_POLL_S = 0.2
_RESTART_S, _MAX_RESTART_S = 5.0, 60.0


def await_driver_end(
    folder: Path,
    note: Callable[[str], None],
    timeout_s: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> None:
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
        pause(_RELEASE_POLL_S)


@dataclass(frozen=True)
class Released:
    """What was released of a run; ``names``: hosts, or instances that had no name in the job."""

    run: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class ReleaseWaits:
    """How long a release may take, and what it waits by. ``timeout_s``: None for what the provider needs."""

    timeout_s: float | None = None
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def deadline(self, chosen: ChosenProvider) -> float:
        """Return when a release that begins now is given up: after a request without an answer is."""
        timing = chosen.timing
        needed_s = (timing.request_timeout_s + timing.listing_delay_s) / chosen.speed + _LAST_LISTINGS_S
        return self.clock() + (max(RELEASE_TIMEOUT_S, needed_s) if self.timeout_s is None else self.timeout_s)


def release_spot(folder: Path, note: Callable[[str], None], waits: ReleaseWaits = ReleaseWaits()) -> Released:
    """Release all that the provider lists with the tag of this run, and all that its journal says is held; by the tag
    alone where the journal is gone, or cannot be read or written. A driver that runs does so and ends; the job starts
    none after that.

    :raises UsageError: when nothing was ever requested. :raises PartlyDone: when something is held
        still after so many seconds.
    """
    folder = Path(folder).absolute()
    if not any((folder / FOLDER / name).exists() for name in (NAME, MARKET_COPY)):
        raise UsageError(f"the run {folder.name} has no instances: `plink spot drive` was not started for it")
    await_driver_end(folder, note, waits.timeout_s or END_TIMEOUT_S, waits.clock, waits.pause)
    with Journal(folder / FOLDER) as writer:
        entries = _readable_journal(folder, note)
        before = Ledger.of(entries)
        if not entries and not (folder / FOLDER / MARKET_COPY).exists():
            return Released(folder.name, ())
        market_file = read_market_file(folder / FOLDER / MARKET_COPY)
        chosen = choose_provider(market_file, folder.name, folder / FOLDER, "release")
        release = _Release(folder.name, chosen, note, waits, waits.deadline(chosen))
        release.check_account(before.opened or read_opening(folder / FOLDER))
        if before.opened is None:
            return release.by_tag()
        parts = DriverParts(
            chosen.provider,
            _NoJob(),
            _NoBrain(),
            writer,
            host_maker(market_file, chosen),
            chosen.clock,
            chosen.steady,
            new_id,
            note,
        )
        driver = Driver(parts, _NO_MONEY_LIMIT, chosen.timing, before.opened, entries)
        try:
            while not driver.release_all():
                held = ", ".join(each.host or each.id for each in driver.ledger.held) or "an open request"
                release.wait(f"held still: {held}")
        except JournalError as error:
            note(f"{error}; what the provider lists with the tag of this run is released")
            return release.by_tag(driver.ledger.held)
        if driver.ledger.doubtful_requests(chosen.clock()):
            note(doubt_of(driver.ledger, chosen.clock()))
        names = [each.host or each.id for each in driver.ledger.instances.values() if _was_held(before, each.id)]
        return Released(folder.name, tuple(names))


class _NoJob:
    """No job: nothing is added, and nobody is warned."""

    def view(self) -> JobView | None:
        """Return nothing."""
        return None

    def add(self, hosts: Sequence[Host]) -> None:
        """Add nothing."""

    def evict(self, names: Sequence[str], seconds: float) -> None:
        """Warn nobody."""

    def errors(self) -> Sequence[str]:
        """Return none."""
        return ()


class _NoBrain:
    """No decisions."""

    def observe(self, market: Market, since_s: float, price: float) -> None:
        """Pass it over."""

    def choose(self, ledger: Ledger, quotes: Mapping[Market, Quote], now: float) -> RentalChoice:
        """Choose nothing."""
        return RentalChoice("everything is released")

    def reason_to_end(self, ledger: Ledger, token: str, quotes: Mapping[Market, Quote], now: float) -> str:
        """Return nothing."""
        return ""


def _readable_journal(folder: Path, note: Callable[[str], None]) -> Sequence[JournalEntry]:
    """Return the entries of a journal; none where it cannot be read."""
    try:
        return read_journal(folder / FOLDER)
    except InputError as error:
        note(f"{error}; what the provider lists with the tag of this run is released, and nothing is written there")
        return []


@dataclass(frozen=True)
class _Release:
    """One release, until ``deadline``."""

    run: str
    chosen: ChosenProvider
    note: Callable[[str], None]
    waits: ReleaseWaits
    deadline: float
    noted: list[str] = field(default_factory=list)

    def wait(self, state: str) -> None:
        """Wait for the next attempt. :raises PartlyDone: with ``state``, when there is no time for one."""
        if self.waits.clock() > self.deadline:
            raise PartlyDone(f"{self.run}: {state}; type `plink spot release {self.run}` again")
        self.waits.pause(min(self.chosen.timing.poll_s / self.chosen.speed, 5.0))

    def note_error(self, error: ProviderError) -> None:
        """Say why an attempt failed, unless the one before failed for that, too."""
        if str(error) not in self.noted:
            self.note(f"{self.run}: not released yet, tried again: {error}")
        self.noted[:] = [str(error)]

    def check_account(self, opened: JournalOpened | None) -> None:
        """Return when the account is that of the journal: in another one nothing is listed, and nothing released."""
        if opened is None:
            self.note(f"{self.run}: not checked whether the account is that of the instances: no journal says which")
        while opened is not None:
            try:
                checked_account(opened, self.chosen.provider)
            except ProviderError as error:
                self.note_error(error)
                self.wait(f"nothing was released: {error}")
            else:
                return

    def by_tag(self, held: Sequence[RentedInstance] = ()) -> Released:
        """Release these, and what the provider lists with the tag of the run. One listing may lack what runs: listings
        go on for a while after the last that had something."""
        unreleased = {each.id: each.host or each.id for each in held}
        names: dict[str, None] = {}
        delay_s, seen_at = self.chosen.timing.listing_delay_s / self.chosen.speed, self.waits.clock()
        self.note(f"{self.run}: listings are read until nothing was listed for {delay_s:.0f} s")
        while True:
            try:
                listed = [each for each in self.chosen.provider.listing() if each.end is None]
                seen = {each.id: each.host or each.id for each in listed if run_of(each) == self.run}
                unreleased = seen | unreleased
                if unreleased:
                    seen_at = self.waits.clock()
                    self.chosen.provider.release([*unreleased])
                    names |= dict.fromkeys(unreleased.values())
                    unreleased = {}
                elif self.waits.clock() - seen_at >= delay_s:
                    return Released(self.run, tuple(names))
            except ProviderError as error:
                self.note_error(error)
            self.wait("not released, or not long enough ago to be sure")


def _was_held(before: Ledger, name: str) -> bool:
    """Return whether an instance was held, or not in the journal yet."""
    return name not in before.instances or before.instances[name].is_held


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
