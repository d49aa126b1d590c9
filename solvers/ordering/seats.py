"""Who may sit where: a host's ranks follow each other, a pinned host stays, a group's hosts stay together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer, UsageError
from solvers.ordering.moves import Class

Order = npt.NDArray[np.intp]
_LONGEST_BLOCK = 8  # hosts: swapping more of them costs more than it was found to gain


@dataclass(frozen=True)
class Wishes:
    """``pins``: the first rank of some hosts (by number); ``groups``: hosts that take consecutive ranks, every host in
    one of them; None: no groups."""

    pins: Mapping[int, int] = field(default_factory=dict)
    groups: Sequence[Sequence[int]] | None = None


class Seats:
    """The places of an order.

    :param given: shape (N,), the host at each rank; a host's ranks follow each other.
    :param names: of all hosts, for errors.
    :raises UsageError: for pins that clash with each other, with hosts' ranks or with groups, and groups that are not a
        partition of the hosts.
    :raises NoAnswer: for pins that uneven hosts or groups would have to be fitted around.
    """

    def __init__(self, given: Order, names: Sequence[str], wishes: Wishes) -> None:
        self.hosts: list[int] = list(dict.fromkeys(given.tolist()))
        self.ranks = len(given)
        self._names = names
        self.slots = np.bincount(given, minlength=len(names))
        self.pins = dict(wishes.pins)
        self.groups = None if wishes.groups is None else [list(group) for group in wishes.groups]
        self._check_groups()
        self._check_pins()
        self.group_of = {host: k for k, group in enumerate(self.groups or [self.hosts]) for host in group}

    @property
    def free(self) -> bool:
        """Whether nothing was wished for."""
        return not self.pins and self.groups is None

    @property
    def even_groups(self) -> bool:
        """Whether all groups have as many ranks."""
        return len({int(self.slots[group].sum()) for group in self.groups or [self.hosts]}) == 1

    def arrange(self, preference: Sequence[int]) -> Order:
        """The order, shape (N,), nearest to a list of all hosts that is allowed: free places are taken in its order,
        groups stand where their first host does."""
        if self.groups is None:
            return self._expanded(_around(list(preference), self._places(self.pins)))
        first = self._evenly(list(dict.fromkeys(self.group_of[host] for host in preference)))
        members = [[host for host in preference if self.group_of[host] == k] for k in range(len(self.groups))]
        size = int(self.slots[self.groups[0]].sum())
        pinned = {self.group_of[host]: rank // size for host, rank in self.pins.items()}
        order = _around(first, pinned)
        hosts: list[int] = []
        for place, group in enumerate(order):
            inside = {host: rank - place * size for host, rank in self.pins.items() if self.group_of[host] == group}
            hosts += _around(members[group], self._places(inside))
        return self._expanded(hosts)

    def _evenly(self, preference: list[int]) -> list[int]:
        """Groups in the order of preference, but of the sizes that follow each other in the given order: which ranks
        make a group does not change."""
        assert self.groups is not None
        size = [int(self.slots[group].sum()) for group in self.groups]
        waiting = {number: [k for k in preference if size[k] == number] for number in set(size)}
        given = dict.fromkeys(self.group_of[host] for host in self.hosts)
        return [waiting[size[k]].pop(0) for k in given]

    def classes(self, order: Order) -> list[Class]:
        """What may be exchanged in an allowed order, shape (N,), and all that come of it: hosts with equally many ranks
        (of one group), whole groups whose hosts' ranks follow each other alike, and blocks of powers of two of hosts, a
        rack's worth at a time."""
        found: list[Class] = []
        first_rank = {host: rank for rank, host in reversed(list(enumerate(order.tolist())))}
        spans = [sorted(group, key=first_rank.__getitem__) for group in self.groups or [self.hosts]]
        spans.sort(key=lambda span: first_rank[span[0]])
        for span in spans:
            loose = [host for host in span if host not in self.pins]
            for slots in sorted(set(self.slots[loose].tolist())):
                alike = [host for host in loose if self.slots[host] == slots]
                found.append(Class(tuple(first_rank[host] for host in alike), slots, hosts=True))
            found += self._blocks([first_rank[host] for host in loose], loose)
        if self.groups is not None:
            like: dict[tuple[int, ...], list[int]] = {}
            for span in spans:
                if not self.pins.keys() & set(span):
                    like.setdefault(tuple(self.slots[span].tolist()), []).append(first_rank[span[0]])
            found += [Class(tuple(firsts), sum(slots)) for slots, firsts in sorted(like.items())]
        return [one for one in found if len(one.firsts) > 1]

    def _blocks(self, firsts: list[int], hosts: list[int]) -> list[Class]:
        """Aligned blocks of 2, 4 and 8 hosts without a gap, at most a quarter of them; all with equally many ranks."""
        slots = set(self.slots[hosts].tolist())
        if len(slots) != 1:
            return []
        each, found, length = slots.pop(), [], 2
        while length <= _LONGEST_BLOCK and 4 * length <= len(firsts):
            starts = range(0, len(firsts) - length + 1, length)
            whole = tuple(firsts[k] for k in starts if firsts[k + length - 1] == firsts[k] + (length - 1) * each)
            if len(whole) > 1:
                found.append(Class(whole, length * each))
            length *= 2
        return found

    def _places(self, pins: Mapping[int, int]) -> dict[int, int]:
        """Pins in places of hosts instead of ranks; where hosts are uneven only the first place is pinned."""
        each = int(self.slots[self.hosts[0]])
        return {host: rank // each for host, rank in pins.items()}

    def _expanded(self, hosts: Sequence[int]) -> Order:
        return np.repeat(np.array(hosts, dtype=np.intp), self.slots[np.array(hosts, dtype=np.intp)])

    def _check_groups(self) -> None:
        if self.groups is None:
            return
        named = [host for group in self.groups for host in group]
        twice = sorted({host for host in named if named.count(host) > 1}) if len(set(named)) < len(named) else []
        left = sorted(set(self.hosts) - set(named))
        if twice:
            raise UsageError(f"--groups: {self._names[twice[0]]} is in more than one group")
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise UsageError(f"--groups: {self._names[left[0]]}{more} in no group; every host needs one")
        if not all(self.groups):
            raise UsageError("--groups: a group without hosts")

    def _check_pins(self) -> None:
        if not self.pins:
            return
        taken: dict[int, int] = {}
        for host, rank in self.pins.items():
            name = self._names[host]
            if not 0 <= rank < self.ranks:
                raise UsageError(f"--pin {name}={rank}: ranks are 0 to {self.ranks - 1}")
            if rank in taken:
                raise UsageError(f"--pin: {self._names[taken[rank]]} and {name} cannot both have rank {rank}")
            taken[rank] = host
        even = len(set(self.slots[self.hosts].tolist())) == 1
        sizes = {int(self.slots[group].sum()) for group in self.groups or [self.hosts]}
        if not even or len(sizes) > 1:
            beyond = [host for host, rank in self.pins.items() if rank != 0]
            if beyond:
                why = "hosts have different numbers of slots" if not even else "groups have different sizes"
                raise NoAnswer(
                    f"--pin {self._names[beyond[0]]}={self.pins[beyond[0]]}: {why}; then only rank 0 can be pinned"
                )
            return
        each, size = int(self.slots[self.hosts[0]]), sizes.pop()
        for host, rank in self.pins.items():
            if rank % each:
                raise UsageError(
                    f"--pin {self._names[host]}={rank}: hosts have {each} ranks each, so that their first ranks are "
                    f"multiples of {each}"
                )
        if self.groups is not None:
            group_of = {host: k for k, group in enumerate(self.groups) for host in group}
            at: dict[int, tuple[int, int]] = {}
            where: dict[int, tuple[int, int]] = {}
            for host, rank in self.pins.items():
                group, place = group_of[host], rank // size
                for table, key, value in ((at, group, place), (where, place, group)):
                    before, pinned = table.setdefault(key, (value, host))
                    if before != value:
                        both = f"{self._names[pinned]}={self.pins[pinned]} and {self._names[host]}={rank}"
                        raise UsageError(f"--pin: {both} cannot both be with groups of {size} consecutive ranks")


def _around(preference: list[int], fixed: Mapping[int, int]) -> list[int]:
    """The items in the order of preference around those that have a place."""
    there = {place: item for item, place in fixed.items()}
    others = (item for item in preference if item not in fixed)
    return [there[place] if place in there else next(others) for place in range(len(preference))]
