"""Fast costs of many orders: everything that does not depend on the order is computed once.

Results equal those of :func:`solvers.costs.evaluator.evaluate` (to rounding) for the same three models, in microseconds
instead of seconds of computing: gathers and sums over the pattern's hops.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.costs.evaluator import check, latest, pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector
from solvers.costs.patterns import Pattern

_MAX_UNIQUE_HOPS = 1 << 18  # hops: finding the pairs that come twice would take longer than they do

Order = npt.NDArray[np.intp]
CostFunction = Callable[[Order], float]


class CostProblem(NamedTuple):
    """What the cost of an order depends on besides the order; the arguments of :func:`closed_form`."""

    pattern: Pattern
    fabric: Fabric
    size_bytes: float
    model: str


def closed_form(pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> CostFunction:
    """Return a function of an order (the host at each rank, shape (N,)) to its cost in microseconds.

    It raises :class:`plink.errors.NoAnswer` for an order that uses a pair which was not measured.

    :raises UsageError: for an unknown model or a size that is not positive.
    """
    check(pattern.ranks, np.arange(pattern.ranks), size_bytes, model)
    has_messages = bool(fabric.overhead_us) and model != "latency"
    overhead_us = fabric.overhead_us * pattern.messages.rounds if has_messages else 0.0
    if pattern.all_to_all_share:
        all_to_all = _all_to_all(pattern, fabric, size_bytes, model)
        return lambda order: all_to_all(order) + overhead_us
    cost_of = {"latency": _latency, "alpha-beta": _alpha_beta, "contention": _contention}[model](
        pattern, fabric, size_bytes
    )
    option = " --bandwidth" if model == "alpha-beta" else ""

    def checked_cost(order: Order) -> float:
        cost = cost_of(order)
        if cost != cost:
            _raise_missing(pattern, fabric, order, option)
        return cost + overhead_us

    return checked_cost


def _raise_missing(pattern: Pattern, fabric: Fabric, order: Order, option: str) -> None:
    source, target = order[pattern.source], order[pattern.target]
    fabric.require(fabric.rtt_us[source, target], source, target, "")
    fabric.require(pair_rates(fabric)[source, target], source, target, option)


class _Longest:
    """The longest hop of every round: each pair of ranks once a round, for round trips are symmetric."""

    def __init__(self, pattern: Pattern, fabric: Fabric) -> None:
        self._low, self._high, self._starts = pattern.source, pattern.target, pattern.starts
        if len(pattern.source) < _MAX_UNIQUE_HOPS:
            low, high = np.minimum(pattern.source, pattern.target), np.maximum(pattern.source, pattern.target)
            keys = np.unique((pattern.round * pattern.ranks + low) * pattern.ranks + high)
            self._low = keys // pattern.ranks % pattern.ranks
            self._high = keys % pattern.ranks
            rounds = keys // (pattern.ranks * pattern.ranks)
            self._starts = np.searchsorted(rounds, np.arange(len(pattern.repeat))).astype(np.intp)
        self._rtt, self._n = fabric.rtt_us.ravel(), len(fabric.names)

    def __call__(self, order: Order) -> Vector:
        """Microseconds, shape (R,)."""
        hops = self._rtt.take(order[self._low] * self._n + order[self._high])
        longest: Vector = np.maximum.reduceat(hops, self._starts)
        return longest


def _latency(pattern: Pattern, fabric: Fabric, size_bytes: float) -> CostFunction:
    """T 5.2.1, c the symmetrised round trips, r the order.

    ``rounds``: ``sum over rounds of max over hops (a, b) of c[r_a, r_b]``, which for halving-doubling is ``sum_i max_j
    c[r_j, r_(j xor 2^i)]`` and for BCube ``sum_i max_j max_k c[r_j, r_(j + k B^i)]``. ``pipeline``: ``sum over hops``,
    the ring's ``sum_i c[r_i, r_(i-1)]``. ``chain``: ``T(hop) = c + max of T over the hops it waits for``, the thesis's
    ``T(i, j) = max over children of c[m, child] + T(child)``; the most expensive chain of all trees is the cost.
    """
    rtt, n = fabric.rtt_us.ravel(), len(fabric.names)
    if pattern.timing == "rounds":
        longest, reduce_repeat = _Longest(pattern, fabric), pattern.reduce_repeat
        counts = reduce_repeat > 0
        return lambda order: float(longest(order)[counts] @ reduce_repeat[counts])
    if pattern.timing == "pipeline":
        used = pattern.reduce_repeat[pattern.round] > 0  # the way back may go over other links
        links = np.unique((pattern.source * pattern.ranks + pattern.target)[used])
        source, target = links // pattern.ranks, links % pattern.ranks
        return lambda order: float(rtt.take(order[source] * n + order[target]).sum())
    size = 1 + max((int(level.places.max()) for level in pattern.chain), default=0)
    done = np.zeros(size)
    ends = [(level, level.edges // pattern.ranks, level.edges % pattern.ranks) for level in pattern.chain]

    def longest_path(order: Order) -> float:
        for level, source, target in ends:
            hops = rtt.take(order[source] * n + order[target])
            if len(level.waits):
                hops += np.maximum.reduceat(done[level.waits], level.starts)
            done[level.places] = hops
        return float(done.max())

    return longest_path


def _alpha_beta(pattern: Pattern, fabric: Fabric, size_bytes: float) -> CostFunction:
    """``sum over rounds of repeat * (max c / 2 + max over hosts of max(sending, receiving))``, where a host's sending
    is the sum over its transfers of the round of ``share * S / b[a, b]``: the schedule's formula, equal rounds once.
    Interfaces of a host send side by side."""
    n, rounds = len(fabric.names), len(pattern.repeat)
    longest, repeat = _Longest(pattern, fabric), pattern.repeat
    rates = pair_rates(fabric) * BYTES_PER_US
    with np.errstate(divide="ignore"):
        us_per_byte = 1.0 / rates
    np.fill_diagonal(us_per_byte, 0.0)  # ranks of one host
    slow, moved = us_per_byte.ravel(), pattern.share * size_bytes
    out, into = fabric.resources
    offset = pattern.round * len(out)

    def cost_of(order: Order) -> float:
        source, target = order[pattern.source], order[pattern.target]
        busy = slow.take(source * n + target) * moved
        sending = out.loads(rounds, offset, source, target, busy).max(axis=1)
        receiving = into.loads(rounds, offset, source, target, busy).max(axis=1)
        return float((longest(order) / 2 + np.maximum(sending, receiving)) @ repeat)

    return cost_of


def _contention(pattern: Pattern, fabric: Fabric, size_bytes: float) -> CostFunction:
    """``sum over rounds of repeat * (max c / 2 + max(hosts, groups))``: the largest of what hosts send or get over
    their rates, and :func:`solvers.costs.evaluator.latest` of what crosses group boundaries over their capacities.

    In a pipeline the mean of all c of a round counts: :func:`solvers.costs.evaluator.mean_latency`.
    """
    rounds = len(pattern.repeat)
    longest, repeat = _Longest(pattern, fabric), pattern.repeat
    out, into = fabric.resources
    moved, by_host = pattern.share * size_bytes, pattern.round * len(out)
    out_rate_of_host, in_rate_of_host = (hosts.gbps * BYTES_PER_US for hosts in (out, into))
    tiers = [
        (tier.group_of, pattern.round * len(tier.out_gbps), tier.out_gbps * BYTES_PER_US, tier.in_gbps * BYTES_PER_US)
        for tier in fabric.tiers
    ]
    in_pipeline = pattern.timing == "pipeline"
    hops = np.maximum(1, np.bincount(pattern.round, minlength=rounds))

    def loads(offset: Order, ends: Order, weight: Vector, rate: Vector) -> Vector:
        return np.bincount(offset + ends, weight, rounds * len(rate)).reshape(rounds, len(rate)) / rate

    def cost_of(order: Order) -> float:
        source, target = order[pattern.source], order[pattern.target]
        away = np.where(source == target, 0.0, moved)
        sending = out.loads(rounds, by_host, source, target, away) / out_rate_of_host
        receiving = into.loads(rounds, by_host, source, target, away) / in_rate_of_host
        shared = []
        for group_of, by_group, out_rate, in_rate in tiers:
            leaves, enters = group_of[source], group_of[target]
            crossing = np.where(leaves == enters, 0.0, moved)
            shared += [loads(by_group, leaves, crossing, out_rate), loads(by_group, enters, crossing, in_rate)]
        worst = np.maximum(sending.max(axis=1), receiving.max(axis=1))
        np.maximum(worst, latest(np.hstack(shared)), out=worst)
        if in_pipeline:
            waits = np.bincount(pattern.round, fabric.rtt_us[source, target] / 2, rounds)
            return float((waits / hops + worst) @ repeat)
        return float((longest(order) / 2 + worst) @ repeat)

    return cost_of


def _all_to_all(pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> CostFunction:
    """All pairs of ranks: only how many ranks each host has plays a part, so that most orders have the same cost."""
    cache: dict[bytes, float] = {}

    def cost_of(order: Order) -> float:
        number = np.bincount(order, minlength=len(fabric.names))
        key = number.tobytes()
        if key not in cache:
            cache.clear()
            cache[key] = _cost_of_all_to_all(pattern, fabric, size_bytes, model, number)
        return cache[key]

    return cost_of


def _cost_of_all_to_all(
    pattern: Pattern, fabric: Fabric, size_bytes: float, model: str, number: npt.NDArray[np.intp]
) -> float:
    """:param number: shape (N,), the ranks of each host."""
    hosts, moved = np.flatnonzero(number), pattern.all_to_all_share * size_bytes
    a, b = (axis.ravel() for axis in np.meshgrid(hosts, hosts, indexing="ij"))
    rtt = fabric.rtt_us.take(a * len(fabric.names) + b)
    fabric.require(rtt, a, b, "")
    longest = float(rtt.max())
    if model == "latency":
        return longest * float(pattern.reduce_repeat.sum())
    one_round, ranks_of_pair = np.zeros(len(a), dtype=np.intp), (number[a] * number[b]).astype(np.float64)
    if model == "alpha-beta":
        rates = np.where(a == b, np.inf, pair_rates(fabric).take(a * len(fabric.names) + b))
        fabric.require(rates, a, b, " --bandwidth")
        busy = np.divide(moved / BYTES_PER_US, rates).reshape(len(hosts), len(hosts))
        ranks = number[hosts].astype(np.float64)
        if fabric.paths is not None:
            each = busy.ravel() * ranks_of_pair
            loads = [ends.loads(1, one_round, a, b, each) for ends in fabric.resources]
            return (longest / 2 + max(float(load.max()) for load in loads)) * float(pattern.repeat.sum())
        worst = max(float((ranks * (busy @ ranks)).max()), float((ranks * (ranks @ busy)).max()))
    else:
        away = number * (pattern.ranks - number) * moved
        shared = []
        for tier in fabric.tiers:
            members = np.bincount(tier.group_of, number, len(tier.out_gbps))
            crossing = members * (pattern.ranks - members) * moved
            shared += [crossing / tier.out_gbps, crossing / tier.in_gbps]
        if fabric.paths is None:
            alone = max(float((away / rate).max()) for rate in (fabric.host_out_gbps, fabric.host_in_gbps))
        else:
            each = np.where(a == b, 0.0, ranks_of_pair * moved)
            alone = max(float((ends.loads(1, one_round, a, b, each) / ends.gbps).max()) for ends in fabric.resources)
        worst = max(alone, float(latest(np.hstack(shared)[None, :])[0])) / BYTES_PER_US
    return (longest / 2 + worst) * float(pattern.repeat.sum())


def ring_seconds(
    group_of: npt.NDArray[np.intp], order: npt.NDArray[np.intp], size_bytes: float, host_bps: float, uplink_bps: float
) -> float:
    """Seconds that the busiest link needs for a ring all-reduce.

    Every rank sends 2(N-1)/N of the data to its neighbour (Patarasuk and Yuan 2009); an uplink carries that once for
    every hop of the ring that leaves (as many enter) its group. Latency and the ends of the pipeline are left out.

    :param group_of: shape (N,), the group of every host; :param order: shape (N,), the host at each rank.
    """
    n = len(order)
    if n < 2:
        return 0.0
    sent_bits = 8 * size_bytes * 2 * (n - 1) / n
    groups = group_of[order]
    leaving = np.bincount(groups[groups != np.roll(groups, -1)], minlength=1)
    return float(sent_bits * max(1 / host_bps, leaving.max() / uplink_bps))
