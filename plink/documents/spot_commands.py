"""What the commands of the provider ``command`` print: JSON without a schema of its own (docs/spot.md)."""

from typing import Literal, NotRequired, TypedDict

from plink.documents.spot_prices import Instant, Price
from plink.documents.types import HostName, Name


class PriceAnswer(TypedDict):
    """One price of one market, from `since_s` on."""

    zone: Name
    type: Name
    product: NotRequired[Name]
    since_s: Instant
    price: Price


class InstanceAnswer(TypedDict):
    """One instance. `until_s` and `end`: of one that is gone."""

    id: Name
    token: str
    since_s: Instant
    address: NotRequired[HostName | None]
    host: NotRequired[HostName | None]
    until_s: NotRequired[Instant | None]
    end: NotRequired[Literal["interrupted", "released"] | None]


class AcquireAnswer(TypedDict):
    """What was granted, or why nothing was."""

    instances: NotRequired[list[InstanceAnswer]]
    refused: NotRequired[str]
    failure: NotRequired[Literal["capacity", "limit", "throttled", "credentials", "invalid"]]
