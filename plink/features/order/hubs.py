"""Hub processes of a network, and the schedules of ranks with them.

Hub processes of a job: how many run on each hub host, and what each can take.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.network import Network
from plink.model.segmentation import HUB_PARTS, segmentation_for_rate
from plink.model.units import format_gbps
from solvers.costs.fabric import Fabric
from solvers.schedules.catalogue import HUB_ALGORITHMS, Options

# Receiving, adding and sending back a gigabyte takes a process 1.2 s of a core (docs/results/hub.md).
GBPS_A_PROCESS = 7.0
Ranks = npt.NDArray[np.intp]


def hub_processes(rates_gbps: Sequence[float | None], cores: Sequence[int | None]) -> tuple[list[int], list[float]]:
    """Return the host of each process, by index, and the weights of the processes: what each can take.

    A host has a process for each 7 Gbit/s, and leaves one core to the kernel. Hosts of unknown rate are as fast as the
    slowest that is known.

    :param rates_gbps: of each hub host, in and out at once. :param cores: of each.
    """
    least = min((rate for rate in rates_gbps if rate is not None), default=1.0)
    hosts, weights = [], []
    for host, (rate, number) in enumerate(zip(rates_gbps, cores, strict=True)):
        limit = 1 if number is None else max(1, number - 1)
        processes = 1 if rate is None or math.isinf(rate) else min(max(1, math.ceil(rate / GBPS_A_PROCESS)), limit)
        hosts += [host] * processes
        weights += [min((least if rate is None else rate) / processes, GBPS_A_PROCESS)] * processes
    return hosts, weights


@dataclass(frozen=True)
class WithHubs:
    """Ranks and hub processes. ``order``, shape (N + H,): the host (its index in the network) of each; ``options``: of
    the algorithm."""

    order: Ranks
    options: Options


def sizes_for(algorithms: Iterable[str], sizes_bytes: Sequence[float], rate_gbps: float | None) -> list[float]:
    """Return the sizes, rising, between which costs of these algorithms are lines: those of hubs fall where their
    vectors are first sliced.

    :param rate_gbps: of the hosts, by which AggEngine slices.
    """
    sliced = segmentation_for_rate(rate_gbps).finer(HUB_PARTS).sliced_from_bytes
    edges = (sliced - 1, sliced) if set(HUB_ALGORITHMS) & set(algorithms) else ()
    return sorted({*sizes_bytes, *(edge for edge in edges if sizes_bytes[0] < edge < sizes_bytes[-1])})


def refuse_hubs(algo: str) -> None:
    """Refuse an algorithm with hubs where ranks are ordered or planned. :raises UsageError: it has."""
    if algo in HUB_ALGORITHMS:
        raise UsageError(
            f"--algo {algo}: hubs take no ranks; `plink cost --algo {algo}` prices them, `plink launch --backend "
            f"{algo}` starts them"
        )


def with_hubs(
    network: Network, fabric: Fabric, algo: str, ranks: Ranks, options: Options, hubs: Sequence[int] | None = None
) -> WithHubs:
    """Return ranks with the hub processes of a network behind them, by its hosts' measured rates and cores.

    :param algo: of ``HUB_ALGORITHMS``. :param ranks: shape (N,), the host at each rank. :param hubs: these hosts
        instead of those with role=hub.
    :raises UsageError: without hubs, or for ``phub-2l`` without one in each group of hosts.
    """
    hosts = [host for host, entry in enumerate(network.hosts) if not entry.slots] if hubs is None else list(hubs)
    if not hosts:
        raise UsageError(f"{algo} needs a host with role=hub in the hosts file")
    places, weights = hub_processes(*_rates_and_cores(network, fabric, hosts))
    order = np.append(ranks, np.array(hosts)[places])
    groups = _groups_with_hubs(fabric, order, len(ranks)) if algo == "phub-2l" else None
    return WithHubs(order, replace(options, servers=len(places), weights=weights, groups=groups))


def _groups_with_hubs(fabric: Fabric, order: Ranks, ranks: int) -> list[list[int]]:
    """Return the groups of the innermost tier in which each has a hub. :raises UsageError: there is none."""
    for tier in fabric.tiers:
        labels = tier.group_of[order]
        groups = [np.flatnonzero(labels == label).tolist() for label in dict.fromkeys(labels.tolist())]
        without = [group for group in groups if group[-1] < ranks]
        if not without:
            return groups
    name = fabric.names[order[without[0][0]]]
    raise UsageError(f"phub-2l needs a hub in each group of hosts; that of {name} has none")


def hubs_limited_by_cores(network: Network, fabric: Fabric) -> list[str]:
    """Return the sentences of :func:`core_limits` for the hub hosts of a network."""
    hosts = [host for host, entry in enumerate(network.hosts) if not entry.slots]
    return core_limits([fabric.names[host] for host in hosts], *_rates_and_cores(network, fabric, hosts))


def core_limits(names: Sequence[str], rates_gbps: Sequence[float | None], cores: Sequence[int | None]) -> list[str]:
    """Return a sentence for each hub host whose processes take less than its link carries."""
    places, _ = hub_processes(rates_gbps, cores)
    return [
        f"{name}: {'one process (`plink probe` counts cores) is' if count is None else f'{count} cores are'} for "
        f"{format_gbps(places.count(k) * GBPS_A_PROCESS)}, its link for {format_gbps(rate)}: as a hub it is slower"
        for k, (name, rate, count) in enumerate(zip(names, rates_gbps, cores, strict=True))
        if rate is not None and rate > places.count(k) * GBPS_A_PROCESS
    ]


def _rates_and_cores(
    network: Network, fabric: Fabric, hosts: Sequence[int]
) -> tuple[list[float | None], list[int | None]]:
    measured, members = fabric.rate_gbps is not None, list(network.hosts)
    of_hosts = fabric.host_gbps
    rates = [float(of_hosts[host]) if measured or members[host].gbps is not None else None for host in hosts]
    identities = network.host_identities
    cores = [identities.get(fabric.names[host], {}).get("cores") for host in hosts]
    return rates, cores
