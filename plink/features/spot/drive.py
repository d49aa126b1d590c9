"""Rent transient instances for an elastic job that runs."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from plink.errors import PartlyDone, UsageError
from plink.features.spot.request import SpotDriveRequest
from plink.model.codec import convert
from plink.model.elastic.status import JobControl
from plink.model.hosts import Hosts
from plink.model.spot.journal import JournalEntry, JournalOpened
from plink.model.spot.market_file import AwsTable, CommandTable, MarketFile, read_market_file
from plink.model.spot.price_files import Histories, read_spot_histories
from plink.model.spot.prices import HOUR_S
from plink.model.spot.results import SpotStatus
from plink.model.storage import read_document, read_text, write_document, write_text
from runners.job.placement import new_id
from runners.spot.brain import HostCores, MarketBrain, OnDemandFallback
from runners.spot.choice import (
    ChosenProvider,
    check_same_provider,
    checked_account,
    choose_provider,
    host_maker,
    provider_name,
)
from runners.spot.driver import Driver, run_driver
from runners.spot.driver_parts import DriverParts, JournalWriter
from runners.spot.elastic_job import ElasticJob
from runners.spot.journal import FOLDER, MARKET_COPY, Journal, read_journal, release_is_requested, withdraw_release
from runners.spot.provider import ListedInstance, PricePoint, Provider, ProviderError, RentalOrder
from runners.spot.status import doubt_of, status_of
from solvers.spot.deadline import Deadline, IterationTime
from solvers.spot.ledger import Ledger
from solvers.spot.offers import application_of

_HISTORY_S = 30 * 24 * HOUR_S  # of prices, from the provider, where no file has any


RUNNERS = ("ssh", "local")
MAX_INSTANCES = 10_000  # of a job that is started with its driver
_REQUEST_FILE = "spot-driver.json"  # in the run's folder


def drive_spot(
    folder: Path,
    job: JobControl,
    request: SpotDriveRequest,
    note: Callable[[str], None],
    after_step: Callable[[SpotStatus], None] = lambda status: None,
    *,
    is_supervised: bool = False,
) -> None:
    """Rent instances for the job of a run until it ends; then release all of them.

    :param folder: of the run. :param job: its ``plink.elastic-job/1``. :param after_step: gets what is held, without
        the job's iterations. :param is_supervised: the job started this driver, maybe again.
    :raises UsageError: when another driver runs, or what is held is of another provider. :raises PartlyDone: when all
        is released, but a request was never answered within the last hour. :raises PlinkError: when the journal cannot
        be written, or the provider does not say whose account it is.
    """
    market_file, histories = _inputs(request, note)
    with Journal(folder / FOLDER) as writer:
        if not is_supervised:
            withdraw_release(folder / FOLDER)
        entries = read_journal(folder / FOLDER)
        check_same_provider(folder, Ledger.of(entries), market_file)
        chosen = choose_provider(market_file, folder.name, folder / FOLDER)
        account_name = checked_account(Ledger.of(entries).opened, chosen.provider)
        if not chosen.has_leases:
            note("instances have no leases: if this machine is lost, they go on until `plink spot release`")
        session = _Session(folder, job, market_file, histories, chosen, note, account_name)
        driver = session.driver(request, writer, entries)

        def show() -> None:
            after_step(status_of(folder, driver.ledger, market_file, chosen.clock()))

        run_driver(driver, lambda: time.sleep(chosen.timing.poll_s / chosen.speed), show)
        show()
        if driver.ledger.doubtful_requests(chosen.clock()):
            raise PartlyDone(doubt_of(driver.ledger, chosen.clock()))


def dry_run_spot(folder: Path, job: JobControl, request: SpotDriveRequest, note: Callable[[str], None]) -> None:
    """Do one step of :func:`drive_spot`, but keep no journal, and acquire, renew and release nothing.

    :raises UsageError: as that does.
    """
    market_file, histories = _inputs(request, note)
    entries = read_journal(folder / FOLDER)
    check_same_provider(folder, Ledger.of(entries), market_file)
    with tempfile.TemporaryDirectory(prefix="plink-spot-") as scratch:
        place = folder / FOLDER if entries else Path(scratch)
        chosen = choose_provider(market_file, folder.name, place, "dry run")
        checked_account(Ledger.of(entries).opened, chosen.provider)
        messages: list[str] = []

        def would_note(text: str) -> None:
            if not text.endswith(_NOTHING_REQUESTED):
                messages.append(text)
                note(f"a driver would say: {text}")

        def would_do(text: str) -> None:
            messages.append(text)
            note(f"a driver would {text}")

        chosen = replace(chosen, provider=_ObservedProvider(chosen.provider, would_do))
        session = _Session(folder, job, market_file, histories, chosen, would_note, is_dry=True)
        session.driver(request, _UnwrittenJournal(), entries).step()
        if not messages:
            note("a driver would do nothing now")


def _inputs(request: SpotDriveRequest, note: Callable[[str], None]) -> tuple[MarketFile, Histories]:
    """Return the market file, with the limits of a request, and the histories that it names."""
    if request.market is None:
        raise UsageError("a market file is needed: it says what may be rented, and from whom")
    market_file = read_market_file(request.market)
    histories = read_spot_histories(request.prices) if request.prices else Histories()
    for line in histories.notes:
        note(line)
    limits = market_file.limits
    if request.budget is not None:
        limits = replace(limits, budget=request.budget)
    if request.max_hourly is not None:
        limits = replace(limits, max_hourly=request.max_hourly)
    return replace(market_file, limits=limits), histories


_NOTHING_REQUESTED = "a dry run requests nothing"


class _UnwrittenJournal:
    """Journal of a dry run."""

    def add(self, entry: JournalEntry) -> None:
        """Keep nothing."""


@dataclass(frozen=True)
class _ObservedProvider:
    """Provider of a dry run: only prices and the listing are asked for; ``note`` gets what would be done."""

    provider: Provider
    note: Callable[[str], None]

    def account(self) -> str:
        """As the provider."""
        return self.provider.account()

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """As the provider."""
        return self.provider.prices(since_s)

    def listing(self) -> Sequence[ListedInstance]:
        """As the provider."""
        return self.provider.listing()

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Acquire nothing."""
        market = order.market
        self.note(f"request {order.count} x {market.type} in {market.zone}, for at most {order.bid:.4f} an hour each")
        raise ProviderError("invalid", _NOTHING_REQUESTED)

    def release(self, ids: Sequence[str]) -> None:
        """Release nothing."""
        self.note(f"release {', '.join(ids)}")

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Renew nothing."""
        self.note(f"renew the leases of {', '.join(ids)}")


@dataclass(frozen=True)
class _Session:
    """One run of a driver."""

    folder: Path
    job: JobControl
    market_file: MarketFile
    histories: Histories
    chosen: ChosenProvider
    note: Callable[[str], None]
    account: str = ""
    is_dry: bool = False

    def driver(self, request: SpotDriveRequest, writer: JournalWriter, entries: Sequence[JournalEntry]) -> Driver:
        """Return the driver, with odds from the histories of files or of the provider."""
        market_file, chosen, run = self.market_file, self.chosen, self.folder.name
        check_on_demand(market_file, chosen, request)
        now = chosen.clock()
        brain = MarketBrain(market_file, self.histories, chosen.timing.commitment_s, request.fallback)
        if request.deadline_s is not None:
            brain.reserve(market_file.reference)
        history_from_s = self._observe_history(brain, now, bool(entries) or request.deadline_s is not None)
        if chosen.hosts is not None and chosen.hosts.lab != self.job.lab:
            raise UsageError(f"{market_file.path}: the provider's hosts are not where the job's hosts are")
        anchors = market_file.anchors
        opened = JournalOpened(
            now,
            run,
            provider_name(market_file),
            market_file.billing,
            anchors.count if anchors else 0,
            anchors.type.on_demand if anchors else 0.0,
            self.account,
        )
        parts = DriverParts(
            chosen.provider,
            ElasticJob(self.folder, self.job, chosen.speed, self.is_dry),
            brain,
            writer,
            host_maker(market_file, chosen),
            chosen.clock,
            chosen.steady,
            lambda: f"{run}-{new_id()}",
            self.note,
            self._fallback(request, opened if not entries else Ledger.of(entries).opened or opened),
            lambda: not self.is_dry and release_is_requested(self.folder / FOLDER),
            history_from_s,
        )
        if not self.is_dry and request.market is not None:  # before a request: what is held is released by it
            write_text(self.folder / FOLDER / MARKET_COPY, read_text(request.market))
        driver = Driver(parts, market_file.limits, chosen.timing, opened, entries)
        driver.record_limits()
        return driver

    def _observe_history(self, brain: MarketBrain, now: float, goes_on: bool) -> float | None:
        """Have the provider's history of prices observed, where files have none; return since when it is to be asked
        for still. Neither a deadline waits for it nor a driver that is started again, which has to renew and to
        release: the first prices that there are bring the history."""
        if self.histories.prices:
            return None
        try:
            points = self.chosen.provider.prices(now - _HISTORY_S)
        except ProviderError as error:
            if not goes_on:
                raise
            self.note(f"no history of prices yet: {error}; tried again (--prices FILE gives others)")
            return now - _HISTORY_S
        for point in points:
            brain.observe(point.market, point.since_s, point.price)
        return None

    def _fallback(self, request: SpotDriveRequest, opened: JournalOpened) -> OnDemandFallback | None:
        if request.deadline_s is None or request.iterations is None:
            return None
        market_file, timing = self.market_file, self.chosen.timing
        application = application_of(market_file)
        anchors = market_file.anchors
        return OnDemandFallback(
            deadline=Deadline(opened.at, opened.at + request.deadline_s, request.iterations),
            machines=market_file.reference,
            zones=market_file.zones,
            iteration=IterationTime(application.scaling, market_file.changes.iteration_s is not None),
            start_s=application.start_s + application.add_s,
            slack_s=timing.decision_s + timing.request_timeout_s + timing.listing_delay_s,  # a request without answer
            note=self.note,
            host_cores=HostCores(
                {each.name: each.cores for each in market_file.types}, None if anchors is None else anchors.type.cores
            ),
        )


def check_on_demand(market_file: MarketFile, chosen: ChosenProvider, request: SpotDriveRequest) -> None:
    """:raises UsageError: when a request needs on-demand machines, and the provider starts none, or the market file
    does not say where a deadline may rent them: prices might."""
    if request.needs_on_demand and not chosen.has_on_demand:
        raise UsageError(
            f"{market_file.path}: --deadline and --fallback need on-demand machines; set provider.on_demand = true if "
            "the command acquire starts them"
        )
    if request.deadline_s is not None and not market_file.zones:
        raise UsageError(f"{market_file.path}: --deadline needs zones, where to rent the reference machines on demand")


def driver_command(request: SpotDriveRequest, folder: Path) -> list[str]:
    """Write the request of a run's driver into its folder, and return the driver's argument vector; ``-P``: files of
    the working folder are no modules."""
    write_document(folder / _REQUEST_FILE, msgspec.to_builtins(request))
    return [sys.executable, "-P", "-m", "plink", "spot", "drive-job", folder.name]


def request_of(folder: Path) -> SpotDriveRequest:
    """Return what the driver of a run was started with. :raises InputError: where that cannot be read."""
    path = folder / _REQUEST_FILE
    return convert(SpotDriveRequest, read_document(path), str(path))


def checked_max_hosts(request: SpotDriveRequest, hosts: Hosts, runner: str, max_hosts: int | None) -> int:
    """Return ``--max-hosts`` of a job: what was typed, or what it and its driver need.

    :raises PlinkError: for what the driver would refuse once the job runs; no host is asked, and no provider.
    """
    if runner not in RUNNERS:
        raise UsageError(f"--spot: choose --runner {' or '.join(RUNNERS)}, not {runner}")
    assert request.market is not None
    market_file = read_market_file(request.market)
    with tempfile.TemporaryDirectory(prefix="plink-spot-") as scratch:
        chosen = choose_provider(market_file, "check", Path(scratch), "dry run")
    for program in _programs(market_file):
        if shutil.which(program) is None:
            raise UsageError(f"{market_file.path}: there is no command {program} to rent instances with")
    if chosen.hosts is not None and chosen.hosts.lab != hosts.lab:
        raise UsageError(f"{market_file.path}: the provider's hosts are not where the job's hosts are")
    check_on_demand(market_file, chosen, request)
    reliable = sum(host.tier == "reliable" for host in hosts)
    if market_file.anchors is not None and market_file.anchors.count != reliable:
        raise UsageError(
            f"{market_file.path}: anchors.count is {market_file.anchors.count}, and the hosts file has {reliable} "
            "reliable hosts; costs would be wrong"
        )
    rented = _max_instances(market_file, request.deadline_s is not None, chosen.hosts)
    needed = len(hosts) + rented
    if max_hosts is not None and max_hosts < needed:
        raise UsageError(
            f"--max-hosts {max_hosts}: {len(hosts)} hosts and up to {rented} instances that {market_file.path} "
            f"allows (limits.max_cores) are {needed}; give --max-hosts {needed}, or lower max_cores"
        )
    return needed if max_hosts is None else max_hosts


def _programs(market_file: MarketFile) -> Sequence[str]:
    match market_file.provider:
        case AwsTable():
            return ("aws",)
        case CommandTable() as table:
            return tuple(words[0] for words in (table.prices, table.acquire, table.listing, table.release))
    return ()


def _max_instances(market_file: MarketFile, has_deadline: bool, own_hosts: Hosts | None) -> int:
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
