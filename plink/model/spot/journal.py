"""What happened to the instances of one run: the entries of its journal, ``spot/journal.jsonl``.

An entry that announces an act is on disk before the act. So after a crash the journal names every request that may
have been granted, and every instance that may still cost money. Times are seconds since 1970, prices money per instance
and hour.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from plink.model.codec import schema_name
from plink.model.spot.market_file import BillingName
from plink.model.spot.prices import Instant, Market, Price
from plink.model.types import Count, Name, NonNegative, PositiveInt

SCHEMA: Literal["plink.spot-journal/1"] = "plink.spot-journal/1"
ClosedRequest = Literal["granted", "refused", "abandoned"]
InstanceEnd = Literal["interrupted", "released"]
PenaltyScope = Literal["market", "kind", "all"]
Token = Annotated[str, Meta(title="a token (letters, digits and dashes)", pattern=r"^[A-Za-z0-9-]{1,64}(?!\n)$")]


class JournalEntry(Struct, frozen=True, tag_field="what", tag=""):
    """Entry of a journal."""

    at: Instant

    @property
    def what(self) -> str:
        """Its kind, as the file has it."""
        return schema_name(type(self))


class JournalOpened(JournalEntry, frozen=True, tag="opened"):
    """The run, who rents, how it bills, the reliable machines that are paid from ``at`` on, and the provider's name of
    the account, where it has one."""

    run: Name
    provider: Name
    billing: BillingName
    anchors: Count = 0
    anchor_price: NonNegative = 0.0
    account: str = ""
    schema: Literal["plink.spot-journal/1"] = SCHEMA


class LimitsSet(JournalEntry, frozen=True, tag="limits"):
    """The money that may be spent in all, and an hour, from now on; None: any."""

    budget: NonNegative | None = None
    max_hourly: NonNegative | None = None


class PriceChanged(JournalEntry, frozen=True, tag="price"):
    """The price of a market in which instances are held or requested, from ``since_s`` on."""

    zone: Name
    type: Name
    product: Name
    since_s: Instant
    price: Price

    @property
    def market(self) -> Market:
        """The market."""
        return Market(self.zone, self.type, self.product)


class PricesRecorded(JournalEntry, frozen=True, tag="priced"):
    """The journal has all prices until ``at`` of the markets in which instances are held or requested."""


class InstancesRequested(JournalEntry, frozen=True, tag="request"):
    """``count`` instances are about to be requested for at most ``bid`` each, under a token that is used only here.
    ``is_for_deadline``: a deadline asks for them."""

    token: Token
    zone: Name
    type: Name
    product: Name
    count: PositiveInt
    bid: Price
    reason: str = ""
    is_for_deadline: bool = False

    @property
    def market(self) -> Market:
        """The market."""
        return Market(self.zone, self.type, self.product)


class InstanceGranted(JournalEntry, frozen=True, tag="granted"):
    """The provider granted one instance of a request; it is paid from ``since_s`` on."""

    token: Token
    instance: Name
    since_s: Instant


class RequestClosed(JournalEntry, frozen=True, tag="request closed"):
    """A request is over: all that is granted is in the journal. ``abandoned``: no answer came, and not all of it
    appeared. What appears later is released. ``scope``: where nothing is requested until ``penalised_until_s``: in its
    market, in all of its kind (spot, or on demand: providers limit them apart), or at all."""

    token: Token
    outcome: ClosedRequest
    error: str = ""
    penalised_until_s: NonNegative = 0.0
    scope: PenaltyScope = "market"


class RequestsPaused(JournalEntry, frozen=True, tag="requests paused"):
    """The provider throttles, or refuses the credentials: nothing is requested in any market for a while, also where
    it is in doubt what the last request was granted."""

    error: str
    penalised_until_s: NonNegative


class InstanceJoined(JournalEntry, frozen=True, tag="joined"):
    """An instance works in the job, as this host."""

    instance: Name
    host: Name


class InstanceDraining(JournalEntry, frozen=True, tag="drain"):
    """The job is about to be asked to move away from an instance, which is released after that."""

    instance: Name
    reason: str
    penalised_until_s: NonNegative = 0.0


class InstanceReleased(JournalEntry, frozen=True, tag="release"):
    """An instance is about to be released."""

    instance: Name
    reason: str


class InstanceEnded(JournalEntry, frozen=True, tag="ended"):
    """An instance is gone: it is paid until ``until_s``."""

    instance: Name
    end: InstanceEnd
    until_s: Instant
    penalised_until_s: NonNegative = 0.0


class JobEnded(JournalEntry, frozen=True, tag="job ended"):
    """The job is over: everything is released."""


KINDS = {schema_name(kind): kind for kind in JournalEntry.__subclasses__()}
