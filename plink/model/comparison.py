"""Comparison of two measured networks (``plink.diff/1``)."""

from typing import Annotated

from msgspec import Meta

from plink.model.diagnosis import Severity
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.types import Count, Fingerprint, Name, NonNegative, Positive, PositiveInt


class ComparedFile(Part, frozen=True, kw_only=True):
    """Network file that is compared."""

    file: str
    """Its name as it was given."""
    measured_at: str | None
    """When it was measured, UTC; null where the file does not say."""
    network: Fingerprint
    """Fingerprint of what was measured."""


class ComparedCounts(Part, frozen=True, kw_only=True):
    """How much both files have."""

    round_trips: Count
    """Pairs whose round trips were compared."""
    rates: Count
    """Pairs whose bandwidths were compared."""
    host_rates: Count
    """Hosts' own rates, each way by itself, that were compared."""
    interface_rates: Count
    """Rates of interfaces, each way by itself, that were compared."""
    capacities: Count
    """Capacities of groups, each way by itself, that were compared."""


class NetworkChange(Part, frozen=True, kw_only=True):
    """Change beyond noise."""

    what: Annotated[
        str, Meta(extra_json_schema={"enum": ["latency", "loss", "rate", "capacity", "unmeasured", "hops"]})
    ]
    """What changed: round trips, loss, bandwidths of pairs or rates of hosts or interfaces, what a group shares,
    whether it is measured, routers on the way."""
    severity: Severity
    """error: twice as slow or more, 1 % lost or more, or no longer measured; warning: less, or the first few pairs of a
    large network that failed; info: did not get worse."""
    verdict: Annotated[str, Meta(extra_json_schema={"enum": ["worse", "better", "changed"]})]
    """changed: neither (hops, and failed pairs that are no more than before)."""
    where: Annotated[
        str,
        Meta(
            extra_json_schema={
                "enum": [
                    "network",
                    "host",
                    "link",
                    "inside",
                    "group",
                    "uplink",
                    "within",
                    "between",
                    "pair",
                    "interface",
                ]
            }
        ),
    ]
    """The cause: the whole network; a host; hosts to others; among hosts; hosts to all; hosts to all others; all pairs
    within groups; all pairs between groups; one pair; one interface of a host."""
    hosts: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Whose it is."""
    others: tuple[str, ...]
    """The far side of a link or a pair, else empty."""
    old: NonNegative | None
    """Before, in `unit`, of the pair whose change is the median of the pairs, of losses the worst way's; null where
    there is nothing to say."""
    new: NonNegative | None
    """The same now."""
    unit: Annotated[str | None, Meta(extra_json_schema={"enum": ["us", "share", "Gbit/s", "hops", None]})]
    """Of `old` and `new`."""
    pairs: PositiveInt
    """How many pairs it explains."""
    way: Annotated[str, Meta(extra_json_schema={"enum": ["out", "in"]})] | Unset = UNSET
    """Of a capacity, of an interface, or of a host's own rate that changed one way: which way."""
    interface: Name | Unset = UNSET
    """Of a change of an interface: its name."""


class NetworkComparison(Document, frozen=True, kw_only=True, tag="plink.diff/1"):
    """Changes between two network files, beyond noise.

    Printed by `plink diff --json`.
    """

    ok: bool
    """Whether nothing got worse."""
    old: ComparedFile
    """The file that is compared with."""
    new: ComparedFile
    """The file that is compared."""
    threshold: Positive
    """The smallest relative change that is named: 0.25 is 1.25 times as long, or a rate of 1 / 1.25."""
    floor_us: NonNegative
    """By how much a round trip must change besides, microseconds."""
    hosts: Annotated[tuple[str, ...], Meta(min_length=2)]
    """Hosts that both files name."""
    gone: tuple[str, ...]
    """Hosts that only the old file names."""
    come: tuple[str, ...]
    """Hosts that only the new file names."""
    moved: tuple[str, ...]
    """Hosts that are at another address now."""
    compared: ComparedCounts
    """How much both files have."""
    shift: Positive
    """How many times as long round trips take throughout; a pair's change is judged with this taken out."""
    noise: NonNegative
    """Median standard error of a pair's change of its round trip, a share."""
    findings: tuple[NetworkChange, ...]
    """What changed, each cause once; per kind the one that explains most first, single pairs last."""
    notes: tuple[str, ...]
    """What could not be compared, and why."""
