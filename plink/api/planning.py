"""From a network to a plan: the order, the groups, the masters, what they cost and what they are compared with."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from plink.api.algorithms import Given, fabric_from, groups_in, options_in, options_of, order_from
from plink.api.constraints import RequestedGroups, check_number, constraints_from
from plink.errors import InputError, NoAnswer, UsageError
from plink.model.network import Network
from plink.model.order import RankOrder
from plink.model.plan import Masters, Plan
from plink.model.schedule import Indices, Schedule
from solvers.costs.by_name import model_for, pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.master_patterns import masters_pattern
from solvers.costs.patterns import Pattern, all_to_all_pattern
from solvers.grouping.cluster import cluster
from solvers.ordering.problem import expand_slots
from solvers.planning.pricing import WEIGHTS, AllReduce, random_groups_median, two_level_cost, weights_by
from solvers.planning.schedules import schedule_of
from solvers.schedules.catalogue import ALGORITHMS
from solvers.schedules.masters import equal_chunks

MOST_CHUNKS = 100_000
_log = logging.getLogger("plink.plan")
_NAMED = 4
MOST_TRANSFERS = 100_000  # of a schedule that a plan's file holds: 8 MB
# Chunks a rank where weights differ: numbers of chunks are whole, so that a rank's part is right to an eighth.
_FINE = 8
_MPI = "OMPI_MCA_coll_tuned_"
# What makes the library that an algorithm is named after run that algorithm.
LIBRARY_ENVIRONMENT = {
    "nccl-ring": {"NCCL_ALGO": "Ring"},
    "nccl-tree": {"NCCL_ALGO": "Tree"},
    **{
        f"openmpi-{name}": {f"{_MPI}use_dynamic_rules": "1", f"{_MPI}allreduce_algorithm": number}
        for name, number in (("recursive-doubling", "3"), ("ring", "4"), ("rabenseifner", "6"))
    },
}

Ranks = npt.NDArray[np.intp]


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is asked for. ``order``: None: ranks as the hosts stand, or groups one after the other;
    ``order_from`` names it in errors. ``groups``: the names of the hosts in each, or how many; None: those the order
    was found for, else the square root of the number of hosts; ``groups_from`` names them in errors. ``chunks`` and
    ``weights`` None: plink chooses. ``options``: of the algorithm."""

    algo: str = "2lha"
    size_bytes: float = 100e6
    model: str = "auto"
    order: RankOrder | None = None
    order_from: str = "order"
    groups: RequestedGroups | None = None
    groups_from: str = "groups"
    chunks: int | None = None
    weights: str | None = None
    options: Given = field(default_factory=dict)
    seed: int = 0
    denoise: bool = False

    def check(self) -> None:
        """Refuse what is wrong whatever the network says.

        :raises UsageError: saying what there is.
        """
        if self.algo not in ALGORITHMS:
            raise UsageError(f"--algo {self.algo}: there are {', '.join(ALGORITHMS)}")
        if self.algo != "2lha":
            for option in ("groups", "chunks", "weights"):
                if getattr(self, option) is not None:
                    raise UsageError(f"--{option} goes with --algo 2lha; {self.algo} has no masters")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: at least 0 is needed")
        if self.chunks is not None and (type(self.chunks) is not int or not 1 <= self.chunks <= MOST_CHUNKS):
            raise UsageError(f"--chunks {self.chunks}: 1 to {MOST_CHUNKS} are possible")
        if self.weights is not None and self.weights not in WEIGHTS:
            raise UsageError(f"--weights {self.weights}: there are {', '.join(WEIGHTS)}")
        options_of(self.options, [self.algo])


def plan(network: Network, request: PlanRequest | None = None, *, algo: str | None = None) -> Plan:
    """All that a job needs: order, groups, who aggregates which chunk, schedule and environment.

    :param algo: instead of that of ``request``.

    :raises UsageError, InputError: for what cannot be.
    :raises NoAnswer: when a pair that the plan uses was not measured.
    """
    asked = request or PlanRequest()
    if algo is not None:
        asked = replace(asked, algo=algo)
    asked.check()
    fabric = fabric_from(network, asked.denoise)
    model = model_for(asked.model, fabric)
    order = asked.order or RankOrder("given", tuple(network.hosts.names), network=network.fingerprint())
    ranks = order_from(network, order, asked.order_from)
    if asked.algo == "2lha":
        made = _two_level(network, asked, fabric, model, ranks, order)
        pattern = masters_pattern(made.groups or (), *masters_of(made))
    else:
        made, pattern = _one_level(network, asked, fabric, model, ranks, order)
    if asked.order is None:
        stand = "ranks as the hosts stand" if made.groups is None else "groups one after the other"
        _log.info("no order was given: %s", stand)
    schedule = _small_schedule(made, pattern)
    made = replace(made, rate_gbps=fabric.rate_gbps)
    return made if schedule is None else replace(made, schedule=schedule, chunks=schedule.chunks)


def _one_level(
    network: Network, asked: PlanRequest, fabric: Fabric, model: str, ranks: Ranks, order: RankOrder
) -> tuple[Plan, Pattern]:
    given = {**options_in(order, asked.order_from, asked.algo), **asked.options}
    options = options_of(given, [asked.algo])
    pattern = pattern_for(asked.algo, len(ranks), options)
    price = closed_form(pattern, fabric, asked.size_bytes, model)
    baseline = _priced(given=lambda: price(order_from(network, None)), flat=_flat(fabric, ranks, asked, model))
    plan = Plan(
        asked.algo, model, asked.size_bytes, order, order.arrange(network.hosts, "order"), None, round(price(ranks), 3),
        baseline=baseline, options=dict(given),
        environment=LIBRARY_ENVIRONMENT.get(asked.algo, {}), network=network.fingerprint(),
    )  # fmt: skip
    return plan, pattern


def _two_level(
    network: Network, asked: PlanRequest, fabric: Fabric, model: str, ranks: Ranks, order: RankOrder
) -> Plan:
    by = asked.weights or "sizes"
    groups = groups_in(order, asked.order_from, len(ranks)) if asked.groups is None else None
    groups_of_hosts = None
    if groups is None:
        groups_of_hosts = _groups_of_hosts(network, fabric, asked)
        if asked.order is None:  # the order is ours to choose: groups one after the other
            hosts = np.array([host for group in groups_of_hosts for host in group], dtype=np.intp)
            ranks = expand_slots(hosts, np.bincount(ranks, minlength=len(hosts)))
            order = replace(order, algo="2lha", hosts=tuple(fabric.names[host] for host in hosts))
        groups = [np.flatnonzero(np.isin(ranks, group)).tolist() for group in groups_of_hosts]
    weights = weights_by(by, fabric, ranks, groups)
    chunks = asked.chunks or len(ranks) * (1 if by == "sizes" else _FINE)
    local, global_group = masters = equal_chunks(groups, chunks, weights)
    all_reduce = AllReduce(fabric, ranks, asked.size_bytes, model)
    cost = two_level_cost(groups, masters, all_reduce)
    drawn = min(chunks, len(ranks) * _FINE)  # finer ones change the price by next to nothing
    random = random_groups_median(groups, drawn, by, all_reduce, asked.seed)
    baseline = _priced(flat=_flat(fabric, ranks, asked, model))
    if by != "sizes":
        plain = equal_chunks(groups, chunks)
        baseline["masters_by_sizes"] = round(two_level_cost(groups, plain, all_reduce), 3)
    if groups_of_hosts is None:
        _log.info("groups as %s has them", asked.order_from)
    if asked.order is None:
        order = replace(order, cost=round(cost, 3), details={"model": model, "size_bytes": asked.size_bytes})
    return Plan(
        asked.algo, model, asked.size_bytes, order, order.arrange(network.hosts, "order"), chunks, round(cost, 3),
        baseline=baseline | ({} if random is None else {"random_groups_median": round(random, 3)}),
        groups=tuple(tuple(group) for group in groups),
        masters=Masters(
            local, local[np.arange(chunks), global_group], by,
            *(tuple(float(f"{weight:.6g}") for weight in column) for column in (weights.groups, weights.ranks)),
        ),
        network=network.fingerprint(),
    )  # fmt: skip


def _groups_of_hosts(network: Network, fabric: Fabric, asked: PlanRequest) -> list[list[int]]:
    """The hosts of each group: those that are listed, or so many balanced ones, the square root of the number of hosts
    unless told (PLink thesis, 4.2.1).

    :raises UsageError, InputError: for more groups than hosts, or groups that are not of these hosts.
    :raises NoAnswer: when too little was measured to form groups.
    """
    number = len(network.hosts)
    if asked.groups is not None and not isinstance(asked.groups, int):
        groups = constraints_from({}, asked.groups, network.hosts, fabric.rtt_us, asked.groups_from).host_groups or []
        left = sorted(set(range(number)) - {host for group in groups for host in group})
        if left:
            raise InputError(asked.groups_from, f"{fabric.names[left[0]]} is in no group; every host belongs to one")
        return [list(group) for group in groups]
    if asked.groups is not None:
        check_number(asked.groups, number)
    found = cluster(network, asked.groups, seed=asked.seed)
    if found.left_out:
        names = ", ".join(fabric.names[host] for host in found.left_out[:_NAMED])
        more = ", ..." if len(found.left_out) > _NAMED else ""
        raise NoAnswer(f"nothing was measured of {names}{more}, which could be in any group; give --groups FILE")
    return found.groups


def _flat(fabric: Fabric, ranks: Ranks, asked: PlanRequest, model: str) -> Callable[[], float]:
    return lambda: closed_form(all_to_all_pattern(len(ranks)), fabric, asked.size_bytes, model)(ranks)


def _priced(**prices: Callable[[], float]) -> dict[str, float]:
    """The prices that there are: where pairs were not measured, some ways use them."""
    found = {}
    for name, price in prices.items():
        with contextlib.suppress(NoAnswer):
            found[name] = round(price(), 3)
    return found


def masters_of(plan: Plan) -> tuple[Indices, Indices]:
    """As :func:`solvers.schedules.masters.equal_chunks` gives them."""
    assert plan.masters is not None
    local = plan.masters.local_masters
    return local, np.argmax(local == plan.masters.global_masters[:, None], axis=1).astype(np.int32)


def _small_schedule(plan: Plan, pattern: Pattern) -> Schedule | None:
    """The plan's schedule, None where it is too large for a file (hops of a pattern are transfers, or more of them)."""
    hops = np.bincount(pattern.round, minlength=len(pattern.repeat)) if len(pattern.round) else 0.0
    if pattern.all_to_all_share:
        hops = np.full(len(pattern.repeat), float(plan.ranks * (plan.ranks - 1)))
    schedule = schedule_of(plan) if float(np.sum(hops * pattern.repeat)) <= MOST_TRANSFERS else None
    return None if schedule is None or len(schedule) > MOST_TRANSFERS else schedule
