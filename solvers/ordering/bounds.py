"""Lower bounds of the cost of every rank order."""

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector
from solvers.costs.patterns import Pattern


def hypercube_bound(rtt_us: Matrix, base: int, rounds: int) -> float:
    """Return a lower bound of ``sum over rounds of the longest hop`` for halving-doubling (base 2) and BCube.

    Take the j rounds with the shortest longest hops, and t the longest of them. Every host has j (base - 1) different
    partners within t. And these rounds alone connect the hosts into blocks of base^j by hops within t. So the connected
    components of the hosts, by pairs within t, consist of such blocks: their sizes are multiples of base^j. Hence t is
    at least the least t_j for which both hold, and the sum at least the sum of t_1 to t_rounds. On racks of a power of
    the base without noise the best order costs just that.

    :param rtt_us: shape (N, N), N = base^rounds, symmetric, complete, no two hosts at a distance of 0.
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
    indivisible = np.zeros(rounds + 1, dtype=np.int64)  # how many components have a size that is no multiple of base^j
    indivisible[1:] = n

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = int(parent[k])
        return k

    powers = base ** np.arange(rounds + 1)
    connected_at = np.full(rounds + 1, np.inf)
    for edge in by_length.tolist():
        a, b = root(int(tree.row[edge])), root(int(tree.col[edge]))
        indivisible -= (size[a] % powers != 0).astype(np.int64) + (size[b] % powers != 0)
        parent[b] = a
        size[a] += size[b]
        indivisible += size[a] % powers != 0
        connected_at = np.where((indivisible == 0) & np.isinf(connected_at), tree.data[edge], connected_at)
    partners_at = [float(nearest[:, j * (base - 1) - 1].max()) for j in range(1, rounds + 1)]
    return float(np.maximum(connected_at[1:], partners_at).sum())


def pattern_bound(
    pattern: Pattern, fabric: Fabric, size_bytes: float, model: str, hosts: npt.NDArray[np.intp]
) -> float:
    """Return a lower bound for patterns with one rank a host.

    Every round has a hop as long as the worst host's nearest partners, and each host sends and receives what its rank
    does. Not for a pipeline under ``latency``, which has no rounds:
    :func:`solvers.ordering.ring_orders.ring_lower_bound`.

    :param hosts: shape (N,), those that have a rank, each one rank.
    """
    n, rounds = pattern.ranks, len(pattern.repeat)
    rtt = fabric.rtt_us[np.ix_(hosts, hosts)]
    nearest = np.sort(rtt + np.diag(np.full(n, np.inf)), axis=1)
    key = pattern.round * n
    low, high = np.minimum(pattern.source, pattern.target), np.maximum(pattern.source, pattern.target)
    pairs = np.unique((key + low) * n + high)
    round_of, low, high = pairs // (n * n), pairs // n % n, pairs % n
    partners = np.bincount(round_of * n + low, minlength=rounds * n) + np.bincount(
        round_of * n + high, minlength=rounds * n
    )
    busiest_first = np.sort(partners.reshape(rounds, n), axis=1)[:, ::-1]
    # In any order some host has the busiest rank of a round. If all ranks have partners the worst host counts, else
    # only the best host is certain to.
    longest = np.zeros(rounds)
    for r in range(rounds):
        if busiest_first[r, -1] > 0:
            longest[r] = nearest[:, busiest_first[r, -1] - 1].max()
        elif busiest_first[r, 0] > 0:
            longest[r] = nearest[:, busiest_first[r, 0] - 1].min()
    if model == "latency":
        if pattern.timing == "chain":
            return float(max((longest.max(initial=0.0)), _depth(pattern) * nearest[:, 0].min()))
        return float(longest @ pattern.reduce_repeat)
    sent_bytes = pattern.share * size_bytes
    worst = np.zeros(rounds)
    rates = rates_of_hosts(fabric, hosts, model)
    for ends, rate in zip((pattern.source, pattern.target), rates, strict=True):
        load = np.bincount(key + ends, sent_bytes, rounds * n).reshape(rounds, n)
        # The largest loads on the fastest hosts: no assignment does better in the worst of the quotients.
        quotient = np.sort(load, axis=1) / (np.sort(rate)[None, :] * BYTES_PER_US)
        np.maximum(worst, quotient.max(axis=1), out=worst)
    if model == "contention" and pattern.timing == "pipeline":
        longest = np.full(rounds, nearest[:, 0].min())  # the mean of all hops counts
    return float((longest / 2 + worst) @ pattern.repeat)


def rates_of_hosts(fabric: Fabric, hosts: npt.NDArray[np.intp], model: str) -> tuple[Vector, Vector]:
    """Return the most that each host sends, and receives, by a model with bytes, Gbit/s, two of shape (H,)."""
    rate_out, rate_in = (ends.host_gbps()[hosts] for ends in fabric.resources)
    if model == "alpha-beta" and fabric.pair_gbps is not None:
        # A pair without a measured rate might be fast; a host sends nothing to itself, whatever its diagonal says.
        pair = np.nan_to_num(fabric.pair_gbps[np.ix_(hosts, hosts)], nan=np.inf)
        np.fill_diagonal(pair, 0.0)
        rate_out, rate_in = pair.max(axis=1), pair.max(axis=0)
        if fabric.paths is not None:  # interfaces send side by side, none faster than the best pair
            interfaces = np.bincount(fabric.paths.host_of)[hosts]
            rate_out, rate_in = rate_out * interfaces, rate_in * interfaces
    return rate_out, rate_in


def _depth(pattern: Pattern) -> int:
    """Return the number of hops in the longest chain."""
    depth: dict[int, int] = {}
    for level in pattern.chain:
        ends = [*level.starts[1:].tolist(), len(level.waits)]
        for hop_id, start, end in zip(level.places.tolist(), level.starts.tolist(), ends, strict=True):
            depth[hop_id] = 1 + max((depth[k] for k in level.waits[start:end].tolist()), default=0)
    return max(depth.values(), default=0)
