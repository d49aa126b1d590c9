"""Made-up clouds whose true round trips are known: racks in pods, or hosts that are all alike; orders to compare."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs
from scipy.stats import spearmanr

from plink.model.codec import convert
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network, to_rows
from plink.model.network_file import NetworkDetails, SharedTierEntry
from solvers.checking import with_ties
from solvers.costs.fabric import Fabric, TierLinks, fabric_of
from solvers.schedules.catalogue import Options

Order = npt.NDArray[np.intp]
Vector = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]
_RACK = (3, 20)  # hosts of an uneven rack, at least and at most
_PODS = (2, 6)  # racks of a pod
_DIGITS = 3  # as a file keeps round trips
_HOST_GBPS = 10.0
_OVERSUBSCRIPTION = (1.5, 4.0)  # of racks, and of pods once more: what enters over what leaves
_TOGETHER, _DISTURBED = 2, 16  # of the orders; the others are random


@dataclass(frozen=True)
class Cloud:
    """N hosts in random order.

    ``rtt_us``, shape (N, N), symmetric: the true round trips. ``rack_of``, ``pod_of``, shape (N,). ``sample_sigma``:
    the noise of one measurement of one direction (the standard deviation of its logarithm) with all the samples that
    there are of a pair; with half of them it is sqrt(2) times that.
    """

    rtt_us: Matrix
    rack_of: Labels
    pod_of: Labels
    sample_sigma: float

    def __len__(self) -> int:
        return len(self.rtt_us)

    def sample(self, rng: np.random.Generator) -> Matrix:
        """Return a measurement with all samples, shape (N, N): each direction with noise of its own."""
        return self._measured(rng, self.sample_sigma)

    def halves(self, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
        """Two measurements with half of the samples each."""
        sigma = self.sample_sigma * np.sqrt(2)
        return self._measured(rng, sigma), self._measured(rng, sigma)

    def network(self, rng: np.random.Generator, details: dict[str, Any] | None = None) -> Network:
        """Return what ``plink probe`` would have written: round trips of all samples, and of either half of them."""
        halves = self.halves(rng)
        members = tuple(Host(f"host{k}", f"10.{k >> 16}.{k >> 8 & 255}.{k & 255}") for k in range(len(self)))
        written: dict[str, Any] = {"halves_us": [to_rows(half, _DIGITS) for half in halves]}
        return Network(
            Hosts(members),
            np.sqrt(halves[0] * halves[1]),
            None,
            convert(NetworkDetails, written | (details or {}), "cloud"),
        )

    def fabric(self, rtt_us: Matrix | None = None) -> Fabric:
        """Return what the cost models are told, by the true round trips or by those given (shape (N, N), symmetric)."""
        exact = replace(self, sample_sigma=0.0)
        full = fabric_of(replace(exact.network(np.random.default_rng(0)), details=NetworkDetails()))
        return full if rtt_us is None else replace(full, rtt_us=rtt_us)

    def _measured(self, rng: np.random.Generator, sigma: float) -> Matrix:
        return np.asarray(self.rtt_us * rng.lognormal(0.0, sigma, self.rtt_us.shape))


def three_tier(
    hosts: int,
    seed: int,
    rack_sizes: str = "uneven",
    noise_sigma: float = 0.15,
    sample_sigma: float = 0.05,
    tiers_us: tuple[float, float, float] = (25.0, 60.0, 120.0),
) -> Cloud:
    """Return hosts in racks in pods: one round trip in a rack, one in a pod, one between pods.

    :param rack_sizes: ``uneven``: racks of 3 to 20 hosts, 2 to 6 racks a pod, at random (the last ones take what is
        left); ``powers``: racks of 8, pods of 4 racks.
    :param noise_sigma: what is true of a pair departs from its tier, for good: lognormal.
    """
    if rack_sizes not in ("uneven", "powers"):
        raise ValueError(f"rack_sizes {rack_sizes!r}: there are uneven, powers")
    rng = np.random.default_rng(seed)
    even = rack_sizes == "powers"
    rack_of = _random_labels(hosts, (8, 8) if even else _RACK, rng)
    pod_of = _random_labels(int(rack_of.max()) + 1, (4, 4) if even else _PODS, rng)[rack_of]
    place = rng.permutation(hosts)
    rack_of, pod_of = rack_of[place], pod_of[place]
    same_rack, same_pod = (labels[:, None] == labels[None, :] for labels in (rack_of, pod_of))
    tier = np.where(same_rack, tiers_us[0], np.where(same_pod, tiers_us[1], tiers_us[2]))
    upper = np.triu(rng.lognormal(0.0, noise_sigma, (hosts, hosts)), 1)
    return Cloud(tier * (upper + upper.T), rack_of, pod_of, sample_sigma)


def alike(hosts: int, seed: int, sample_sigma: float = 0.05, rtt_us: float = 60.0) -> Cloud:
    """Return hosts between which nothing differs: whatever is measured to differ is noise.

    :param seed: of nothing that is drawn here; one cloud of alike hosts is like the other.
    """
    rtt = np.full((hosts, hosts), rtt_us)
    np.fill_diagonal(rtt, 0.0)
    nothing = np.zeros(hosts, dtype=np.intp)
    return Cloud(rtt, nothing, nothing, sample_sigma)


def _random_labels(members: int, between: tuple[int, int], rng: np.random.Generator) -> Labels:
    """Return the group of each member, shape (members,), groups of random sizes one after the other."""
    sizes: list[int] = []
    while sum(sizes) < members:
        sizes.append(int(rng.integers(between[0], between[1] + 1)))
    return np.repeat(np.arange(len(sizes)), sizes)[:members].astype(np.intp)


def fabric_of_cloud(cloud: Cloud, seed: int) -> Fabric:
    """Return the cloud with true capacities: hosts of 10 Gbit/s, racks and pods oversubscribed at random."""
    rng = np.random.default_rng((seed, 2))
    n, rates = len(cloud), np.full(len(cloud), _HOST_GBPS)
    racks = np.bincount(cloud.rack_of) * _HOST_GBPS / rng.uniform(*_OVERSUBSCRIPTION, int(cloud.rack_of.max()) + 1)
    racks = np.maximum(racks, _HOST_GBPS)  # no uplink is slower than one host, not even that of a rack of one
    into = np.bincount(cloud.pod_of, racks[cloud.rack_of] / np.bincount(cloud.rack_of)[cloud.rack_of])
    pods = np.maximum(into / rng.uniform(*_OVERSUBSCRIPTION, len(into)), _HOST_GBPS)
    return Fabric(
        tuple(f"host{k}" for k in range(n)), cloud.rtt_us, None, rates, rates, cloud.rack_of, racks, racks, "measured",
        outer_tiers=(TierLinks(cloud.pod_of, pods, pods),),
    )  # fmt: skip


def network_of_cloud(cloud: Cloud, seed: int, shared_links: bool) -> Network:
    """Return what ``plink probe`` would have written: round trips with noise, and the true capacities if asked."""
    network = cloud.network(np.random.default_rng((seed, 5)))
    if not shared_links:
        return network
    fabric, tiers = fabric_of_cloud(cloud, seed), []
    for tier in fabric.tiers:
        groups = []
        for group, gbps in enumerate(tier.out_gbps.tolist()):
            members = [fabric.names[host] for host in np.flatnonzero(tier.group_of == group)]
            groups.append({"members": members} | {
                f"{way}_{key}": value
                for way in ("out", "in")
                for key, value in (("gbps", gbps), ("one_flow_gbps", _HOST_GBPS), ("limited_by", "link"))
            })  # fmt: skip
        tiers.append({"groups": groups})
    return replace(
        network, details=structs.replace(network.details, shared_links=convert(list[SharedTierEntry], tiers, "cloud"))
    )


def orders_of(cloud: Cloud, number: int, rng: np.random.Generator, disturbed: int = _DISTURBED) -> list[Order]:
    """Return orders that no model chose: racks and pods together, these after 1 to 2N swaps, and random ones."""
    n = len(cloud)
    swaps = np.unique(np.geomspace(1, 2 * n, max(2, disturbed)).round().astype(int))
    orders = []
    for k in range(number):
        hosts = rng.permutation(n)
        rack, pod = (rng.permutation(labels.max() + 1)[labels] for labels in (cloud.rack_of, cloud.pod_of))
        order = hosts[np.lexsort((rack[hosts], pod[hosts]))]
        if k >= _TOGETHER + disturbed:
            order = rng.permutation(n)
        elif k >= _TOGETHER:
            for _ in range(int(swaps[(k - _TOGETHER) % len(swaps)])):
                i, j = rng.integers(n, size=2)
                order[[i, j]] = order[[j, i]]
        orders.append(order.astype(np.intp))
    return orders


def options_for(algo: str, cloud: Cloud, together: Order) -> Options:
    """Return the options: BCube of base 4 where the number of hosts allows it, 2LHA with as many ranks a group as racks
    have hosts."""
    labels = cloud.rack_of[together]
    groups = [np.flatnonzero(labels == label).tolist() for label in dict.fromkeys(labels.tolist())]
    quarters = round(np.log(len(cloud)) / np.log(4))
    base = 4 if 4**quarters == len(cloud) else 2
    return Options(base=base if algo == "bcube" else 2, groups=groups if algo == "2lha" else None)


def rank_correlation(predicted: Sequence[float], simulated: Sequence[float], ties: float = 0.0) -> float:
    """Return Spearman's rho; times within a share of each other are ties. 1 where all simulated times are one tie."""
    both = [with_ties(values, ties) for values in (predicted, simulated)]
    if np.ptp(both[1]) == 0:
        return 1.0
    return 0.0 if np.ptp(both[0]) == 0 else round(float(spearmanr(*both).statistic), 4)
