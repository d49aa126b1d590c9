"""What there is to see of a network (``plink.show/1``)."""

from typing import Annotated

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.network_file import HostCostsEntry
from plink.model.types import Count, NonNegative, PositiveInt, Share


class TierSpread(Part, frozen=True, kw_only=True):
    """The round trips of one kind of pairs."""

    name: str
    """Like inside groups."""
    pairs: PositiveInt
    """Pairs of hosts in it."""
    measured: Count
    """Of how many of them there is a round trip, of either direction."""
    low_us: NonNegative | None
    """10th percentile of their round trips, microseconds; null where none was measured."""
    median_us: NonNegative | None
    """Their median, microseconds."""
    high_us: NonNegative | None
    """Their 90th percentile, microseconds."""


class SharedTierSummary(Part, frozen=True, kw_only=True):
    """A tier of links that groups of hosts share."""

    groups: PositiveInt
    """How many groups."""
    confidence: Share | None
    """How sure the tier is: the share of resamples of the round trips in which all its groups are found; null where
    unknown."""


class OrderBottleneck(Part, frozen=True, kw_only=True):
    """What the cost model blames for most of the time of a collective."""

    kind: Annotated[str, Meta(extra_json_schema={"enum": ["links", "hosts", "latency", "hop"]})]
    """links: that groups of hosts share; hosts: what they send or receive by themselves; latency; hop: the longest one,
    for an order found with --objective bottleneck."""
    links: tuple[str, ...]
    """Names of the links, or sides of hosts, that are equally busy, as `plink cost` names them."""
    hosts: tuple[str, ...]
    """Names of the hosts behind these links, or at both ends of the hop."""
    time_us: NonNegative
    """How long these are the busiest, microseconds."""
    cost_us: NonNegative
    """What the collective costs in all, microseconds."""


class NetworkPicture(Document, frozen=True, kw_only=True, tag="plink.show/1"):
    """What there is to see of a network.

    Printed by `plink report --terminal --json`.
    """

    hosts: Annotated[int, Meta(ge=2)]
    """How many hosts."""
    measured: PositiveInt
    """Round trips that were measured, each direction by itself."""
    possible: Annotated[int, Meta(ge=2)]
    """Round trips there are: hosts * (hosts - 1)."""
    predicted_pairs: PositiveInt | Unset = UNSET
    """How many pairs of hosts were not measured, and go by predicted round trips; absent where none."""
    groups: Annotated[tuple[Annotated[tuple[str, ...], Meta(min_length=1)], ...], Meta(min_length=1)]
    """Names of the hosts of each group: as the groups file lists them, else by the round trips; one group of all where
    none stands out."""
    tiers: Annotated[tuple[TierSpread, ...], Meta(min_length=1)]
    """Pairs that are about as far apart, from near to far."""
    shared_tiers: tuple[SharedTierSummary, ...]
    """Tiers of measured shared links, the innermost first."""
    order: Annotated[tuple[str, ...], Meta(min_length=2, extra_json_schema={"uniqueItems": True})] | None
    """Host names in plink's order; null where there is none for this network."""
    bottleneck: OrderBottleneck | None
    """What takes most of the time of the order's collective; null where there is no order, or the cost model blames
    nothing: the model latency adds up all hops."""
    left_out: Annotated[tuple[str, ...], Meta(extra_json_schema={"uniqueItems": True})]
    """Hosts of which no round trip was measured, either way."""
    suspects: Count
    """How many things look wrong; `plink doctor` lists them."""
    host_costs: HostCostsEntry | None
    """What hosts take for each message and byte; null where `plink check --calibrate` has not fitted that."""
    interfaces: str | None
    """What the hosts' interfaces form; null where each uses one."""
