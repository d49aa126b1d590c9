"""The resources of a network: what hosts send and receive by themselves, and what groups of every tier share."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from solvers.costs.fabric import BYTES_PER_US, Fabric, TierLinks
from solvers.costs.interfaces import InterfacePaths, host_resources
from solvers.simulation.job import Integers, Resources, Vector

Hosts = npt.NDArray[np.intp]


@dataclass(frozen=True)
class SimulatedNetwork:
    """N hosts under T tiers, the innermost first. ``latency_us``, shape (N, N): one way. ``pair_gbps``, same shape or
    None: the most that one flow gets. ``out_gbps``, ``in_gbps``, shape (N,): a host's own rates. ``overhead_us``: what
    hosts take for each message. ``paths``: where hosts have several interfaces."""

    names: tuple[str, ...]
    latency_us: Vector
    pair_gbps: Vector | None
    out_gbps: Vector
    in_gbps: Vector
    tiers: tuple[TierLinks, ...]
    overhead_us: float = 0.0
    paths: InterfacePaths | None = None

    @classmethod
    def of(cls, fabric: Fabric) -> "SimulatedNetwork":
        """As the cost models know it."""
        return cls(
            fabric.names, fabric.rtt_us / 2, fabric.pair_gbps, fabric.host_out_gbps, fabric.host_in_gbps, fabric.tiers,
            fabric.overhead_us, fabric.paths,
        )  # fmt: skip


def resources_between(network: SimulatedNetwork, source: Hosts, target: Hosts) -> tuple[Resources, Integers, Vector]:
    """The resources that flows from source to target use.

    :param source: shape (M,), the host that each flow comes from, ``target`` where it goes; flows within a host use
        none.
    :returns: resources in bytes per microsecond; the route of each flow, shape (M,); its latency, shape (M,).
    :raises NoAnswer: when a round trip is not known.
    """
    n = len(network.names)
    pairs, route = np.unique(source.astype(np.int64) * n + target, return_inverse=True)
    a, b = pairs // n, pairs % n
    latency = np.where(a == b, 0.0, network.latency_us[a, b])
    if np.isnan(latency).any():
        k = int(np.flatnonzero(np.isnan(latency))[0])
        raise NoAnswer(
            f"the round trip {network.names[a[k]]} - {network.names[b[k]]} is needed and was not measured; "
            "`plink probe HOSTS --resume` measures it"
        )
    capacity: list[Vector] = []
    names: list[str] = []
    columns: list[Integers] = []
    first = 0
    hosts = host_resources(network.names, network.out_gbps, network.in_gbps, network.paths)
    for ends, way in zip(hosts, ("out", "in"), strict=True):
        capacity.append(ends.gbps)
        names += [f"{name}, {way}" for name in ends.names]
        columns += [np.where((a == b) | (hop < 0), -1, first + hop) for hop in ends.of(a, b)]
        first += len(ends)
    for number, tier in enumerate(network.tiers, 1):
        groups = len(tier.out_gbps)
        crosses = tier.group_of[a] != tier.group_of[b]
        columns.append(np.where(crosses, first + tier.group_of[a], -1))
        columns.append(np.where(crosses, first + groups + tier.group_of[b], -1))
        capacity += [tier.out_gbps, tier.in_gbps]
        names += [name for way in ("out of", "into") for name in tier.link_names(network.names, number, way)]
        first += 2 * groups
    limit = np.full(len(pairs), np.inf) if network.pair_gbps is None else network.pair_gbps[a, b].copy()
    limit[(a == b) | np.isnan(limit)] = np.inf
    resources = Resources(
        np.concatenate(capacity) * BYTES_PER_US, np.stack(columns, axis=1).astype(np.int64), limit * BYTES_PER_US,
        tuple(names),
    )  # fmt: skip
    return resources, route.astype(np.int64), latency[route]
