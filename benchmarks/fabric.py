"""A data centre that exists on paper: racks in pods, a round-trip time for every pair, noise that belongs to the pair.

Nothing is stored per pair: the noise of (i, j) is a hash of the seed and the pair, so that 10,000 hosts cost no more
memory than the pairs that are asked for, and asking twice, or in another order, gives the same answer.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]


@dataclass(frozen=True)
class SimulatedFabric:
    """``rack`` and ``pod``, shape (N,): where each host stands. ``tiers_us``: round trip in a rack, in a pod, beyond.

    ``offset_us``, shape (N,): what a host adds to each of its round trips (its own slowness). ``noise``: sigma of
    the lognormal factor every pair has; with ``one_way`` each direction of a pair has a factor of its own.
    """

    rack: Integers
    pod: Integers
    tiers_us: tuple[float, float, float]
    offset_us: Floats
    noise: float
    one_way: bool
    seed: int

    def __len__(self) -> int:
        return len(self.rack)

    def true_us(self, i: Integers, j: Integers) -> Floats:
        """Return round trip without noise; ``i`` and ``j`` broadcast, i != j."""
        near, middle, far = self.tiers_us
        tier = np.where(self.rack[i] == self.rack[j], near, np.where(self.pod[i] == self.pod[j], middle, far))
        return np.asarray(tier + self.offset_us[i] + self.offset_us[j], dtype=np.float64)

    def rtt_us(self, i: Integers, j: Integers) -> Floats:
        """Return round trip as it is measured from ``i`` to ``j``."""
        first, second = (i, j) if self.one_way else (np.minimum(i, j), np.maximum(i, j))
        uniform = _uniform((np.uint64(self.seed) << np.uint64(40)) + np.asarray(first * len(self) + second, np.uint64))
        return self.true_us(i, j) * np.exp(self.noise * ndtri(uniform))


def three_tier(
    n: int,
    seed: int,
    *,
    rack_size: int = 16,
    racks_per_pod: int = 8,
    tiers_us: tuple[float, float, float] = (30.0, 60.0, 110.0),
    noise: float = 0.10,
    offset_us: float = 0.0,
    uneven: bool = False,
    one_way: bool = False,
) -> SimulatedFabric:
    """``n`` hosts, dealt to their racks at random so that a host's number says nothing about its place.

    :param uneven: racks hold between half and one and a half times ``rack_size``, rather than all the same.
    :param offset_us: scale of the exponentially distributed offset each host adds to its round trips.
    """
    rng = np.random.default_rng(seed)
    sizes: list[int] = []
    while sum(sizes) < n:
        size = int(rng.integers(rack_size // 2, rack_size * 3 // 2 + 1)) if uneven else rack_size
        sizes.append(min(size, n - sum(sizes)))
    rack = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return SimulatedFabric(
        rack=rack,
        pod=rack // racks_per_pod,
        tiers_us=tiers_us,
        offset_us=rng.exponential(offset_us, n) if offset_us else np.zeros(n),
        noise=noise,
        one_way=one_way,
        seed=seed,
    )


def _uniform(key: npt.NDArray[np.uint64]) -> Floats:
    """Numbers in (0, 1) that depend on the key alone (the finaliser of SplitMix64, Steele et al., OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        z = (key + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)).astype(np.float64) + 0.5) / float(1 << 53)
