"""Plans of two-level aggregation: weights of groups and ranks, costs of masters, and the schedule of a plan."""

import contextlib
from collections import Counter
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer, UsageError
from plink.model.network import Matrix
from plink.model.plan import Plan
from plink.model.schedule import Schedule, forward_and_reverse
from solvers.costs.by_name import CONTENTION, SIMULATED, closed_form_in_slices, engine_slices
from solvers.costs.fabric import Fabric, Vector
from solvers.costs.least_time import tier_tree
from solvers.costs.patterns import masters_pattern
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.hierarchical import two_level_reduce_scatter
from solvers.schedules.masters import Groups, Indices, Weights, equal_chunks, size_weights, work_weights
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.cost import check_transfers, needs_closed_form
from solvers.spanning.tier_tree import regrouped

WEIGHTS = ("sizes", "bandwidth", "least-time")
Order = npt.NDArray[np.intp]


def bandwidth_weights(fabric: Fabric, order: npt.NDArray[np.intp], groups: Groups) -> Weights:
    """Weights for Quicktune's proportions (PLink thesis, 4.2.3), in Gbit/s.

    A rank weighs ``b_i / slots_i``, b_i its host's rate: the mean of what was measured with every other host, sending
    or receiving, whichever is slower, for a master gets as much as it sends. A group weighs the sum over its members
    of their rates to hosts outside the group, and no more than its share of the links it goes out by, where those were
    measured: a link of which the group has half the hosts counts half.

    The thesis adds up ``BW(m, n)`` over all n outside instead of taking the mean: then a group of s hosts, all rates
    equal, would weigh s (N - s), and two groups always the same, whatever their sizes; the mean gives s.

    :param order: shape (N,), the host at each rank.
    :raises UsageError: when no bandwidth was measured.
    """
    if fabric.pair_gbps is None and not fabric.measured:
        raise UsageError(
            "--weights bandwidth: the network holds no bandwidths; `plink probe HOSTS --bandwidth` measures them"
        )
    slots = np.bincount(order, minlength=len(fabric.names)).astype(np.float64)
    everyone = np.unique(order)
    rank_weights = _rates(fabric, everyone, everyone)[order] / slots[order]
    group_weights = []
    for group in groups:
        members, number = np.unique(order[np.asarray(group)], return_counts=True)
        outside = np.setdiff1d(everyone, members)
        # Of a host whose ranks stand in two groups each has its part.
        part = number / slots[members]
        rates = _rates(fabric, members, outside if len(outside) else everyone)[members] * part
        group_weights.append(_through_shared_links(fabric, members, part, rates))
    return Weights(np.array(group_weights), rank_weights)


def _rates(fabric: Fabric, hosts: npt.NDArray[np.intp], peers: npt.NDArray[np.intp]) -> Vector:
    """The mean rate of these hosts with their peers, Gbit/s, shape (number of all hosts,), 0 for other hosts; a host's
    own rate where no pair was measured."""
    own = np.minimum(*(ends.host_gbps() for ends in fabric.resources))
    rates = np.zeros(len(fabric.names))
    rates[hosts] = own[hosts]
    if fabric.pair_gbps is not None:
        pairs = fabric.pair_gbps.copy()
        np.fill_diagonal(pairs, np.nan)
        sent, got = _means(pairs[np.ix_(hosts, peers)]), _means(pairs[np.ix_(peers, hosts)].T)
        slower = np.fmin(sent, got)  # of one that is not a number: the other
        rates[hosts] = np.where(np.isfinite(slower), slower, own[hosts])
    return rates


def _means(rows: Matrix) -> Vector:
    """The mean of each row's numbers, NaN where it has none."""
    finite = np.isfinite(rows)
    number = finite.sum(axis=1)
    total = np.where(finite, rows, 0.0).sum(axis=1)
    means: Vector = np.divide(total, number, out=np.full(len(rows), np.nan), where=number > 0)
    return means


def _through_shared_links(fabric: Fabric, members: npt.NDArray[np.intp], part: Vector, rates: Vector) -> float:
    """The sum of the members' rates, as far as the links they share let it through; Gbit/s."""
    if not fabric.measured:
        return float(rates.sum())
    for tier in fabric.tiers:
        hosts, rates = np.bincount(tier.group_of, minlength=len(tier.out_gbps)), rates.copy()
        for shared in np.unique(tier.group_of[members]).tolist():
            here = tier.group_of[members] == shared
            total = float(rates[here].sum())
            capacity = float(min(tier.out_gbps[shared], tier.in_gbps[shared]) * part[here].sum() / hosts[shared])
            if total > capacity:
                rates[here] *= capacity / total
    return float(rates.sum())


def weights_by(name: str, fabric: Fabric, order: Order, groups: Groups) -> Weights:
    """The weights of that name (:data:`WEIGHTS`).

    ``least-time``: :func:`solvers.schedules.masters.work_weights`.

    :param order: shape (N,), the host at each rank. :raises UsageError: when they need rates and none were measured;
        for ``least-time`` also when a host has ranks in two groups.
    """
    if name == "least-time":
        tree = regrouped(tier_tree(fabric, order), groups)
        if tree is None:
            groups_of = Counter(host for group in groups for host in set(order[np.asarray(group)].tolist()))
            host = fabric.names[groups_of.most_common(1)[0][0]]
            raise UsageError(f"--weights least-time: {host} has ranks in two groups; a host belongs to one")
        return work_weights(tree, groups)
    return size_weights(groups) if name == "sizes" else bandwidth_weights(fabric, order, groups)


class AllReduce(NamedTuple):
    """One all-reduce whose cost is computed. ``order``, shape (N,): the host at each rank."""

    fabric: Fabric
    order: Order
    size_bytes: float
    model: str


def two_level_cost(groups: Groups, masters: tuple[Indices, Indices], request: AllReduce) -> float:
    """Microseconds of an all-reduce with these masters of equal chunks.

    :raises UsageError: for an unknown model or a size that is not positive.
    :raises NoAnswer: when a pair that is used was not measured.
    """
    pattern = masters_pattern(groups, *masters)
    slices = engine_slices("2lha", Options(), request.fabric, request.size_bytes)
    if request.model == SIMULATED:
        check_transfers("2lha", pattern)
    if request.model == SIMULATED or (request.model == CONTENTION and not needs_closed_form(pattern)):
        schedule = forward_and_reverse(two_level_reduce_scatter(groups, *masters))
        collective = PreparedCollective.of(schedule)
        return collective.run(request.fabric, request.order, request.size_bytes, slices=slices).makespan_us
    slices = slices if request.model == CONTENTION else 1
    return closed_form_in_slices(pattern, slices, request.fabric, request.size_bytes, request.model)(request.order)


def random_groups_median(
    groups: Groups, chunks: int, weights: str, request: AllReduce, seed: int, draws: int = 20
) -> float | None:
    """The median cost of groups of as many hosts each, dealt at random, their masters chosen by the same rule (the
    thesis's Balanced Random, 4.2.1); None where too little was measured to compute the cost of one of them.

    :param chunks: of equal size. :param weights: one of :data:`WEIGHTS`.
    """
    rng, order = np.random.default_rng(seed), request.order
    group_of = np.empty(len(order), dtype=np.intp)
    for number, group in enumerate(groups):
        group_of[np.asarray(group)] = number
    hosts, first, rank_host = np.unique(order, return_index=True, return_inverse=True)
    costs = []
    for _ in range(draws):
        labels = rng.permutation(group_of[first])[rank_host]
        drawn = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
        masters = equal_chunks(drawn, chunks, weights_by(weights, request.fabric, order, drawn))
        with contextlib.suppress(NoAnswer):
            costs.append(two_level_cost(drawn, masters, request))
    return float(np.median(costs)) if costs and len(hosts) > 1 else None


def schedule_of(plan: Plan) -> Schedule:
    """The plan's schedule: the one it holds, or made again from its masters, or from its algorithm and options.

    :raises UsageError: for an algorithm or an option that there is none of.
    """
    if plan.schedule is not None:
        return plan.schedule
    if plan.masters is not None and plan.groups is not None:
        group_of = np.empty(plan.ranks, dtype=np.int32)
        for number, group in enumerate(plan.groups):
            group_of[list(group)] = number
        return forward_and_reverse(
            two_level_reduce_scatter(plan.groups, plan.masters.local_masters, group_of[plan.masters.global_masters])
        )
    options: dict[str, Any] = plan.options
    strange = set(options) - {field.name for field in fields(Options) if field.name != "slots"}
    if strange:
        raise UsageError(f"the plan's options: there is no {min(strange)}")
    slots = {host.slots for host in plan.hosts if host.slots}
    return schedule_for(plan.algo, plan.ranks, Options(**options, slots=slots.pop() if len(slots) == 1 else 1))
