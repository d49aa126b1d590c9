"""Advice: which algorithm in which order for which size (``plink.advice/1``)."""

from typing import Annotated

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.types import Count, Fingerprint, NonNegative, Positive, PositiveInt, Share


class LineInSize(Part, frozen=True, kw_only=True):
    """The time of an algorithm in an order: a line in the size; under simulated the line through its times at the
    smallest and the largest size."""

    algo: str
    """The algorithm."""
    order: str
    """The family of orders: given (as the hosts stand), digits (of a BCube), grouped (groups kept together), ring (the
    cheapest ring)."""
    start_us: NonNegative
    """Microseconds for no bytes at all."""
    us_per_mb: NonNegative
    """Microseconds a MB (1,000,000 bytes) on top."""
    by_rounds: bool | Unset = UNSET
    """Present where its time is counted round by round instead of simulated: at this size, or at some size."""


class AdvisedRange(LineInSize, frozen=True, kw_only=True):
    """The fastest for one stretch of sizes."""

    from_bytes: Count
    """From this size on."""
    to_bytes: Count
    """Up to this size, from where the next is faster."""


class SizeChoice(LineInSize, frozen=True, kw_only=True):
    """The fastest for one size."""

    size_bytes: PositiveInt
    """The size."""
    time_us: NonNegative
    """Its time, microseconds."""
    least_time_us: NonNegative | Unset = UNSET
    """Least possible time of any all-reduce of that size on the measured links, microseconds; absent where rates are
    unknown."""
    interval_us: tuple[NonNegative, NonNegative] | None
    """Where a library's time is with a probability of 90 %, as `plink cost` states it."""


class BalanceForm(Part, frozen=True, kw_only=True):
    """A form of a step's exchange."""

    form: str
    """The algorithm, and the hosts that aggregate where not all ranks do."""
    algo: str
    """The algorithm."""
    order: str
    """The family of orders, as in lines."""
    servers: tuple[str, ...]
    """The hosts that aggregate, where not all ranks do."""
    workers: PositiveInt
    """Ranks: without those of hosts that serve as hubs."""
    link: str
    """The link that is busy the longest: a host's, or a group's, and which way."""
    equal_links: Count
    """How many others are as busy."""
    link_bytes: NonNegative
    """Bytes over it in one exchange."""
    link_gbps: NonNegative
    """What it carries, Gbit/s."""
    need_gbps: NonNegative | None
    """What it would have to carry so that the step hides the exchange, with all links faster by the same factor; null
    where no rate is enough: nothing overlaps, or round trips alone take longer."""
    exchange_s: NonNegative
    """The time of one exchange, seconds."""
    exposed_s: NonNegative
    """What the step does not hide, seconds."""
    step_s: Positive
    """The step with what it does not hide, seconds."""
    cost: Positive | Unset = UNSET
    """Money an hour for what is rented, money for what is bought; missing without prices."""
    work_per_money: Positive | Unset = UNSET
    """Steps of single workers per money; bought: an hour and per 1000 of money."""


class StatedRackTimes(Part, frozen=True, kw_only=True):
    """Hubs of several racks by links alone, an exchange there and back, seconds (the thesis's rule, 2.3)."""

    flat_s: NonNegative
    """Hubs as shards, there and back at once: what `phub` takes with all of them."""
    sequential_s: NonNegative
    """Rack by rack, one phase after the other."""
    streamed_s: NonNegative
    """Rack by rack, all phases at once: what `phub-2l` takes."""


class StepBalance(Part, frozen=True, kw_only=True):
    """What a training step needs of the links in each form of its exchange, and what it hides."""

    parameter_bytes: PositiveInt
    """Bytes that a step all-reduces."""
    step_s: Positive
    """How long it computes, seconds."""
    overlap: Share
    """The share of it in which the exchange may go on."""
    forms: Annotated[tuple[BalanceForm, ...], Meta(min_length=1)]
    """The forms, that with the most work per time first."""
    hub_gbps: NonNegative | None
    """What all hubs of the best form with any (without one: of all ranks) need to carry together each way for their
    bytes alone, so that a step hides the exchange; null where nothing overlaps."""
    by_rack: StatedRackTimes | Unset = UNSET
    """Present where each of several racks has as many hubs, and all are alike: seconds of an exchange, there and back,
    by links alone."""


class StatedAdvice(Document, frozen=True, kw_only=True, tag="plink.advice/1"):
    """Which algorithm in which order for which size.

    Printed by `plink advise --json`.
    """

    model: Annotated[str, Meta(extra_json_schema={"enum": ["alpha-beta", "contention", "simulated"]})]
    """The cost model."""
    capacities: str
    """Where the capacities come from: measured, or how they were inferred."""
    network: Fingerprint
    """Fingerprint of the network."""
    best: Annotated[tuple[AdvisedRange, ...], Meta(min_length=1)]
    """The fastest, by ascending size."""
    lines: Annotated[tuple[LineInSize, ...], Meta(min_length=1)]
    """All that were compared."""
    sizes: Annotated[tuple[SizeChoice, ...], Meta(min_length=1)]
    """Round figures from the least size to the largest."""
    limited_by: str | Unset = UNSET
    """The links that the least possible time rests on (docs/optimal.md); absent where rates are unknown."""
    orders: dict[str, tuple[str, ...]]
    """Hosts in rank order, of each family of orders: `given`, `digits` (of a BCube), `grouped` (groups together),
    `ring` (the best ring of a short search)."""
    left_out: dict[str, str]
    """Algorithms without a cost, each with the reason."""
    smoothed: bool | Unset = UNSET
    """Present where round trips are fitted ones (`--smooth-latencies`)."""
    predicted_pairs: PositiveInt | Unset = UNSET
    """How many pairs of hosts were not measured, and go by predicted round trips; absent where none."""
    balance: StepBalance | Unset = UNSET
    """Present with `--parameters` and `--step`, or `--run`."""
    money: Annotated[str, Meta(extra_json_schema={"enum": ["rented", "bought"]})] | Unset = UNSET
    """Present beside balance where there are prices: price= of the hosts, or those of parts."""
