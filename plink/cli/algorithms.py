"""What the commands that price or make schedules share: the algorithm's options as typed, ranks, orders, fabrics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plink.errors import InputError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from plink.model.network import Network
    from plink.model.order import Order
    from solvers.costs.fabric import Fabric
    from solvers.schedules.catalogue import Options

    Ranks = npt.NDArray[np.intp]


_AS_TYPED = {"True": "yes", "False": "no"}


def options_from(typed: list[str], algorithms: Sequence[str], groups: list[list[int]] | None = None) -> "Options":
    """``--set base=4`` and the like, as often as wanted; names as the options of these algorithms.

    :raises UsageError: for a name that is none or that none of the algorithms takes, or a value of the wrong kind.
    """
    from dataclasses import fields

    from solvers.costs.by_name import MIXED
    from solvers.schedules.catalogue import ALGORITHMS, Options

    kinds: dict[str, Any] = {
        field.name: bool if field.name in ("sharded", "colocated") else int
        for field in fields(Options)
        if field.name != "groups"
    }
    parts = [part for name in algorithms for part in MIXED.get(name, (name,)) if part in ALGORITHMS]
    taken = {option for part in parts for option in ALGORITHMS[part].options}
    given: dict[str, Any] = {}
    for word in typed:
        name, sign, value = word.partition("=")
        name = name.replace("-", "_")
        if not sign or name not in kinds:
            raise UsageError(f"--set {word}: write name=value with a name of {', '.join(kinds).replace('_', '-')}")
        if parts and name not in taken:
            raise UsageError(f"--set {word}: {', '.join(algorithms)} takes no {name}")
        if kinds[name] is bool:
            if value not in ("yes", "no"):
                raise UsageError(f"--set {word}: {name} is yes or no")
            given[name] = value == "yes"
        else:
            if not value.isdecimal() or len(value) > 9:
                raise UsageError(f"--set {word}: {name} is a whole number")
            given[name] = int(value)
    for name in ("fan_out", "base", "levels", "pieces", "servers"):
        if given.get(name) == 0:
            raise UsageError(f"--set {name}=0: at least 1 is needed")
    return Options(**given, groups=groups)


def fabric_from(network: "Network", denoise: bool = False) -> "Fabric":
    """What the network file says to the cost models, if wished with fitted instead of measured round trips.

    :raises NoAnswer: when they are wished for and there is too little to fit.
    """
    from solvers.costs.fabric import fabric_of

    if denoise:
        from plink.cli.denoising import denoised

        network = denoised(network).network
    return fabric_of(network)


def order_from(network: "Network", order: "Order | None", where: str = "order") -> "Ranks":
    """The host (its index in the network) at each rank: as an order has it, else as the hosts stand; a host has as many
    ranks as slots. ``where`` names the order's file in errors.

    :raises InputError: when the order is not one of these hosts.
    """
    import numpy as np

    hosts = network.hosts if order is None else order.arrange(network.hosts, where)
    index = {name: i for i, name in enumerate(network.hosts.names)}
    ranks = np.array([index[host.name] for host in hosts for _ in range(host.slots)], dtype=np.intp)
    if len(ranks) < 2:
        raise InputError(network.where, "a collective needs two ranks or more")
    return ranks


def rank_groups(fabric: "Fabric", order: "Ranks") -> list[list[int]]:
    """The ranks of each of the fabric's groups under an order: what two-level aggregation is told."""
    import numpy as np

    labels = fabric.group_of[order]
    return [np.flatnonzero(labels == label).tolist() for label in dict.fromkeys(labels.tolist())]


def groups_in(order: "Order | None", where: str, ranks: int) -> list[list[int]] | None:
    """The groups of ranks that an order was found for (``plink reorder --algo 2lha`` notes them), if it names any.

    :raises InputError: when they do not deal out the ranks.
    """
    groups: Any = None if order is None else order.details.get("groups")
    if groups is None:
        return None
    dealt = isinstance(groups, list) and all(isinstance(group, list) for group in groups)
    members = [rank for group in groups for rank in group] if dealt else []
    if not all(type(rank) is int for rank in members) or sorted(members) != list(range(ranks)):
        raise InputError(f"{where}: groups", f"every rank from 0 to {ranks - 1} belongs to exactly one group")
    return [list(group) for group in groups]


def options_in(order: "Order | None", where: str, algo: str) -> list[str]:
    """The options that an order was found with, as they would be typed; none where it is for another algorithm, or
    does not tell.

    :raises InputError: when they are none of this algorithm's.
    """
    options: Any = None if order is None or order.algo != algo else order.details.get("options")
    if options is None:
        return []
    if not isinstance(options, dict):
        raise InputError(f"{where}: options", "an object was expected")
    words = [f"{name}={_AS_TYPED.get(str(value), value)}" for name, value in options.items()]
    try:
        options_from(words, [algo])
    except UsageError as error:
        raise InputError(f"{where}: options", str(error).removeprefix("--set ")) from None
    return words
