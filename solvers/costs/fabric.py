"""Fabric: what the cost models use of a network: round trips, rates of hosts, and capacities that groups share.

Links of groups that nobody measured have tiers by the round trips and capacities by an assumption. Round trips show
which hosts are behind the same switch, not what its uplink carries. A link is taken to carry what enters it from the
tier below, over an oversubscription. Data centres have 1 to 5 at a rack's switch and more above (Greenberg et al. 2009,
VL2, section 2.1), so that any one figure may be wrong by a factor of two for one group and not for another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from plink.errors import InputError, NoAnswer
from plink.model.document import UNSET
from plink.model.network import Matrix, Network
from plink.model.network_file import LibraryCostsEntry, SizeCosts
from solvers.costs.host_flows import class_rates, flows_of
from solvers.costs.interfaces import HostResources, InterfacePaths, host_resources, interface_paths
from solvers.costs.shared_rows import (
    MIN_RATE_SIGMA,
    Row,
    capacity_of,
    is_measured,
    is_uncertain,
    one_flow_rate,
    rate_sigma,
    shared_rows,
)
from solvers.hierarchy.shared_tiers import candidate_tiers
from solvers.hierarchy.tiers import MIN_RATIO, completed_by_detours, nearest_tier

OVERSUBSCRIPTION = 2.5
OVERSUBSCRIPTION_RANGE = (1.5, 4.0)  # between which draws are
Labels = npt.NDArray[np.intp]
Vector = npt.NDArray[np.float64]
Rates = tuple[Vector, Vector]  # out and in
ASSUMED_GBPS = 10.0  # where nobody measured a rate: most clouds' smallest "up to" figure
MEASURED = "measured"
BYTES_PER_US = 125.0  # of one Gbit/s
_MAX_FEW_GAPS = 0.01  # of all pairs


def tiers_from(rtt_us: Matrix, group_of: Labels) -> list[Labels]:
    """Return the groups, and those of the tiers above them that stand out in the round trips, shape (N,) each.

    :param rtt_us: symmetric, complete, shape (N, N).
    """
    groups = [np.flatnonzero(group_of == group).tolist() for group in range(int(group_of.max()) + 1)]
    labels = [group_of]
    for tier in candidate_tiers(rtt_us, groups, MIN_RATIO):
        labels.append(np.zeros(len(rtt_us), dtype=np.intp))
        for number, members in enumerate(tier):
            labels[-1][members] = number
    return labels


def assumed_capacities(labels: list[Labels], hosts: Rates, rng: np.random.Generator | None = None) -> list[Rates]:
    """Return the capacities (out, in) of each tier's groups, Gbit/s, from the innermost tier out.

    None is below that of the group's fastest host. A host alone, and a tier of one group, have no limit.

    :param labels: as :func:`tiers_from`. :param hosts: their own rates, shape (N,) each. :param rng: draws each group's
        oversubscription, the same both ways, from 1.5 to 4; None: 2.5 for all.
    """
    result, entering = list[Rates](), hosts
    for label in labels:
        size = np.bincount(label)
        ratio: Vector | float = OVERSUBSCRIPTION if rng is None else rng.uniform(*OVERSUBSCRIPTION_RANGE, len(size))
        shared, shares = list[Vector](), list[Vector]()
        for own, rates in zip(hosts, entering, strict=True):
            fastest = np.zeros(len(size))
            np.maximum.at(fastest, label, own)
            capacity = np.maximum(np.bincount(label, rates) / ratio, fastest)
            shared.append(np.where((size == 1) | (size == len(label)), np.inf, capacity))
            shares.append(np.minimum(rates, (shared[-1] / size)[label]))
        result.append((shared[0], shared[1]))
        entering = shares[0], shares[1]
    return result


@dataclass(frozen=True)
class TierLinks:
    """Links that groups of one tier share: ``group_of``, shape (N,); ``out_gbps``, ``in_gbps``, shape (G,): what the
    hosts of a group send to, and receive from, all other groups together; infinite where the hosts are the limit."""

    group_of: npt.NDArray[np.intp]
    out_gbps: Vector
    in_gbps: Vector

    def of_hosts(self, hosts: npt.NDArray[np.intp]) -> "TierLinks":
        """Return the links of the groups that some hosts are in."""
        groups, group_of = np.unique(self.group_of[hosts], return_inverse=True)
        return TierLinks(group_of, self.out_gbps[groups], self.in_gbps[groups])

    def link_names(self, names: Sequence[str], tier: int, way: str) -> list[str]:
        """Return names for people of all groups' links, each with the group's first host.

        :param names: of the hosts. :param tier: its number, 1 for the innermost. :param way: ``out of`` or ``into``.
        """
        what = "the group" if tier == 1 else f"the tier-{tier} group"
        # Of a number without hosts: no flow goes over its link.
        first = [names[int(np.argmax(self.group_of == group))] for group in range(len(self.out_gbps))]
        return [f"the way {way} {what} of {name}" for name in first]


@dataclass(frozen=True)
class BlockedPairs:
    """Pairs of N hosts between which 0 Gbit/s were measured, or the path of which crosses a link of 0 Gbit/s.

    ``reason_of``, symmetric, shape (N, N): an index into ``reasons``, -1 where something gets through.
    """

    reason_of: Labels
    reasons: tuple[str, ...]

    @property
    def pairs(self) -> npt.NDArray[np.bool_]:
        """Return which pairs are blocked, shape (N, N)."""
        return np.asarray(self.reason_of >= 0)

    def first_between_parts(self) -> tuple[int, int] | None:
        """Return a blocked pair of hosts that nothing gets between by way of others, either; None without one."""
        reached = ~self.pairs[0]
        while (further := (~self.pairs[reached]).any(axis=0) & ~reached).any():
            reached |= further
        return None if reached.all() else (0, int(np.argmin(reached)))


def no_way_between(names: Sequence[str], a: int, b: int, blocked: BlockedPairs | None, option: str = "") -> NoAnswer:
    """Return the refusal of a cost that needs a pair which is blocked, or was not measured.

    :param option: of `plink probe`, with which it measures bandwidths; empty for round trips.
    """
    if blocked is not None and blocked.pairs[a, b]:
        reason = blocked.reasons[int(blocked.reason_of[a, b])]
        return NoAnswer(
            f"nothing gets through between {names[a]} and {names[b]}: {reason}; leave hosts out, or mend it and "
            "probe again"
        )
    what = "bandwidth" if option else "round trip"
    return NoAnswer(
        f"the {what} {names[a]} - {names[b]} is needed and was not measured; `plink probe HOSTS --resume{option}` "
        "measures it"
    )


def library_us(pieces: Sequence[SizeCosts], size_bytes: float) -> float:
    """Return what a library takes by itself for a collective of that size, microseconds."""
    piece = next((each for each in reversed(pieces) if each.from_bytes <= size_bytes), None)
    return 0.0 if piece is None else piece.fixed_us + piece.byte_ns * size_bytes / 1e3


@dataclass(frozen=True)
class Fabric:
    """N hosts in G groups.

    ``rtt_us``, shape (N, N): symmetrised round trips, NaN where unknown. ``pair_gbps``, same shape or None: what a
    pair gets alone, from row to column. ``host_out_gbps``, ``host_in_gbps``, shape (N,): a host's own rates.
    ``group_of``, shape (N,); ``group_out_gbps``, ``group_in_gbps``, shape (G,): what a group shares, infinite where
    its hosts are the limit. ``library_costs``: what NCCL takes besides, where that was timed. ``links``: this
    fabric without costs of hosts, None where it has none. ``capacities``: where these come from, for people.
    ``rate_sigma``: relative standard deviation of a rate between probes. ``outer_tiers``: links above those of the
    groups, the innermost first. ``overhead_us``: what hosts take for each message (:mod:`solvers.costs.evaluator`).
    ``paths``: where hosts have several interfaces, which of them each pair crosses; None where they have one.
    ``host_out_gbps`` is then what one flow of a host gets. ``blocked``: pairs that nothing gets between, whose round
    trips count as unknown; None without any. ``whole``: the fabric that these are some hosts of, and their numbers in
    it; None where there is none.
    """

    names: tuple[str, ...]
    rtt_us: Matrix
    pair_gbps: Matrix | None
    host_out_gbps: Vector
    host_in_gbps: Vector
    group_of: npt.NDArray[np.intp]
    group_out_gbps: Vector
    group_in_gbps: Vector
    capacities: str
    has_host_rates: bool = False
    outer_tiers: tuple[TierLinks, ...] = ()
    rate_sigma: float = MIN_RATE_SIGMA
    overhead_us: float = 0.0
    paths: InterfacePaths | None = None
    library_costs: tuple[LibraryCostsEntry, ...] = ()
    links: "Fabric | None" = None
    blocked: BlockedPairs | None = None
    whole: "tuple[Fabric, npt.NDArray[np.intp]] | None" = None

    def with_library_us(self, algo: str, size_bytes: float, network_us: float) -> float:
        """Return the time of a library's algorithm, microseconds, by what the network takes alone: the same where
        nobody timed the library."""
        if (entry := next((each for each in self.library_costs if each.algo == algo), None)) is None:
            return network_us
        norm = entry.norm or 1.0
        return float((network_us**norm + library_us(entry.pieces or (), size_bytes) ** norm) ** (1 / norm))

    def with_farthest_for_unknown(self, unknown: npt.NDArray[np.bool_]) -> "Fabric":
        """Return the fabric with unknown pairs as far, and as slow, as the farthest and the slowest known ones.

        :param unknown: symmetric, shape (N, N).
        """
        rtt = np.where(unknown, np.max(self.rtt_us, initial=0.0, where=~unknown), self.rtt_us)
        rates = self.pair_gbps
        if rates is not None:
            rates = np.where(unknown & np.isnan(rates), np.nanmin(rates), rates)
        return replace(self, rtt_us=rtt, pair_gbps=rates)

    @cached_property
    def few_gaps(self) -> int:
        """Number of pairs without a round trip, where they are at most 1 % of all; else 0."""
        unknown, pairs = int(self._gaps.sum()) // 2, len(self.names) * (len(self.names) - 1) // 2
        return unknown if unknown <= _MAX_FEW_GAPS * pairs else 0

    @cached_property
    def with_few_gaps_filled(self) -> "Fabric":
        """The fabric for algorithms that cannot avoid a few unknown pairs: with the farthest for these."""
        return self.with_farthest_for_unknown(self._gaps) if self.few_gaps else self

    @property
    def _gaps(self) -> npt.NDArray[np.bool_]:
        unknown = np.isnan(self.rtt_us)
        return unknown if self.blocked is None else unknown & ~self.blocked.pairs

    @property
    def nccl_tree_up_to_bytes(self) -> float | None:
        """Return the largest size for which NCCL takes its tree by itself; None where nobody timed that."""
        sizes = (each.tree_up_to_bytes for each in self.library_costs)
        return next((float(size) for size in sizes if size is not UNSET), None)

    def with_rate_noise(self, rng: np.random.Generator) -> "Fabric":
        """Return the fabric as another probe might have measured its rates: each times a lognormal factor.

        Hosts of one rate by their flows have the median of their rates, which is one figure for all: they have one
        factor, of the standard error of a median.
        """

        def noisy(rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            return rates * np.exp(self.rate_sigma * rng.standard_normal(rates.shape))

        def noisy_hosts(rates: Vector) -> Vector:
            if not self.has_host_rates:
                return noisy(rates)
            values, which, count = np.unique(rates, return_inverse=True, return_counts=True)
            sigma = self.rate_sigma * np.minimum(1.0, np.sqrt(np.pi / 2 / count))
            return np.asarray((values * np.exp(sigma * rng.standard_normal(len(values))))[which])

        return self._with_rates(noisy, noisy_hosts)

    def faster(self, factor: float) -> "Fabric":
        """Return the fabric with all links this many times as fast."""
        return self._with_rates(lambda rates: factor * rates, lambda rates: factor * rates)

    def _with_rates(
        self,
        changed: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
        changed_hosts: Callable[[Vector], Vector],
    ) -> "Fabric":
        return replace(
            self,
            pair_gbps=None if self.pair_gbps is None else changed(self.pair_gbps),
            host_out_gbps=changed_hosts(self.host_out_gbps),
            host_in_gbps=changed_hosts(self.host_in_gbps),
            group_out_gbps=changed(self.group_out_gbps),
            group_in_gbps=changed(self.group_in_gbps),
            outer_tiers=tuple(
                TierLinks(tier.group_of, changed(tier.out_gbps), changed(tier.in_gbps)) for tier in self.outer_tiers
            ),
            paths=None
            if self.paths is None
            else replace(self.paths, out_gbps=changed(self.paths.out_gbps), in_gbps=changed(self.paths.in_gbps)),
        )

    def with_drawn_links(self, rng: np.random.Generator) -> "Fabric":
        """Return the fabric with other capacities that its groups' links may have, where none was measured."""
        if self.whole is not None:
            fabric, hosts = self.whole
            inner, *others = [tier.of_hosts(hosts) for tier in fabric.with_drawn_links(rng).tiers]
            return replace(self, group_out_gbps=inner.out_gbps, group_in_gbps=inner.in_gbps, outer_tiers=tuple(others))
        tiers = self.tiers
        drawn = assumed_capacities([tier.group_of for tier in tiers], (self.host_out_gbps, self.host_in_gbps), rng)
        (out, into), *above = drawn
        outer = (TierLinks(tier.group_of, *rates) for tier, rates in zip(tiers[1:], above, strict=True))
        return replace(self, group_out_gbps=out, group_in_gbps=into, outer_tiers=tuple(outer))

    @property
    def tiers(self) -> tuple[TierLinks, ...]:
        """Return the links of all tiers, the innermost first."""
        return TierLinks(self.group_of, self.group_out_gbps, self.group_in_gbps), *self.outer_tiers

    @property
    def resources(self) -> tuple[HostResources, HostResources]:
        """Return what hosts, or their interfaces, have for sending, and for receiving."""
        return host_resources(self.names, self.host_out_gbps, self.host_in_gbps, self.paths)

    @property
    def host_gbps(self) -> Vector:
        """Return what all interfaces of each host carry together in its slower direction, Gbit/s, shape (N,)."""
        sending, receiving = self.resources
        return np.minimum(sending.host_gbps(), receiving.host_gbps())

    @property
    def measured(self) -> bool:
        """Return whether the groups' shared capacities were measured."""
        return self.capacities.startswith(MEASURED)

    @property
    def rate_gbps(self) -> float | None:
        """Return the median host's rate in its slower direction, that of its link alone; None where no rates were
        measured."""
        if self.links is not None:
            return self.links.rate_gbps
        if self.pair_gbps is None and not self.measured and not self.has_host_rates:
            return None
        return float(f"{np.median(np.minimum(self.host_out_gbps, self.host_in_gbps)):.4g}")

    def require(self, values: Vector, source: npt.NDArray[np.intp], target: npt.NDArray[np.intp], option: str) -> None:
        """Refuse a cost in which an unmeasured or blocked pair plays a part.

        :raises NoAnswer: naming the first such pair, and what blocks it or the command that would measure it.
        """
        missing = np.flatnonzero(np.isnan(values))
        if len(missing):
            a, b = (int(ends[missing[0]]) for ends in (source, target))
            raise no_way_between(self.names, a, b, self.blocked, option)


def alike_hosts(names: Sequence[str], gbps: float, capacities: str = "") -> Fabric:
    """Return hosts of one rate, with nothing else between them: no latency, and no links that they share."""
    rates, unlimited, n = np.full(len(names), gbps), np.full(1, np.inf), len(names)
    together = np.zeros(n, dtype=np.intp)
    return Fabric(tuple(names), np.zeros((n, n)), None, rates, rates, together, unlimited, unlimited, capacities)


def fabric_of(network: Network) -> Fabric:
    """Return the fabric of a network: what its file has, and what can be inferred.

    Where hosts have several interfaces, and pass on what others send, these are the links that pairs share: groups of
    near hosts have none of their own.

    :raises InputError: when what the file has of links or interfaces is invalid.
    """
    if network.whole is None:
        fabric = _without_blocked_pairs(_fabric_of_groups(network), network)
    else:
        fabric = _fabric_of_part(network, network.whole)
    entry = network.interfaces
    if entry is None:
        return fabric
    stated = _stated_gbps(network)  # of all interfaces together: it tells nothing of one
    out, into = (np.where(np.isnan(stated), gbps, np.nan) for gbps in (fabric.host_out_gbps, fabric.host_in_gbps))
    paths = interface_paths(entry, fabric.names, (out, into), fabric.pair_gbps)
    if paths is None:
        return fabric
    paths = paths.with_host_gbps(stated)
    if not paths.has_relays:
        return replace(fabric, paths=paths)
    no_limit = np.full(len(fabric.group_out_gbps), np.inf)
    measured = fabric.measured or fabric.rate_gbps is not None or entry.out_gbps is not UNSET
    return replace(
        fabric,
        paths=paths,
        group_out_gbps=no_limit,
        group_in_gbps=no_limit,
        outer_tiers=(),
        capacities=f"{MEASURED} of interfaces" if measured else f"{ASSUMED_GBPS:g} Gbit/s an interface",
    )


def over_rails(fabric: Fabric, rails: npt.NDArray[np.int64]) -> Fabric:
    """Return the fabric of transfers that use all rails at once, each an equal part of their bytes.

    :param rails: shape (N, R): the interface of each host on each rail, among its own.
    """
    paths = fabric.paths
    if paths is None:
        return fabric
    first = np.searchsorted(paths.host_of, np.arange(len(fabric.names)))
    hosts, number = first[:, None] + rails, rails.shape[1]
    return replace(
        fabric,
        paths=None,
        pair_gbps=None if fabric.pair_gbps is None else number * fabric.pair_gbps,
        host_out_gbps=number * paths.out_gbps[hosts].min(axis=1),
        host_in_gbps=number * paths.in_gbps[hosts].min(axis=1),
    )


def _fabric_of_groups(network: Network) -> Fabric:
    """Return the fabric of hosts with one interface each.

    Groups and their shared capacities come from ``shared_links``: its innermost tier, and links of outer tiers above.
    Without them groups are those of the topology file that the network is from, or the nearest tier of the latencies
    (one that both halves of the samples confirm, where there are halves), with the tiers that stand out above it. Each
    group's link is assumed to carry what enters it from the tier below over 2.5. Round trips do not show capacities.
    """
    rtt = network.completed_us
    n = len(network.hosts)
    pair = network.bandwidth_gbps
    if pair is not None:
        pair = np.where(pair > 0, pair, np.nan)  # nothing came through: no rate that a time could be worked out from
        pair = pair if np.isfinite(pair).any() else None
    tiers = [shared_rows(tier.groups, network.hosts.names) for tier in network.shared_links]
    rows, outer = (tiers[0], tiers[1:]) if tiers else ([], [])
    measured = any(is_measured(row) and not is_uncertain(row) for _, row in rows)
    if not measured and not (rows and network.details.assumed_from):
        return _inferred(network, rtt, pair)
    group_of = np.full(n, -1, dtype=np.intp)
    alone = np.full(n, np.nan)
    for number, (members, row) in enumerate(rows):
        group_of[members] = number
        if is_measured(row):
            alone[members] = one_flow_rate(row) or np.nan
    single = np.flatnonzero(group_of == -1)  # in no group: one each, and nothing shared
    group_of[single] = len(rows) + np.arange(len(single))
    by_flows = class_rates(flows_of(network), n)
    host_out, host_in = _host_rates(network, pair, alone, by_flows)
    links_above = [_outer_tier(tier, group_of) for tier in outer]
    labels = [group_of, *(np.unique(tier.group_of, return_inverse=True)[1] for tier in links_above)]
    (assumed_out, assumed_in), *assumed_above = assumed_capacities(labels, (host_out, host_in))
    shared, shared_in = np.full(len(assumed_out), np.inf), np.full(len(assumed_in), np.inf)
    unknown = 0
    for number, (_, row) in enumerate(rows):
        if is_measured(row):
            shared[number], shared_in[number] = capacity_of(row, "out"), capacity_of(row, "in")
        else:
            shared[number], shared_in[number] = assumed_out[number], assumed_in[number]
            unknown += 1
    source = MEASURED
    if not measured:
        source = _inferred_from("the topology file", by_flows is not None, pair is not None)
    elif unknown:
        source = f"{MEASURED}, but of {unknown} of {len(rows)} groups inferred from the latencies"
    if not measured:
        links_above = [TierLinks(label, *rates) for label, rates in zip(labels[1:], assumed_above, strict=True)]
    return Fabric(
        tuple(network.hosts.names),
        rtt,
        pair,
        host_out,
        host_in,
        group_of,
        shared,
        shared_in,
        source,
        by_flows is not None,
        tuple(links_above),
        rate_sigma([row for tier in tiers for _, row in tier]),
    )


def _fabric_of_part(network: Network, whole: Network) -> Fabric:
    """Return the fabric of some hosts of a network: what the whole shows of them, their groups and their links."""
    fabric = _without_blocked_pairs(_fabric_of_groups(whole), whole)
    index = {name: k for k, name in enumerate(fabric.names)}
    hosts = np.array([index[name] for name in network.hosts.names], dtype=np.intp)
    square, rtt, blocked = np.ix_(hosts, hosts), network.completed_us, fabric.blocked
    if blocked is not None:
        blocked = BlockedPairs(blocked.reason_of[square], blocked.reasons)
    inner, *outer = [tier.of_hosts(hosts) for tier in fabric.tiers]
    return replace(
        fabric,
        names=tuple(network.hosts.names),
        rtt_us=rtt if blocked is None else np.where(blocked.pairs, np.nan, rtt),
        pair_gbps=None if fabric.pair_gbps is None else fabric.pair_gbps[square],
        host_out_gbps=fabric.host_out_gbps[hosts],
        host_in_gbps=fabric.host_in_gbps[hosts],
        group_of=inner.group_of,
        group_out_gbps=inner.out_gbps,
        group_in_gbps=inner.in_gbps,
        outer_tiers=tuple(outer),
        blocked=blocked,
        whole=(fabric, hosts),
    )


def _without_blocked_pairs(fabric: Fabric, network: Network) -> Fabric:
    """Return the fabric with what is blocked by the file's rates of 0 as unknown."""
    hosts, groups = np.arange(len(fabric.names)), list[tuple[list[int], str]]()
    for number, tier in enumerate(network.shared_links, 1):
        group = "the group" if number == 1 else f"the tier-{number} group"
        for members, row in shared_rows(tier.groups, network.hosts.names):
            for way, verb in (("out", "out of"), ("in", "into")):
                if row.gbps(way) == 0 and not is_uncertain(row):
                    reason = f"the way {verb} {group} of {fabric.names[members[0]]} carries 0 Gbit/s"
                    groups.append((members, reason))
    dead = None if network.bandwidth_gbps is None else (network.bandwidth_gbps == 0) & (hosts[:, None] != hosts)
    if not groups and (dead is None or not dead.any()):
        return fabric
    reason_of = np.full((len(hosts),) * 2, -1, dtype=np.intp)
    for number, (members, _) in enumerate(groups):
        inside = np.isin(hosts, members)
        reason_of[inside[:, None] != inside] = number
    if dead is not None:
        reason_of[(dead | dead.T) & (reason_of < 0)] = len(groups)
    blocked = BlockedPairs(reason_of, (*(reason for _, reason in groups), "0 Gbit/s were measured there"))
    return replace(fabric, rtt_us=np.where(blocked.pairs, np.nan, fabric.rtt_us), blocked=blocked)


def _outer_tier(rows: list[tuple[list[int], Row]], inner_group_of: npt.NDArray[np.intp]) -> TierLinks:
    """Return the links of a tier; what was not measured, or is in no group of the tier, has no limit."""
    group_of = len(rows) + inner_group_of
    limits: dict[str, list[float]] = {"out": [], "in": []}
    for number, (members, row) in enumerate(rows):
        group_of[members] = number
        for way, gbps in limits.items():
            gbps.append(np.inf if row.gbps(way) is None else capacity_of(row, way))
    shared_out, shared_in = (np.full(int(group_of.max()) + 1, np.inf) for _ in limits)
    shared_out[: len(rows)], shared_in[: len(rows)] = limits["out"], limits["in"]
    return TierLinks(group_of, shared_out, shared_in)


def _host_rates(network: Network, pair: Matrix | None, alone: Vector, by_flows: Rates | None) -> Rates:
    """Return (out, in) of every host: what the hosts file gives a hub, else its best pair, else its flows, else one
    flow, else the median, else an assumption."""
    usual = float(np.nanmedian(alone)) if np.isfinite(alone).any() else ASSUMED_GBPS
    fallback = np.where(np.isfinite(alone), alone, usual)
    out, into = by_flows or (fallback, fallback)
    if pair is not None:
        best_out, best_in = (np.where(np.isfinite(pair), pair, 0).max(axis=axis) for axis in (1, 0))
        out, into = np.where(best_out > 0, best_out, out), np.where(best_in > 0, best_in, into)
    stated = _stated_gbps(network)
    return np.where(np.isnan(stated), out, stated), np.where(np.isnan(stated), into, stated)


def _stated_gbps(network: Network) -> Vector:
    """Return what the hosts file says that hubs carry each way, shape (N,), NaN for other hosts."""
    return np.array([np.nan if host.gbps is None else host.gbps for host in network.hosts])


def _inferred(network: Network, rtt: Matrix, pair: Matrix | None) -> Fabric:
    complete = completed_by_detours(rtt)
    group_of = nearest_tier(complete, halves=_halves(network, complete))
    by_flows = class_rates(flows_of(network), len(rtt))
    host_out, host_in = hosts = _host_rates(network, pair, np.full(len(rtt), np.nan), by_flows)
    has_stated_hubs = any(host.gbps is not None for host in network.hosts)  # which rates of pairs do not show
    labels = tiers_from(complete, group_of)
    (out, into), *above = assumed_capacities(labels, hosts)
    source = _inferred_from("the latency tiers", by_flows is not None, pair is not None)
    return Fabric(
        tuple(network.hosts.names),
        rtt,
        pair,
        host_out,
        host_in,
        group_of,
        out,
        into,
        source,
        by_flows is not None or (pair is not None and has_stated_hubs),
        tuple(TierLinks(label, *rates) for label, rates in zip(labels[1:], above, strict=True)),
    )


def _inferred_from(groups: str, by_flows: bool, by_pairs: bool) -> str:
    """Return where inferred capacities come from, for people."""
    rates = "measured pairs" if by_pairs else "measured hosts" if by_flows else f"{ASSUMED_GBPS:g} Gbit/s a host"
    return f"inferred from {groups} and {rates} (`plink probe HOSTS` measures them)"


def _halves(network: Network, rtt: Matrix) -> list[Matrix]:
    """What either half of the samples says, completed by ``rtt``; none where a file has no such halves."""
    try:
        read = network.half_rtts_us
    except InputError:  # commands that need them say so; here they only confirm groups
        return []
    return [np.where(np.isnan(half), rtt, half) for half in read]
