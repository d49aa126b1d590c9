"""``plink.elastic-status/1``: how an elastic run stands."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, HostName, NonNegative, PositiveInt
from plink.model.elastic.summary import ReplicationEntry, UpdatesEntry
from plink.model.spot.results import SpotStatus


class HostStatusEntry(TypedDict):
    """One host of the run."""

    name: HostName
    """As in the hosts file."""
    number: Count
    """Of its joining, never given twice."""
    tier: Literal["reliable", "transient"]
    """Whether it may be taken away."""
    state: Literal["there", "joining", "leaving"]
    """joining: it loads its data; leaving: it was warned, and what it has moves on."""
    serves: Annotated[list[Count], Meta(extra_json_schema={"uniqueItems": True})]
    """Partitions of the parameters that it serves."""
    replicas: Annotated[list[Count], Meta(extra_json_schema={"uniqueItems": True})]
    """Partitions of others of which it holds the replica."""
    shards: Count
    """How many shards of the input data it works on."""
    sent: Count
    """Bytes that it has sent over the job's connections so far."""
    received: Count
    """Bytes that it has received over them."""
    price: NonNegative | None
    """What it costs per hour; null where the hosts file does not tell."""


class CurrentCostEntry(TypedDict):
    """What the run has cost so far, as plink.elastic-summary/1 has it; null where no host has a price."""

    total: NonNegative
    """Each host's price for as long as it has been there, or was."""
    per_iteration: NonNegative | None
    """The total by the iterations that count; null where there is none yet."""
    without_price: list[str]
    """Hosts that are not in it, for the hosts file does not tell their price."""


class WaitEntry(TypedDict):
    """The clock that hosts of these names have not done, where nobody has done any for unusually many seconds; null:
    the job goes on."""

    clock: Count
    hosts: list[str]
    seconds: NonNegative


class ElasticStatusDocument(TypedDict):
    """How an elastic run stands.

    Printed by `plink elastic status --json`. While hosts get ready, stage is null and keys from `consistent` on are
    missing.
    """

    schema: Literal["plink.elastic-status/1"]
    """Kind and version of this document."""
    run: Annotated[str, Meta(pattern=r"^[0-9a-f]+$")]
    """The run's id."""
    stage: Literal[1, 2, 3] | None
    """1: reliable hosts serve the parameters; 2: transient hosts serve them, reliable ones hold replicas; 3: as 2, and
    reliable hosts do no other work. Null while hosts get ready."""
    hosts: list[HostStatusEntry]
    """Each host that is there, in the order of their joining."""
    clock: Annotated[int, Meta(ge=-1)]
    """The clock that all partitions have reached; -1: none yet."""
    consistent: NotRequired[Annotated[int, Meta(ge=-1)]]
    """The clock that all replicas have, to which the run goes back where state is lost; -1: none yet."""
    generation: NotRequired[Count]
    """A number that every roll-back makes greater."""
    controller: NotRequired[PositiveInt]
    """Which controller this is: the second took over from the first, and so on."""
    checkpoint: NotRequired[Count | None]
    """The clock whose state is on disk; null: no checkpoint was written."""
    iteration: NotRequired[Annotated[int, Meta(ge=-1)]]
    """The last iteration that is over, from 0; -1: none that this controller was told of."""
    iteration_s: NotRequired[NonNegative | None]
    """How long it took, in seconds; null where there is none."""
    objective: NotRequired[float | None]
    """The last that is known; null where there is none."""
    workers: NotRequired[Count]
    """How many work: slots of hosts that have shards of the data."""
    iteration_workers: NotRequired[Count]
    """How many did in `iteration`."""
    begun: NotRequired[Count]
    """The clock after the latest that any worker has done, from 0."""
    cost: NotRequired[CurrentCostEntry | None]
    """What the run has cost so far, as plink.elastic-summary/1 has it; null where no host has a price."""
    work: NotRequired[dict[str, tuple[NonNegative, NonNegative, Count]]]
    """Of the last iteration, by host: seconds that a worker computed, seconds that it waited for others before its
    clocks, and its steps (mini-batches of each of its shards)."""
    moved: NotRequired[NonNegative]
    """Of the last iteration, the share of the work that workers did for others (--rebalance)."""
    help: NotRequired[dict[str, dict[str, NonNegative]]]
    """Of the last iteration, by host that was helped: which share of its work workers of which hosts did for it."""
    updates: NotRequired[UpdatesEntry | None]
    """Updates of asynchronous workers (--rule asp, ordered:N, elastic-bsp:R), as plink.elastic-summary/1 has them; null
    under other rules."""
    waits: NotRequired[WaitEntry | None]
    """The clock that hosts of these names have not done, where nobody has done any for unusually many seconds; null:
    the job goes on."""
    replication: NotRequired[ReplicationEntry]
    """What servers pushed to replicas since this controller began (bytes: since hosts did)."""
    spot: NotRequired[SpotStatus]
    """What is rented for it and what that costs, as plink.spot-status/1 has it; missing where nothing ever was."""
