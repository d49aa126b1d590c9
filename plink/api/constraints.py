"""What users ask of an order beside its price: hosts at certain ranks, hosts kept together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from plink.errors import InputError, UsageError

if TYPE_CHECKING:
    from plink.model.hosts import Hosts
    from plink.model.network import Matrix
    from solvers.ordering.constraints import PlacementConstraints

RequestedGroups = int | Sequence[Sequence[str]]


def constraints_from(
    pins: Mapping[str, int], groups: RequestedGroups | None, hosts: "Hosts", rtt_us: "Matrix", where: str = "groups"
) -> "PlacementConstraints":
    """:param pins: the first rank of hosts, by name.
    :param groups: the names of the hosts in each; or a number of groups to be formed of hosts near each other.
    :param rtt_us: shape (N, N), symmetric, complete.
    :param where: names the groups in errors.
    :raises UsageError: for names of no host, more groups than hosts.
    :raises InputError: for groups that name hosts that are not there, or one twice.
    """
    from solvers.grouping.even import even_groups
    from solvers.ordering.constraints import PlacementConstraints

    index = {name: i for i, name in enumerate(hosts.names)}
    for name, rank in pins.items():
        if name not in index:
            raise UsageError(f"--pin {name}={rank}: there is no host {name}; there are {_some(hosts.names)}")
    pinned = {index[name]: rank for name, rank in pins.items()}
    if groups is None:
        return PlacementConstraints(pinned)
    if isinstance(groups, int):
        check_number(groups, len(hosts))
        return PlacementConstraints(pinned, even_groups(rtt_us, groups))
    strange = [name for group in groups for name in group if name not in index]
    if strange:
        raise InputError(where, f"there is no host {strange[0]}; there are {_some(hosts.names)}")
    twice = [name for name, times in Counter(name for group in groups for name in group).items() if times > 1]
    if twice:
        raise InputError(where, f"{twice[0]} is named more than once; a host is in one group")
    return PlacementConstraints(pinned, [[index[name] for name in group] for group in groups])


def check_number(groups: int, hosts: int) -> None:
    """:raises UsageError: when so many hosts cannot be made so many groups of."""
    if not 1 <= groups <= hosts:
        raise UsageError(f"--groups {groups}: 1 to {hosts} groups can be made of {hosts} hosts")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
