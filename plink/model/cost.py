"""Costs of a collective on a measured network (``plink.cost/1``)."""

from typing import Annotated

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.network_file import HostCostsEntry
from plink.model.types import Count, Fingerprint, NonNegative, PositiveInt, Share

CostModel = Annotated[str, Meta(extra_json_schema={"enum": ["latency", "alpha-beta", "contention", "simulated"]})]


class RandomOrders(Part, frozen=True, kw_only=True):
    """Costs of random orders."""

    orders: PositiveInt
    """How many had a cost: those that use unmeasured pairs have none."""
    seed: Count
    """What drew them."""
    min_us: NonNegative
    """The cheapest, microseconds."""
    median_us: NonNegative
    """Their median, microseconds."""
    max_us: NonNegative
    """The highest cost, microseconds."""
    more_expensive: Share
    """Share of them that cost more than this order, 0 to 1."""


class CostRound(Part, frozen=True, kw_only=True):
    """Cost of one round."""

    latency_us: NonNegative
    """The farthest hop: its round trip under latency, half of it under the others."""
    transfer_us: NonNegative
    """What the busiest resource needs for its bytes, microseconds."""
    busiest: str
    """That resource, or latency."""


class CostPart(Part, frozen=True, kw_only=True):
    """Cost of one algorithm of which a collective is made."""

    algo: str
    """Name in the catalogue."""
    weight: Share
    """Its share of the cost, 0 to 1."""
    model: CostModel
    """The cost model."""
    cost_us: NonNegative
    """Its own cost, microseconds."""
    slowest_pair: tuple[str, str]
    """The two hosts farthest from each other among the pairs that are used; under simulated those of the transfer that
    took longest."""
    rounds: tuple[CostRound, ...]
    """The rounds (under latency those of the way there); empty under simulated, where rounds overlap."""
    busiest_link: str | Unset = UNSET
    """Under simulated: the link that was in use for the largest share of the time."""
    busiest_share: Share | Unset = UNSET
    """What it carried over what it could have carried, 0 to 1."""


class CollectiveCost(Document, frozen=True, kw_only=True, tag="plink.cost/1"):
    """What a collective costs on a measured network.

    Printed by `plink cost --json`.
    """

    algo: str
    """The algorithm, or what a library runs."""
    model: CostModel
    """The cost model."""
    size_bytes: PositiveInt
    """Bytes that are reduced."""
    ranks: Annotated[int, Meta(ge=2)]
    """How many take part: the slots of all hosts."""
    order: str
    """The file of the order, or that there was none."""
    hosts: Annotated[tuple[str, ...], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]
    """The hosts in the order of their ranks."""
    cost_us: NonNegative
    """Time of the collective, microseconds."""
    interval_us: tuple[NonNegative, NonNegative] | None
    """Where a library's time is with a probability of 90 %, microseconds, as calibrated on labs; null where the model
    was not: without shared links, or where their capacities were not measured."""
    least_time_us: NonNegative | Unset = UNSET
    """Least possible time of any all-reduce of that size on the measured links, microseconds; absent where rates are
    unknown."""
    limited_by: str | Unset = UNSET
    """The links that the least possible time rests on."""
    capacities: str
    """Where the capacities come from: measured, or how they were inferred."""
    host_costs: HostCostsEntry | Unset = UNSET
    """What hosts take for each message and byte, where `plink check --calibrate` fitted that; `latency` is without."""
    network: Fingerprint
    """Fingerprint of the network."""
    smoothed: bool | Unset = UNSET
    """Present where round trips are fitted ones (`--smooth-latencies`)."""
    predicted_pairs: PositiveInt | Unset = UNSET
    """How many pairs of hosts were not measured, and go by predicted round trips; absent where none."""
    random: RandomOrders | None
    """What random orders cost; null when none was drawn, or none has a cost."""
    parts: tuple[CostPart, ...]
    """What the cost is made of; empty for more than 1,024 ranks."""
