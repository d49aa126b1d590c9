"""What happened to the instances of one run: the entries of its journal, ``spot/journal.jsonl``.

An entry that announces an act is on disk before the act. So after a crash the journal names every request that may
have been granted, and every instance that may still cost money. Times are seconds since 1970, prices money per instance
and hour.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from plink.model.spot.market_file import BillingName
from plink.model.spot.prices import Instant, Market, Price
from plink.model.types import Count, Name, NonNegative, PositiveInt

SCHEMA: Literal["plink.spot-journal/1"] = "plink.spot-journal/1"
ClosedRequest = Literal["granted", "refused", "abandoned"]
InstanceEnd = Literal["interrupted", "released"]
PenaltyScope = Literal["market", "kind", "all"]
Token = Annotated[str, Meta(title="a token (letters, digits and dashes)", pattern=r"^[A-Za-z0-9-]{1,64}(?!\n)$")]


@dataclass(frozen=True)
class JournalEntry:
    """Entry of a journal; ``what``: its kind, as the file has it."""

    what: ClassVar[str]
    at: Instant


@dataclass(frozen=True)
class JournalOpened(JournalEntry):
    """The run, who rents, how it bills, the reliable machines that are paid from ``at`` on, and the provider's name of
    the account, where it has one."""

    what: ClassVar[str] = "opened"
    run: Name
    provider: Name
    billing: BillingName
    anchors: Count = 0
    anchor_price: NonNegative = 0.0
    account: str = ""
    schema: Literal["plink.spot-journal/1"] = SCHEMA


@dataclass(frozen=True)
class LimitsSet(JournalEntry):
    """The money that may be spent in all, and an hour, from now on; None: any."""

    what: ClassVar[str] = "limits"
    budget: NonNegative | None = None
    max_hourly: NonNegative | None = None


@dataclass(frozen=True)
class PriceChanged(JournalEntry):
    """The price of a market in which instances are held or requested, from ``since_s`` on."""

    what: ClassVar[str] = "price"
    zone: Name
    type: Name
    product: Name
    since_s: Instant
    price: Price

    @property
    def market(self) -> Market:
        """The market."""
        return Market(self.zone, self.type, self.product)


@dataclass(frozen=True)
class PricesRecorded(JournalEntry):
    """The journal has all prices until ``at`` of the markets in which instances are held or requested."""

    what: ClassVar[str] = "priced"


@dataclass(frozen=True)
class InstancesRequested(JournalEntry):
    """``count`` instances are about to be requested for at most ``bid`` each, under a token that is used only here.
    ``is_for_deadline``: a deadline asks for them."""

    what: ClassVar[str] = "request"
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


@dataclass(frozen=True)
class InstanceGranted(JournalEntry):
    """The provider granted one instance of a request; it is paid from ``since_s`` on."""

    what: ClassVar[str] = "granted"
    token: Token
    instance: Name
    since_s: Instant


@dataclass(frozen=True)
class RequestClosed(JournalEntry):
    """A request is over: all that is granted is in the journal. ``abandoned``: no answer came, and not all of it
    appeared. What appears later is released. ``scope``: where nothing is requested until ``penalised_until_s``: in its
    market, in all of its kind (spot, or on demand: providers limit them apart), or at all."""

    what: ClassVar[str] = "request closed"
    token: Token
    outcome: ClosedRequest
    error: str = ""
    penalised_until_s: NonNegative = 0.0
    scope: PenaltyScope = "market"


@dataclass(frozen=True)
class RequestsPaused(JournalEntry):
    """The provider throttles, or refuses the credentials: nothing is requested in any market for a while, also where
    it is in doubt what the last request was granted."""

    what: ClassVar[str] = "requests paused"
    error: str
    penalised_until_s: NonNegative


@dataclass(frozen=True)
class InstanceJoined(JournalEntry):
    """An instance works in the job, as this host."""

    what: ClassVar[str] = "joined"
    instance: Name
    host: Name


@dataclass(frozen=True)
class InstanceDraining(JournalEntry):
    """The job is about to be asked to move away from an instance, which is released after that."""

    what: ClassVar[str] = "drain"
    instance: Name
    reason: str
    penalised_until_s: NonNegative = 0.0


@dataclass(frozen=True)
class InstanceReleased(JournalEntry):
    """An instance is about to be released."""

    what: ClassVar[str] = "release"
    instance: Name
    reason: str


@dataclass(frozen=True)
class InstanceEnded(JournalEntry):
    """An instance is gone: it is paid until ``until_s``."""

    what: ClassVar[str] = "ended"
    instance: Name
    end: InstanceEnd
    until_s: Instant
    penalised_until_s: NonNegative = 0.0


@dataclass(frozen=True)
class JobEnded(JournalEntry):
    """The job is over: everything is released."""

    what: ClassVar[str] = "job ended"


KINDS = {kind.what: kind for kind in JournalEntry.__subclasses__()}
