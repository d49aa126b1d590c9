"""Documents of an elastic run that has ended: how (``plink.elastic/1``), what it did and cost
(``plink.elastic-summary/1``)."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.spot.results import SpotStatus
from plink.model.types import Count, NonNegative


class RunEnd(Part, frozen=True, kw_only=True):
    """How it ended; null while it runs, and where neither its log nor its record tells."""

    why: str
    code: int


class StageSummary(Part, frozen=True, kw_only=True):
    """A stretch of time in one stage."""

    stage: Literal[1, 2, 3]
    iterations: Count
    median_s: NonNegative


class HostSummary(Part, frozen=True, kw_only=True):
    """What one host did."""

    host: str
    tier: Literal["reliable", "transient"] | None = None
    price: NonNegative | None = None
    held_s: NonNegative | None = None
    sent_bytes: Count | None = None
    received_bytes: Count | None = None
    computed_s: NonNegative | None = None
    waited_s: NonNegative | None = None
    steps: Count | None = None


class TotalCost(Part, frozen=True, kw_only=True):
    """Money, in the currency of the prices; null where no host has one; hosts that are not in it."""

    total: NonNegative | None
    per_iteration: NonNegative | None
    without_price: tuple[str, ...]


class RuleHint(Part, frozen=True, kw_only=True):
    """A rule that would have taken less time, and the share of the time that it would have saved."""

    rule: str
    saved: NonNegative


class DelayCount(Part, frozen=True, kw_only=True):
    """How many updates had a delay of `least` to `most`."""

    least: Count
    most: Count
    updates: Count


class UpdatesSummary(Part, frozen=True, kw_only=True):
    """Updates of asynchronous workers, one a step and partition: how many were applied, how many dropped because they
    were too old when they arrived, and how many before they were sent. Their delay is how many others the partition
    applied between the read that an update was computed from and itself; null where none was applied."""

    applied: Count
    dropped: Count
    unsent: Count
    mean_delay: NonNegative | None
    largest_delay: Count | None
    delays: tuple[DelayCount, ...]
    planned: Count
    grouped: Count
    lateness: NonNegative | None


class ReplicationSummary(Part, frozen=True, kw_only=True):
    """What servers pushed to replicas: rounds, and bytes of vectors. ``bound``: of --divergence, null without; the L2
    norm of the difference between parameters and replicas, as of the last report, and the largest so far."""

    rounds: Count
    bytes: Count
    bound: str | None
    distance: NonNegative | Unset = UNSET
    largest_distance: NonNegative


NOTHING_REPLICATED = ReplicationSummary(rounds=0, bytes=0, bound=None, largest_distance=0.0)


class ElasticSummary(Document, frozen=True, kw_only=True, tag="plink.elastic-summary/1"):
    """What an elastic run did and cost.

    Printed by `plink elastic summary --json`.
    """

    seconds: NonNegative
    """Until when the log tells, from the run's beginning."""
    end: RunEnd | None
    """How it ended; null while it runs, and where neither its log nor its record tells."""
    iterations: Count
    """Iterations that count."""
    lost: Count
    """Iterations that roll-backs undid."""
    objective: float | None
    """The last that is known."""
    stages: tuple[StageSummary, ...]
    """Iterations that count and their median time, by stage."""
    hosts: tuple[HostSummary, ...]
    """Each host: its price per hour, how long it took part, what it sent and received, seconds that a worker of it
    computed and waited for others in iterations that count, and its steps; null where that is not known."""
    rule: str | None
    """The consistency rule; null where the log does not tell."""
    shares: str | None
    """How the data was divided: slots or speed; null where the log does not tell."""
    rebalance: bool
    """Whether workers were to help each other (--rebalance); false, too, where the log does not tell."""
    waited: NonNegative | None
    """Share of the workers' time that they waited for others; null where nothing was measured."""
    updates: UpdatesSummary | None
    """Updates of asynchronous workers (--rule asp, ordered:N, elastic-bsp:R), as hosts reported last; null under
    other rules."""
    moved: NonNegative
    """Share of the work that workers did for others (--rebalance), of a mean iteration."""
    help: dict[str, dict[str, NonNegative]]
    """By host that was helped: which share of its work workers of which hosts did for it, of a mean iteration."""
    hint: RuleHint | None
    """The rule that would have saved most, if more than a tenth: the run's own times replayed, as if messages cost
    nothing."""
    replication: ReplicationSummary
    """What servers pushed to replicas in the whole run, but for a few seconds before a controller was replaced."""
    events: tuple[dict[str, Any], ...]
    """What happened, as the log has it (plink.elastic-log/1)."""
    cost: TotalCost
    """Money, in the currency of the prices; where anything was rented that of `spot`; null where no host has a price;
    hosts that are not in it."""
    spot: SpotStatus | Unset = UNSET
    """What was rented for it and what that cost, as plink.spot-status/1 has it; missing where nothing ever was."""


class ElasticResult(Document, frozen=True, kw_only=True, tag="plink.elastic/1"):
    """How an elastic run ended.

    Printed by `plink elastic run --json`.
    """

    id: Annotated[str, Meta(pattern=r"^[0-9a-f]+$")]
    """Tells runs apart."""
    exit_code: Annotated[int, Meta(ge=0, le=255)]
    """0; 1 where it could not go on; 124 when it was ended for taking longer than it may."""
    seconds: NonNegative
    """From the moment the job began, its program made on all hosts, to its end."""
    why: str
    """Why it ended; empty when it ended well."""
    iterations: Count
    """Iterations that were told of; one that was done again after a roll-back counts once."""
    iteration_s: NonNegative | None
    """Their median time, in seconds; null where there is none."""
    objective: float | None
    """The last that is known; null where the program tells of none."""
    spot: SpotStatus | Unset = UNSET
    """What was rented for it and what that cost, as plink.spot-status/1 has it; without `--spot` the key is missing."""
