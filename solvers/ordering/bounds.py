"""Lower bounds of the cost of every rank order.

By rounds (:func:`pattern_bound`, :func:`hypercube_bound`), and, whatever executes a collective, by what links and
messages need at least (:func:`link_bound`). An algorithm fixes what each rank sends to each other one. So a host sends
no less than the rank that sends least, and a group of hosts no less than the set of as many ranks that sends the others
least; none of it takes less than its bytes over the capacity. And a message that waits for another one begins when that
has arrived. Both hold for any rates at which transfers share links, and for any waiting beside that for data. They are
not added up: bytes of one message may flow in the latency of another.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from plink.model.schedule import dependencies
from solvers.costs.by_name import MESH, SIMULATED, engine_slices, parts_of, pattern_for, time_in_slices
from solvers.costs.evaluator import NO_MESSAGES, pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector
from solvers.costs.least_time import least_time_on
from solvers.costs.patterns import Pattern
from solvers.ordering.crossing import least_of_clusters, rates_of_hosts
from solvers.ordering.one_tree import ring_bound, two_connected_threshold
from solvers.ordering.problem import RINGS, OrderingProblem, OrderingResult
from solvers.schedules.catalogue import schedule_for

LINKS, CUTS = "links", "cuts"
_ROUNDED_DOWN = 1 - 1e-9  # relative errors of sums of thousands of shares are smaller
_MAX_UNITS = 1024  # of which every number is priced as a group; more take seconds
_MAX_CHAINED_HOPS = 50_000  # whose dependencies are followed; more take seconds
Ints = npt.NDArray[np.int64]


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
    :func:`solvers.ordering.ring.ring_lower_bound`.

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


def _depth(pattern: Pattern) -> int:
    """Return the number of hops in the longest chain."""
    depth: dict[int, int] = {}
    for level in pattern.chain:
        ends = [*level.starts[1:].tolist(), len(level.waits)]
        for hop_id, start, end in zip(level.places.tolist(), level.starts.tolist(), ends, strict=True):
            depth[hop_id] = 1 + max((depth[k] for k in level.waits[start:end].tolist()), default=0)
    return max(depth.values(), default=0)


def with_link_bound(
    result: OrderingResult, problem: OrderingProblem, keep_going: Callable[[], bool] = lambda: True
) -> OrderingResult:
    """Return the result with :func:`link_bound` where that is greater than its own bound."""
    return result.with_bound(link_bound(problem, keep_going), CUTS if problem.algo == MESH else LINKS)


def link_bound(problem: OrderingProblem, keep_going: Callable[[], bool] = lambda: True) -> float | None:
    """Return a lower bound of the time of every order, microseconds; None under ``latency``, which knows no bytes.

    The model says what limits transfers: the pairs (``alpha-beta``), links of hosts and groups (``contention`` by
    rounds), or both (``simulated``, by which also orders under ``contention`` are chosen). Constraints of the orders
    are left out.

    :param keep_going: whether there is time for a better bound.
    """
    if problem.model == "latency" or len(problem.hosts) < 2:
        return None
    if problem.algo == MESH:
        from solvers.ordering.mesh_bounds import cut_bound  # it imports Numba

        return cut_bound(problem) * _ROUNDED_DOWN
    return sum(
        weight * problem.fabric.with_library_us(name, problem.size_bytes, _bound(problem, name, keep_going))
        for weight, name in parts_of(problem.algo, problem.size_bytes, problem.fabric)
    )


def _bound(problem: OrderingProblem, name: str, keep_going: Callable[[], bool]) -> float:
    fabric = problem.fabric
    least = least_time_on(fabric, problem.baseline) if problem.options.tree is not None else None
    if least is not None:  # masters are made for each order
        return least.us_per_byte * problem.size_bytes * _ROUNDED_DOWN
    pattern = pattern_for(name, len(problem.baseline), problem.priced_options)
    traffic_us = _traffic_bound(problem, pattern)
    if name in RINGS and problem.model == "contention":  # rounds take what links need and the mean latency
        rtt_us = fabric.rtt_us[np.ix_(problem.hosts, problem.hosts)]
        mean_us = ring_bound(rtt_us / 2, keep_going) / pattern.ranks
        traffic_us += float(pattern.repeat.sum()) * mean_us
    if name in RINGS:
        traffic_us = max(traffic_us, _slowest_hop(problem, pattern.ranks))
    slices = 1 if problem.model == "alpha-beta" else engine_slices(name, problem.options, fabric, problem.size_bytes)
    whole_us = max(_chain_bound(problem, name, pattern, keep_going), traffic_us)
    # Those of slices count where all prices are in slices: a search by rounds has the vector whole.
    messages_us = pattern.messages.us(fabric.overhead_us) if problem.model == SIMULATED else NO_MESSAGES
    return time_in_slices(whole_us, traffic_us, 0.0, slices, messages_us) * _ROUNDED_DOWN


def _traffic_bound(problem: OrderingProblem, pattern: Pattern) -> float:
    """Return what the hosts and groups need at least for what they send and receive, microseconds."""
    fabric, hosts = problem.fabric, problem.hosts
    slots = problem.feasible.slots
    unit = math.gcd(*slots[hosts].tolist())  # ranks that no order parts; a host has whole ones
    units, number = slots // unit, len(problem.baseline) // unit
    source, target, moved = sent = _exchanges(pattern, unit, problem.size_bytes)
    bound = 0.0
    directions = sent, (target, source, moved)
    for rates, exchanges in zip(rates_of_hosts(fabric, hosts, problem.model), directions, strict=True):
        for size in np.unique(units[hosts]).tolist():
            least = np.sort(_least_of_windows(*exchanges, number, size))
            own = np.sort(rates[units[hosts] == size])
            # The windows that send least on the slowest hosts: no assignment does better in the worst of the quotients.
            bound = max(bound, float((least[: len(own)] / own).max()))
    if problem.model != "alpha-beta":
        leaving = least_leaving(sent, number, problem.size_bytes)
        for tier in fabric.tiers:
            members = np.bincount(tier.group_of, units, len(tier.out_gbps)).astype(np.int64)
            bound = max(bound, float((leaving[members] / tier.out_gbps).max()))
            bound = max(bound, float((leaving[number - members] / tier.in_gbps).max()))
    return bound / BYTES_PER_US


def _exchanges(pattern: Pattern, unit: int, size_bytes: float) -> tuple[Ints, Ints, Vector]:
    """Return what each unit of ranks sends another one: two units and bytes, shape (E,), each pair once."""
    n = -(-pattern.ranks // unit)
    if pattern.all_to_all_share:
        source, target = np.nonzero(~np.eye(n, dtype=bool))
        moved = unit * unit * pattern.all_to_all_share * float(pattern.repeat.sum()) * size_bytes
        return source, target, np.full(len(source), moved)
    pairs = (pattern.source // unit) * n + pattern.target // unit
    keys, place = np.unique(pairs, return_inverse=True)
    totals = np.bincount(place, pattern.share * pattern.repeat[pattern.round] * size_bytes)
    away = keys // n != keys % n
    return keys[away] // n, keys[away] % n, totals[away]


def _least_of_windows(source: Ints, target: Ints, moved: Vector, number: int, size: int) -> Vector:
    """Return the bytes that leave each window of ``size`` consecutive units, shape (number - size + 1,)."""
    leaving = np.convolve(np.bincount(source, moved, number), np.ones(size), "valid")
    first, last = np.minimum(source, target), np.maximum(source, target)
    inside = last - first < size  # of the windows that begin from last - size + 1 to first
    begin, end = np.maximum(last - size + 1, 0)[inside], np.minimum(first, number - size)[inside] + 1
    steps = np.bincount(begin, moved[inside], number + 1) - np.bincount(end, moved[inside], number + 1)
    return np.asarray(np.maximum(leaving - np.cumsum(steps)[: len(leaving)], 0.0))


def least_leaving(sent: tuple[Ints, Ints, Vector], number: int, size_bytes: float) -> Vector:
    """Return the least bytes that any set of k units sends to the others, shape (number + 1,), k from 0; or less.

    Of an all-reduce: what a set adds up is of use to the others, so it sends each chunk once at least. Where more goes
    from every unit to another one, as in a ring, no set sends less than that.

    :param sent: unit that sends bytes to another one, each pair once; three of shape (E,).
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    source, target, moved = sent
    leaving = np.full(number + 1, float(size_bytes))
    graph = coo_array((np.ones(len(source)), (source, target)), shape=(number, number))
    if connected_components(graph, connection="strong")[0] == 1:
        np.maximum(leaving, moved.min(), out=leaving)
    if number <= _MAX_UNITS:
        table = np.zeros((number, number))
        table[source, target] = moved
        np.maximum(leaving, least_of_clusters(table), out=leaving)
    leaving[[0, -1]] = 0.0
    return leaving


def _slowest_hop(problem: OrderingProblem, ranks: int) -> float:
    """Return what the slowest hop of a ring needs at least for its blocks, one after the other, microseconds."""
    us_per_byte = 1 / (_flow_gbps(problem.fabric, problem.model)[np.ix_(problem.hosts, problem.hosts)] * BYTES_PER_US)
    whole = 2 * (ranks - 1) / ranks * problem.size_bytes * np.minimum(us_per_byte, us_per_byte.T)
    return two_connected_threshold(whole) if len(problem.hosts) > 2 else float(whole[0, 1])


def _chain_bound(problem: OrderingProblem, name: str, pattern: Pattern, keep_going: Callable[[], bool]) -> float:
    """Return what messages that wait for each other need at least, microseconds."""
    fabric, hosts, ranks = problem.fabric, problem.hosts, pattern.ranks
    apart = ~np.eye(len(hosts), dtype=bool)
    us_per_byte = 1 / (_flow_gbps(fabric, problem.model)[np.ix_(hosts, hosts)] * BYTES_PER_US)
    latency = fabric.rtt_us[np.ix_(hosts, hosts)] / 2 + fabric.overhead_us
    if name in RINGS:
        # Each block goes 2 (N - 1) hops. Over all blocks every hop has the same number, and a block's mean time is that
        # of so many mean hops.
        hops, share = 2 * (ranks - 1), float(pattern.share.min())
        block = np.minimum(*(each := latency + share * problem.size_bytes * us_per_byte, each.T))
        return hops / ranks * ring_bound(np.where(apart, block, 0.0), keep_going)
    if problem.model == "contention" and pattern.timing == "pipeline" and len(hosts) < ranks:
        return 0.0  # a mean of hops, of which some are within hosts
    shortest, fastest = float(latency[apart].min()), float(us_per_byte[apart].min())
    if pattern.all_to_all_share:
        hop = shortest + pattern.all_to_all_share * problem.size_bytes * fastest
        return hop * float(pattern.repeat.sum())
    hops_of_round = np.bincount(pattern.round, minlength=len(pattern.repeat))
    if float(hops_of_round @ pattern.repeat) > _MAX_CHAINED_HOPS:
        return 0.0
    schedule = schedule_for(name, ranks, problem.priced_options)
    # Ranks of one host are consecutive: these two may be on one, and then exchange in no time.
    slots = problem.feasible.slots[hosts]
    if len(set(slots.tolist())) == 1:
        crosses = schedule.source // slots[0] != schedule.target // slots[0]
    else:
        crosses = np.abs(schedule.source - schedule.target) >= slots.max()
    takes = shortest + schedule.count * (problem.size_bytes / schedule.chunks * fastest)
    takes = np.where(crosses, takes, 0.0)
    offsets, needed = dependencies(schedule)
    done = np.zeros(len(schedule) + 1)  # the last one is of no transfer
    for part in schedule.round_slices():
        for k in range(part.start, part.stop):
            done[k] = takes[k] + max(done[needed[offsets[k] : offsets[k + 1]]], default=0.0)
    return float(done.max())


def _flow_gbps(fabric: Fabric, model: str) -> Matrix:
    """Return the most that one flow gets, Gbit/s, shape (N, N); without a limit where that is not known."""
    if model == "alpha-beta":
        return np.nan_to_num(pair_rates(fabric), nan=np.inf, posinf=np.inf)
    if fabric.paths is not None:
        rates = fabric.paths.pair_gbps()
    else:
        rates = np.minimum(fabric.host_out_gbps[:, None], fabric.host_in_gbps[None, :])
    for tier in fabric.tiers:
        crosses = tier.group_of[:, None] != tier.group_of[None, :]
        shared = np.minimum(tier.out_gbps[tier.group_of][:, None], tier.in_gbps[tier.group_of][None, :])
        rates = np.where(crosses, np.minimum(rates, shared), rates)
    if model == SIMULATED and fabric.pair_gbps is not None:
        rates = np.fmin(rates, fabric.pair_gbps)
    return np.asarray(rates)
