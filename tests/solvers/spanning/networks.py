"""Networks of tiers for tests of schedules on spanning trees."""

import numpy as np
import numpy.typing as npt

from solvers.spanning.tier_tree import TierTree, tree_of

Labels = npt.NDArray[np.intp]
Rates = npt.NDArray[np.float64]


def tree(labels: list[list[int]], rates: list[tuple[Rates, Rates]]) -> TierTree:
    """The tree of hosts below the groups of these labels, with rates (out, in) from the hosts up."""
    every = [np.arange(len(rates[0][0])), *(np.array(label, dtype=np.intp) for label in labels)]
    names = [[f"{kind}-{k}" for k in range(len(r[0]))] for kind, r in zip(("host", "rack", "pod"), rates, strict=False)]
    return tree_of(every, rates, names)


def uneven(seed: int) -> TierTree:
    """16 to 64 hosts in racks of 1 to 12, two or three tiers, oversubscribed 1 to 8 times; rates differ by host (1:2:4,
    or from 1 to 4), by rack, or by one slow host."""
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(16, 65))
    rack = np.repeat(np.arange(hosts), rng.integers(1, 13, hosts))[:hosts]
    gbps = 10.0 * [
        rng.choice([1, 2, 4], hosts), rng.choice([1, 2, 4], hosts)[rack], np.ones(hosts), rng.uniform(1, 4, hosts),
    ][seed % 4]  # fmt: skip
    if seed % 4 == 2:
        gbps[rng.integers(hosts)] *= rng.choice([0.5, 0.25])
    labels, rates = [rack, rack // 3][: 1 + seed % 2], [(gbps, gbps)]
    for label in labels:
        fastest = np.zeros(label.max() + 1)
        np.maximum.at(fastest, label, gbps)
        capacity = np.maximum(np.bincount(label, gbps) / rng.uniform(1, 8, len(fastest)), fastest)
        rates.append((capacity, capacity))
    return tree([label.tolist() for label in labels], rates)


def small(hosts: int, seed: int, symmetric: bool) -> tuple[list[list[int]], list[tuple[Rates, Rates]]]:
    """Labels of two tiers and rates of 4 or 5 hosts, racks and pods, out as in or apart."""
    rng = np.random.default_rng(seed)
    rack = np.sort(rng.integers(0, hosts - 1, hosts))
    rack = np.unique(rack, return_inverse=True)[1]
    labels = [rack.tolist(), (rack // 2).tolist()]
    rates = []
    for number in (hosts, int(rack.max()) + 1, int(rack.max()) // 2 + 1):
        out = rng.uniform(1, 10, number)
        rates.append((out, out if symmetric else rng.uniform(1, 10, number)))
    return labels, rates
