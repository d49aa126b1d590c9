"""Orders for which only the round trips of a ring count: a ring of hosts, turned to where its ranks are wanted."""

from dataclasses import replace

import numpy as np

from plink.errors import UsageError
from plink.model.network import Matrix
from solvers.costs.closed_forms import Pricing
from solvers.ordering.progress import Progress, SearchBudget
from solvers.ordering.ring import EXACT, Ring, search_bottleneck, search_ring
from solvers.ordering.seats import Seats
from solvers.ordering.task import Found, Order, Task, with_slots

_APART = 10  # times the longest hop: what a hop between groups costs on top, so that a ring enters each of them once
_EPSILON = 1e-9


def can_turn(seats: Seats) -> bool:
    """Whether a ring can be turned so that it suits: groups alone, or one pin alone."""
    if seats.pins and seats.groups is not None:
        return False
    return len(seats.pins) == 0 or (len(seats.pins) == 1 and len(set(seats.slots[seats.hosts].tolist())) == 1)


def ring_order(task: Task, start: Found, price: Pricing, seed: int, budget: SearchBudget) -> Found:
    """Ranks of one host follow each other at no cost: a ring of ranks is a ring of hosts."""
    hosts = task.hosts
    cost, apart = with_tolls(task)
    bottleneck = start.objective == "bottleneck"
    if bottleneck and apart:
        raise UsageError("--objective bottleneck: not with --groups")

    def less(progress: Progress) -> bool:
        bound = progress.lower_bound
        return budget.watch(
            replace(progress, cost=progress.cost - apart, lower_bound=None if bound is None else bound - apart)
        )

    ring = (search_bottleneck if bottleneck else search_ring)(cost, seed, replace(budget, watch=less))
    order = ordered(task, hosts[ring.order])
    found = price(order)
    bound, by = _ring_bound(ring, bottleneck, apart)
    if apart:  # no ring through groups costs less than any ring
        bound = max(bound, bound_of_any_ring(task))
    also = {"sum": ring.cost, "sum_lower_bound": ring.lower_bound} if bottleneck else {
        "bottleneck": ring.longest, "bottleneck_lower_bound": ring.longest_bound
    }  # fmt: skip
    if apart:
        also = {}
    allowed = np.array_equal(task.seats.arrange(hosts.tolist()), task.given)
    if not bottleneck and allowed and found >= start.given - _EPSILON * abs(start.given):
        order, found = task.given, start.given
    return replace(start, order=order, cost=found, lower_bound=bound, bound_by=by, moves=ring.kicks, also=also)


def _ring_bound(ring: Ring, bottleneck: bool, apart: float) -> tuple[float, str]:
    every = len(ring.order) <= EXACT
    if bottleneck:
        return ring.longest_bound, "all rings" if every else "2-connected threshold"
    return max(0.0, ring.lower_bound - apart), "all rings" if every else "1-tree"


def with_tolls(task: Task) -> tuple[Matrix, float]:
    """Costs between hosts, hops between groups dearer by so much that a ring enters every group once, and what all the
    hops between groups cost too much."""
    hosts, seats = task.hosts, task.seats
    cost = task.fabric.rtt_us[np.ix_(hosts, hosts)]
    if seats.groups is None or len(seats.groups) < 2:
        return cost, 0.0
    group = np.array([seats.group_of[host] for host in hosts.tolist()])
    toll = _APART * float(cost.max())
    return cost + toll * (group[:, None] != group[None, :]), toll * len(seats.groups)


def ordered(task: Task, ring: Order) -> Order:
    """The ring from where the wishes want it to begin."""
    seats = task.seats
    if seats.pins:
        (host, rank), each = next(iter(seats.pins.items())), int(seats.slots[ring[0]])
        ring = np.roll(ring, rank // each - int(np.flatnonzero(ring == host)[0]))
    elif seats.groups is not None and len(seats.groups) > 1:
        group = np.array([seats.group_of[host] for host in ring.tolist()])
        enters = np.flatnonzero(group != np.roll(group, 1))
        if len(enters) > len(seats.groups):  # no ring through all groups one by one was found: hardly any time was left
            ring = np.array(sorted(ring.tolist(), key=lambda host: seats.group_of[host]), dtype=np.intp)
        else:
            ring = np.roll(ring, -int(enters[0]))
    return with_slots(ring, seats.slots)


def bound_of_any_ring(task: Task) -> float:
    """What no ring costs less than, wherever its hosts have to sit."""
    from solvers.ordering.one_tree import ring_bound

    return ring_bound(task.fabric.rtt_us[np.ix_(task.hosts, task.hosts)])
