"""Placement constraints of a rank order: pinned ranks and groups of hosts kept together."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral

from plink.errors import InputError, UsageError
from plink.model.groups import Groups
from plink.model.hosts import Hosts
from plink.model.network import Matrix
from solvers.grouping.even import even_groups
from solvers.ordering.constraints import PlacementConstraints

RequestedGroups = int | Sequence[Sequence[str]] | Groups


def constraints_from(
    pins: Mapping[str, int], groups: RequestedGroups | None, hosts: Hosts, rtt_us: Matrix, location: str = "groups"
) -> PlacementConstraints:
    """Return the constraints as the solver takes them.

    :param pins: the first rank of hosts, by name. :param groups: the names of the hosts in each; or a number of groups
        to be formed of hosts near each other. :param rtt_us: shape (N, N), symmetric, complete. :param location: names
        the groups in errors. :raises UsageError: for names of no host, more groups than hosts. :raises InputError: for
        groups that name hosts that are not there, or one twice.
    """
    index = {name: i for i, name in enumerate(hosts.names)}
    for name, rank in pins.items():
        if name not in index:
            raise UsageError(f"--pin {name}={rank}: unknown host; the hosts are {_some(hosts.names)}")
        if not hosts.members[index[name]].slots:
            raise UsageError(f"--pin {name}={rank}: {name} has role=hub and takes no rank; omit it")
    pinned = {index[name]: rank for name, rank in pins.items()}
    if isinstance(groups, Groups):
        groups = groups.groups
    if groups is None:
        return PlacementConstraints(pinned)
    if not isinstance(groups, Iterable):
        number: object = groups
        if isinstance(number, bool) or not isinstance(number, Integral):
            raise UsageError(f"{location} {groups!r}: give their number, or the names of the hosts in each")
        check_number(int(number), len(hosts))
        return PlacementConstraints(pinned, ranked_groups(even_groups(rtt_us, int(number)), hosts))
    groups = tuple(groups)
    unknown = [name for group in groups for name in group if name not in index]
    if unknown:
        raise InputError(location, f"unknown host {unknown[0]}; the hosts are {_some(hosts.names)}")
    repeated = [name for name, times in Counter(name for group in groups for name in group).items() if times > 1]
    if repeated:
        raise InputError(location, f"{repeated[0]} is named more than once; a host is in one group")
    return PlacementConstraints(pinned, ranked_groups([[index[name] for name in group] for group in groups], hosts))


def ranked_groups(groups: Sequence[Sequence[int]], hosts: Hosts) -> list[list[int]]:
    """Return groups of hosts, by index, without hubs, which take no ranks."""
    hubs = {host for host, entry in enumerate(hosts) if not entry.slots}
    return [[host for host in group if host not in hubs] for group in groups if not group or not hubs >= set(group)]


def check_number(groups: int, hosts: int) -> None:
    """Refuse a number of groups that so many hosts cannot form.

    :raises UsageError: when so many hosts cannot be made so many groups of.
    """
    if not 1 <= groups <= hosts:
        raise UsageError(f"--groups {groups}: 1 to {hosts} groups can be made of {hosts} hosts")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
