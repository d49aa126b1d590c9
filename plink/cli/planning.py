"""From a network to a plan: the order, the groups, the masters, what they cost and what they are compared with.

Imported by ``plink plan`` when it runs: it needs the solvers.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from plink.cli.algorithms import fabric_from, groups_in, options_from, options_in, order_from
from plink.cli.screen import say, took
from plink.cli.wishes import wishes_from
from plink.errors import InputError, NoAnswer, UsageError
from plink.model.network import Network
from plink.model.order import Order, read_order
from plink.model.plan import Masters, Plan
from plink.model.schedule import Indices, Schedule
from plink.model.storage import name_of, read_document
from plink.records import workspace
from solvers.costs.by_name import model_for, pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.master_patterns import masters_pattern
from solvers.costs.patterns import Pattern, everyone_pattern
from solvers.grouping.cluster import cluster
from solvers.ordering.task import with_slots
from solvers.planning.pricing import WEIGHTS, random_groups_median, two_level_cost, weights_by
from solvers.planning.schedules import schedule_of
from solvers.schedules.catalogue import ALGORITHMS
from solvers.schedules.masters import equal_chunks

MOST_CHUNKS = 100_000
_MOST_DIGITS = 9
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
class Asked:
    """What was typed; ``groups``: a file or how many; None everywhere: plink chooses."""

    algo: str = "2lha"
    size_bytes: float = 100e6
    model: str = "auto"
    order: Path | None = None
    groups: str | None = None
    chunks: int | None = None
    weights: str | None = None
    typed: tuple[str, ...] = ()
    seed: int = 0
    denoise: bool = False


def check(asked: Asked) -> None:
    """Refuse what is wrong whatever the network says.

    :raises UsageError: saying what there is.
    """
    if asked.algo not in ALGORITHMS:
        raise UsageError(f"--algo {asked.algo}: there are {', '.join(ALGORITHMS)}")
    if asked.algo != "2lha":
        for option in ("groups", "chunks", "weights"):
            if getattr(asked, option) is not None:
                raise UsageError(f"--{option} goes with --algo 2lha; {asked.algo} has no masters")
    if asked.chunks is not None and not 1 <= asked.chunks <= MOST_CHUNKS:
        raise UsageError(f"--chunks {asked.chunks}: 1 to {MOST_CHUNKS} are possible")
    if asked.weights is not None and asked.weights not in WEIGHTS:
        raise UsageError(f"--weights {asked.weights}: there are {', '.join(WEIGHTS)}")
    options_from(list(asked.typed), [asked.algo])


def make_plan(network: Network, asked: Asked) -> Plan:
    """The plan for what was asked.

    :raises UsageError, InputError: for what cannot be.
    :raises NoAnswer: when a pair that the plan uses was not measured.
    """
    check(asked)
    fabric = fabric_from(network, asked.denoise)
    model = model_for(asked.model, fabric)
    path = asked.order or _last_order(network)
    order = (
        Order("given", tuple(network.hosts.names), network=network.fingerprint()) if path is None else read_order(path)
    )
    ranks = order_from(network, order, str(path))
    if asked.algo == "2lha":
        plan = _two_level(network, asked, fabric, model, ranks, path, order)
        pattern = masters_pattern(plan.groups or (), *masters_of(plan))
    else:
        plan, pattern = _one_level(network, asked, fabric, model, ranks, order, str(path))
    if path is None:
        say(
            f"no order was given: {'ranks as the hosts stand' if plan.groups is None else 'groups one after the other'}"
        )
    schedule = _small_schedule(plan, pattern)
    plan = replace(plan, rate_gbps=fabric.rate_gbps)
    return plan if schedule is None else replace(plan, schedule=schedule, chunks=schedule.chunks)


def _one_level(
    network: Network, asked: Asked, fabric: Fabric, model: str, ranks: Ranks, order: Order, where: str
) -> tuple[Plan, Pattern]:
    words = [*options_in(order, where, asked.algo), *asked.typed]
    options = options_from(words, [asked.algo])
    pattern = pattern_for(asked.algo, len(ranks), options)
    price = closed_form(pattern, fabric, asked.size_bytes, model)
    typed = sorted({word.partition("=")[0].replace("-", "_") for word in words})
    baseline = _priced(given=lambda: price(order_from(network, None)), flat=_flat(fabric, ranks, asked, model))
    plan = Plan(
        asked.algo, model, asked.size_bytes, order, order.arrange(network.hosts, "order"), None, round(price(ranks), 3),
        baseline=baseline, options={name: getattr(options, name) for name in typed},
        environment=LIBRARY_ENVIRONMENT.get(asked.algo, {}), network=network.fingerprint(),
    )  # fmt: skip
    return plan, pattern


def _two_level(
    network: Network, asked: Asked, fabric: Fabric, model: str, ranks: Ranks, path: Path | None, order: Order
) -> Plan:
    by = asked.weights or "sizes"
    groups = groups_in(order, str(path), len(ranks)) if asked.groups is None else None
    groups_of_hosts = None
    if groups is None:
        groups_of_hosts = _groups_of_hosts(network, fabric, asked)
        if path is None:  # the order is ours to choose: groups one after the other
            hosts = np.array([host for group in groups_of_hosts for host in group], dtype=np.intp)
            ranks = with_slots(hosts, np.bincount(ranks, minlength=len(hosts)))
            order = replace(order, algo="2lha", hosts=tuple(fabric.names[host] for host in hosts))
        groups = [np.flatnonzero(np.isin(ranks, group)).tolist() for group in groups_of_hosts]
    weights = weights_by(by, fabric, ranks, groups)
    chunks = asked.chunks or len(ranks) * (1 if by == "sizes" else _FINE)
    local, global_group = masters = equal_chunks(groups, chunks, weights)
    cost = two_level_cost(groups, masters, fabric, ranks, asked.size_bytes, model)
    drawn = min(chunks, len(ranks) * _FINE)  # finer ones change the price by next to nothing
    random = random_groups_median(groups, drawn, by, fabric, ranks, asked.size_bytes, model, asked.seed)
    baseline = _priced(flat=_flat(fabric, ranks, asked, model))
    if by != "sizes":
        plain = equal_chunks(groups, chunks)
        baseline["masters_by_sizes"] = round(two_level_cost(groups, plain, fabric, ranks, asked.size_bytes, model), 3)
    if groups_of_hosts is None:
        say(f"groups as {path} has them")
    if path is None:
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


def _groups_of_hosts(network: Network, fabric: Fabric, asked: Asked) -> list[list[int]]:
    """The hosts of each group: from a file; those that `plink cluster` found for this network last; or so many balanced
    ones, the square root of the number of hosts unless told (PLink thesis, 4.2.1).

    :raises UsageError, InputError: for more groups than hosts, or a file whose groups are not these hosts.
    :raises NoAnswer: when too little was measured to form groups.
    """
    number = len(network.hosts)
    wanted = asked.groups if asked.groups is not None else _last_groups(network)
    if wanted is not None and not wanted.isdecimal():
        groups = wishes_from((), wanted, network.hosts, fabric.rtt_us).groups or []
        left = sorted(set(range(number)) - {host for group in groups for host in group})
        if left:
            raise InputError(name_of(wanted), f"{fabric.names[left[0]]} is in no group; every host belongs to one")
        return [list(group) for group in groups]
    k = None if wanted is None else int(wanted[:_MOST_DIGITS])
    if k is not None and not 1 <= k <= number:
        raise UsageError(f"--groups {wanted}: 1 to {number} groups can be made of {number} hosts")
    found = cluster(network, k, seed=asked.seed)
    if found.left_out:
        names = ", ".join(fabric.names[host] for host in found.left_out[:_NAMED])
        more = ", ..." if len(found.left_out) > _NAMED else ""
        raise NoAnswer(f"nothing was measured of {names}{more}, which could be in any group; give --groups FILE")
    return found.groups


def _last_groups(network: Network) -> str | None:
    """The groups that were found here last, if for this very network; says so."""
    if not workspace.GROUPS.is_file():
        return None
    if read_document(workspace.GROUPS).get("network") != network.fingerprint():
        say(f"{workspace.GROUPS} is for another network and is left aside")
        return None
    took(workspace.GROUPS)
    return str(workspace.GROUPS)


def _last_order(network: Network) -> Path | None:
    """The order that was found here last, if it is one of these hosts; says which is taken."""
    if not workspace.ORDER.is_file():
        return None
    order = read_order(workspace.ORDER)
    if set(order.hosts) != set(network.hosts.names):
        say(f"{workspace.ORDER} is for other hosts and is left aside")
        return None
    took(workspace.ORDER)
    other = "" if order.network in (None, network.fingerprint()) else ", on another measurement of these hosts"
    say(f"the order is one for {order.algo}{other}")
    return workspace.ORDER


def _flat(fabric: Fabric, ranks: Ranks, asked: Asked, model: str) -> Callable[[], float]:
    return lambda: closed_form(everyone_pattern(len(ranks)), fabric, asked.size_bytes, model)(ranks)


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
    if pattern.everyone:
        hops = np.full(len(pattern.repeat), float(plan.ranks * (plan.ranks - 1)))
    schedule = schedule_of(plan) if float(np.sum(hops * pattern.repeat)) <= MOST_TRANSFERS else None
    return None if schedule is None or len(schedule) > MOST_TRANSFERS else schedule
