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
