"""Branch and bound over rank orders: the cheapest of all that are allowed, for any algorithm under any model.

Hosts take ranks one after the other, the lowest rank first. What a cost model adds up or takes the maximum of never
shrinks while ranks are filled: longest hops, loads of hosts and groups, chains. So the cost of what is placed is a
lower bound of every order that begins like this, and a beginning is left as soon as its bound is no less than the best
cost. A hop with one end placed takes at least the round trip to the nearest host, a host sends and receives what its
ranks do, whoever the others are, and the slowest host without a rank takes the least of the remaining ones. Children
are tried by bound, lowest first. Of orders that a symmetry of the pattern makes equal, one is tried
(:func:`solvers.ordering.smt.ordered_ranks`).
"""

from dataclasses import dataclass

import numpy as np

from solvers.costs.by_name import parts_of, pattern_for
from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US
from solvers.costs.patterns import Pattern
from solvers.ordering.branch_kernels import (
    Allowed,
    Chains,
    HostTables,
    PlacedState,
    PlacedTransfers,
    search_beginnings,
)
from solvers.ordering.objectives import chain_of
from solvers.ordering.problem import Order, OrderingProblem
from solvers.ordering.smt import ordered_ranks

_MAX_WORK = 150_000_000  # transfers and rounds evaluated: five seconds
_UNKNOWN = 1e30  # microseconds a byte between hosts without a measured rate


@dataclass(frozen=True)
class CheapestOrder:
    """The cheapest order, shape (N,), how many beginnings were evaluated, and whether no allowed order is cheaper."""

    order: Order
    moves: int
    is_optimal: bool


def cheapest_order(problem: OrderingProblem, start: Order, start_cost: float) -> CheapestOrder:
    """Return the cheapest allowed order of a few hosts, or ``start`` where none is cheaper.

    :param start: shape (N,), an allowed order. :param start_cost: what it costs.
    """
    names = parts_of(problem.algo, problem.size_bytes, problem.fabric)
    patterns = [(weight, pattern_for(name, len(start), problem.priced_options)) for weight, name in names]
    transfers, chains = _transfers_of(patterns, problem), _chains_of(patterns, problem)
    hosts = _hosts_of(problem)
    allowed = _allowed_of(problem, [pattern for _, pattern in patterns])
    n, rounds, local = len(allowed.slots), len(transfers.longest), problem.hosts
    in_round = np.bincount(transfers.round, transfers.bytes, rounds)
    unit = in_round * max(hosts.group_out.max(initial=0.0), hosts.group_in.max(initial=0.0))
    by_round, by_child = (n + 1, rounds), (n + 1, n)
    state = PlacedState(
        longest=np.zeros(by_round),
        busiest=np.zeros(by_round),
        powers=np.zeros(by_round),
        sending=np.zeros((*by_round, len(hosts.interface_out))),
        receiving=np.zeros((*by_round, len(hosts.interface_in))),
        out=np.zeros((*by_round, len(hosts.group_out))),
        into=np.zeros((*by_round, len(hosts.group_out))),
        each=np.zeros(n + 1),
        done=np.zeros(len(chains.source)),
        used=np.zeros(n, dtype=np.int8),
        unit=np.where(unit > 0, unit, 1.0),
        child=np.zeros(by_child, dtype=np.int64),
        bound=np.zeros(by_child),
        count=np.zeros(n + 1, dtype=np.int64),
        tried=np.zeros(n + 1, dtype=np.int64),
        begin=np.zeros(n + 1, dtype=np.int64),
        lacks=np.zeros(n + 1, dtype=np.int64),
    )
    state.longest[0] = np.where(np.bincount(transfers.round, minlength=rounds) > 0, hosts.floor_us, 0.0)
    state.each[0] = transfers.each.sum() * hosts.floor_us
    by_number = np.argsort(local)
    best = by_number[np.searchsorted(local, start, sorter=by_number)].astype(np.int64)
    tables, order = (transfers, chains, hosts, allowed), np.zeros(len(start), dtype=np.int64)
    moves, is_optimal = search_beginnings(tables, state, order, best, (start_cost, _MAX_WORK))
    return CheapestOrder(local[best], int(moves), bool(is_optimal))


def _transfers_of(patterns: list[tuple[float, Pattern]], problem: OrderingProblem) -> PlacedTransfers:
    """Return the transfers of all parts as the model counts them; see :mod:`solvers.costs.closed_forms`."""
    rounds, columns = 0, []
    for weight, pattern in patterns:
        if problem.model == "latency" and pattern.timing == "chain":
            continue
        repeat = pattern.reduce_repeat if problem.model == "latency" else pattern.repeat
        source, target, number, moved = (
            pattern.source,
            pattern.target,
            pattern.round,
            pattern.share * problem.size_bytes,
        )
        each, longest, busiest = np.zeros(len(source)), repeat * weight, np.zeros(len(repeat))
        if problem.model != "latency":
            longest, busiest = longest / 2, repeat * weight
        if pattern.timing == "pipeline" and problem.model == "contention":
            hops = np.maximum(1, np.bincount(number, minlength=len(repeat)))
            each, longest = (longest / hops)[number], np.zeros(len(repeat))
        elif pattern.timing == "pipeline" and problem.model == "latency":
            links = np.unique((source * pattern.ranks + target)[repeat[number] > 0])
            source, target, number = links // pattern.ranks, links % pattern.ranks, np.zeros(len(links), dtype=np.intp)
            each, longest, moved = np.full(len(links), weight), np.zeros(len(repeat)), np.zeros(len(links))
        columns.append((rounds + number, source, target, moved, each, longest, busiest))
        rounds += len(repeat)
    empty = (np.zeros(0, dtype=np.intp),) * 3 + (np.zeros(0),) * 4
    number, source, target, moved, each, longest, busiest = (
        np.concatenate(c) for c in zip(empty, *columns, strict=True)
    )
    if problem.model == "latency":
        moved = np.zeros(len(number))
    n = len(problem.baseline)
    ranks, one_each = np.arange(n + 1), len(problem.hosts) == n
    least = np.zeros((3, rounds, n + 1))
    loading, counted = moved * (one_each and problem.fabric.paths is None), np.full(len(number), float(one_each))
    for table, end, amount in ((0, source, loading), (1, target, loading), (2, source, counted), (2, target, counted)):
        np.add.at(least[table], (number, end), amount)
    # From a rank on: the least of those above; there is none above the last.
    least[:, :, :-1] = np.minimum.accumulate(least[:, :, -2::-1], axis=2)[:, :, ::-1]
    later, earlier = np.maximum(source, target), np.minimum(source, target)
    by_later, by_earlier = (np.argsort(end, kind="stable") for end in (later, earlier))
    return PlacedTransfers(
        number.astype(np.int64),
        source.astype(np.int64),
        target.astype(np.int64),
        moved,
        each,
        longest,
        busiest,
        by_later,
        np.searchsorted(later[by_later], ranks).astype(np.int64),
        by_earlier,
        np.searchsorted(earlier[by_earlier], ranks).astype(np.int64),
        *least,
    )


def _chains_of(patterns: list[tuple[float, Pattern]], problem: OrderingProblem) -> Chains:
    for weight, pattern in patterns:
        if problem.model == "latency" and pattern.timing == "chain":
            chain = chain_of(pattern, problem.fabric.rtt_us)
            return Chains(chain.source, chain.target, chain.wait_ptr, chain.waits, weight)
    none = np.zeros(0, dtype=np.int64)
    return Chains(none, none, np.zeros(1, dtype=np.int64), none, 0.0)


def _hosts_of(problem: OrderingProblem) -> HostTables:
    fabric, local = problem.fabric, problem.hosts
    pairs, n, one_each = np.ix_(local, local), len(local), len(local) == len(problem.baseline)
    rtt = np.ascontiguousarray(fabric.rtt_us[pairs])
    others = rtt + np.diag(np.full(n, np.inf))
    out, into = fabric.resources
    no_paths, ones = np.zeros((0, n, n), dtype=np.int32), np.ones((n, n))
    paths_out, paths_in = (
        no_paths if ends.paths is None else np.ascontiguousarray(ends.paths.take(local, 1).take(local, 2))
        for ends in (out, into)
    )
    interface_out, interface_in = (np.ones(n if ends.paths is None else len(ends)) for ends in (out, into))
    groups, group_out, group_in = np.zeros((0, n), dtype=np.int64), np.zeros(0), np.zeros(0)
    if problem.model == "alpha-beta":
        slow_out = slow_in = np.nan_to_num(
            1 / (pair_rates(fabric)[pairs] * BYTES_PER_US), nan=_UNKNOWN, posinf=_UNKNOWN
        )
    elif problem.model == "contention" and out.paths is not None:
        slow_out = slow_in = ones
        interface_out, interface_in = (1 / (ends.gbps * BYTES_PER_US) for ends in (out, into))
    else:
        slow_out = ones / (out.gbps[local] * BYTES_PER_US)[:, None]
        slow_in = ones / (into.gbps[local] * BYTES_PER_US)[None, :]
    if problem.model == "contention":
        first = np.cumsum([0, *(len(tier.out_gbps) for tier in fabric.tiers[:-1])])
        groups = np.stack([begin + tier.group_of[local] for begin, tier in zip(first, fabric.tiers, strict=True)])
        group_out, group_in = (
            1 / (np.concatenate([getattr(tier, way) for tier in fabric.tiers]) * BYTES_PER_US)
            for way in ("out_gbps", "in_gbps")
        )
    apart = np.diag(np.full(n, np.inf))
    return HostTables(
        rtt,
        others.min(axis=1),
        float(others.min()) if one_each else 0.0,
        np.ascontiguousarray(slow_out),
        np.ascontiguousarray(slow_in),
        (slow_out + apart).min(axis=1),
        (slow_in + apart).min(axis=0),
        paths_out,
        paths_in,
        interface_out,
        interface_in,
        np.ascontiguousarray(groups, dtype=np.int64),
        group_out,
        group_in,
    )


def _allowed_of(problem: OrderingProblem, patterns: list[Pattern]) -> Allowed:
    feasible, local, ranks = problem.feasible, problem.hosts.tolist(), len(problem.baseline)
    pin = np.array([feasible.pinned_ranks.get(host, -1) for host in local], dtype=np.int64)
    pinned = np.full(ranks + 1, -1, dtype=np.int64)
    pinned[pin[pin >= 0]] = np.flatnonzero(pin >= 0)
    group = np.array([feasible.group_of[host] for host in local], dtype=np.int64)
    slots = feasible.slots[local].astype(np.int64)
    group_ranks, group_size = np.bincount(group, slots).astype(np.int64), np.zeros(ranks + 1, dtype=np.int64)
    names = (name for _, name in parts_of(problem.algo, problem.size_bytes, problem.fabric))
    if "2lha" in names:  # its groups are of ranks
        sizes = group_ranks[list(dict.fromkeys(group.tolist()))]
        group_size[np.cumsum(sizes) - sizes] = sizes
    ordered = ordered_ranks(patterns, problem.model) if feasible.unconstrained and len(local) == ranks else []
    smaller, larger = (np.array([pair[k] for pair in ordered], dtype=np.int64) for k in (0, 1))
    return Allowed(slots, group, pin, pinned, group_ranks, group_size, smaller, larger)
