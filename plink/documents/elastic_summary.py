"""``plink.elastic-summary/1``: what an elastic run did and cost."""

from typing import Literal, NotRequired, TypedDict

from plink.documents.spot_status import SpotStatusDocument
from plink.documents.types import Count, NonNegative


class EndEntry(TypedDict):
    """How it ended; null while it runs, and where its log was cut off."""

    why: str
    code: int


class StageSummary(TypedDict):
    """A stretch of time in one stage."""

    stage: Literal[1, 2, 3]
    iterations: Count
    median_s: NonNegative


class HostSummary(TypedDict):
    """What one host did."""

    host: str
    tier: Literal["reliable", "transient"] | None
    price: NonNegative | None
    held_s: NonNegative | None
    sent_bytes: Count | None
    received_bytes: Count | None
    computed_s: NonNegative | None
    waited_s: NonNegative | None
    steps: Count | None


class EventSummary(TypedDict):
    """One event of the run."""

    at: NonNegative
    what: Literal["host", "rolled back", "controller"]


class TotalCostEntry(TypedDict):
    """Money, in the currency of the prices; null where no host has one; hosts that are not in it."""

    total: NonNegative | None
    per_iteration: NonNegative | None
    without_price: list[str]


class HintEntry(TypedDict):
    """A rule that would have taken less time, and the share of the time that it would have saved."""

    rule: str
    saved: NonNegative


class DelayEntry(TypedDict):
    """How many updates had a delay of `least` to `most`."""

    least: Count
    most: Count
    updates: Count


class UpdatesEntry(TypedDict):
    """Updates of asynchronous workers, one a step and partition: how many were applied, how many dropped because they
    were too old when they arrived, and how many before they were sent. Their delay is how many others the partition
    applied between the read that an update was computed from and itself; null where none was applied."""

    applied: Count
    dropped: Count
    unsent: Count
    mean_delay: NonNegative | None
    largest_delay: Count | None
    delays: list[DelayEntry]
    planned: Count
    grouped: Count
    lateness: NonNegative | None


class ReplicationEntry(TypedDict):
    """What servers pushed to replicas: rounds, and bytes of vectors. ``bound``: of --divergence, null without; the L2
    norm of the difference between parameters and replicas, as of the last report, and the largest so far."""

    rounds: Count
    bytes: Count
    bound: str | None
    distance: NotRequired[NonNegative]
    largest_distance: NonNegative


class ElasticSummaryDocument(TypedDict):
    """What an elastic run did and cost.

    Printed by `plink elastic summary --json`.
    """

    schema: Literal["plink.elastic-summary/1"]
    """Kind and version of this file."""
    seconds: NonNegative
    """Until when the log tells, from the run's beginning."""
    end: EndEntry | None
    """How it ended; null while it runs, and where its log was cut off."""
    iterations: Count
    """Iterations that count."""
    lost: Count
    """Iterations that roll-backs undid."""
    objective: float | None
    """The last that is known."""
    stages: list[StageSummary]
    """Iterations that count and their median time, by stage."""
    hosts: list[HostSummary]
    """Each host: its price per hour, how long it took part, what it sent and received, seconds that a worker of it
    computed and waited for others in iterations that count, and its steps; null where that is not known."""
    rule: str | None
    """The consistency rule; null where the log does not tell."""
    shares: str | None
    """How the data was divided: slots or speed; null where the log does not tell."""
    waited: NonNegative | None
    """Share of the workers' time that they waited for others; null where nothing was measured."""
    updates: UpdatesEntry | None
    """Updates of asynchronous workers (--rule asp, ordered:N, elastic-bsp:R), as hosts reported last; null under
    other rules."""
    moved: NonNegative
    """Share of the work that workers did for others (--rebalance), of a mean iteration."""
    help: dict[str, dict[str, NonNegative]]
    """By host that was helped: which share of its work workers of which hosts did for it, of a mean iteration."""
    hint: HintEntry | None
    """The rule that would have saved most, if more than a tenth: the run's own times replayed, as if messages cost
    nothing."""
    replication: ReplicationEntry
    """What servers pushed to replicas in the whole run, but for a few seconds before a controller was replaced."""
    events: list[EventSummary]
    """What happened, as the log has it (plink.elastic-log/1)."""
    cost: TotalCostEntry
    """Money, in the currency of the prices; null where no host has one; hosts that are not in it."""
    spot: NotRequired[SpotStatusDocument]
    """What was rented for it and what that cost, as plink.spot-status/1 has it; missing where nothing ever was."""
