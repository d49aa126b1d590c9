"""The provider ``command``: commands of the user's own, for any cloud. Requests are JSON on their standard input.

The run's id is in each request, and each command must keep to instances of that run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from plink.errors import InputError
from plink.model.codec import convert
from plink.model.document import UNSET, Part, Unset
from plink.model.spot.prices import LINUX, Instant, Market, Price
from plink.model.types import Name
from runners.spot.child_command import MAX_SHOWN_CHARACTERS, run_command
from runners.spot.provider import ListedInstance, PricePoint, ProviderError, RentalOrder

COMMANDS = ("prices", "acquire", "listing", "release", "renew")


class PriceAnswer(Part, frozen=True, kw_only=True):
    """Answer of ``prices``: one price of one market, from ``since_s`` on."""

    zone: Name
    type: Name
    product: Name = LINUX
    since_s: Instant
    price: Price

    @property
    def point(self) -> PricePoint:
        """The price as a driver takes it."""
        return PricePoint(Market(self.zone, self.type, self.product), self.since_s, self.price)


class _AcquireAnswer(Part, frozen=True, kw_only=True):
    """Answer of ``acquire``: what was granted, or why nothing was."""

    instances: tuple[ListedInstance, ...] = ()
    refused: str | Unset = UNSET
    failure: Literal["capacity", "limit", "throttled", "credentials", "invalid"] = "capacity"


@dataclass(frozen=True)
class CommandProvider:
    """Provider behind the commands ``prices``, ``acquire``, ``listing`` and ``release``, and ``renew`` where instances
    have leases."""

    run: str
    commands: Mapping[str, Sequence[str]]

    def _ask(self, method: str, request: Mapping[str, Any], kind: Any) -> Any:
        argv = self.commands[method]
        answer = run_command(argv, {"run": self.run, **request})
        if kind is None:
            return None
        try:
            return convert(kind, answer, f"{argv[0]} ({method})")
        except InputError as error:
            raise ProviderError("unavailable", str(error), has_no_effect=False) from None

    def account(self) -> str:
        """Return no name."""
        return ""

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """Return what ``prices`` prints."""
        answers: list[PriceAnswer] = self._ask("prices", {"since_s": since_s}, list[PriceAnswer])
        return sorted((answer.point for answer in answers), key=lambda point: point.since_s)

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Return what ``acquire`` prints as granted."""
        market = order.market
        request = {
            "token": order.token, "zone": market.zone, "type": market.type, "product": market.product,
            "count": order.count, "bid": order.bid, "lease_until_s": order.lease_until_s,
        }  # fmt: skip
        answer: _AcquireAnswer = self._ask("acquire", request, _AcquireAnswer)
        name = self.commands["acquire"][0]
        if answer.refused is not UNSET:
            if answer.instances:
                raise ProviderError("unavailable", f"{name} (acquire): both refused and instances", has_no_effect=False)
            reason = " ".join(answer.refused.split())[:MAX_SHOWN_CHARACTERS]
            raise ProviderError(answer.failure, reason or "refused without a reason")
        if any(each.token != order.token for each in answer.instances) or len(answer.instances) > order.count:
            raise ProviderError(
                "unavailable", f"{name} (acquire): more instances than requested, or of another token", False
            )
        return [replace(each, run=None) for each in answer.instances]  # only a tag says the run

    def listing(self) -> Sequence[ListedInstance]:
        """Return what ``listing`` prints."""
        answers: list[ListedInstance] = self._ask("listing", {}, list[ListedInstance])
        return [replace(each, run=None) for each in answers]

    def release(self, ids: Sequence[str]) -> None:
        """Run ``release``."""
        self._ask("release", {"instances": list(ids)}, None)

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Run ``renew``, where there is one."""
        if "renew" in self.commands:
            self._ask("renew", {"instances": list(ids), "until_s": until_s}, None)
