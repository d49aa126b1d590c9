"""Rent transient instances for an elastic job that runs, see what is held, and release it."""

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plink.api.spot import application_from
from plink.api.spot_brain import MarketBrain
from plink.api.spot_ending import END_TIMEOUT_S, await_driver_end
from plink.api.spot_history import HistoryFirst
from plink.api.spot_idle import NoBrain, NoJob, ObservedJob, ObservedProvider, UnwrittenJournal
from plink.errors import InputError, PartlyDone, UsageError
from plink.model.spot.journal import JournalEntry, JournalOpened
from plink.model.spot.limits import Limits
from plink.model.spot.market_file import MarketFile, read_market_file
from plink.model.spot.price_files import Histories
from plink.model.spot.prices import HOUR_S
from plink.model.storage import read_text, write_text
from plink.records.spot_journal import (
    FOLDER,
    MARKET_COPY,
    NAME,
    Journal,
    JournalError,
    driver_of,
    read_journal,
    read_opening,
    release_is_requested,
    withdraw_release,
)
from runners.job.result import new_id
from runners.spot.choice import ChosenProvider, choose_provider, host_maker, provider_name, scope_of
from runners.spot.driver import Driver, DriverParts, JournalWriter, run_driver
from runners.spot.elastic_job import ElasticJob
from runners.spot.fallback import HostCores, OnDemandFallback
from runners.spot.provider import Provider, ProviderError
from solvers.spot.deadline import Deadline, IterationTime
from solvers.spot.ledger import Account, Ledger, RentedInstance, account, instance_money
from solvers.spot.reconciling import run_of

HISTORY_S = 30 * 24 * HOUR_S  # of prices, from the provider, where no file has any
RELEASE_TIMEOUT_S = 300.0  # at least
_LAST_LISTINGS_S = 60.0  # of a release, after a request without an answer is given up
_NO_MONEY_LIMIT = Limits(math.inf, math.inf)


@dataclass(frozen=True)
class DriveRequest:
    """What `plink spot drive` was asked. ``market_file``: its path; ``histories``: prices from files; ``budget`` and
    ``max_hourly`` replace those of the market file. ``deadline_s``: from the first driver's start to the end of a job
    of so many ``iterations``; both or none; ``is_supervised``: the job started this driver, maybe again."""

    market_file: Path
    histories: Histories
    budget: float | None = None
    max_hourly: float | None = None
    deadline_s: float | None = None
    iterations: int | None = None
    falls_back: bool = False
    is_supervised: bool = False

    def check(self) -> None:
        """:raises UsageError: as :func:`check_deadline`."""
        check_deadline(self.deadline_s, self.iterations, self.falls_back)

    @property
    def needs_on_demand(self) -> bool:
        """Whether on-demand machines may be requested."""
        return self.falls_back or self.deadline_s is not None


def check_deadline(deadline_s: float | None, iterations: int | None, falls_back: bool) -> None:
    """:raises UsageError: for a deadline without iterations, the other way round, or with the fallback to on-demand
    machines while markets are dear."""
    if (deadline_s is None) != (iterations is None):
        raise UsageError("--deadline TIME and --iterations N go together: how much there is to do, and until when")
    if deadline_s is not None and falls_back:
        raise UsageError("choose --deadline or --fallback: a deadline rents on-demand machines when it has to")


def drive_spot(
    folder: Path, job: Mapping[str, Any], request: DriveRequest, note: Callable[[str], None],
    after_step: Callable[["SpotState"], None] = lambda state: None,
) -> None:  # fmt: skip
    """Rent instances for the job of a run until it ends; then release all of them.

    :param folder: of the run. :param job: its ``plink.elastic-job/1``.
    :raises UsageError: when another driver runs, or what is held is of another provider. :raises PartlyDone: when all
        is released, but a request was never answered within the last hour. :raises PlinkError: when the
        journal cannot be written, or the provider does not say whose account it is.
    """
    request.check()
    market_file = _limited(read_market_file(request.market_file), request)
    with Journal(folder / FOLDER) as writer:
        if not request.is_supervised:
            withdraw_release(folder / FOLDER)
        entries = read_journal(folder / FOLDER)
        _check_same_provider(folder, Ledger.of(entries), market_file)
        chosen = choose_provider(market_file, folder.name, folder / FOLDER)
        account_name = _checked_account(Ledger.of(entries).opened, chosen.provider)
        if not chosen.has_leases:
            note("instances have no leases: if this machine is lost, they go on until `plink spot release`")
        session = _Session(folder, job, market_file, chosen, note, account_name)
        driver = session.driver(request, writer, entries)

        def show() -> None:
            after_step(_state(folder, driver.ledger, market_file, chosen.clock()))

        run_driver(driver, lambda: time.sleep(chosen.timing.poll_s / chosen.speed), show)
        show()
        if driver.ledger.doubtful_requests(chosen.clock()):
            raise PartlyDone(_doubt(driver.ledger, chosen.clock()))


def _doubt(ledger: Ledger, now: float) -> str:
    """Return which requests may have been granted unseen, and what to type."""
    assert ledger.opened is not None
    names = ", ".join(f"{each.entry.count} x {each.entry.market}" for each in ledger.doubtful_requests(now))
    run = ledger.opened.run
    return f"{names}: never answered; instances may still appear: type `plink spot release {run}` again within the hour"


def dry_run_spot(folder: Path, job: Mapping[str, Any], request: DriveRequest, note: Callable[[str], None]) -> None:
    """Do one step of :func:`drive_spot`, but keep no journal, and acquire, renew and release nothing.

    :raises UsageError: as that does.
    """
    request.check()
    market_file = _limited(read_market_file(request.market_file), request)
    entries = read_journal(folder / FOLDER)
    _check_same_provider(folder, Ledger.of(entries), market_file)
    with tempfile.TemporaryDirectory(prefix="plink-spot-") as scratch:
        place = folder / FOLDER if entries else Path(scratch)
        chosen = choose_provider(market_file, folder.name, place, "dry run")
        _checked_account(Ledger.of(entries).opened, chosen.provider)
        chosen = replace(chosen, provider=ObservedProvider(chosen.provider))
        session = _Session(folder, job, market_file, chosen, note, is_dry=True)
        session.driver(request, UnwrittenJournal(), entries).step()


@dataclass(frozen=True)
class _Session:
    """One run of a driver."""

    folder: Path
    job: Mapping[str, Any]
    market_file: MarketFile
    chosen: ChosenProvider
    note: Callable[[str], None]
    account: str = ""
    is_dry: bool = False

    def driver(self, request: DriveRequest, writer: JournalWriter, entries: Sequence[JournalEntry]) -> Driver:
        """Return the driver, with odds from the histories of a request or from the provider's."""
        market_file, chosen, run, histories = self.market_file, self.chosen, self.folder.name, request.histories
        if request.needs_on_demand:
            check_on_demand(market_file, chosen)
        if request.deadline_s is not None:
            check_zones(market_file)
        now = chosen.clock()
        brain = MarketBrain(market_file, histories, chosen.timing.lease_s, request.falls_back)
        if request.deadline_s is not None:
            brain.reserve(market_file.reference)
        provider: Provider = chosen.provider
        if not histories.prices:
            provider = HistoryFirst(provider, brain.observe, now - HISTORY_S)
            self._observe_history(provider, now, bool(entries) or request.deadline_s is not None)
        if chosen.hosts is not None and chosen.hosts.lab != self.job.get("lab"):
            raise UsageError(f"{market_file.path}: the provider's hosts are not where the job's hosts are")
        anchors = market_file.anchors
        opened = JournalOpened(
            now, run, provider_name(market_file), market_file.billing, anchors.count if anchors else 0,
            anchors.type.on_demand if anchors else 0.0, self.account,
        )  # fmt: skip
        elastic = ElasticJob(self.folder, self.job, chosen.speed)
        parts = DriverParts(
            provider, ObservedJob(elastic) if self.is_dry else elastic, brain, writer,
            host_maker(market_file, chosen), chosen.clock, chosen.steady, lambda: f"{run}-{new_id()}", self.note,
            self._fallback(request, opened if not entries else Ledger.of(entries).opened or opened),
            lambda: not self.is_dry and release_is_requested(self.folder / FOLDER),
        )  # fmt: skip
        if not self.is_dry:  # before anything is requested: what is held is released by it
            write_text(self.folder / FOLDER / MARKET_COPY, read_text(request.market_file))
        driver = Driver(parts, market_file.limits, chosen.timing, opened, entries)
        driver.record_limits()
        return driver

    def _observe_history(self, provider: HistoryFirst, now: float, goes_on: bool) -> None:
        """Ask for the provider's history of prices. Neither a deadline waits for it nor a driver that is started
        again, which has to renew and to release: the first prices that there are bring the history."""
        try:
            provider.prices(now)
        except ProviderError as error:
            if not goes_on:
                raise
            self.note(f"no history of prices yet: {error}; tried again (--prices FILE gives others)")

    def _fallback(self, request: DriveRequest, opened: JournalOpened) -> OnDemandFallback | None:
        if request.deadline_s is None or request.iterations is None:
            return None
        market_file, timing = self.market_file, self.chosen.timing
        application = application_from(market_file.changes)
        iteration = IterationTime(application.scaling, market_file.changes.iteration_s is not None)
        cores = HostCores(
            {each.name: each.cores for each in market_file.types},
            market_file.anchors.type.cores if market_file.anchors is not None else None,
        )
        slack_s = timing.decision_s + timing.request_timeout_s + timing.listing_delay_s  # one request without an answer
        return OnDemandFallback(
            Deadline(opened.at, opened.at + request.deadline_s, request.iterations), market_file.reference,
            market_file.zones,
            iteration, application.start_s + application.add_s, slack_s, self.note, cores,
        )  # fmt: skip


def check_zones(market_file: MarketFile) -> None:
    """:raises UsageError: when the market file does not say where a deadline may rent on demand: prices might."""
    if not market_file.zones:
        raise UsageError(f"{market_file.path}: --deadline needs zones, where to rent the reference machines on demand")


def check_on_demand(market_file: MarketFile, chosen: ChosenProvider) -> None:
    """:raises UsageError: when the provider starts no on-demand machines, which a deadline and a fallback need."""
    if not chosen.has_on_demand:
        raise UsageError(
            f"{market_file.path}: --deadline and --fallback need on-demand machines; set provider.on_demand = true if "
            "the command acquire starts them"
        )


def _limited(market_file: MarketFile, request: DriveRequest) -> MarketFile:
    limits = market_file.limits
    if request.budget is not None:
        limits = replace(limits, budget=request.budget)
    if request.max_hourly is not None:
        limits = replace(limits, max_hourly=request.max_hourly)
    return replace(market_file, limits=limits)


def _check_same_provider(folder: Path, ledger: Ledger, market_file: MarketFile) -> None:
    """Refuse a provider that would not list what is held."""
    if ledger.opened is None or market_file.provider is None:
        return
    if (ledger.opened.provider, ledger.opened.billing) != (provider_name(market_file), market_file.billing):
        raise UsageError(
            f"the journal of this run is of the provider {ledger.opened.provider}, billed {ledger.opened.billing}; "
            "give a market file with the same"
        )
    if not ledger.held and not ledger.open_requests:
        return
    scope, held_in = scope_of(market_file), scope_of(read_market_file(folder / FOLDER / MARKET_COPY))
    for key in sorted(held_in):
        if scope.get(key) != held_in[key]:
            raise UsageError(
                f"{market_file.path}: provider.{key} is {scope.get(key)}, and instances of this run are held with "
                f"{held_in[key]}; give the same, or release them first: plink spot release {folder.name}"
            )


def _checked_account(opened: JournalOpened | None, provider: Provider) -> str:
    """Return whose instances the provider lists: without it, instances could be rented where no later driver finds
    them. :raises UsageError: when what is held is of another account. :raises ProviderError: when it does not say."""
    try:
        name = provider.account()
    except ProviderError as error:
        message = f"whose account is it? The provider does not say: {error}; nothing was done, try again"
        raise ProviderError(error.failure, message) from None
    before = opened.account if opened is not None else ""
    if before and name and name != before:
        raise UsageError(f"the instances of this run are of the account {before}, and the credentials of {name}")
    return name


@dataclass(frozen=True)
class SpotState:
    """What is held, and what it costs. ``at_s``: on the provider's clock; ``driver``: the process that manages it."""

    run: str
    at_s: float
    driver: int | None
    market_file: MarketFile
    ledger: Ledger
    account: Account

    @property
    def budget(self) -> float | None:
        """What may be spent in all, by the latest driver's limits."""
        if self.ledger.limits is not None:
            return self.ledger.limits.budget
        budget = self.market_file.limits.budget  # of a journal before there were limits in it
        return budget if math.isfinite(budget) else None

    def money_of(self, instance: str) -> float:
        """Return what one instance has cost so far."""
        return instance_money(self.ledger, self.ledger.instances[instance], self.at_s)


def spot_state(folder: Path) -> SpotState:
    """Return what the journal of a run says; the provider is not asked.

    :raises UsageError: when the run has none.
    """
    entries = read_journal(folder / FOLDER)
    if not entries:
        raise UsageError(f"the run {folder.name} has no instances: `plink spot drive` was not started for it")
    market_file = read_market_file(folder / FOLDER / MARKET_COPY)
    ledger = Ledger.of(entries)
    clock = choose_provider(market_file, folder.name, folder / FOLDER, "status").clock
    return _state(folder, ledger, market_file, clock())


def _state(folder: Path, ledger: Ledger, market_file: MarketFile, now: float) -> SpotState:
    at = max(now, ledger.at_s)
    prices = {each.name: each.on_demand for each in market_file.types}
    return SpotState(folder.name, at, driver_of(folder / FOLDER), market_file, ledger, account(ledger, at, prices))


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
            chosen.provider, NoJob(), NoBrain(), writer, host_maker(market_file, chosen), chosen.clock, chosen.steady,
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
            note(_doubt(driver.ledger, chosen.clock()))
        names = [each.host or each.id for each in driver.ledger.instances.values() if _was_held(before, each.id)]
        return Released(folder.name, tuple(names))


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
                _checked_account(opened, self.chosen.provider)
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


def runs_with_instances(runs: Path) -> list[Path]:
    """Return the folders of the runs of a workspace that have a journal of instances, or only its market file left."""
    return sorted({path.parent.parent for name in (NAME, MARKET_COPY) for path in runs.glob(f"*/{FOLDER}/{name}")})
