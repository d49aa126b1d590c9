"""The provider ``replay``: hosts of the user's own as instances, at the prices of a history that runs faster than time.

For trials: the hosts are a lab's, or processes of this machine. An instance is evicted when the price exceeds its bid,
and ended when its lease has run out. What is rented is in a file beside the journal, for drivers come and go.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plink.errors import PlinkError
from plink.model.spot.prices import Market, Prices
from plink.model.storage import read_document, write_document
from runners.spot.commands import run_command
from runners.spot.provider import ListedInstance, PricePoint, ProviderError, RentalOrder

_FILE, _LOCK = "cloud.json", "cloud.lock"


@dataclass(frozen=True)
class ReplaySettings:
    """``hosts``: names that may be rented; ``speed``: seconds of the history in one second; ``start_s``: where in the
    history it begins; ``notice`` and ``end``: commands that warn and end a host, with ``{host}``; ``notice_s``: how
    long before."""

    hosts: tuple[str, ...]
    speed: float
    start_s: float
    notice: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    notice_s: float = 120.0


@dataclass(frozen=True, eq=False)
class ReplayProvider:
    """Provider of hosts by a price history.

    :param folder: where what is rented is kept. :param real_clock: seconds, of this machine. :param is_observer:
        nothing is written, and no command is run.
    """

    run: str
    settings: ReplaySettings
    histories: Prices
    folder: Path
    real_clock: Callable[[], float] = time.time
    run_hook: Callable[[Sequence[str]], Any] = field(default=run_command)
    is_observer: bool = False

    def clock(self) -> float:
        """Return the time in the history."""
        with self._cloud() as cloud:
            return self._time(cloud)

    def _time(self, cloud: Mapping[str, Any]) -> float:
        return float(cloud["start_s"]) + (self.real_clock() - float(cloud["began"])) * self.settings.speed

    @contextmanager
    def _cloud(self) -> Iterator[dict[str, Any]]:
        """Give what is rented, for one at a time; written when the block ends."""
        try:
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ProviderError("unavailable", f"{self.folder}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.folder / _FILE
            new = {"began": self.real_clock(), "start_s": self.settings.start_s, "instances": {}}
            cloud = read_document(path) if path.exists() else new
            before = json.dumps(cloud)
            yield cloud
            if not self.is_observer and (json.dumps(cloud) != before or not path.exists()):
                write_document(path, cloud)
        except PlinkError as error:
            raise error if isinstance(error, ProviderError) else ProviderError("unavailable", str(error)) from None
        finally:
            os.close(lock)

    def _advance(self, cloud: dict[str, Any]) -> list[tuple[str, ...]]:
        """End what is due by now, and return the commands that make it so."""
        now, hooks = self._time(cloud), []
        for entry in cloud["instances"].values():
            if entry["end"] is not None:
                continue
            evicted_at = self._evicted_at(entry)
            if entry["lease_s"] <= min(now, evicted_at):
                entry["end"], entry["until_s"] = "released", entry["lease_s"]
                hooks.append(_filled(self.settings.end, entry))
            elif evicted_at <= now:
                entry["end"], entry["until_s"] = "interrupted", evicted_at
                hooks.append(_filled(self.settings.end, entry))
            elif evicted_at <= now + self.settings.notice_s and not entry["warned"]:
                entry["warned"] = True
                hooks.append(_filled(self.settings.notice, entry))
        return hooks

    def _evicted_at(self, entry: Mapping[str, Any]) -> float:
        trace = self.histories.get(Market(*entry["market"]))
        if trace is None:  # its file is gone: nothing is evicted any more
            return float("inf")
        later = trace.times[(trace.times > entry["since_s"]) & (trace.prices > entry["bid"])]
        return float(later[0]) if len(later) else float("inf")

    def _run_hooks(self, hooks: Sequence[Sequence[str]]) -> None:
        for argv in hooks:
            if argv and not self.is_observer:
                try:
                    self.run_hook(argv)
                except ProviderError:  # the host may be gone already
                    continue

    def account(self) -> str:
        """Return no name."""
        return ""

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """Return the price of each market at ``since_s`` and its changes until now."""
        with self._cloud() as cloud:
            now = self._time(cloud)
        points = []
        for market, trace in self.histories.items():
            past = [(float(t), float(p)) for t, p in zip(trace.times, trace.prices, strict=True) if t <= now]
            first = max((k for k, (at, _) in enumerate(past) if at <= since_s), default=0)
            points += [PricePoint(market, *change) for change in past[first:]]
        return sorted(points, key=lambda point: point.since_s)

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Rent hosts that are free and were not evicted before."""
        trace = self.histories.get(order.market)
        with self._cloud() as cloud:
            now, rented = self._time(cloud), cloud["instances"]
            if any(entry["token"] == order.token for entry in rented.values()):
                return [_listed(n, entry) for n, entry in rented.items() if entry["token"] == order.token]
            is_bid = not order.market.is_on_demand
            if is_bid and (trace is None or trace.price_at(now) > order.bid):
                raise ProviderError("capacity", f"{order.market}: the price is above {order.bid:.4g}")
            busy = {each["host"] for each in rented.values() if each["end"] is None or each["end"] == "interrupted"}
            hosts = [host for host in self.settings.hosts if host not in busy][: order.count]
            if not hosts:
                raise ProviderError("capacity", "no host is free")
            market = [order.market.zone, order.market.type, order.market.product]
            granted: dict[str, Any] = {}
            for host in hosts:
                granted[f"r-{len(rented) + len(granted)}"] = {
                    "token": order.token,
                    "market": market,
                    "bid": order.bid,
                    "since_s": now,
                    "host": host,
                    "lease_s": order.lease_until_s,
                    "warned": False,
                    "end": None,
                    "until_s": None,
                }
            rented.update(granted)
        return [_listed(name, entry) for name, entry in granted.items()]

    def listing(self) -> Sequence[ListedInstance]:
        """Return all instances, after those that are due were warned or ended."""
        with self._cloud() as cloud:
            hooks = self._advance(cloud)
            listed = [_listed(name, entry) for name, entry in cloud["instances"].items()]
        self._run_hooks(hooks)
        return listed

    def release(self, ids: Sequence[str]) -> None:
        """Give hosts back."""
        with self._cloud() as cloud:
            hooks = self._advance(cloud)
            for name in ids:
                entry = cloud["instances"].get(name)
                if entry is not None and entry["end"] is None:
                    entry["end"], entry["until_s"] = "released", self._time(cloud)
        self._run_hooks(hooks)

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Renew leases."""
        with self._cloud() as cloud:
            for name in ids:
                if name in cloud["instances"]:
                    cloud["instances"][name]["lease_s"] = until_s


def _filled(argv: Sequence[str], entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(word.replace("{host}", entry["host"]) for word in argv)


def _listed(name: str, entry: Mapping[str, Any]) -> ListedInstance:
    return ListedInstance(name, entry["token"], entry["since_s"], None, entry["host"], entry["until_s"], entry["end"])
