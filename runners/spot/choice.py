"""The provider that a market file names, with its clock and the times of a driver."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from plink.documents.spot_market_file import ProviderEntry
from plink.errors import InputError
from plink.model.hosts import Host, Hosts, read_hosts
from plink.model.spot.market_file import MarketFile
from plink.model.spot.price_files import read_histories
from plink.model.spot.prices import Prices
from plink.model.storage import read_text
from runners.spot.aws import AwsProvider, AwsSettings
from runners.spot.child_command import COMMAND_TIMEOUT_S
from runners.spot.commands import CommandProvider
from runners.spot.provider import ListedInstance, Provider
from runners.spot.replay import ReplayProvider, ReplaySettings
from runners.spot.steady_clock import elapsed_s
from solvers.spot.ledger import RentedInstance
from solvers.spot.reconciling import DriverTiming

_NEEDED = {
    "aws": ("region", "image"),
    "command": ("prices", "acquire", "listing", "release"),
    "replay": ("history", "hosts"),
}
_COMMON = ("kind", "user", "key", "port", "lease_s")
_TAKEN = {
    "aws": ("key_name", "security_groups", "subnets", "profile", "start_up", "private_addresses"),
    "command": ("renew", "on_demand"),
    "replay": ("speed", "start", "notice", "end"),
}
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
    entry = market_file.provider
    if entry is None:
        raise InputError(market_file.path, "it has no [provider] table, which says who rents out instances")
    kind = entry["kind"]
    location = f"{market_file.path}: provider"
    for key in _NEEDED[kind]:
        if key not in entry:
            raise InputError(f"{location}.{key}", f"is missing; {kind} needs it")
    if wrong := sorted(entry.keys() - {*_COMMON, *_NEEDED[kind], *_TAKEN[kind]}):
        raise InputError(f"{location}.{wrong[0]}", f"is no key of the provider {kind}")
    timing = DriverTiming(request_timeout_s=COMMAND_TIMEOUT_S)
    timing = replace(timing, lease_s=entry.get("lease_s", timing.lease_s))
    if kind == "aws":
        return ChosenProvider(AwsProvider(run, _aws(entry, market_file, purpose)), time.time, timing)
    if kind == "command":
        words = {key: entry[key] for key in (*_NEEDED[kind], "renew") if key in entry}  # type: ignore[literal-required]
        timing = timing if "renew" in entry else replace(timing, doubt_s=_DOUBT_S)
        return ChosenProvider(
            CommandProvider(run, words), time.time, timing, has_leases="renew" in entry,
            has_on_demand=entry.get("on_demand", False),
        )  # fmt: skip
    return _replay(entry, market_file, run, folder, purpose)


def provider_name(market_file: MarketFile) -> str:
    """Return the kind of the provider, with its region: what is held there cannot be listed from elsewhere."""
    entry = market_file.provider
    assert entry is not None
    return f"{entry['kind']} {entry['region']}" if "region" in entry else entry["kind"]


def scope_of(market_file: MarketFile) -> dict[str, Any]:
    """Return the keys of the provider's table that decide which instances it lists."""
    entry = market_file.provider
    assert entry is not None
    return {"kind": entry["kind"]} | {key: entry.get(key) for key in _SCOPE[entry["kind"]]}


def _aws(entry: ProviderEntry, market_file: MarketFile, purpose: Purpose) -> AwsSettings:
    has_start_up = "start_up" in entry and _needs_files(purpose)
    return AwsSettings(
        entry["region"], entry["image"], tuple(each.name for each in market_file.types),
        market_file.product or "Linux/UNIX", entry.get("key_name"), tuple(entry.get("security_groups", ())),
        entry.get("subnets", {}), entry.get("profile"),
        read_text(entry["start_up"]) if has_start_up else "", entry.get("private_addresses", False),
    )  # fmt: skip


def _needs_files(purpose: Purpose) -> bool:
    return purpose in ("rent", "dry run")


def _replay_files(entry: ProviderEntry, market_file: MarketFile, purpose: Purpose) -> tuple[Hosts | None, Prices]:
    try:
        return read_hosts(entry["hosts"]).ranked(), market_file.select(read_histories([entry["history"]]).prices)
    except InputError:
        if _needs_files(purpose):
            raise
        return None, {}


def _replay(entry: ProviderEntry, market_file: MarketFile, run: str, folder: Path, purpose: Purpose) -> ChosenProvider:
    speed = entry.get("speed", 60.0)
    hosts, histories = _replay_files(entry, market_file, purpose)
    start = max((trace.start for trace in histories.values()), default=0.0)
    if "start" in entry:
        try:
            moment = datetime.fromisoformat(entry["start"])
        except ValueError:
            location = f"{market_file.path}: provider.start"
            raise InputError(location, "write a date or time like 2016-06-11T12:00Z") from None
        start = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    settings = ReplaySettings(
        tuple(hosts.names) if hosts is not None else (), speed, start, tuple(entry.get("notice", ())),
        tuple(entry.get("end", ())), _REPLAY_DRAIN_S * speed,
    )  # fmt: skip
    is_observer = purpose in ("dry run", "status")
    provider = ReplayProvider(run, settings, histories, folder, is_observer=is_observer)
    timing = DriverTiming(
        poll_s=_REPLAY_POLL_S * speed, price_s=0.0, request_timeout_s=4 * _REPLAY_POLL_S * speed,
        listing_delay_s=4 * _REPLAY_POLL_S * speed, clock_tolerance_s=60 * speed,
        start_s=_REPLAY_START_S * speed, drain_s=_REPLAY_DRAIN_S * speed, notice_s=2 * _REPLAY_DRAIN_S * speed,
        renewal_lead_s=2.5 * _REPLAY_DRAIN_S * speed,
        lease_s=entry.get("lease_s", max(1800.0, 120 * speed)),
    )  # fmt: skip
    return ChosenProvider(provider, provider.clock, timing, speed, hosts)


def host_maker(market_file: MarketFile, chosen: ChosenProvider) -> Callable[[RentedInstance, ListedInstance], Host]:
    """Return what makes a host of an instance."""
    entry = market_file.provider or {"kind": "command"}
    key = os.path.expanduser(entry["key"]) if "key" in entry else None
    own = chosen.hosts.by_name() if chosen.hosts is not None else {}

    def host_of(instance: RentedInstance, listed: ListedInstance) -> Host:
        if listed.host in own:
            return replace(own[listed.host], tier="transient", price=None)
        kind = market_file.type_of(instance.market)
        return Host(
            listed.host or f"spot-{instance.id}", listed.address or listed.host or "",
            slots=max(1, int(kind.cores)) if kind else 1, tier="transient", user=entry.get("user"),
            port=entry.get("port"), key=key,
        )  # fmt: skip

    return host_of
