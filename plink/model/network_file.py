"""``plink.network/1``: what was measured between N hosts."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.model.hosts import HostEntries
from plink.model.types import (
    Count,
    CountMatrix,
    HostName,
    Interval,
    LabName,
    Matrix,
    Name,
    NonNegative,
    PositiveInt,
    Quantity,
    Rate,
    Share,
    ShareMatrix,
)


class MachineIdentity(TypedDict):
    """What one host reports of itself."""

    hostname: str
    """Its own host name."""
    boot_id: NotRequired[str]
    """Linux's boot id: shared by containers of one kernel."""
    address: NotRequired[str]
    """The numeric address at which the other hosts reach it."""
    addresses: NotRequired[list[str]]
    """All its addresses but loopback ones."""
    cores: NotRequired[PositiveInt]
    """Cores that it may use."""
    python: NotRequired[str]
    """Version of its python3."""


PairError = TypedDict(
    "PairError",
    {
        "from": Annotated[str, Meta(description="Name of the host that probed.")],
        "to": Annotated[str, Meta(description="Name of the host that was probed.")],
        "why": Annotated[str, Meta(description="One line for a person.")],
    },
)


LimitedBy = Literal["link", "hosts", "groups", "others"]


class SharedLinkEntry(TypedDict):
    """What the hosts of one group send and receive together."""

    members: Annotated[list[HostName], Meta(min_length=1)]
    """Names of the group's hosts."""
    out_gbps: NotRequired[Quantity | None]
    """What all of them together can send to the other groups, Gbit/s; null where it could not be measured."""
    in_gbps: NotRequired[Quantity | None]
    """What all of them together can receive from the other groups, Gbit/s; null where it could not be measured."""
    out_one_flow_gbps: NotRequired[Quantity | None]
    """What one flow sent out of the group got alone, Gbit/s; null where it could not be measured."""
    in_one_flow_gbps: NotRequired[Quantity | None]
    """What one flow received from outside the group got alone, Gbit/s; null where it could not be measured."""
    out_flows: NotRequired[Count]
    """Flows at once that this took."""
    in_flows: NotRequired[Count]
    """Flows at once that this took."""
    out_limited_by: NotRequired[LimitedBy | None]
    """link: more flows brought no more, with other groups that carry far more. The link carries at least so much where
    something else was, or may be, the limit: the hosts, the links of the groups of the tier below, or those of the
    other groups that it sends to or receives from (others), all of which carry no more together."""
    in_limited_by: NotRequired[LimitedBy | None]
    """As out_limited_by."""
    interval: NotRequired[dict[str, Annotated[list[Quantity], Meta(min_length=2, max_length=2)] | None]]
    """Lowest and highest of the repeats, Gbit/s, under out_gbps and in_gbps; null where it could not be measured."""
    why: NotRequired[str]
    """Why a figure could not be measured."""
    confidence: NotRequired[Share]
    """How sure it is that these hosts, and no others, are a group: the share of resamples of the round trips in which
    they are."""


class SharedTierEntry(TypedDict):
    """Links of one tier of the network: racks' uplinks, pods' uplinks, ..."""

    confidence: NotRequired[Share]
    """How sure the tier is: the share of resamples of the round trips in which all its groups are found at once. Each
    resample takes one of the two halves of a pair's samples; without halves it is not known."""
    groups: list[SharedLinkEntry]
    """What each group of the tier shares. A group holds whole groups of the tier below; groups do not overlap."""


FlowEntry = TypedDict(
    "FlowEntry",
    {
        "from": Annotated[HostName, Meta(description="Name of the host that sent.")],
        "to": Annotated[HostName, Meta(description="Name of the host that received.")],
        "gbps": Annotated[Quantity, Meta(description="What arrived, Gbit/s, after the ramp of TCP.")],
        "both_ways": Annotated[bool, Meta(description="Whether another flow went the other way at the same time.")],
    },
)


PortEntry = Annotated[list[Count], Meta(min_length=2, max_length=2)]


class InterfacesEntry(TypedDict):
    """Which interface each host uses towards each other host, where hosts use several.

    Rows and entries are in the order of `hosts`; an interface is an index into the host's `names`.
    """

    names: list[list[Name]]
    """Of each host the interfaces by which it reaches others."""
    used: CountMatrix
    """The interface by which i sends to j; null where that is unknown, and on the diagonal."""
    relays: CountMatrix
    """The host that passes on what i sends to j, as an index into `hosts`; null where none does."""
    switches: list[list[PortEntry]]
    """What is on one switch (a cable is one, too): [host, interface] pairs that reach each other directly."""
    addresses: NotRequired[list[list[Name | None]]]
    """The address of each interface, as `names`; null where it has none of its own."""
    out_gbps: NotRequired[list[list[Rate | None]]]
    """What each interface sent to a neighbour by one flow, Gbit/s, as `names`; null where no flow came through, never
    0. Missing where it was not measured."""
    in_gbps: NotRequired[list[list[Rate | None]]]
    """What each interface received from a neighbour, Gbit/s, as `out_gbps`."""


class HostCostsEntry(TypedDict):
    """What a host itself takes for collectives, besides links and round trips (LogGP's o and G)."""

    overhead_us: Quantity
    """For each message, sender and receiver together, microseconds."""
    overhead_interval_us: Interval | None
    """Its interval of 95 %; null where the timings do not tell."""
    byte_ns: Quantity
    """For each byte that a host sends or receives, besides the link's time, nanoseconds."""
    byte_interval_ns: Interval | None
    """Its interval of 95 %; null where the timings do not tell."""
    algorithms: Annotated[list[Name], Meta(min_length=1)]
    """What was timed."""
    timings: PositiveInt
    """Sizes that were timed, of all algorithms together."""
    error: NonNegative
    """Median relative error of the fitted times."""
    measured_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    """When they were fitted, UTC (RFC 3339)."""


Halves = Annotated[list[Matrix], Meta(min_length=2, max_length=2)]


class NetworkDocument(TypedDict):
    """What was measured between N hosts.

    Written by `plink probe`, read by every other command. `schema`, `hosts` and `latency_us` are enough. Every
    matrix has N rows of N entries in the order of `hosts`; entry [i][j] is what host i found out about host j.
    """

    schema: Literal["plink.network/1"]
    """Kind and version of this file."""
    hosts: HostEntries
    """The hosts, in the order in which they were given; names are unique."""
    lab: NotRequired[LabName]
    """The emulated lab in which alone these addresses exist."""
    latency_us: Matrix
    """Round trip from i to j in microseconds, the 10th percentile; null where unmeasured, 0 on the diagonal."""
    bandwidth_gbps: NotRequired[Matrix | None]
    """What j received from i, in Gbit/s; null where unmeasured, and as a whole when bandwidth was not measured."""
    method: NotRequired[str]
    """How the round trips were measured: stamp (RFC 8762), icmp, tcp, or auto (see method_used)."""
    count: NotRequired[PositiveInt]
    """Probes a pair."""
    seed: NotRequired[int]
    """What shuffled the rounds."""
    plan: NotRequired[str]
    """Which pairs were measured: all or adaptive."""
    measured_at: NotRequired[Annotated[str, Meta(extra_json_schema={"format": "date-time"})]]
    """When the last measurement ended, UTC (RFC 3339)."""
    percentiles_us: NotRequired[dict[Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")], Matrix]]
    """Other percentiles of the round trips in microseconds, by percentile ('1', '50', ...)."""
    halves_us: NotRequired[Halves]
    """The 10th percentiles of two disjoint halves of the samples, microseconds: judge on one what was fitted to the
    other."""
    jitter_us: NotRequired[Matrix]
    """Variation of the round trips from i to j, microseconds."""
    loss_forward: NotRequired[ShareMatrix]
    """Share of the probes from i lost on the way to j, 0 to 1; both ways where the ways cannot be told apart."""
    loss_back: NotRequired[ShareMatrix]
    """Share of j's answers lost on the way to i, 0 to 1."""
    samples: NotRequired[CountMatrix]
    """Answers that i received from j."""
    hops: NotRequired[CountMatrix]
    """Routers on the way from i to j, as far as the time to live tells."""
    methods: NotRequired[list[str]]
    """What the numbers in method_used stand for."""
    method_used: NotRequired[CountMatrix]
    """How each pair was measured: an index into methods."""
    clocks: NotRequired[list[str]]
    """What the numbers in clock_used stand for."""
    clock_used: NotRequired[CountMatrix]
    """Whose clock stamped the packets: an index into clocks."""
    machines: NotRequired[list[MachineIdentity | None]]
    """What each host said it is, in the order of hosts; null for one that could not be had. A launch checks that it
    meets the same machine again."""
    errors: NotRequired[list[PairError]]
    """Round trips that could not be measured, with a reason each."""
    bandwidth_errors: NotRequired[list[PairError]]
    """Bandwidths that could not be measured, and why."""
    host_flows: NotRequired[list[FlowEntry]]
    """Bounded TCP flows of every host with a few partners: what it sends and receives by itself."""
    host_flow_errors: NotRequired[list[PairError]]
    """Partners between which no flow could be measured, and why."""
    interfaces: NotRequired[InterfacesEntry]
    """Which interfaces hosts use; missing where each uses one."""
    shared_links: NotRequired[list[SharedTierEntry]]
    """Capacity of what groups of hosts share, by tiers, the innermost first."""
    host_costs: NotRequired[HostCostsEntry]
    """What `plink check --measure --calibrate` found that hosts take for each message and byte."""
    predicted_us: NotRequired[Matrix]
    """Adaptive probing: expected round trip from i to j in microseconds, for pairs that were not measured."""
    predicted_by: NotRequired[Literal["tiers", "embedding"]]
    """How unmeasured pairs were predicted: by groups of hosts, or by coordinates."""
    held_out_error: NotRequired[NonNegative | None]
    """Adaptive probing: median relative error of the predictions on pairs held out."""
    clock_steps: NotRequired[CountMatrix]
    """Per pair and direction: round trips that came out negative because a clock was stepped; they are left out."""
