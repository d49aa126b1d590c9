"""The provider ``skypilot``: machines of many clouds by SkyPilot's Python API, which is imported only here.

Each instance is a SkyPilot cluster of one node. Its name has the run, the token of its request and a number, so that a
launch is never repeated: a cluster of that name exists, or it does not. A zone is what SkyPilot calls infra: cloud,
region and zone. The lease is autodown without a condition (``wait_for`` none): SkyPilot ends a cluster so many minutes
after the last setting, for each setting resets its timer. (SkyPilot's documentation: "Python SDK", "Autostop and
Autodown".)
"""

import contextlib
import importlib
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from plink.errors import UsageError
from plink.model.spot.journal import InstanceEnd
from plink.model.spot.prices import HOUR_S, Market
from runners.spot.child_command import COMMAND_TIMEOUT_S
from runners.spot.provider import ListedInstance, PricePoint, ProviderError, ProviderFailure, RentalOrder

_PREFIX = "plink-"  # names of clusters begin with a letter
_MINUTE_S = 60.0
_MAX_FETCH_S = 10.0  # from a driver's reading of its clock to that of a fetch of prices
_FAILURES: dict[str, ProviderFailure] = {
    "ResourcesUnavailableError": "capacity", "NoCloudAccessError": "credentials",
    "CloudUserIdentityError": "credentials", "ClusterOwnerIdentityMismatchError": "credentials",
    "InvalidCloudCredentials": "credentials", "PermissionDeniedError": "credentials", "ValueError": "invalid",
    "InvalidClusterNameError": "invalid", "NotSupportedError": "invalid", "ResourcesMismatchError": "invalid",
    "InvalidSkyPilotConfigError": "invalid",
}  # fmt: skip


def load_skypilot() -> Any:
    """Return SkyPilot's module.

    :raises UsageError: when it is not installed.
    """
    try:
        return importlib.import_module("sky")
    except ImportError:
        raise UsageError(
            "the provider skypilot needs SkyPilot in plink's environment: pip install 'skypilot[aws]' (or [gcp], ...)"
        ) from None


@dataclass(frozen=True)
class SkyPilotSettings:
    """What requests say. ``zones``: as SkyPilot's infra (aws/us-east-1/us-east-1a); ``start_up``: a shell script for
    each instance; ``image``: None for SkyPilot's own."""

    zones: tuple[str, ...]
    types: tuple[str, ...]
    image: str | None = None
    start_up: str = ""
    product: str = "Linux/UNIX"


@dataclass(frozen=True, eq=False)
class SkyPilotProvider:
    """SkyPilot's clusters of one run.

    :param sky: SkyPilot's module. :param clock: seconds since 1970.
    """

    run: str
    settings: SkyPilotSettings
    sky: Any
    clock: Callable[[], float] = time.time
    timeout_s: float = COMMAND_TIMEOUT_S
    _up: set[str] = field(default_factory=set)  # the clusters that were up when last listed
    _launches: dict[str, Any] = field(default_factory=dict)  # requests of this process that may still be queued
    _prices: dict[Market, list[tuple[float, float]]] = field(default_factory=dict)  # changes, by when they were seen

    def _answer(self, submit: Callable[[], Any], method: str) -> Any:
        """Return the result of a request to SkyPilot's server. :raises ProviderError: as :func:`_explained`."""
        return self._limited(lambda: self.sky.get(submit()), method)

    def _limited(self, call: Callable[[], Any], method: str) -> Any:
        """Return what a call returns within the time limit. :raises ProviderError: as :func:`_explained`."""
        results: list[Any] = []
        errors: list[Exception] = []

        def wait() -> None:
            try:
                results.append(call())
            except Exception as error:  # SkyPilot raises what the server raised
                errors.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        with contextlib.redirect_stdout(sys.stderr):
            thread.start()
            thread.join(self.timeout_s)
        if errors:
            raise _explained(errors[0], method) from None
        if not results:
            raise ProviderError("unavailable", f"SkyPilot ({method}): no answer within {self.timeout_s:.0f} s", False)
        return results[0]

    def _resources(self, market: Market) -> Any:
        return self.sky.Resources(
            infra=market.zone, instance_type=market.type, use_spot=not market.is_on_demand,
            image_id=self.settings.image,
        )  # fmt: skip

    def account(self) -> str:
        """Return the user at SkyPilot's server; empty where it has no users."""
        user = self._limited(lambda: self.sky.api_info().get("user"), "api_info")
        name = user.get("id") if isinstance(user, dict) else getattr(user, "id", None)
        return "" if name is None else str(name)

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """Return the spot prices of SkyPilot's catalog. It has no history: a price counts from when it was first seen,
        and past hours are never priced anew. Markets that the catalog does not have are left out."""
        now = self.clock()
        points: list[PricePoint] = []
        for zone in self.settings.zones:
            for name in self.settings.types:
                market = Market(zone, name, self.settings.product)
                price = self._limited(partial(self._catalog_price, market), "get_cost")
                if price is not None and 0 < price < math.inf:
                    points += [PricePoint(market, *step) for step in self._steps(market, price, since_s, now)]
        if not points:
            raise ProviderError("invalid", "SkyPilot's catalog has no spot price of the types and zones")
        return points

    def _catalog_price(self, market: Market) -> float | None:
        """Return the price of an hour; None: SkyPilot's catalog has no such type there."""
        try:
            return float(self._resources(market).get_cost(HOUR_S))
        except (ValueError, KeyError, AssertionError):
            return None

    def _steps(self, market: Market, price: float, since_s: float, now: float) -> list[tuple[float, float]]:
        """Return the price that was seen at a time, and the changes since then."""
        steps = self._prices.setdefault(market, [])
        if not steps:  # the caller's time is a little before this one
            steps.append((since_s if 0 <= now - since_s < _MAX_FETCH_S else now, price))
        elif steps[-1][1] != price:
            steps.append((max(now, math.nextafter(steps[-1][0], math.inf)), price))
        first = max((place for place, step in enumerate(steps) if step[0] <= since_s), default=0)
        return steps[first:]

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Submit the launch of each cluster that does not exist, and return all of them; nothing waits until they are
        up. One that does not come is missing in the listing."""
        now, names = self.clock(), [f"{_PREFIX}{order.token}-{number}" for number in range(order.count)]
        existing = {str(record["name"]) for record in self._records(names)}
        minutes = max(1, math.ceil((order.lease_until_s - now) / _MINUTE_S))
        granted: list[ListedInstance] = []
        for name in names:
            if name not in existing:
                try:
                    self._launches[name] = self._limited(partial(self._launch, name, order.market, minutes), "launch")
                except ProviderError:
                    if granted:
                        break
                    raise
            granted.append(ListedInstance(name, order.token, now, run=self.run))
        return granted

    def _launch(self, name: str, market: Market, minutes: int) -> Any:
        """Submit a launch, and return its request's id."""
        task = self.sky.Task(name=name, setup=self.settings.start_up or None)
        task.set_resources(self._resources(market))
        return self.sky.launch(
            task, cluster_name=name, idle_minutes_to_autostop=minutes, wait_for=self._unconditional, down=True
        )

    @property
    def _unconditional(self) -> Any:
        """The choice of autodown that waits for no job and no SSH session."""
        return self.sky.skylet.autostop_lib.AutostopWaitFor.NONE

    def _records(self, names: Sequence[str] | None) -> list[Any]:
        """Return what SkyPilot says of clusters, all of its user's without names, as the clouds have them now."""
        records = self._answer(
            lambda: self.sky.status(
                cluster_names=names, refresh=self.sky.StatusRefreshMode.AUTO
            ), "status",
        )  # fmt: skip
        if not isinstance(records, list):
            raise ProviderError("unavailable", f"SkyPilot (status): no list: {str(records)[:80]}", False)
        return records

    def listing(self) -> Sequence[ListedInstance]:
        """Return the clusters of this run; SkyPilot forgets those that are gone."""
        listed = []
        self._up.clear()
        for record in self._records(None):
            try:
                name = str(record["name"])
                if not name.startswith(f"{_PREFIX}{self.run}-"):
                    continue  # whatever else it has
                since, status = float(record["launched_at"]), record["status"].name
                handle = record["handle"]
            except (KeyError, TypeError, ValueError, AttributeError):
                raise ProviderError(
                    "unavailable", f"SkyPilot (status): no cluster: {str(record)[:80]}", False
                ) from None
            token = name.removeprefix(_PREFIX).rpartition("-")[0]
            if status == "UP":
                self._up.add(name)
            address = getattr(handle, "head_ip", None) if status == "UP" else None
            end: InstanceEnd | None = "interrupted" if status == "STOPPED" else None
            listed.append(ListedInstance(name, token, since, address, end=end, run=self.run))
        return listed

    def release(self, ids: Sequence[str]) -> None:
        """Tear clusters down, and cancel launches that may still be queued: their clusters do not exist yet.

        :raises ProviderError: the first one, after all have been tried.
        """
        failures = []
        for name in ids:
            if name in self._launches:
                try:
                    self._answer(partial(self.sky.api_cancel, [self._launches[name]], silent=True), "api_cancel")
                    del self._launches[name]
                except ProviderError as error:
                    failures.append(error)
        self._each(ids, lambda name: self.sky.down(name), "down")
        if failures:
            raise failures[0]

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Set autodown anew: its minutes count from now. Clusters that are not up still have the whole lease of their
        launch before them."""
        minutes = max(1, math.ceil((until_s - self.clock()) / _MINUTE_S))
        self._each(
            [name for name in ids if name in self._up],
            lambda name: self.sky.autostop(name, idle_minutes=minutes, wait_for=self._unconditional, down=True),
            "autostop",
        )

    def _each(self, names: Sequence[str], submit: Callable[[str], Any], method: str) -> None:
        """Submit a request for each cluster, then wait for all; those that do not exist are passed over."""
        requests, failures = [], []
        for name in names:
            try:
                requests.append(self._limited(partial(submit, name), method))
            except ProviderError as error:
                failures.append(error)
        for request in requests:
            try:
                self._limited(partial(self.sky.get, request), method)
            except ProviderError as error:
                failures.append(error)
        failures = [error for error in failures if "ClusterDoesNotExist" not in str(error)]
        if failures:
            raise failures[0]


def _explained(error: Exception, method: str) -> ProviderError:
    """Return what an exception of SkyPilot means. Only a request that is invalid certainly had no effect."""
    name = type(error).__name__
    failure = _FAILURES.get(name)  # a subclass of ValueError may be an answer that cannot be read
    text = f"SkyPilot ({method}): {name}: {' '.join(str(error).split())[:300]}"
    return ProviderError(failure or "unavailable", text, has_no_effect=failure == "invalid")
