"""What no order can cost less than."""

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.fabric import BYTES_PER_US, Fabric
from solvers.costs.patterns import Pattern


def hypercube_bound(rtt_us: Matrix, base: int, rounds: int) -> float:
    """A lower bound of ``sum over rounds of the longest hop`` for halving-doubling (base 2) and BCube, N = base^rounds.

    Take the j rounds with the shortest longest hops, and t the longest of them. Every host has j (base - 1) different
    partners within t. And these rounds alone tie the hosts into blocks of base^j whose members are connected by hops
    within t, so each connected component of the hosts, with only pairs within t joined, falls into such blocks: its
    size is a multiple of base^j. Hence t is at least the least t_j for which both are so, and the sum at least the sum
    of t_1 to t_rounds. On racks of a power of the base without noise this is what the best order takes.

    :param rtt_us: shape (N, N), symmetric, complete, no two hosts at a distance of 0.
    """
    from scipy.sparse.csgraph import minimum_spanning_tree

    n = len(rtt_us)
    assert n == base**rounds
    nearest = np.sort(rtt_us + np.diag(np.full(n, np.inf)), axis=1)
    # The components at every threshold are those of the minimum spanning tree: joined edge by edge, shortest first.
    tree = minimum_spanning_tree(np.maximum(rtt_us, 1e-12)).tocoo()
    by_length = np.argsort(tree.data, kind="stable")
    parent = np.arange(n)
    size = np.ones(n, dtype=np.int64)
    divides = np.zeros(rounds + 1, dtype=np.int64)  # how many components have a size that is no multiple of base^j
    divides[1:] = n

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = int(parent[k])
        return k

    powers = base ** np.arange(rounds + 1)
    tied = np.full(rounds + 1, np.inf)
    for edge in by_length.tolist():
        a, b = root(int(tree.row[edge])), root(int(tree.col[edge]))
        divides -= (size[a] % powers != 0).astype(np.int64) + (size[b] % powers != 0)
        parent[b] = a
        size[a] += size[b]
        divides += size[a] % powers != 0
        tied = np.where((divides == 0) & np.isinf(tied), tree.data[edge], tied)
    partners = [float(nearest[:, j * (base - 1) - 1].max()) for j in range(1, rounds + 1)]
    return float(np.maximum(tied[1:], partners).sum())


def pattern_bound(
    pattern: Pattern, fabric: Fabric, size_bytes: float, model: str, hosts: npt.NDArray[np.intp]
) -> float:
    """A lower bound for patterns of one rank a host: every round has a hop as long as the worst host's nearest
    partners, and each host sends and receives what its rank does. Not for a pipeline under ``latency``, which has no
    rounds: :func:`solvers.ordering.rings.bound_of_any_ring`.

    :param hosts: shape (N,), those that have a rank, each one rank.
    """
    n, rounds = pattern.ranks, len(pattern.repeat)
    rtt = fabric.rtt_us[np.ix_(hosts, hosts)]
    nearest = np.sort(rtt + np.diag(np.full(n, np.inf)), axis=1)
    key = pattern.round * n
    low, high = np.minimum(pattern.source, pattern.target), np.maximum(pattern.source, pattern.target)
    pairs = np.unique((key + low) * n + high)
    when, low, high = pairs // (n * n), pairs // n % n, pairs % n
    partners = np.bincount(when * n + low, minlength=rounds * n) + np.bincount(when * n + high, minlength=rounds * n)
    busy = np.sort(partners.reshape(rounds, n), axis=1)[:, ::-1]
    # Whoever stands where: the k-th busiest rank of a round has a host, and some k hosts have those ranks. All ranks
    # busy alike: the worst host counts; else only the best one could be spared.
    longest = np.zeros(rounds)
    for r in range(rounds):
        if busy[r, -1] > 0:
            longest[r] = nearest[:, busy[r, -1] - 1].max()
        elif busy[r, 0] > 0:
            longest[r] = nearest[:, busy[r, 0] - 1].min()
    if model == "latency":
        if pattern.pace == "chain":
            return float(max((longest.max(initial=0.0)), _depth(pattern) * nearest[:, 0].min()))
        return float(longest @ pattern.there)
    moved = pattern.share * size_bytes
    rate_out, rate_in = fabric.host_out_gbps[hosts], fabric.host_in_gbps[hosts]
    if model == "alpha-beta" and fabric.pair_gbps is not None:
        # A pair whose rate is not known might be fast; a host sends nothing to itself, whatever stands there.
        pair = np.nan_to_num(fabric.pair_gbps[np.ix_(hosts, hosts)], nan=np.inf)
        np.fill_diagonal(pair, 0.0)
        rate_out, rate_in = pair.max(axis=1), pair.max(axis=0)
    worst = np.zeros(rounds)
    for ends, rate in ((pattern.source, rate_out), (pattern.target, rate_in)):
        load = np.bincount(key + ends, moved, rounds * n).reshape(rounds, n)
        # The largest loads on the fastest hosts: no assignment does better in the worst of the quotients.
        pairing = np.sort(load, axis=1) / (np.sort(rate)[None, :] * BYTES_PER_US)
        np.maximum(worst, pairing.max(axis=1), out=worst)
    return float((longest / 2 + worst) @ pattern.repeat)


def _depth(pattern: Pattern) -> int:
    """How many hops the longest chain has."""
    depth: dict[int, int] = {}
    for level in pattern.chain:
        ends = [*level.starts[1:].tolist(), len(level.waits)]
        for place, start, end in zip(level.places.tolist(), level.starts.tolist(), ends, strict=True):
            depth[place] = 1 + max((depth[k] for k in level.waits[start:end].tolist()), default=0)
    return max(depth.values(), default=0)
