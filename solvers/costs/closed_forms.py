"""Prices of many orders, fast: everything that does not depend on the order is worked out once.

What comes out is what :func:`solvers.costs.evaluator.evaluate` says of the schedule (to rounding), for the same three
models, in microseconds instead of seconds of computing: gathers and sums over the pattern's hops.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from solvers.costs.evaluator import check, pair_rates
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector
from solvers.costs.patterns import Pattern

Order = npt.NDArray[np.intp]
Pricing = Callable[[Order], float]


def closed_form(pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> Pricing:
    """A function that prices an order (the host at each rank, shape (N,)) in microseconds.

    It raises :class:`plink.errors.NoAnswer` for an order that uses a pair which was not measured.

    :raises UsageError: for an unknown model or a size that is not positive.
    """
    check(pattern.ranks, np.arange(pattern.ranks), size_bytes, model)
    if pattern.everyone:
        return _everyone(pattern, fabric, size_bytes, model)
    price = {"latency": _latency, "alpha-beta": _alpha_beta, "contention": _contention}[model](
        pattern, fabric, size_bytes
    )
    option = " --bandwidth" if model == "alpha-beta" else ""

    def priced(order: Order) -> float:
        cost = price(order)
        if cost != cost:
            _complain(pattern, fabric, order, option)
        return cost

    return priced


def _complain(pattern: Pattern, fabric: Fabric, order: Order, option: str) -> None:
    source, target = order[pattern.source], order[pattern.target]
    fabric.require(fabric.rtt_us[source, target], source, target, "")
    fabric.require(pair_rates(fabric)[source, target], source, target, option)


class _Longest:
    """The longest hop of every round: each pair of ranks once a round, for round trips are symmetric."""

    def __init__(self, pattern: Pattern, fabric: Fabric) -> None:
        low, high = np.minimum(pattern.source, pattern.target), np.maximum(pattern.source, pattern.target)
        keys = np.unique((pattern.round * pattern.ranks + low) * pattern.ranks + high)
        self._low = keys // pattern.ranks % pattern.ranks
        self._high = keys % pattern.ranks
        rounds = keys // (pattern.ranks * pattern.ranks)
        self._starts = np.searchsorted(rounds, np.arange(len(pattern.repeat)))
        self._rtt, self._n = fabric.rtt_us.ravel(), len(fabric.names)

    def __call__(self, order: Order) -> Vector:
        """Microseconds, shape (R,)."""
        hops = self._rtt.take(order[self._low] * self._n + order[self._high])
        longest: Vector = np.maximum.reduceat(hops, self._starts)
        return longest


def _latency(pattern: Pattern, fabric: Fabric, size_bytes: float) -> Pricing:
    rtt, n = fabric.rtt_us.ravel(), len(fabric.names)
    if pattern.pace == "rounds":
        longest, there = _Longest(pattern, fabric), pattern.there
        used = there > 0
        return lambda order: float(longest(order)[used] @ there[used])
    if pattern.pace == "pipeline":
        links = np.unique(pattern.source * pattern.ranks + pattern.target)
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


def _alpha_beta(pattern: Pattern, fabric: Fabric, size_bytes: float) -> Pricing:
    n, rounds = len(fabric.names), len(pattern.repeat)
    longest, repeat = _Longest(pattern, fabric), pattern.repeat
    rates = pair_rates(fabric) * BYTES_PER_US
    with np.errstate(divide="ignore"):
        us_per_byte = 1.0 / rates
    np.fill_diagonal(us_per_byte, 0.0)  # ranks of one host
    slow, moved, offset = us_per_byte.ravel(), pattern.share * size_bytes, pattern.round * n

    def price(order: Order) -> float:
        source, target = order[pattern.source], order[pattern.target]
        busy = slow.take(source * n + target) * moved
        sending = np.bincount(offset + source, busy, rounds * n).reshape(rounds, n).max(axis=1)
        receiving = np.bincount(offset + target, busy, rounds * n).reshape(rounds, n).max(axis=1)
        return float((longest(order) / 2 + np.maximum(sending, receiving)) @ repeat)

    return price


def _contention(pattern: Pattern, fabric: Fabric, size_bytes: float) -> Pricing:
    n, groups, rounds = len(fabric.names), len(fabric.group_out_gbps), len(pattern.repeat)
    longest, repeat = _Longest(pattern, fabric), pattern.repeat
    moved, by_host, by_group = pattern.share * size_bytes, pattern.round * n, pattern.round * groups
    bytes_per_us = [
        rate * BYTES_PER_US
        for rate in (fabric.host_out_gbps, fabric.host_in_gbps, fabric.group_out_gbps, fabric.group_in_gbps)
    ]

    def price(order: Order) -> float:
        source, target = order[pattern.source], order[pattern.target]
        leaves, enters = fabric.group_of[source], fabric.group_of[target]
        away = np.where(source == target, 0.0, moved)
        crossing = np.where(leaves == enters, 0.0, moved)
        took = longest(order) / 2
        worst = np.zeros(rounds)
        for key, weight, width, rate in (
            (by_host + source, away, n, bytes_per_us[0]),
            (by_host + target, away, n, bytes_per_us[1]),
            (by_group + leaves, crossing, groups, bytes_per_us[2]),
            (by_group + enters, crossing, groups, bytes_per_us[3]),
        ):
            load = np.bincount(key, weight, rounds * width).reshape(rounds, width) / rate
            np.maximum(worst, load.max(axis=1), out=worst)
        return float((took + worst) @ repeat)

    return price


def _everyone(pattern: Pattern, fabric: Fabric, size_bytes: float, model: str) -> Pricing:
    """All pairs of ranks: only how many ranks a host has plays a part, and in most jobs that is one."""
    moved, repeat = pattern.everyone * size_bytes, float(pattern.repeat.sum())
    out, into, group_out, group_in = (
        rate * BYTES_PER_US
        for rate in (fabric.host_out_gbps, fabric.host_in_gbps, fabric.group_out_gbps, fabric.group_in_gbps)
    )

    def price(order: Order) -> float:
        hosts, number = np.unique(order, return_counts=True)
        block = np.ix_(hosts, hosts)
        rtt = fabric.rtt_us[block]
        if np.isnan(rtt).any():
            a, b = (hosts[ends] for ends in np.nonzero(np.isnan(rtt)))
            fabric.require(fabric.rtt_us[a, b], a, b, "")
        longest = float(rtt.max())
        if model == "latency":
            return longest * float(pattern.there.sum())
        if model == "alpha-beta":
            rates = pair_rates(fabric)[block]
            away = np.outer(number, number) * moved * ~np.eye(len(hosts), dtype=bool)
            if np.isnan(np.where(away > 0, rates, 0.0)).any():
                a, b = (hosts[ends] for ends in np.nonzero(np.isnan(rates) & (away > 0)))
                fabric.require(np.full(len(a), np.nan), a, b, " --bandwidth")
            busy = np.divide(away, rates * BYTES_PER_US, out=np.zeros_like(away), where=away > 0)
            worst = max(float(busy.sum(axis=0).max()), float(busy.sum(axis=1).max()))
        else:
            host_load = number * (pattern.ranks - number) * moved
            members = np.bincount(fabric.group_of[hosts], number, len(group_out))
            group_load = members * (pattern.ranks - members) * moved
            worst = max(
                float((load / rate).max())
                for load, rate in (
                    (host_load, out[hosts]), (host_load, into[hosts]), (group_load, group_out), (group_load, group_in)
                )
            )  # fmt: skip
        return (longest / 2 + worst) * repeat

    return price
