"""``plink.network/1``: what was measured between N hosts."""

from typing import Annotated, Literal

from msgspec import Meta, field

from plink.model.document import UNSET, Document, Part, Unset
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
from plink.model.units import format_bytes, format_us


class MachineIdentity(Part, frozen=True, kw_only=True):
    """What one host reports of itself."""

    hostname: str
    """Its own host name."""
    boot_id: str | Unset = UNSET
    """Linux's boot id: shared by containers of one kernel."""
    address: str | Unset = UNSET
    """The numeric address at which the other hosts reach it."""
    addresses: list[str] | Unset = UNSET
    """All its addresses but loopback ones."""
    cores: PositiveInt | Unset = UNSET
    """Cores that it may use."""
    python: str | Unset = UNSET
    """Version of its python3."""


class PairError(Part, frozen=True, kw_only=True):
    """Something that could not be measured between two hosts."""

    source: str = field(name="from")
    """Name of the host that probed."""
    target: str = field(name="to")
    """Name of the host that was probed."""
    reason: str = field(name="why")
    """One line for a person."""

    @property
    def was_tried(self) -> bool:
        """Return :func:`was_tried`."""
        return was_tried(self.reason)


def was_tried(reason: str) -> bool:
    """Return whether a recorded reason is that of an attempt that failed: the budget may have been spent before."""
    return bool(reason) and not reason.startswith(("not tried", "never tried"))


LimitedBy = Literal["link", "hosts", "groups", "others"]


class SharedLinkEntry(Part, frozen=True, kw_only=True):
    """What the hosts of one group send and receive together."""

    members: Annotated[list[HostName], Meta(min_length=1)]
    """Names of the group's hosts."""
    out_gbps: Quantity | Unset | None = UNSET
    """What all of them together can send to the other groups, Gbit/s; null where it could not be measured."""
    in_gbps: Quantity | Unset | None = UNSET
    """What all of them together can receive from the other groups, Gbit/s; null where it could not be measured."""
    out_one_flow_gbps: Quantity | Unset | None = UNSET
    """What one flow sent out of the group got alone, Gbit/s; null where it could not be measured."""
    in_one_flow_gbps: Quantity | Unset | None = UNSET
    """What one flow received from outside the group got alone, Gbit/s; null where it could not be measured."""
    out_flows: Count | Unset = UNSET
    """Flows at once that this took."""
    in_flows: Count | Unset = UNSET
    """Flows at once that this took."""
    out_limited_by: LimitedBy | Unset | None = UNSET
    """link: more flows brought no more, with other groups that carry far more. The link carries at least so much where
    something else was, or may be, the limit: the hosts, the links of the groups of the tier below, or those of the
    other groups that it sends to or receives from (others), all of which carry no more together."""
    in_limited_by: LimitedBy | Unset | None = UNSET
    """As out_limited_by."""
    interval: dict[str, tuple[Quantity, Quantity] | None] | Unset = UNSET
    """Lowest and highest of the repeats, Gbit/s, under out_gbps and in_gbps; null where it could not be measured."""
    reason: str | Unset = field(default=UNSET, name="why")
    """Why a figure could not be measured."""
    confidence: Share | Unset = UNSET
    """How sure it is that these hosts, and no others, are a group: the share of resamples of the round trips in which
    they are."""

    def gbps(self, way: str) -> float | None:
        """Return what the group sends (``out``) or receives (``in``), Gbit/s; None where that is not known."""
        gbps = self.out_gbps if way == "out" else self.in_gbps
        return None if gbps is UNSET else gbps

    def one_flow_gbps(self, way: str) -> float | None:
        """Return what one flow that way got alone, Gbit/s; None where that is not known."""
        return (self.out_one_flow_gbps if way == "out" else self.in_one_flow_gbps) or None

    def limited_by(self, way: str) -> LimitedBy | None:
        """Return what limited the flows that way; None where that is not known."""
        return (self.out_limited_by if way == "out" else self.in_limited_by) or None

    def range_gbps(self, way: str) -> tuple[float, float] | None:
        """Return lowest and highest of the repeats that way, Gbit/s; None where that is not known."""
        return (self.interval or {}).get(f"{way}_gbps")


class SharedTierEntry(Part, frozen=True, kw_only=True):
    """Links of one tier of the network: racks' uplinks, pods' uplinks, ..."""

    confidence: Share | Unset = UNSET
    """How sure the tier is: the share of resamples of the round trips in which all its groups are found at once. Each
    resample takes one of the two halves of a pair's samples; without halves it is not known."""
    groups: list[SharedLinkEntry]
    """What each group of the tier shares. A group holds whole groups of the tier below; groups do not overlap."""


class FlowEntry(Part, frozen=True, kw_only=True):
    """One bounded TCP flow."""

    source: HostName = field(name="from")
    """Name of the host that sent."""
    target: HostName = field(name="to")
    """Name of the host that received."""
    gbps: Quantity
    """What arrived, Gbit/s, after the ramp of TCP."""
    both_ways: bool
    """Whether another flow went the other way at the same time."""


PortEntry = tuple[Count, Count]


class InterfacesEntry(Part, frozen=True, kw_only=True):
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
    addresses: list[list[Name | None]] | Unset = UNSET
    """The address of each interface, as `names`; null where it has none of its own."""
    out_gbps: list[list[Rate | None]] | Unset = UNSET
    """What each interface sent to a neighbour by one flow, Gbit/s, as `names`; null where no flow came through (`why`
    tells) or none was tried, never 0. Missing where it was not measured."""
    in_gbps: list[list[Rate | None]] | Unset = UNSET
    """What each interface received from a neighbour, Gbit/s, as `out_gbps`."""
    errors: list[list[str | None]] | Unset = field(default=UNSET, name="why")
    """Why no flow came through one way or both, as `names`; null for other interfaces, and those that were not tried.
    Missing where there is none."""


class HostCostsEntry(Part, frozen=True, kw_only=True):
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


class SizeCosts(Part, frozen=True, kw_only=True):
    """What a library takes for a collective of some sizes, besides links and round trips."""

    from_bytes: Quantity
    """The smallest size; the next entry's is where these end."""
    fixed_us: Quantity
    """For the operation with its steps, microseconds."""
    byte_ns: Quantity
    """For each byte of the vector, nanoseconds."""


class LibraryCostsEntry(Part, frozen=True, kw_only=True):
    """What a library takes for one algorithm, by size: NCCL's protocols differ."""

    algo: Name
    """What was timed."""
    pieces: Annotated[list[SizeCosts], Meta(min_length=1)] | Unset = UNSET
    """By ascending size, the first from 0. Missing for nccl, which takes what its tree or its ring does."""
    norm: Annotated[float, Meta(ge=1)] | Unset = UNSET
    """How they add to the time of the network, (a^norm + b^norm)^(1/norm). 1, or missing: one after the other; more:
    side by side, in part."""
    tree_up_to_bytes: Quantity | Unset = UNSET
    """For nccl: the largest size for which NCCL takes its tree by itself; its ring is for larger ones."""
    timings: PositiveInt
    """Sizes that were timed."""
    error: NonNegative
    """Median relative error of the fitted times."""
    measured_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    """When they were fitted, UTC (RFC 3339)."""


Halves = Annotated[list[Matrix], Meta(min_length=2, max_length=2)]


class NetworkDetails(Part, frozen=True, kw_only=True):
    """What a network file has besides hosts, round trips and bandwidths."""

    assumed_from: str | Unset = UNSET
    """The topology file's format, where nothing was measured and round trips are assumed by it."""
    method: str | Unset = UNSET
    """How the round trips were measured: stamp (RFC 8762), icmp, tcp, or auto (see method_used)."""
    count: PositiveInt | Unset = UNSET
    """Probes a pair."""
    seed: int | Unset = UNSET
    """What shuffled the rounds."""
    plan: str | Unset = UNSET
    """Which pairs were measured: all or adaptive."""
    measured_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | Unset = UNSET
    """When the last measurement ended, UTC (RFC 3339)."""
    percentiles_us: dict[Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")], Matrix] | Unset = UNSET
    """Other percentiles of the round trips in microseconds, by percentile ('1', '50', ...)."""
    halves_us: Halves | Unset = UNSET
    """The 10th percentiles of two disjoint halves of the samples, microseconds: judge on one what was fitted to the
    other."""
    jitter_us: Matrix | Unset = UNSET
    """Variation of the round trips from i to j, microseconds."""
    loss_forward: ShareMatrix | Unset = UNSET
    """Share of the probes from i lost on the way to j, 0 to 1; both ways where the ways cannot be told apart."""
    loss_back: ShareMatrix | Unset = UNSET
    """Share of j's answers lost on the way to i, 0 to 1."""
    samples: CountMatrix | Unset = UNSET
    """Answers that i received from j."""
    hops: CountMatrix | Unset = UNSET
    """Routers on the way from i to j, as far as the time to live tells."""
    methods: list[str] | Unset = UNSET
    """What the numbers in method_used stand for."""
    method_used: CountMatrix | Unset = UNSET
    """How each pair was measured: an index into methods."""
    clocks: list[str] | Unset = UNSET
    """What the numbers in clock_used stand for."""
    clock_used: CountMatrix | Unset = UNSET
    """Whose clock stamped the packets: an index into clocks."""
    machines: list[MachineIdentity | None] | Unset = UNSET
    """What each host said it is, in the order of hosts; null for one that could not be had. A launch checks that it
    meets the same machine again."""
    errors: list[PairError] | Unset = UNSET
    """Round trips that could not be measured, with a reason each."""
    bandwidth_errors: list[PairError] | Unset = UNSET
    """Bandwidths that could not be measured, and why."""
    host_flows: list[FlowEntry] | Unset = UNSET
    """Bounded TCP flows of every host with a few partners: what it sends and receives by itself."""
    host_flow_errors: list[PairError] | Unset = UNSET
    """Partners between which no flow could be measured, and why."""
    lost_hosts: dict[HostName, str] | Unset = UNSET
    """Hosts whose agents were lost before the end, or could not be started, by name, and why. Empty where all were
    there to the end, missing where the measurement ended before it asked them."""
    interfaces: InterfacesEntry | Unset = UNSET
    """Which interfaces hosts use; missing where each uses one."""
    shared_links: list[SharedTierEntry] | Unset = UNSET
    """Capacity of what groups of hosts share, by tiers, the innermost first."""
    host_costs: HostCostsEntry | Unset = UNSET
    """What `plink check --measure --calibrate` found that hosts take for each message and byte."""
    library_costs: list[LibraryCostsEntry] | Unset = UNSET
    """What `plink check --measure --calibrate` found that NCCL takes besides the network, by algorithm."""
    predicted_us: Matrix | Unset = UNSET
    """Adaptive probing: expected round trip from i to j in microseconds, for pairs that were not measured."""
    predicted_by: Literal["tiers", "embedding"] | Unset = UNSET
    """How unmeasured pairs were predicted: by groups of hosts, or by coordinates."""
    held_out_error: NonNegative | Unset | None = UNSET
    """Adaptive probing: median relative error of the predictions on pairs held out."""
    clock_steps: CountMatrix | Unset = UNSET
    """Per pair and direction: round trips that came out negative because a clock was stepped; they are left out."""


class NetworkFile(NetworkDetails, Document, frozen=True, kw_only=True, tag="plink.network/1"):
    """What was measured between N hosts.

    Written by `plink probe`, read by every other command. `schema`, `hosts` and `latency_us` are enough. Every
    matrix has N rows of N entries in the order of `hosts`; entry [i][j] is what host i found out about host j.
    """

    hosts: HostEntries
    """The hosts, in the order in which they were given; names are unique."""
    lab: LabName | Unset = UNSET
    """The emulated lab in which alone these addresses exist."""
    latency_us: Matrix
    """Round trip from i to j in microseconds, the 10th percentile; null where unmeasured, 0 on the diagonal."""
    bandwidth_gbps: Matrix | Unset | None = UNSET
    """What j received from i, in Gbit/s; null where unmeasured, and as a whole when bandwidth was not measured."""


def format_host_costs(entry: HostCostsEntry) -> str:
    """Return what hosts take for each message and byte, in one line."""
    parts = []
    for value, interval, unit, what in (
        (entry.overhead_us, entry.overhead_interval_us, "us", "message"),
        (entry.byte_ns, entry.byte_interval_ns, "ns", "byte"),
    ):
        spread = "no interval" if interval is None else f"95 %: {interval[0]:.3g} to {interval[1]:.3g}"
        parts.append(f"{value:.3g} {unit} a {what} ({spread})")
    return f"hosts take {' and '.join(parts)}"


def format_library_costs(entry: LibraryCostsEntry) -> str:
    """Return what a library takes for an algorithm, in one line."""
    if entry.tree_up_to_bytes is not UNSET:
        size = entry.tree_up_to_bytes
        return f"{entry.algo} is {f'the tree up to {format_bytes(int(size))}, then ' if size else ''}the ring"
    parts = [
        f"{format_us(piece.fixed_us)}{f' from {format_bytes(int(piece.from_bytes))} on' if piece.from_bytes else ''}, "
        f"{piece.byte_ns:.3g} ns a byte"
        for piece in entry.pieces or ()
    ]
    beside = f", by the norm {entry.norm:g}" if entry.norm and entry.norm > 1 else ""
    return f"{entry.algo} takes, besides the network{beside}: {'; '.join(parts)}"
