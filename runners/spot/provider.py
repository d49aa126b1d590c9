"""The protocol of a provider of transient instances.

A provider tags each instance with the run and the token of its request, and lists and releases only what has the tag of
its run. Times are seconds since 1970 on the provider's clock, prices money per instance and hour.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from plink.errors import PlinkError
from plink.model.spot.journal import InstanceEnd
from plink.model.spot.prices import Instant, Market
from plink.model.types import HostName, Name

ProviderFailure = Literal["capacity", "limit", "throttled", "credentials", "invalid", "unavailable"]
RUN_TAG, TOKEN_TAG, LEASE_TAG = "plink-run", "plink-token", "plink-lease"


class ProviderError(PlinkError):
    """A request to a provider failed. ``has_no_effect``: the provider certainly granted nothing; otherwise what it
    lists decides. ``failure``: capacity of this market; limit of the account; throttled; credentials; invalid: the
    request; unavailable: no answer, or none that can be read."""

    def __init__(self, failure: ProviderFailure, message: str, has_no_effect: bool = True) -> None:
        self.failure, self.has_no_effect = failure, has_no_effect
        super().__init__(message)


@dataclass(frozen=True)
class PricePoint:
    """The price of a market from ``since_s`` on."""

    market: Market
    since_s: float
    price: float


@dataclass(frozen=True)
class RentalOrder:
    """``count`` instances of a market for at most ``bid`` each, tagged with ``token``; each ends by itself at
    ``lease_until_s`` unless its lease is renewed."""

    token: str
    market: Market
    count: int
    bid: float
    lease_until_s: float


@dataclass(frozen=True)
class ListedInstance:
    """An instance as its provider lists it. ``since_s``: it is paid from then on; ``until_s`` and ``end``: of one that
    is gone; ``host``: its name, where it has one of its own; ``address``: None until it has one; ``run``: what its tag
    says, None where only the token does."""

    id: Name
    token: str
    since_s: Instant
    address: HostName | None = None
    host: HostName | None = None
    until_s: Instant | None = None
    end: InstanceEnd | None = None
    run: str | None = None


class Provider(Protocol):
    """A provider. Every method raises :class:`ProviderError`."""

    def account(self) -> str:
        """Return whose instances are listed, as the provider names the account; empty where it has no name."""

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """Return the price of each market at ``since_s``, and all changes since then, each market's in order."""

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Take at most ``count`` instances, and return those that were granted. One token is granted once."""

    def listing(self) -> Sequence[ListedInstance]:
        """Return the instances of this run that are held, and those that are gone if they are still listed."""

    def release(self, ids: Sequence[str]) -> None:
        """End instances; those that are gone already are no error."""

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Renew the leases of instances until then."""


def elapsed_s() -> float:
    """Return seconds since some moment, those in which the machine slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SteadyClock:
    """Time of a provider that never falls, and jumps only where :meth:`take_new_base` is called.

    :param wall: the provider's time, seconds since 1970, of a clock that may be set. :param steady: seconds that have
        passed since some moment, as fast as those of ``wall``. :param not_before: the time of the last entry of a
        journal, before which there is no time any more.
    """

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float], not_before: float) -> None:
        self._wall, self._steady = wall, steady
        self._wall_offset_s = wall() - steady()
        self._lead_s = max(0.0, not_before - wall())

    def now(self) -> float:
        """Return the time for entries of the journal, ages and waits."""
        return self.lease_time() + self._lead_s

    def lease_time(self) -> float:
        """Return the time from which leases count: as instances see it, if the wall clock was right at the start."""
        return self._wall_offset_s + self._steady()

    def take_new_base(self, least_s: float, most_s: float) -> float:
        """Go by the wall clock again if it is ahead by so much, as after a pause that the steady clock does not count;
        return by how much, 0 where it is not."""
        ahead_s = self._wall() - self.lease_time()
        if not least_s < ahead_s <= most_s:
            return 0.0
        self._wall_offset_s += ahead_s
        self._lead_s = max(0.0, self._lead_s - ahead_s)
        return ahead_s

    def error_s(self) -> float:
        """Return by how much the wall clock is ahead of this one; below 0: behind it."""
        return self._wall() - self.now()
