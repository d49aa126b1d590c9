"""Made-up clouds whose true round trips are known: racks in pods, or hosts that are all alike."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network, to_rows
from solvers.costs.fabric import Fabric, fabric_of

Labels = npt.NDArray[np.intp]
_RACK = (3, 20)  # hosts of an uneven rack, at least and at most
_PODS = (2, 6)  # racks of a pod
_DIGITS = 3  # as a file keeps round trips


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
        return Network(Hosts(members), np.sqrt(halves[0] * halves[1]), None, written | (details or {}))

    def fabric(self, rtt_us: Matrix | None = None) -> Fabric:
        """Return what the cost models are told, by the true round trips or by those given (shape (N, N), symmetric)."""
        exact = replace(self, sample_sigma=0.0)
        full = fabric_of(replace(exact.network(np.random.default_rng(0)), details={}))
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
