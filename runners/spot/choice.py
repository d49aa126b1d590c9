"""The provider that a market file names, with its clock and the times of a driver; whether it holds what is rented."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from plink.errors import InputError, UsageError
from plink.model.hosts import Host, Hosts, read_hosts
from plink.model.spot.journal import JournalOpened
from plink.model.spot.market_file import AnyProvider, AwsTable, CommandTable, MarketFile, ReplayTable, read_market_file
from plink.model.spot.price_files import read_spot_histories
from plink.model.spot.prices import LINUX, Prices
from plink.model.storage import read_text
from plink.model.units import parse_moment
from runners.spot.aws import AwsProvider
from runners.spot.commands import COMMAND_TIMEOUT_S, COMMANDS, CommandProvider
from runners.spot.journal import FOLDER, MARKET_COPY
from runners.spot.provider import ListedInstance, Provider, ProviderError, elapsed_s
from runners.spot.replay import ReplayProvider, ReplaySettings
from solvers.spot.ledger import Ledger, RentedInstance
from solvers.spot.reconciling import DriverTiming

# What decides which instances a provider lists: what is held by one is not listed by another.
_SCOPE = {
    "aws": ("region", "profile"),
    "command": ("acquire", "listing", "release"),
    "replay": ("history", "hosts", "speed", "start"),
}
Purpose = Literal["rent", "dry run", "release", "status"]
_DOUBT_S = 300.0
_REPLAY_POLL_S = 0.5  # real seconds
_REPLAY_DRAIN_S = 2.0
_REPLAY_START_S = 60.0


@dataclass(frozen=True)
class ChosenProvider:
    """A provider, its ``clock``, the driver's ``timing`` on that clock, and ``speed``: how many of its seconds pass in
    one; ``hosts``: those of its own, where it has a list of them; ``has_on_demand``: it starts on-demand machines."""

    provider: Provider
    clock: Callable[[], float]
    timing: DriverTiming
    speed: float = 1.0
    hosts: Hosts | None = None
    has_leases: bool = True
    has_on_demand: bool = True

    def steady(self) -> float:
        """Return the provider's seconds that passed since some moment, by a clock that nobody sets."""
        return elapsed_s() * self.speed


def choose_provider(market_file: MarketFile, run: str, folder: Path, purpose: Purpose = "rent") -> ChosenProvider:
    """Return the provider of a market file for one run.

    :param folder: where a provider may keep files. :param purpose: "release" and "status" need no files that only
        requests need; "dry run" and "status" change nothing.
    :raises InputError: for a key that is missing or of another kind, or a file that cannot be read.
    """
    table = provider_of(market_file)
    timing = DriverTiming(request_timeout_s=COMMAND_TIMEOUT_S)
    timing = replace(timing, lease_s=table.lease_s or timing.lease_s)
    match table:
        case AwsTable():
            script = read_text(table.start_up) if table.start_up and _needs_files(purpose) else ""
            types = tuple(kind.name for kind in market_file.types)
            provider = AwsProvider(run, table, types, market_file.product or LINUX, script)
            return ChosenProvider(provider, time.time, timing)
        case CommandTable():
            timing = timing if table.renew else replace(timing, doubt_s=_DOUBT_S)
            commands = {method: getattr(table, method) for method in COMMANDS if getattr(table, method)}
            return ChosenProvider(
                CommandProvider(run, commands),
                time.time,
                timing,
                has_leases=table.renew is not None,
                has_on_demand=table.on_demand,
            )
        case ReplayTable():
            return _replay(table, market_file, run, folder, purpose)


def provider_of(market_file: MarketFile) -> AnyProvider:
    """Return who rents out instances. :raises InputError: where the market file does not say."""
    if market_file.provider is None:
        raise InputError(market_file.path, "it has no [provider] table, which says who rents out instances")
    return market_file.provider


def provider_name(market_file: MarketFile) -> str:
    """Return the kind of the provider, with its region: what is held there cannot be listed from elsewhere."""
    table = provider_of(market_file)
    return f"{kind_of(table)} {table.region}" if isinstance(table, AwsTable) else kind_of(table)


def kind_of(table: AnyProvider) -> str:
    """Return the kind of a provider, as a market file has it."""
    return str(table.__struct_config__.tag)


def scope_of(market_file: MarketFile) -> dict[str, Any]:
    """Return the keys of the provider's table that decide which instances it lists."""
    table = provider_of(market_file)
    return {"kind": kind_of(table)} | {key: getattr(table, key) for key in _SCOPE[kind_of(table)]}


def check_same_provider(folder: Path, ledger: Ledger, market_file: MarketFile) -> None:
    """Refuse a provider that would not list what is held. :raises UsageError: saying how they differ."""
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


def checked_account(opened: JournalOpened | None, provider: Provider) -> str:
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


def _needs_files(purpose: Purpose) -> bool:
    return purpose in ("rent", "dry run")


def _replay_files(table: ReplayTable, market_file: MarketFile, purpose: Purpose) -> tuple[Hosts | None, Prices]:
    try:
        return read_hosts(table.hosts).ranked(), market_file.select(read_spot_histories([table.history]).prices)
    except InputError:
        if _needs_files(purpose):
            raise
        return None, {}


def _replay(table: ReplayTable, market_file: MarketFile, run: str, folder: Path, purpose: Purpose) -> ChosenProvider:
    speed = table.speed
    hosts, histories = _replay_files(table, market_file, purpose)
    start = max((trace.start for trace in histories.values()), default=0.0)
    if table.start is not None:
        try:
            start = parse_moment(table.start)
        except UsageError as error:
            raise InputError(f"{market_file.path}: provider.start", str(error)) from None
    settings = ReplaySettings(
        tuple(hosts.names) if hosts is not None else (),
        speed,
        start,
        table.notice or (),
        table.end or (),
        _REPLAY_DRAIN_S * speed,
    )
    is_observer = purpose in ("dry run", "status")
    provider = ReplayProvider(run, settings, histories, folder, is_observer=is_observer)
    timing = DriverTiming(
        poll_s=_REPLAY_POLL_S * speed,
        price_s=0.0,
        request_timeout_s=4 * _REPLAY_POLL_S * speed,
        listing_delay_s=4 * _REPLAY_POLL_S * speed,
        clock_tolerance_s=60 * speed,
        start_s=_REPLAY_START_S * speed,
        drain_s=_REPLAY_DRAIN_S * speed,
        notice_s=2 * _REPLAY_DRAIN_S * speed,
        renewal_lead_s=2.5 * _REPLAY_DRAIN_S * speed,
        lease_s=table.lease_s or max(1800.0, 120 * speed),
    )
    return ChosenProvider(provider, provider.clock, timing, speed, hosts)


def host_maker(market_file: MarketFile, chosen: ChosenProvider) -> Callable[[RentedInstance, ListedInstance], Host]:
    """Return what makes a host of an instance."""
    table = provider_of(market_file)
    key = os.path.expanduser(table.key) if table.key else None
    own = chosen.hosts.by_name() if chosen.hosts is not None else {}

    def host_of(instance: RentedInstance, listed: ListedInstance) -> Host:
        if listed.host in own:
            return replace(own[listed.host], tier="transient", price=None)
        kind = market_file.type_of(instance.market)
        return Host(
            listed.host or f"spot-{instance.id}",
            listed.address or listed.host or "",
            slots=max(1, int(kind.cores)) if kind else 1,
            tier="transient",
            user=table.user,
            port=table.port,
            key=key,
        )

    return host_of
