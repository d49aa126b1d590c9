"""What a collective puts on each link of a network in one rank order, and which of them the cost model blames.

Bytes and times are those of :mod:`solvers.costs.evaluator`, summed over all rounds of a pattern.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from solvers.costs.evaluator import (
    Transfers,
    crossing_bytes,
    mean_latency,
    messages_of_rounds,
    resource_bytes,
    resource_loads,
)
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector
from solvers.costs.patterns import Pattern

_EQUAL_SHARE = 0.99  # of the busiest resource's load: what is as busy is to blame as well
HOST_BLOCKS = 2  # of the resources: what hosts (interfaces) send, and receive; then two blocks a tier, out and in
WeightedPatterns = Sequence[tuple[float, Pattern]]
Ranks = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Bottleneck:
    """What takes most of the time of a collective, by the cost model.

    ``kind``: ``latency`` (of hops), ``hosts`` (what they send or receive by themselves) or ``links`` (that groups
    share). ``resources``: the names of those that are equally busy; ``hosts``: theirs; ``links``: of those that are
    shared links (tier, 0 the innermost; group; whether it is the way out); ``hops``, shape (H, 2): the pairs (from, to)
    that load these; ``time_us``: for how long they work, of the ``cost_us``.
    """

    kind: str
    resources: tuple[str, ...]
    hosts: tuple[int, ...]
    links: tuple[tuple[int, int, bool], ...]
    hops: Ranks
    time_us: float
    cost_us: float

    @property
    def share(self) -> float:
        """Return the share of the time for which these work."""
        return self.time_us / self.cost_us


def transfers_of(pattern: Pattern, order: Ranks, size_bytes: float) -> Transfers:
    """Return the transfers of a pattern's distinct rounds between hosts; those within a host move nothing.

    :param order: shape (N,), the host at each rank.
    """
    if pattern.all_to_all_share:
        pairs = np.argwhere(~np.eye(pattern.ranks, dtype=bool))
        rounds, share = len(pattern.repeat), np.full(len(pairs), pattern.all_to_all_share)
        pattern = replace(
            pattern,
            round=np.repeat(np.arange(rounds), len(pairs)),
            share=np.tile(share, rounds),
            source=np.tile(pairs[:, 0], rounds),
            target=np.tile(pairs[:, 1], rounds),
            all_to_all_share=0.0,
        )
    source, target = order[pattern.source], order[pattern.target]
    moved = np.where(source == target, 0.0, pattern.share * size_bytes)
    return Transfers(len(pattern.repeat), pattern.round.astype(np.int64), source, target, moved)


def link_bytes(
    patterns: WeightedPatterns, order: Ranks, size_bytes: float, group_of: Ranks, groups: int
) -> tuple[Vector, Vector]:
    """Return the bytes that one collective sends out of each group of hosts, and into it, two of shape (G,).

    :param patterns: of the algorithm, with weights that add up to one. :param group_of: shape (N,), of each host.
    """
    total = np.zeros((2, groups))
    for weight, pattern in patterns:
        out, into = crossing_bytes(transfers_of(pattern, order, size_bytes), group_of, groups)
        total += weight * np.stack([pattern.repeat @ out, pattern.repeat @ into])
    return total[0], total[1]


def bottleneck_of(
    patterns: WeightedPatterns, fabric: Fabric, order: Ranks, size_bytes: float, model: str
) -> Bottleneck | None:
    """Return what the model ``alpha-beta`` or ``contention`` blames for most of the time; None when nothing is sent.

    :raises NoAnswer: when a pair that is used was not measured.
    """
    _, pattern = max(patterns, key=lambda part: part[0])
    transfers = transfers_of(pattern, order, size_bytes)
    hop = fabric.rtt_us[transfers.source, transfers.target]
    fabric.require(hop, transfers.source, transfers.target, "")
    latency = np.zeros(transfers.rounds)
    np.maximum.at(latency, transfers.round, hop / 2)
    blocks = resource_loads(fabric, transfers, model)
    load = np.hstack([block for _, block in blocks])
    if not load.any():
        return None
    transfer, repeat = load.max(axis=1), pattern.repeat
    if model == "contention" and pattern.timing == "pipeline":
        pair = (pattern.source * pattern.ranks + pattern.target).astype(np.int64)
        latency = mean_latency(fabric, transfers, pair)
    if fabric.overhead_us:
        pairs = transfers.source.astype(np.int64), transfers.target.astype(np.int64)
        latency = latency + fabric.overhead_us * messages_of_rounds(transfers.rounds, transfers.round, *pairs)
    cost, waiting = float((latency + transfer) @ repeat), float(latency @ repeat)
    if model == "contention":  # their own work, which rounds that end with the latest link exceed
        rows = resource_bytes(fabric, transfers)
        load = np.hstack([moved / (gbps * BYTES_PER_US) for _, gbps, moved in rows])
    working = repeat @ load
    during = float(working.max())
    busiest = np.flatnonzero(working >= _EQUAL_SHARE * during)
    if waiting > during:
        return Bottleneck("latency", (), (), (), np.empty((0, 2), np.intp), waiting, cost)
    ends = np.cumsum([block.shape[1] for _, block in blocks])
    names = [name for block_names, _ in blocks for name in block_names]
    hosts: set[int] = set()
    links: list[tuple[int, int, bool]] = []
    crosses = np.zeros(len(transfers.source), dtype=bool)
    for resource in busiest.tolist():
        block = int(np.searchsorted(ends, resource, side="right"))
        column = resource - int(ends[block] - blocks[block][1].shape[1])
        if block < HOST_BLOCKS:
            hosts.add(int(fabric.resources[block].host_of[column]))
            continue
        tier, is_out = (block - HOST_BLOCKS) // 2, block % 2 == 0
        links.append((tier, column, is_out))
        inside = fabric.tiers[tier].group_of == column
        hosts.update(np.flatnonzero(inside).tolist())
        ours, others = (transfers.source, transfers.target) if is_out else (transfers.target, transfers.source)
        crosses |= inside[ours] & ~inside[others]
    kind = "hosts" if busiest[0] < ends[HOST_BLOCKS - 1] else "links"
    hops = np.unique(np.stack([transfers.source, transfers.target], axis=1)[crosses], axis=0)
    resources = tuple(names[k] for k in busiest.tolist())
    return Bottleneck(kind, resources, tuple(sorted(hosts)), tuple(links), hops, during, cost)
