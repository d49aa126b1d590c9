"""Data of a report, from which its figures are drawn; rates in Gbit/s."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from plink.features.report.blocks import MAX_SEPARATE_HOSTS, Between, Blocks, Indices, between, blocks_of
from plink.model.diagnosis import Finding
from plink.model.network import Matrix
from plink.model.order import OrderValidation
from plink.pictures import Floats
from solvers.costs.loads import Bottleneck


@dataclass(frozen=True)
class TierStatistics:
    """Statistics of pairs that are about as far apart: how many there are, how many were measured, and the 10th, 50th
    and 90th percentile of their round trips in microseconds (NaN where none was measured)."""

    name: str
    pairs: int
    measured: int
    low_us: float
    median_us: float
    high_us: float


@dataclass(frozen=True)
class TieredGroups:
    """Groups of hosts and their tiers. ``of``, shape (N,): numbered from 0; ``tiers`` from near to far; ``source``:
    where they come from, as the end of "groups: ..."."""

    of: Indices
    tiers: tuple[TierStatistics, ...]
    source: str

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.of.max()) + 1

    def members(self) -> list[list[int]]:
        """Return the hosts of each group."""
        return [np.flatnonzero(self.of == group).tolist() for group in range(self.number)]


@dataclass(frozen=True)
class Route:
    """An order, and the route of a collective over it.

    ``order``, shape (N,): the hosts in rank order. ``hops``, shape (H, 2): the pairs of hosts that send to each other,
    each once; none where they are too many to be drawn, or none is known. ``bottleneck``: what the cost model
    blames, of kind ``hop`` for an order that makes its longest one as short as can be; None for nothing. ``cost_us``,
    ``baseline_us``: of this order and of the given one, by the order's file. ``by_latency``: they are sums of round
    trips. ``baseline_kept``: the gain was within the noise, and this is the given order.
    """

    algo: str
    order: Indices
    hops: Indices
    bottleneck: Bottleneck | None
    cost_us: float | None = None
    baseline_us: float | None = None
    gain: OrderValidation | None = None
    baseline_kept: bool = False
    by_latency: bool = False


PlaneKind = Literal["spread", "groups", "moved"]


@dataclass(frozen=True)
class Plane:
    """Hosts in a plane, ``xy``, shape (N, 2). ``kind``: that of most ``spread``, the one that separates the ``groups``,
    or no projection: ``moved`` apart. ``kept_variance``: the share of the variance that a projection keeps, NaN for
    none. ``overlaps``: pairs of groups that lie over each other all the same."""

    xy: Floats
    kind: PlaneKind
    kept_variance: float
    overlaps: int = 0


@dataclass(frozen=True)
class HostMap:
    """Hosts as points of a ``plane``, and what the embedding in more dimensions says.

    ``xy``, shape (N, 2), NaN for hosts without measurements, in ``unit``. ``dimension``: of the embedding.
    ``fitted_us``, shape (N, N), NaN for those hosts. ``held_out_error``: 0.1 is about 10 %. ``by_block``: of many hosts
    blocks were placed, by their medians; hosts of a block share a place, and nothing is fitted between them.
    """

    xy: Floats
    unit: str
    plane: Plane
    dimension: int
    fitted_us: Matrix
    held_out_error: float
    by_block: bool = False


@dataclass(frozen=True)
class LinkDirection:
    """One direction of a shared link. ``gbps``: what was measured, None where nothing was; ``low``, ``high``: of the
    repeats, None where unknown. ``limited_by``: ``link``; ``hosts``, ``groups`` (of the tier below) or ``others``
    (links of the other groups): the link carries at least so much; empty where unknown. ``assumed_gbps``: what the
    cost model takes where nothing was measured, None where it takes no limit. ``load_bytes``: what one collective sends
    over it, None without an order; ``busy_us``: the time this takes by the cost model, None where the link is no
    limit."""

    gbps: float | None
    low: float | None = None
    high: float | None = None
    limited_by: str = ""
    assumed_gbps: float | None = None
    load_bytes: float | None = None
    busy_us: float | None = None

    @property
    def is_least(self) -> bool:
        """Return whether the link carries at least what was measured."""
        return self.limited_by not in ("", "link")


@dataclass(frozen=True)
class SharedLink:
    """The link of one group. ``members``: its hosts; ``parent``: the tier and the number of the nearest group above
    that holds it, None where there is none; ``reason``: why something was not measured; ``confidence``: how sure it is
    that these hosts are a group, 0 to 1, None where unknown."""

    members: tuple[int, ...]
    parent: tuple[int, int] | None
    out: LinkDirection
    into: LinkDirection
    reason: str = ""
    confidence: float | None = None


@dataclass(frozen=True)
class Bandwidths:
    """Measured rates, Gbit/s. ``tiers``: shared links, the innermost tier first; empty where none were measured, with
    ``no_tiers``, a sentence. ``size_bytes``: of the vector that loads are for. ``pair_gbps``, shape (N, N), or None;
    ``out_gbps``, ``in_gbps``, shape (N,): the best that each host sent and received, NaN where unknown; None where
    nothing was measured. ``confidences``: how sure each tier is, 0 to 1, None where unknown."""

    tiers: tuple[tuple[SharedLink, ...], ...] = ()
    no_tiers: str = ""
    size_bytes: float | None = None
    pair_gbps: Matrix | None = None
    out_gbps: Floats | None = None
    in_gbps: Floats | None = None
    confidences: tuple[float | None, ...] = ()

    @property
    def busiest_us(self) -> float:
        """Return the longest time that a shared link is busy with one collective; 0 where none is known."""
        directions = [way for tier in self.tiers for link in tier for way in (link.out, link.into)]
        return max((way.busy_us for way in directions if way.busy_us is not None), default=0.0)


@dataclass(frozen=True)
class ProbeSummary:
    """When and how round trips were measured. ``measured_at``: as the file has it, empty where unknown. ``methods``:
    with the number of round trips each. ``probes``: answers a pair, the fewest, the median and the most, None where
    unknown; ``answers``: of all pairs. ``plan``: which pairs were measured (``all``, ``adaptive``). ``assumed_from``:
    the topology file's format where nothing was measured."""

    measured_at: str = ""
    methods: tuple[tuple[str, int], ...] = ()
    probes: tuple[int, int, int] | None = None
    answers: int = 0
    plan: str = ""
    assumed_from: str = ""


@dataclass(frozen=True)
class Gap:
    """Round trips between these hosts that were not measured, and the reason. ``pairs``: how many, of either
    direction."""

    hosts: str
    pairs: int
    reason: str


@dataclass(frozen=True)
class TimedOrder:
    """An order that was run: its predicted cost (microseconds, None: unknown), the interval of that, the seconds of
    each repetition, and the cost model, None where unknown."""

    order: str
    predicted_us: float | None
    achieved_s: tuple[float, ...]
    interval_us: tuple[float, float] | None = None
    model: str | None = None


@dataclass(frozen=True)
class ReportData:
    """Data of a report on a network of N hosts.

    ``measured_us``, shape (N, N): round trips from row to column, NaN where unmeasured, 0 on the diagonal. ``no_map``,
    ``no_route``: why there is none, a sentence. ``sources``: the files all this is from. ``predictions``: what to say
    of pairs with a predicted round trip. ``interfaces``: what those of the hosts form, empty where each uses one.
    """

    names: tuple[str, ...]
    measured_us: Matrix
    groups: TieredGroups
    route: Route | None = None
    no_route: str = ""
    map: HostMap | None = None
    no_map: str = ""
    remarks: tuple[Finding, ...] = ()
    gaps: tuple[Gap, ...] = ()
    left_out: tuple[str, ...] = ()
    runs: tuple[TimedOrder, ...] = ()
    sources: tuple[str, ...] = field(default=())
    bandwidths: Bandwidths = field(default_factory=Bandwidths)
    probes: ProbeSummary = field(default_factory=ProbeSummary)
    predictions: str = ""
    interfaces: str = ""

    @property
    def measured(self) -> int:
        """Round trips that were measured, of N (N - 1)."""
        return int(np.isfinite(self.measured_us).sum()) - len(self.names)

    @property
    def measured_groups(self) -> list[list[int]]:
        """Return the hosts of each group but those that nobody reached."""
        members = self.groups.members()
        return [group for group in members if not {self.names[host] for host in group} <= set(self.left_out)]

    @property
    def possible(self) -> int:
        """Round trips there are: N (N - 1)."""
        return len(self.names) * (len(self.names) - 1)

    def values_us(self) -> Floats:
        """Return every measured round trip, shape (M,)."""
        off = ~np.eye(len(self.names), dtype=bool)
        return self.measured_us[off & np.isfinite(self.measured_us)]

    @property
    def in_blocks(self) -> bool:
        """Whether there are so many hosts that a row of a picture is a block of them."""
        return len(self.names) > MAX_SEPARATE_HOSTS

    @cached_property
    def blocks(self) -> dict[str, tuple[Blocks, Between]]:
        """Of many hosts: the rows of the heat maps ``given`` and ``order``, and the round trips between them."""
        if not self.in_blocks:
            return {}
        orders = {"given": np.arange(len(self.names)), "order": self.shown_order()}
        rows = {name: blocks_of(order, self.groups.of) for name, order in orders.items()}
        return {name: (blocks, between(self.measured_us, blocks)) for name, blocks in rows.items()}

    @property
    def rearranged(self) -> bool:
        """Whether there is an order, or groups to sort by, to show beside the given order."""
        return self.route is not None or self.groups.number > 1

    def shown_order(self) -> Indices:
        """Return hosts in plink's order where there is one, and hubs behind them, else group by group; shape (N,).

        A ring has no first rank, so it begins where a group does: a group is not at both ends of a picture.
        """
        if self.route is None:
            return np.argsort(self.groups.of, kind="stable")
        order, labels = self.route.order, self.groups.of[self.route.order]
        begins = np.flatnonzero(labels != np.roll(labels, 1))
        is_ring = "ring" in self.route.algo or self.route.algo == "gloo"
        order = np.roll(order, -begins[0]) if is_ring and len(begins) else order
        return np.append(order, np.setdiff1d(np.arange(len(self.names)), order))
