"""The protocol of a provider of transient instances.

A provider tags each instance with the run and the token of its request, and lists and releases only what has the tag of
its run. Times are seconds since 1970 on the provider's clock, prices money per instance and hour.
"""

from collections.abc import Sequence
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
        ...

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """Return the price of each market at ``since_s``, and all changes since then, each market's in order."""
        ...

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Take at most ``count`` instances, and return those that were granted. One token is granted once."""
        ...

    def listing(self) -> Sequence[ListedInstance]:
        """Return the instances of this run that are held, and those that are gone if they are still listed."""
        ...

    def release(self, ids: Sequence[str]) -> None:
        """End instances; those that are gone already are no error."""
        ...

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Renew the leases of instances until then."""
        ...
