"""Rent transient instances for an elastic job that runs."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plink.api.spot import application_from
from plink.api.spot_brain import MarketBrain
from plink.api.spot_history import HistoryFirst
from plink.api.spot_holder import check_same_provider, checked_account
from plink.api.spot_idle import ObservedJob, ObservedProvider, UnwrittenJournal
from plink.api.spot_state import SpotState, doubt_of, state_of
from plink.errors import PartlyDone, UsageError
from plink.model.spot.journal import JournalEntry, JournalOpened
from plink.model.spot.market_file import MarketFile, read_market_file
from plink.model.spot.price_files import Histories
from plink.model.spot.prices import HOUR_S
from plink.model.storage import read_text, write_text
from plink.records.spot_journal import (
    FOLDER,
    MARKET_COPY,
    Journal,
    read_journal,
    release_is_requested,
    withdraw_release,
)
from runners.job.result import new_id
from runners.spot.choice import ChosenProvider, choose_provider, host_maker, provider_name
from runners.spot.driver import Driver, run_driver
from runners.spot.driver_parts import DriverParts, JournalWriter
from runners.spot.elastic_job import ElasticJob
from runners.spot.fallback import HostCores, OnDemandFallback
from runners.spot.provider import Provider, ProviderError
from solvers.spot.deadline import Deadline, IterationTime
from solvers.spot.ledger import Ledger

HISTORY_S = 30 * 24 * HOUR_S  # of prices, from the provider, where no file has any


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
    after_step: Callable[[SpotState], None] = lambda state: None,
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
        check_same_provider(folder, Ledger.of(entries), market_file)
        chosen = choose_provider(market_file, folder.name, folder / FOLDER)
        account_name = checked_account(Ledger.of(entries).opened, chosen.provider)
        if not chosen.has_leases:
            note("instances have no leases: if this machine is lost, they go on until `plink spot release`")
        session = _Session(folder, job, market_file, chosen, note, account_name)
        driver = session.driver(request, writer, entries)

        def show() -> None:
            after_step(state_of(folder, driver.ledger, market_file, chosen.clock()))

        run_driver(driver, lambda: time.sleep(chosen.timing.poll_s / chosen.speed), show)
        show()
        if driver.ledger.doubtful_requests(chosen.clock()):
            raise PartlyDone(doubt_of(driver.ledger, chosen.clock()))


def dry_run_spot(folder: Path, job: Mapping[str, Any], request: DriveRequest, note: Callable[[str], None]) -> None:
    """Do one step of :func:`drive_spot`, but keep no journal, and acquire, renew and release nothing.

    :raises UsageError: as that does.
    """
    request.check()
    market_file = _limited(read_market_file(request.market_file), request)
    entries = read_journal(folder / FOLDER)
    check_same_provider(folder, Ledger.of(entries), market_file)
    with tempfile.TemporaryDirectory(prefix="plink-spot-") as scratch:
        place = folder / FOLDER if entries else Path(scratch)
        chosen = choose_provider(market_file, folder.name, place, "dry run")
        checked_account(Ledger.of(entries).opened, chosen.provider)
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
