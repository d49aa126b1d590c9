"""``plink.order/1``: which host takes which ranks."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, Fingerprint, HostName, NonNegative, Positive, PositiveInt

# An order may cost any multiple of another one: more than so many is no measurement.
GainShare = Annotated[float, Meta(gt=-1e6, lt=1e6)]


class ValidationEntry(TypedDict):
    """The found order's gain over the given one, where the network file has halves_us."""

    gain: GainShare
    """What the found order saves of the given order's cost on samples that it was not fitted on: 0.2 is a fifth."""
    low: GainShare
    """Lower end of what fresh samples would show."""
    high: GainShare
    """Upper end of what fresh samples would show."""
    predicted: NotRequired[GainShare]
    """What it saves on the samples that it was fitted on."""
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    """How often low and high hold the gain on fresh samples: 0.95."""
    pairs: NotRequired[Count]
    """Of how many pairs that either order uses there are samples to judge by."""


class KeptBaselineEntry(TypedDict):
    """Present when the gain was within the noise: hosts is the baseline order, and this is the result of the search."""

    result: Annotated[list[str], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]
    """Hosts in the order of the search's result."""
    result_cost: NonNegative
    """Cost of that order, in microseconds."""


class OrderVerdictEntry(TypedDict):
    """Whether fitted distances are nearer to fresh measurements than measured ones; null where there were too few pairs
    to say."""

    word: Literal["helps", "hurts", "no difference"]
    """A difference of less than two standard errors is none."""
    basis: Literal["halves", "held-out"]
    """Judged on the other half of the samples, or on pairs held out."""
    fitted_error: NonNegative
    """Mean of |log(fitted / measured)| over the pairs."""
    raw_error: NonNegative
    """The same of the measured half, or of what near hosts measured."""
    standard_error: NonNegative
    """Of the difference."""
    pairs: PositiveInt
    """So many."""


class SmoothingEntry(TypedDict):
    """Present where the order rests on fitted round trips: how they were fitted, and the verdict on them."""

    dimension: PositiveInt
    """Of the embedding."""
    alpha: float
    """Power of the distance."""
    heights: bool
    """Whether hosts have heights."""
    loss: Literal["relative", "absolute"]
    """How errors counted."""
    verdict: OrderVerdictEntry | None
    """Whether fitted distances are nearer to fresh measurements than measured ones; null where there were too few pairs
    to say."""


class OrderDocument(TypedDict):
    """Which host takes which ranks.

    Written by `plink reorder`, read by `plink launch`.
    """

    schema: Literal["plink.order/1"]
    """Kind and version of this file."""
    algo: NotRequired[str]
    """The collective's algorithm that the order is for, like ring; given when somebody else chose the order, unknown
    when missing."""
    hosts: Annotated[list[HostName], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]
    """Host names in rank order: the first takes ranks 0 to slots-1, the next those that follow."""
    cost: NotRequired[float | None]
    """Cost of this order in microseconds, under the model and the objective; null when unknown."""
    lower_bound: NotRequired[float | None]
    """No order under the same constraints costs less, in microseconds; where pairs were not measured: no order without
    such pairs. Null when no bound is known."""
    baseline: NotRequired[dict[str, float | None] | None]
    """Costs of other orders to compare with, in microseconds."""
    objective: NotRequired[str | None]
    """What is minimised: time (the model's cost), sum (of a ring's round trips) or bottleneck (a ring's longest round
    trip first, the sum second)."""
    model: NotRequired[str]
    """The cost model, like latency."""
    search_model: NotRequired[str]
    """With the model simulated: the model that the search went by before its best orders were simulated."""
    simulated_orders: NotRequired[PositiveInt]
    """With the model simulated: how many orders were; the cheapest of them is this one."""
    seed: NotRequired[int | None]
    """What makes the search reproducible."""
    network: NotRequired[Fingerprint | None]
    """Fingerprint of the network it was solved for."""
    gap: NotRequired[NonNegative | None]
    """By how much at most this order costs more than the best, as a share of the bound: 0.02 is 2 %; null when no bound
    is known, or the given order was kept."""
    measured_pairs_only: NotRequired[bool]
    """True: lower_bound and proven speak of orders without the pairs that nobody measured; absent where all pairs are
    known."""
    bound_by: NotRequired[str | None]
    """What the bound rests on: all rings, 1-tree, 2-connected threshold, links, rounds, z3, cp-sat, all orders (each
    was tried), or that all orders cost the same; null when no bound is known."""
    estimated_bound: NotRequired[bool]
    """True: lower_bound and gap rest on predicted round trips, so an order below the bound may exist; absent else."""
    proven: NotRequired[bool]
    """Whether no order under the same constraints costs less than this one by more than a millionth; where pairs were
    not measured: no order without such pairs."""
    proven_by_rounds: NotRequired[bool]
    """True: exact methods proved an order the best where all ranks wait for each other in each round; the cost is
    that of ranks that do not. Absent else."""
    interrupted: NotRequired[bool]
    """The search was stopped before its end (Ctrl-C): this is the best order up to then."""
    bottleneck: NotRequired[NonNegative]
    """Of a ring that was found for its sum: its longest round trip, in microseconds."""
    bottleneck_lower_bound: NotRequired[NonNegative]
    """The longest round trip of no ring is shorter, in microseconds."""
    sum: NotRequired[NonNegative]
    """Of a ring that was found for its longest round trip: the sum of its round trips, in microseconds."""
    sum_lower_bound: NotRequired[NonNegative]
    """No ring has a smaller sum of round trips, in microseconds."""
    questions: NotRequired[NonNegative]
    """Questions that an exact method (--prove) was asked."""
    moves: NotRequired[Count]
    """Moves that the search tried; 0 where it counts none."""
    size_bytes: NotRequired[Positive | None]
    """Bytes that are reduced; the model latency knows no sizes."""
    capacities: NotRequired[str]
    """Where the capacities that the model used come from."""
    groups: NotRequired[list[list[Count]] | None]
    """For 2lha, or with --groups: the ranks of each group that the order was found for."""
    options: NotRequired[dict[str, int | float | bool | str] | None]
    """With --set: what the algorithm was told, like base: 4."""
    pins: NotRequired[dict[str, Count]]
    """With --pin: the first rank of each pinned host."""
    validation: NotRequired[ValidationEntry | None]
    """The found order's gain over the given one, where the network file has halves_us."""
    kept_baseline: NotRequired[KeptBaselineEntry]
    """Present when the gain was within the noise: hosts is the baseline order, and this is the result of the search."""
    smoothing: NotRequired[SmoothingEntry]
    """Present where the order rests on fitted round trips: how they were fitted, and the verdict on them."""
