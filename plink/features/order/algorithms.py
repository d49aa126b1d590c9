"""Options, ranks, orders and fabrics of algorithms, for costs, orders and plans."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from plink.errors import InputError, UsageError, no_choice
from plink.model.network import Network
from plink.model.order import RankOrder
from solvers.costs.by_name import MIXED
from solvers.costs.evaluator import with_host_costs
from solvers.costs.fabric import Fabric, fabric_of
from solvers.costs.least_time import links_for_masters, tier_tree
from solvers.schedules.catalogue import ALGORITHMS, HUB_ALGORITHMS, HUBS, Options
from solvers.spanning.tier_tree import TierTree

_log = logging.getLogger("plink.cost")
Ranks = npt.NDArray[np.intp]


OptionValues = Mapping[str, int | bool]


def kinds() -> dict[str, type]:
    """Return the type of each option of an algorithm, by name: ``int`` or ``bool``."""
    named = [
        field.name for field in fields(Options) if field.name not in ("groups", "weights", "mesh", "tree", "slots")
    ]
    return {name: bool if name in ("sharded", "colocated") else int for name in named}


def options_of(
    values: OptionValues,
    algorithms: Sequence[str],
    groups: list[list[int]] | None = None,
    tree: TierTree | None = None,
    ranks: Ranks | None = None,
) -> Options:
    """Return the options for these algorithms (``{"base": 4}``), with defaults for the others.

    :param ranks: shape (N,), the host at each rank, of which algorithms need to know how many ranks a host has; where
        there are hosts, they decide which are hubs.
    :raises UsageError: for a name that is none or that none of the algorithms takes, or a value of the wrong kind.
    """
    values = {name.replace("-", "_"): value for name, value in values.items()}
    kind_of = kinds()
    parts = [part for name in algorithms for part in MIXED.get(name, (name,)) if part in ALGORITHMS]
    accepted = {option for part in parts for option in ALGORITHMS[part].options}
    if ranks is not None and not any("servers" in ALGORITHMS[part].options for part in {*parts} - {*HUB_ALGORITHMS}):
        accepted.discard("servers")
    for name, value in values.items():
        if name not in kind_of:
            raise no_choice("--set", name, (option.replace("_", "-") for option in kind_of))
        if parts and name not in accepted:
            has_hubs = name == "servers" and set(parts) & set(HUB_ALGORITHMS)
            having = ", ".join(each for each, algorithm in ALGORITHMS.items() if name in algorithm.options)
            reason = " here: hosts with role=hub in the hosts file are the hubs" if has_hubs else f"; --algo: {having}"
            raise UsageError(f"--set {name}={value}: {', '.join(algorithms)} has no option {name}{reason}")
        if type(value) is not kind_of[name] or value < 0:
            expected = "yes or no" if kind_of[name] is bool else "a whole number"
            raise UsageError(f"--set {name}={value}: {name} is {expected}")
        if value == 0 and name in ("fan_out", "base", "levels", "segments", "servers"):
            raise UsageError(f"--set {name}=0: at least 1 is needed")
    arguments: dict[str, Any] = dict(values)
    slots = _common_slots(ranks) if ranks is not None and "nccl-tree" in parts else 1
    return Options(**arguments, groups=groups, tree=tree, slots=slots)


def _common_slots(ranks: Ranks) -> int:
    """Return how many ranks each host has; 1 where that differs."""
    slots = np.unique(np.unique(ranks, return_counts=True)[1])
    if len(slots) == 1:
        return int(slots[0])
    _log.warning("hosts have %d to %d slots: NCCL's tree is taken for one of ranks, not of hosts", slots[0], slots[-1])
    return 1


def fabric_from(network: Network, smooth_latencies: bool = False) -> Fabric:
    """Return the network as the cost models take it, with its hosts' own costs, and smoothed round trips if requested.

    :raises NoAnswer: when they are wished for and there is too little to fit.
    """
    if smooth_latencies:
        from plink.features.order.smoothing import smooth

        network = smooth(network).network
    fabric, costs = replace(fabric_of(network), library_costs=network.library_costs), network.host_costs
    return fabric if costs is None else with_host_costs(fabric, costs.overhead_us, costs.byte_ns)


def predictions_note(network: Network, smooth_latencies: bool = False) -> str | None:
    """Return what to say of round trips that are predicted, not measured; None where none is, or all are smoothed."""
    pairs, n = network.predicted_pairs, len(network.hosts)
    if smooth_latencies or not pairs:
        return None
    return f"{pairs} of {n * (n - 1) // 2} pairs were not measured; what they are predicted to take is used"


def order_from(network: Network, order: RankOrder | None, location: str = "order") -> Ranks:
    """Return the host (its index in the network) at each rank, by the order or as the network lists them. A host has
    as many ranks as slots. ``location`` names the order's file in errors.

    :raises InputError: when the order is not one of these hosts.
    """
    import numpy as np

    hosts = network.hosts if order is None else order.arrange(network.hosts, location)
    index = {name: i for i, name in enumerate(network.hosts.names)}
    ranks = np.array([index[host.name] for host in hosts for _ in range(host.slots)], dtype=np.intp)
    if len(ranks) < 2:
        raise InputError(network.location, "a collective needs two ranks or more")
    return ranks


def rank_groups(fabric: Fabric, order: Ranks) -> list[list[int]]:
    """Return the ranks of each group of two-level aggregation under an order: the fabric's groups, or, where all hosts
    are in one, about √N groups (PLink thesis, 4.2.1) of hosts that follow each other."""
    import numpy as np

    labels = fabric.group_of[order]
    if len(np.unique(labels)) == 1:
        hosts = list(dict.fromkeys(order.tolist()))
        parts = np.array_split(hosts, max(1, round(len(hosts) ** 0.5)))
        group_of = {host: k for k, part in enumerate(parts) for host in part.tolist()}
        labels = np.array([group_of[host] for host in order.tolist()])
    return [np.flatnonzero(labels == label).tolist() for label in dict.fromkeys(labels.tolist())]


def links_of(algo: str, fabric: Fabric, order: Ranks) -> TierTree | None:
    """Return the tree of links between the ranks of an order for an algorithm that is made for it, None for others.

    :raises UsageError: for hubs, where rates are unknown, or hosts have several interfaces.
    """
    if algo == "2lha":
        return links_for_masters(fabric, order)
    return tier_tree(fabric, order) if algo == HUBS else None


def groups_in(order: RankOrder | None, location: str, ranks: int) -> list[list[int]] | None:
    """Return the groups of ranks in an order (from ``plink reorder --algo 2lha``), None without.

    :raises InputError: when they do not deal out the ranks.
    """
    if order is None or not order.groups:
        return None
    if sorted(rank for group in order.groups for rank in group) != list(range(ranks)):
        raise InputError(f"{location}: groups", f"every rank from 0 to {ranks - 1} belongs to exactly one group")
    return [list(group) for group in order.groups]


def options_in(order: RankOrder | None, location: str, algo: str) -> OptionValues:
    """Return the algorithm's options in an order; none where it is for another algorithm.

    :raises InputError: when they are none of this algorithm's.
    """
    if order is None or order.algo != algo or not order.options:
        return {}
    options = cast(OptionValues, order.options)  # anybody's file: what is not of such kinds is refused below
    try:
        options_of(options, [algo])
    except UsageError as error:
        raise InputError(f"{location}: options", str(error).removeprefix("--set ")) from None
    return options
