"""Rank order: which host takes which ranks (``plink.order/1``)."""

from collections import Counter
from pathlib import Path
from typing import Annotated

from msgspec import Meta, field, structs

from plink.argument_checks import check_argument
from plink.errors import InputError
from plink.model.codec import convert, decode
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.embedding import SmoothingVerdict
from plink.model.hosts import Hosts, parse_hosts
from plink.model.mesh import MESH_VARIABLE, MeshFile
from plink.model.storage import JsonObject, name_of, parse_document, read_text
from plink.model.types import Count, Fingerprint, HostName, NonNegative, Positive, PositiveInt

# An order may cost any multiple of another one: more than so many is no measurement.
GainShare = Annotated[float, Meta(gt=-1e6, lt=1e6)]


class OrderValidation(Part, frozen=True, kw_only=True):
    """The found order's gain over the given one, where the network file has halves_us."""

    gain: GainShare
    """What the found order saves of the given order's cost on samples that it was not fitted on: 0.2 is a fifth."""
    low: GainShare
    """Lower end of what fresh samples would show."""
    high: GainShare
    """Upper end of what fresh samples would show."""
    predicted: GainShare | Unset = UNSET
    """What it saves on the samples that it was fitted on."""
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    """How often low and high hold the gain on fresh samples: 0.95."""
    pairs: Count | Unset = UNSET
    """Of how many pairs that either order uses there are samples to judge by."""


class KeptBaseline(Part, frozen=True, kw_only=True):
    """Present when the gain was within the noise or a loss: hosts is the baseline order, and this is what was found."""

    result: Annotated[tuple[str, ...], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]
    """Hosts in the order of the search's result."""
    result_cost: NonNegative
    """Cost of that order, in microseconds."""


class Smoothing(Part, frozen=True, kw_only=True):
    """Present where the order rests on fitted round trips: how they were fitted, and the verdict on them."""

    dimension: PositiveInt
    """Of the embedding."""
    alpha: float
    """Power of the distance."""
    heights: bool
    """Whether hosts have heights."""
    loss: Annotated[str, Meta(extra_json_schema={"enum": ["relative", "absolute"]})]
    """How errors counted."""
    verdict: SmoothingVerdict | None
    """Whether fitted distances are nearer to fresh measurements than measured ones; null where there were too few pairs
    to say."""


class TrafficCost(Part, frozen=True, kw_only=True):
    """What a traffic of a mesh costs in this order, in a training step."""

    traffic: str
    """Axes and kind, like dp all-reduce."""
    cost: NonNegative
    """Microseconds, times as often as it occurs, without what computing hides."""
    baseline: NonNegative
    """The same in the given order."""
    sorted_by_group: NonNegative
    """The same with the hosts of each group (rack) after each other."""
    busiest: str | None
    """The link that is busy longest; null where the model counts no bytes."""
    crossing: Annotated[float, Meta(ge=0, le=1)]
    """Share of the bytes between hosts that leaves a group."""


HostNames = Annotated[tuple[HostName, ...], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]


class RankOrder(Document, frozen=True, kw_only=True, tag="plink.order/1"):
    """Which host takes which ranks.

    Written by `plink reorder`, read by `plink launch`.
    """

    algo: str = "unknown"
    """The collective's algorithm that the order is for, like ring; given when somebody else chose the order, unknown
    when missing."""
    hosts: HostNames
    """Host names in rank order: the first takes ranks 0 to slots-1, the next those that follow."""
    cost: float | None = None
    """Cost of this order in microseconds, under the model and the objective; null when unknown."""
    lower_bound: float | None = None
    """No order under the same constraints costs less, in microseconds; where pairs were not measured: no order without
    such pairs. Null when no bound is known."""
    baseline: dict[str, float | None] = field(default_factory=dict)
    """Costs of other orders to compare with, in microseconds."""
    objective: str | None = None
    """What is minimised: time (the model's cost), sum (of a ring's round trips) or bottleneck (a ring's longest round
    trip first, the sum second)."""
    model: str | Unset = UNSET
    """The cost model, like latency."""
    search_model: str | Unset = UNSET
    """With the model simulated: the model that the search went by before its best orders were simulated."""
    simulated_orders: PositiveInt | Unset = UNSET
    """With the model simulated: how many orders were; the cheapest of them is this one."""
    seed: int | None = None
    """What makes the search reproducible."""
    network: Fingerprint | None = None
    """Fingerprint of the network it was solved for."""
    gap: NonNegative | Unset | None = UNSET
    """By how much at most this order costs more than the best, as a share of the bound: 0.02 is 2 %; null when no bound
    is known, or the given order was kept."""
    measured_pairs_only: bool | Unset = UNSET
    """True: lower_bound and proven speak of orders without the pairs that nobody measured; absent where all pairs are
    known."""
    bound_by: str | Unset | None = UNSET
    """What the bound rests on: all rings, 1-tree, 2-connected threshold, links, rounds, z3, cuts (what crosses a
    group's links at least, by its size), assignment (of ranks to groups), all orders (each was tried), or that all
    orders cost the same; null when no bound is known."""
    estimated_bound: bool | Unset = UNSET
    """True: lower_bound and gap rest on predicted round trips, so an order below the bound may exist; absent else."""
    proven: bool | Unset = UNSET
    """Whether no order under the same constraints costs less than this one by more than a millionth; where pairs were
    not measured: no order without such pairs."""
    proven_by_rounds: bool | Unset = UNSET
    """True: exact methods proved an order the best where all ranks wait for each other in each round; the cost is
    that of ranks that do not. Absent else."""
    interrupted: bool | Unset = UNSET
    """The search was stopped before its end (Ctrl-C): this is the best order up to then."""
    bottleneck: NonNegative | Unset = UNSET
    """Of a ring that was found for its sum: its longest round trip, in microseconds."""
    bottleneck_lower_bound: NonNegative | Unset = UNSET
    """The longest round trip of no ring is shorter, in microseconds."""
    sum: NonNegative | Unset = UNSET
    """Of a ring that was found for its longest round trip: the sum of its round trips, in microseconds."""
    sum_lower_bound: NonNegative | Unset = UNSET
    """No ring has a smaller sum of round trips, in microseconds."""
    questions: NonNegative | Unset = UNSET
    """Questions that an exact method (--prove) was asked."""
    moves: Count | Unset = UNSET
    """Moves that the search tried; 0 where it counts none."""
    size_bytes: Positive | Unset | None = UNSET
    """Bytes that are reduced; the model latency knows no sizes."""
    capacities: str | Unset = UNSET
    """Where the capacities that the model used come from."""
    mesh: MeshFile | Unset = UNSET
    """With --mesh: axes and traffic that the order was found for; cost is that of a training step's traffic."""
    cost_by_traffic: tuple[TrafficCost, ...] | Unset = UNSET
    """With --mesh: what each traffic costs."""
    groups: tuple[tuple[Count, ...], ...] | Unset | None = UNSET
    """For 2lha, or with --groups: the ranks of each group that the order was found for."""
    options: dict[str, int | float | bool | str] | Unset | None = UNSET
    """With --set: what the algorithm was told, like base: 4."""
    pins: dict[str, Count] | Unset = UNSET
    """With --pin: the first rank of each pinned host."""
    validation: OrderValidation | Unset | None = UNSET
    """The found order's gain over the given one, where the network file has halves_us."""
    kept_baseline: KeptBaseline | Unset = UNSET
    """Present when the gain was within the noise or a loss: hosts is the baseline order, and this is what was found."""
    smoothing: Smoothing | Unset = UNSET
    """Present where the order rests on fitted round trips: how they were fitted, and the verdict on them."""

    def __post_init__(self) -> None:
        """Refuse hosts that no file may have.

        :raises UsageError: for what is no list of names. :raises InputError: for a wrong name, none or one twice.
        """
        check_argument("RankOrder: hosts", self.hosts, tuple[str, ...])
        hosts = convert(HostNames, [*map(str, self.hosts)], "RankOrder", "hosts")
        if repeated := [name for name, times in Counter(hosts).items() if times > 1]:
            raise InputError("RankOrder: hosts", f"{repeated[0]!r} is listed twice")
        structs.force_setattr(self, "hosts", hosts)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that every process of the job is started with: the mesh that ranks were ordered for."""
        return {MESH_VARIABLE: self.mesh.mesh} if self.mesh else {}

    def arrange(self, hosts: Hosts, location: str) -> Hosts:
        """Return the hosts in this order, without hubs, which take no ranks.

        :raises InputError: when the order leaves a host out, or names a hub or one that is not among them.
        """
        hosts_by_name, order_names = hosts.by_name(), set(self.hosts)
        for problem, names, advice in (
            ("names hosts that are not in the hosts list", [n for n in self.hosts if n not in hosts_by_name], ""),
            (
                "has hosts with role=hub, which take no ranks",
                [host.name for host in hosts.hubs if host.name in order_names],
                "",
            ),
            (
                "leaves out hosts of the hosts list",
                [host.name for host in hosts if host.slots and host.name not in order_names],
                "; if the job is not to have them, --hosts takes a list of those that it has",
            ),
        ):
            if names:
                listed = f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
                raise InputError(location, f"the order {problem}: {listed}{advice}")
        return Hosts(tuple(hosts_by_name[name] for name in self.hosts), hosts.lab)


def order_from_json(document: JsonObject, location: str) -> RankOrder:
    """Return an order from its JSON document.

    :raises InputError: when the schema or a key is wrong.
    """
    return decode(RankOrder, document, location)


def read_order(path: str | Path, hosts: Hosts | None = None) -> RankOrder:
    """Return an order from a file: ``plink.order/1``, or a hosts file or list of names, one a line, in rank order.

    :param hosts: of the job.
    :raises InputError: when the file cannot be read or is neither, or has more than one slot of a host, and not those
        of ``hosts``.
    """
    location, text = name_of(path), read_text(path)
    if location.endswith((".json", ".json.gz")) or text.lstrip().startswith("{"):
        return order_from_json(parse_document(text, location), location)
    listed, by_name = parse_hosts(text, location), {} if hosts is None else hosts.by_name()
    for host in listed:
        if host.name in by_name and host.slots > 1 and host.slots != by_name[host.name].slots:
            expected = by_name[host.name].slots
            raise InputError(location, f"the order gives {host.name} {host.slots} slots, the hosts list {expected}")
    return RankOrder(algo="given", hosts=tuple(listed.names))
