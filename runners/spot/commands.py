"""The provider ``command``: commands of the user's own, for any cloud. Requests are JSON on their standard input.

The run's id is in each request, and each command must keep to instances of that run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plink.documents.codec import convert
from plink.documents.spot_commands import AcquireAnswer, InstanceAnswer, PriceAnswer
from plink.errors import InputError
from plink.model.spot.prices import Market
from runners.spot.child_command import MAX_SHOWN_CHARACTERS, run_command
from runners.spot.provider import ListedInstance, PricePoint, ProviderError, RentalOrder

_DEFAULT_PRODUCT = "Linux/UNIX"


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
        return sorted(map(price_point, answers), key=lambda point: point.since_s)

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Return what ``acquire`` prints as granted."""
        market = order.market
        request = {
            "token": order.token, "zone": market.zone, "type": market.type, "product": market.product,
            "count": order.count, "bid": order.bid, "lease_until_s": order.lease_until_s,
        }  # fmt: skip
        answer: AcquireAnswer = self._ask("acquire", request, AcquireAnswer)
        if "refused" in answer and answer.get("instances"):
            name = self.commands["acquire"][0]
            raise ProviderError("unavailable", f"{name} (acquire): both refused and instances", has_no_effect=False)
        if "refused" in answer:
            reason = " ".join(answer["refused"].split())[:MAX_SHOWN_CHARACTERS]
            raise ProviderError(answer.get("failure", "capacity"), reason or "refused without a reason")
        granted = [listed_instance(each) for each in answer.get("instances", ())]
        if any(each.token != order.token for each in granted) or len(granted) > order.count:
            name = self.commands["acquire"][0]
            raise ProviderError(
                "unavailable", f"{name} (acquire): more instances than requested, or of another token", False
            )
        return granted

    def listing(self) -> Sequence[ListedInstance]:
        """Return what ``listing`` prints."""
        answers: list[InstanceAnswer] = self._ask("listing", {}, list[InstanceAnswer])
        return [listed_instance(each) for each in answers]

    def release(self, ids: Sequence[str]) -> None:
        """Run ``release``."""
        self._ask("release", {"instances": list(ids)}, None)

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Run ``renew``, where there is one."""
        if "renew" in self.commands:
            self._ask("renew", {"instances": list(ids), "until_s": until_s}, None)


def price_point(answer: PriceAnswer) -> PricePoint:
    """Return a price as the driver takes it."""
    market = Market(answer["zone"], answer["type"], answer.get("product", _DEFAULT_PRODUCT))
    return PricePoint(market, answer["since_s"], answer["price"])


def listed_instance(answer: InstanceAnswer) -> ListedInstance:
    """Return an instance as the driver takes it."""
    return ListedInstance(
        answer["id"], answer["token"], answer["since_s"], answer.get("address"), answer.get("host"),
        answer.get("until_s"), answer.get("end"),
    )  # fmt: skip
