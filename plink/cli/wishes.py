"""What users ask of an order beside its price: hosts at certain ranks, hosts kept together."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plink.errors import InputError, UsageError
from plink.model.groups import read_groups
from plink.model.storage import name_of

if TYPE_CHECKING:
    from plink.model.hosts import Hosts
    from plink.model.network import Matrix
    from solvers.ordering.seats import Wishes

_MOST_DIGITS = 9


def wishes_from(pins: Sequence[str], groups: str | None, hosts: "Hosts", rtt_us: "Matrix") -> "Wishes":
    """``--pin NAME=RANK``, as often as wanted, and ``--groups``: a file, or a number of groups to be formed of hosts
    near each other.

    :param rtt_us: shape (N, N), symmetric, complete.
    :raises UsageError: for what is not of that form, names of no host, more groups than hosts.
    :raises InputError: for a file of groups that cannot be read or names hosts that are not there.
    """
    from solvers.grouping.even import even_groups
    from solvers.ordering.seats import Wishes

    index = {name: i for i, name in enumerate(hosts.names)}
    pinned: dict[int, int] = {}
    for word in pins:
        name, _, rank = word.rpartition("=")
        if not name or not rank.isdecimal() or len(rank) > _MOST_DIGITS:
            raise UsageError(f"--pin {word}: write a host's name, = and its first rank, {hosts.names[0]}=0")
        if name not in index:
            raise UsageError(f"--pin {word}: there is no host {name}; there are {_some(hosts.names)}")
        if pinned.setdefault(index[name], int(rank)) != int(rank):
            raise UsageError(f"--pin: {name} cannot have rank {pinned[index[name]]} and rank {rank}")
    if groups is None:
        return Wishes(pinned)
    if not groups:
        raise UsageError("--groups: a file, or how many groups to form")
    if groups.isdecimal():
        number = int(groups) if len(groups) <= _MOST_DIGITS else 0
        if not 1 <= number <= len(hosts):
            raise UsageError(f"--groups {groups}: 1 to {len(hosts)} groups can be made of {len(hosts)} hosts")
        return Wishes(pinned, even_groups(rtt_us, number))
    named = read_groups(groups)
    strange = [name for group in named for name in group if name not in index]
    if strange:
        raise InputError(name_of(groups), f"there is no host {strange[0]}; there are {_some(hosts.names)}")
    twice = [name for name, times in Counter(name for group in named for name in group).items() if times > 1]
    if twice:
        raise InputError(name_of(groups), f"{twice[0]} is named more than once; a host is in one group")
    return Wishes(pinned, [[index[name] for name in group] for group in named])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
