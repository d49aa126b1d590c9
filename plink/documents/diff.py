"""``plink.diff/1``: what changed between two network files, beyond noise."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, NonNegative, Positive, PositiveInt


class OldFileEntry(TypedDict):
    """The file that is compared with."""

    file: str
    """Its name as it was given."""
    measured_at: str | None
    """When it was measured, UTC; null where the file does not say."""
    network: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{16}$")]
    """Fingerprint of what was measured."""


class NewFileEntry(TypedDict):
    """The file that is compared."""

    file: str
    """Its name as it was given."""
    measured_at: str | None
    """When it was measured, UTC; null where the file does not say."""
    network: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{16}$")]
    """Fingerprint of what was measured."""


class ComparedEntry(TypedDict):
    """How much both files have."""

    round_trips: Count
    """Pairs whose round trips were compared."""
    rates: Count
    """Pairs whose bandwidths were compared."""
    capacities: Count
    """Capacities of groups, each way by itself, that were compared."""


class ChangeEntry(TypedDict):
    """One change beyond noise."""

    what: Literal["latency", "loss", "rate", "capacity", "unmeasured", "hops"]
    """What changed: round trips, loss, bandwidths of pairs, what a group shares, whether it is measured, routers on the
    way."""
    severity: Literal["error", "warning", "info"]
    """error: twice as slow or more, 1 % lost or more, or no longer measured; warning: less; info: did not get worse."""
    verdict: Literal["worse", "better", "changed"]
    """changed: neither (hops)."""
    where: Literal["network", "host", "link", "inside", "group", "uplink", "within", "between", "pair"]
    """The cause: the whole network; a host; hosts to others; among hosts; hosts to all; hosts to all others; all pairs
    within groups; all pairs between groups; one pair."""
    hosts: Annotated[list[str], Meta(min_length=1)]
    """Whose it is."""
    others: list[str]
    """The far side of a link or a pair, else empty."""
    old: NonNegative | None
    """Median over the pairs before, in `unit`; null where there is nothing to say."""
    new: NonNegative | None
    """The same now."""
    unit: Literal["us", "share", "Gbit/s", "hops"] | None
    """Of `old` and `new`."""
    pairs: PositiveInt
    """How many pairs it explains."""
    way: NotRequired[Literal["out", "in"]]
    """Of a capacity: which way."""


class DiffDocument(TypedDict):
    """What changed between two network files, beyond noise.

    Printed by `plink diff --json`.
    """

    schema: Literal["plink.diff/1"]
    """Kind and version of this file."""
    ok: bool
    """Whether nothing got worse."""
    old: OldFileEntry
    """The file that is compared with."""
    new: NewFileEntry
    """The file that is compared."""
    threshold: Positive
    """The smallest relative change that is named: 0.25 is 1.25 times as long, or a rate of 1 / 1.25."""
    floor_us: NonNegative
    """By how much a round trip must change besides, microseconds."""
    hosts: Annotated[list[str], Meta(min_length=2)]
    """Hosts that both files name."""
    gone: list[str]
    """Hosts that only the old file names."""
    come: list[str]
    """Hosts that only the new file names."""
    moved: list[str]
    """Hosts that are at another address now."""
    compared: ComparedEntry
    """How much both files have."""
    shift: Positive
    """How many times as long round trips take throughout; a pair's change is judged with this taken out."""
    noise: NonNegative
    """Median standard error of a pair's change of its round trip, a share."""
    findings: list[ChangeEntry]
    """What changed, each cause once; per kind the one that explains most first, single pairs last."""
    notes: list[str]
    """What could not be compared, and why."""
