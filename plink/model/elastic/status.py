"""Documents of an elastic run under way: where it is asked (``plink.elastic-job/1``), how it stands
(``plink.elastic-status/1``), a checkpoint that was asked for (``plink.elastic-checkpoint/1``)."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.elastic.summary import NOTHING_REPLICATED, ReplicationSummary, UpdatesSummary
from plink.model.spot.results import SpotStatus
from plink.model.types import Count, HostName, LabName, Name, NonNegative, PositiveInt

RunName = Annotated[str, Meta(pattern=r"^[0-9a-f]+$")]
Partitions = Annotated[tuple[Count, ...], Meta(extra_json_schema={"uniqueItems": True})]


class ElasticHost(Part, frozen=True, kw_only=True):
    """One host of the run."""

    name: HostName
    """As in the hosts file."""
    number: Count
    """Of its joining, never given twice."""
    tier: Literal["reliable", "transient"]
    """Whether it may be taken away."""
    state: Literal["there", "joining", "leaving"]
    """joining: it loads its data; leaving: it was warned, and what it has moves on."""
    serves: Partitions
    """Partitions of the parameters that it serves."""
    replicas: Partitions
    """Partitions of others of which it holds the replica."""
    shards: Count
    """How many shards of the input data it works on."""
    sent: Count
    """Bytes that it has sent over the job's connections so far."""
    received: Count
    """Bytes that it has received over them."""
    price: NonNegative | None
    """What it costs per hour; null where the hosts file does not tell."""


class CurrentCost(Part, frozen=True, kw_only=True):
    """What the run has cost so far, as plink.elastic-summary/1 has it; null where no host has a price."""

    total: NonNegative
    """Each host's price for as long as it has been there, or was."""
    per_iteration: NonNegative | None
    """The total by the iterations that count; null where there is none yet."""
    without_price: tuple[str, ...]
    """Hosts that are not in it, for the hosts file does not tell their price."""


class ClockWait(Part, frozen=True, kw_only=True):
    """The clock that hosts of these names have not done, where nobody has done any for unusually many seconds; null:
    the job goes on."""

    clock: Count
    hosts: tuple[str, ...]
    seconds: NonNegative


class ElasticStatus(Document, frozen=True, kw_only=True, tag="plink.elastic-status/1"):
    """How an elastic run stands.

    Printed by `plink elastic status --json`. While hosts get ready, stage is null, and keys from `consistent` on say
    nothing.
    """

    run: RunName
    """The run's id."""
    stage: Literal[1, 2, 3] | None
    """1: reliable hosts serve the parameters; 2: transient hosts serve them, reliable ones hold replicas; 3: as 2, and
    reliable hosts do no other work. Null while hosts get ready."""
    hosts: tuple[ElasticHost, ...]
    """Each host that is there, in the order of their joining."""
    clock: Annotated[int, Meta(ge=-1)]
    """The clock that all partitions have reached; -1: none yet."""
    consistent: Annotated[int, Meta(ge=-1)] = -1
    """The clock that all replicas have, to which the run goes back where state is lost; -1: none yet."""
    generation: Count = 0
    """A number that every roll-back makes greater."""
    controller: PositiveInt = 1
    """Which controller this is: the second took over from the first, and so on."""
    checkpoint: Count | None = None
    """The clock whose state is on disk; null: no checkpoint was written."""
    iteration: Annotated[int, Meta(ge=-1)] = -1
    """The last iteration that is over, from 0; -1: none that this controller was told of."""
    iteration_s: NonNegative | None = None
    """How long it took, in seconds; null where there is none."""
    objective: float | None = None
    """The last that is known; null where there is none."""
    workers: Count = 0
    """How many work: slots of hosts that have shards of the data."""
    iteration_workers: Count = 0
    """How many did in `iteration`."""
    begun: Count = 0
    """The clock after the latest that any worker has done, from 0."""
    cost: CurrentCost | None = None
    """What the run has cost so far, as plink.elastic-summary/1 has it; null where no host has a price."""
    work: dict[str, tuple[NonNegative, NonNegative, Count]] = msgspec.field(default_factory=dict)
    """Of the last iteration, by host: seconds that a worker computed, seconds that it waited for others before its
    clocks, and its steps (mini-batches of each of its shards)."""
    moved: NonNegative = 0.0
    """Of the last iteration, the share of the work that workers did for others (--rebalance)."""
    help: dict[str, dict[str, NonNegative]] = msgspec.field(default_factory=dict)
    """Of the last iteration, by host that was helped: which share of its work workers of which hosts did for it."""
    updates: UpdatesSummary | None = None
    """Updates of asynchronous workers (--rule asp, ordered:N, elastic-bsp:R), as plink.elastic-summary/1 has them; null
    under other rules."""
    waits: ClockWait | None = None
    """The clock that hosts of these names have not done, where nobody has done any for unusually many seconds; null:
    the job goes on."""
    replication: ReplicationSummary = NOTHING_REPLICATED
    """What servers pushed to replicas since this controller began (bytes: since hosts did)."""
    spot: SpotStatus | Unset = UNSET
    """What is rented for it and what that costs, as plink.spot-status/1 has it; missing where nothing ever was."""


class ElasticCheckpoint(Document, frozen=True, kw_only=True, tag="plink.elastic-checkpoint/1"):
    """A checkpoint that was asked for.

    Printed by `plink elastic checkpoint --json` when it is on disk.
    """

    run: RunName
    """The run's id."""
    clock: Count
    """The last clock whose updates are in it, all of them."""
    folder: Name
    """Where it is on the reliable hosts: a folder in that of `--checkpoint`."""


class JobControl(Document, frozen=True, kw_only=True, tag="plink.elastic-job/1"):
    """Where an elastic run is asked.

    Left in .plink/runs/ID/elastic.json by `plink elastic run`, for `plink elastic add`, `evict`, `checkpoint` and
    `status`; it stays when the run has ended, the socket does not.
    """

    socket: Name
    """Path of the local socket at which the run takes requests, of its own user and root."""
    pid: PositiveInt
    """The process of `plink elastic run`."""
    lab: LabName | None
    """The lab that its hosts belong to; null: none."""
    runner: str
    """What started the hosts' parts: ssh, local, slurm, kubernetes."""
