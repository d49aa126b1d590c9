"""Release all instances of a run."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plink.errors import InputError, PartlyDone, UsageError
from plink.model.hosts import Host
from plink.model.spot.journal import JournalEntry, JournalOpened
from plink.model.spot.market_file import Limits, read_market_file
from plink.model.spot.prices import Market
from runners.job.result import new_id
from runners.spot.brain import RentalChoice
from runners.spot.choice import ChosenProvider, checked_account, choose_provider, host_maker
from runners.spot.driver import Driver
from runners.spot.driver_parts import DriverParts
from runners.spot.elastic_job import JobView
from runners.spot.journal import (
    FOLDER,
    MARKET_COPY,
    NAME,
    Journal,
    JournalError,
    driver_of,
    read_journal,
    read_opening,
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
            chosen.provider, _NoJob(), _NoBrain(), writer, host_maker(market_file, chosen), chosen.clock, chosen.steady,
            new_id, note,
        )  # fmt: skip
        driver = Driver(parts, _NO_MONEY_LIMIT, chosen.timing, before.opened, entries)
        try:
            while not driver.release_all("plink spot release"):
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

    def wait(self, state: str) -> None:
        """Wait for the next attempt. :raises PartlyDone: with ``state``, when there is no time for one."""
        if self.waits.clock() > self.deadline:
            raise PartlyDone(f"{self.run}: {state}; type `plink spot release {self.run}` again")
        self.waits.pause(min(self.chosen.timing.poll_s / self.chosen.speed, 5.0))

    def check_account(self, opened: JournalOpened | None) -> None:
        """Return when the account is that of the journal: in another one nothing is listed, and nothing released."""
        if opened is None:
            self.note(f"{self.run}: not checked whether the account is that of the instances: no journal says which")
        while opened is not None:
            try:
                checked_account(opened, self.chosen.provider)
            except ProviderError as error:
                self.note(f"{self.run}: not released yet, tried again: {error}")
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
                self.note(f"{self.run}: not released yet, tried again: {error}")
            self.wait("not released, or not long enough ago to be sure")


def _was_held(before: Ledger, name: str) -> bool:
    """Return whether an instance was held, or not in the journal yet."""
    return name not in before.instances or before.instances[name].is_held
