"""A job as a graph of tasks: transfers and computations, what each one waits for, and the resources it uses.

Those of a network are what hosts send and receive by themselves, and what groups of every tier share.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from solvers.costs.fabric import BYTES_PER_US, Fabric, no_way_between

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Hosts = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Resources:
    """L resources, each shared max-min fairly by the tasks that use it, and R routes over them.

    ``capacity``, shape (L,): amount per microsecond (bytes of a link, seconds of work of a processor); infinite where
    it never limits. ``routes``, shape (R, P): the resources of a route, padded by -1. ``limit``, shape (R,): the most
    that one task on the route takes by itself, infinite where only resources limit it. ``names``, length L: for errors.
    """

    capacity: Vector
    routes: Integers
    limit: Vector
    names: tuple[str, ...] = ()

    def name(self, resource: int) -> str:
        """What a resource is called in errors."""
        return self.names[resource] if self.names else f"resource {resource}"


@dataclass(frozen=True)
class Tasks:
    """M tasks, in an order in which ties are broken.

    ``route``, shape (M,): over which resources ``amount``, shape (M,), is moved or worked off; an amount of 0 takes no
    time. ``lead_us``, ``lag_us``, shape (M,): time before the first and after the last of it, in which the task uses no
    resource (handshakes, latency). ``after``: the tasks that each one waits for, as (offsets of shape (M + 1,), tasks
    of shape (E,)). ``before_lag``, shape (E,): which of these it waits for only until their amount is done, not for
    their lag (a sender does not see its bytes arrive); None: of none.
    ``queue``, shape (M,): tasks of one queue use their resources one after the other (a connection, a processor's
    kernel stream), the lowest ``priority`` first, then the lowest number; -1: no queue. The queue goes on when the
    amount is done, before the lag. ``describe``: a task's name in errors, by its number.
    """

    route: Integers
    amount: Vector
    lead_us: Vector
    lag_us: Vector
    after: tuple[Integers, Integers]
    queue: Integers
    priority: Integers
    describe: Callable[[int], str] = "task {}".format
    before_lag: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.route)


@dataclass(frozen=True)
class CapacityChanges:
    """Capacities that change: at ``at_us[k]``, rising, ``resource[k]`` has ``capacity[k]``; shapes (K,)."""

    at_us: Vector = field(default_factory=lambda: np.zeros(0))
    resource: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    capacity: Vector = field(default_factory=lambda: np.zeros(0))


def amounts_moved(resources: Resources, tasks: Tasks) -> Vector:
    """Return the amount that each resource carries in the whole job, shape (L,)."""
    by_route = np.bincount(tasks.route, tasks.amount, len(resources.routes))
    used = resources.routes >= 0
    weights = np.broadcast_to(by_route[:, None], used.shape)[used]
    return np.bincount(resources.routes[used], weights, len(resources.capacity)).astype(np.float64)


def busiest_us(resources: Resources, tasks: Tasks) -> float:
    """Return for how long the busiest resource, or the queue with the slowest flow, works in the whole job."""
    queued, of_flows = tasks.queue >= 0, tasks.amount / resources.limit[tasks.route]
    by_queue = np.bincount(tasks.queue[queued], of_flows[queued])
    by_resource = amounts_moved(resources, tasks) / resources.capacity
    return float(max(by_resource.max(initial=0.0), by_queue.max(initial=0.0)))


def dependents_of(tasks: Tasks) -> tuple[Integers, Integers, Integers]:
    """Return the tasks that wait for each one, as (offsets of shape (M + 1,), middles of shape (M,), tasks): those from
    an offset to its middle wait for the amount alone, those from there to the next offset for the lag, too."""
    offsets, needed = tasks.after
    number = len(offsets) - 1
    early = np.zeros(len(needed), np.bool_) if tasks.before_lag is None else tasks.before_lag
    waiting = np.repeat(np.arange(number), np.diff(offsets))
    order = np.argsort(2 * needed + ~early, kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(needed, minlength=number))]).astype(np.int64)
    middles = begins[:-1] + np.bincount(needed[early], minlength=number)
    return begins, middles.astype(np.int64), waiting[order].astype(np.int64)


def resources_between(fabric: Fabric, source: Hosts, target: Hosts) -> tuple[Resources, Integers, Vector]:
    """The resources that flows from source to target use.

    :param source: shape (M,), the host that each flow comes from, ``target`` where it goes; flows within a host use
        none.
    :returns: resources in bytes per microsecond; the route of each flow, shape (M,); its latency, shape (M,).
    :raises NoAnswer: when a round trip is not known, or nothing gets through.
    """
    n = len(fabric.names)
    pairs, route = np.unique(source.astype(np.int64) * n + target, return_inverse=True)
    a, b = pairs // n, pairs % n
    latency = np.where(a == b, 0.0, fabric.rtt_us[a, b] / 2)
    if np.isnan(latency).any():
        k = int(np.flatnonzero(np.isnan(latency))[0])
        raise no_way_between(fabric.names, int(a[k]), int(b[k]), fabric.blocked)
    capacity: list[Vector] = []
    names: list[str] = []
    columns: list[Integers] = []
    first = 0
    for ends, way in zip(fabric.resources, ("out", "in"), strict=True):
        capacity.append(ends.gbps)
        names += [f"{name}, {way}" for name in ends.names]
        columns += [np.where((a == b) | (hop < 0), -1, first + hop) for hop in ends.of(a, b)]
        first += len(ends)
    for number, tier in enumerate(fabric.tiers, 1):
        groups = len(tier.out_gbps)
        crosses = tier.group_of[a] != tier.group_of[b]
        columns.append(np.where(crosses, first + tier.group_of[a], -1))
        columns.append(np.where(crosses, first + groups + tier.group_of[b], -1))
        capacity += [tier.out_gbps, tier.in_gbps]
        names += [name for way in ("out of", "into") for name in tier.link_names(fabric.names, number, way)]
        first += 2 * groups
    limit = np.full(len(pairs), np.inf) if fabric.pair_gbps is None else fabric.pair_gbps[a, b].copy()
    limit[(a == b) | np.isnan(limit)] = np.inf
    resources = Resources(
        np.concatenate(capacity) * BYTES_PER_US,
        np.stack(columns, axis=1).astype(np.int64),
        limit * BYTES_PER_US,
        tuple(names),
    )
    return resources, route.astype(np.int64), latency[route]
