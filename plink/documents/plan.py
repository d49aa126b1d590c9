"""``plink.plan/1``: how a job is started and aggregates."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.network import HostEntry
from plink.documents.order import OrderDocument
from plink.documents.schedule import ScheduleDocument
from plink.documents.types import Count, Fingerprint, Name, Positive

MastersEntry = TypedDict(
    "MastersEntry",
    {
        "weights": NotRequired[
            Annotated[str, Meta(description="What masters are in proportion to: sizes or bandwidth.")]
        ],
        "group_weights": NotRequired[
            Annotated[
                list[Positive], Meta(description="The weight of each group: its ranks, or Gbit/s to hosts outside.")
            ]
        ],
        "rank_weights": NotRequired[
            Annotated[list[Positive], Meta(description="The weight of each rank: 1, or Gbit/s.")]
        ],
        "local": Annotated[
            Annotated[list[Annotated[list[Count], Meta(min_length=1)]], Meta(min_length=1)],
            Meta(description="For each chunk the rank that aggregates it in each group, in the order of groups."),
        ],
        "global": Annotated[
            Annotated[list[Count], Meta(min_length=1)],
            Meta(description="For each chunk which of its local masters adds up the groups."),
        ],
    },
)


class PlanDocument(TypedDict):
    """How a job is started and aggregates.

    Written by `plink plan`. An order of hosts and, for two-level aggregation, groups of ranks and the masters of
    each chunk; the schedule that follows from them, and the environment of the job. Ranks, chunks and groups count
    from 0.
    """

    schema: Literal["plink.plan/1"]
    """Kind and version of this file."""
    network: NotRequired[Fingerprint | None]
    """Fingerprint of the network it was made for."""
    rate_gbps: NotRequired[Positive | None]
    """What a host in the middle of its hosts sends and receives, in Gbit/s; null where nobody measured rates. Pieces
    and channels of the plink backend follow from it."""
    algo: Name
    """The collective's algorithm, like 2lha."""
    options: NotRequired[dict[str, int | bool]]
    """What the algorithm was told (--set), like {"base": 4}; defaults are left out."""
    model: Name
    """The cost model that costs are by, like contention."""
    size_bytes: Positive
    """Bytes that are reduced."""
    cost_us: NotRequired[float | None]
    """What an all-reduce of that size costs, in microseconds; null when unknown."""
    lower_bound: NotRequired[float | None]
    """No plan costs less, in microseconds; null when no bound is known."""
    baseline: NotRequired[dict[str, float | None]]
    """Costs of other ways to do the same, in microseconds; one that uses pairs which were not measured is left out."""
    order: OrderDocument
    """The order of hosts, a plink.order/1 document."""
    hosts: Annotated[list[HostEntry], Meta(min_length=1)]
    """The hosts in rank order, as in a network file: the first takes ranks 0 to slots-1, the next those that follow."""
    lab: NotRequired[str]
    """The emulated lab that the hosts live in; absent for real hosts."""
    groups: NotRequired[Annotated[list[Annotated[list[Count], Meta(min_length=1)]], Meta(min_length=1)] | None]
    """The ranks of each group, every rank in one; null for algorithms without masters."""
    chunks: NotRequired[Annotated[int, Meta(ge=1, le=1048576)] | None]
    """Into how many chunks of equal size the vector is cut; null when only the schedule tells and it is not held."""
    masters: NotRequired[MastersEntry | None]
    """Who aggregates which chunk; null for algorithms without masters."""
    environment: NotRequired[dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$")], str]]
    """Variables that every process of the job is started with, so that the library named in algo runs that algorithm:
    NCCL_ALGO, OMPI_MCA_coll_tuned_...; empty where no library has to be told."""
    schedule: NotRequired[ScheduleDocument | None]
    """The schedule, a plink.schedule/1 document whose transfers have rounds and leave out what they wait for, which
    follows; null above 100,000 transfers, when it follows from the rest of the plan."""
