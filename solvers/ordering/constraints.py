"""Placement constraints: pinned hosts keep their ranks, the hosts of a group have consecutive ranks.

They say which blocks of ranks may exchange their hosts in a search.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer, UsageError

_HOSTS_PER_BLOCK_DRAW = 10  # single hosts are drawn so many times as often as blocks
Order = npt.NDArray[np.intp]
_MAX_BLOCK_HOSTS = 8  # exchanging larger blocks cost more time than it gained in cost


@dataclass(frozen=True)
class ExchangeClass:
    """Units, blocks of ranks of one length, whose contents may be exchanged with each other.

    They begin at ``first_ranks`` (ascending) and are ``length`` ranks long. ``single_hosts``: each is the ranks of one
    host, so that consecutive units may also be reversed and shifted by one.
    """

    first_ranks: tuple[int, ...]
    length: int
    single_hosts: bool = False

    @property
    def units(self) -> list[list[int]]:
        """Return the ranks of every unit."""
        return [list(range(first, first + self.length)) for first in self.first_ranks]


class ClassTable(NamedTuple):
    """Exchange classes as arrays for :func:`solvers.ordering.move_kernels.draw_move`.

    ``wheel``: the numbers of the classes, each as often as it is to be drawn. The units of class c are ``ptr[c]`` to
    ``ptr[c + 1]``; ``first`` has their first ranks, ``length`` how many ranks they have. ``reversible``: whether
    consecutive units may be reversed.
    """

    wheel: npt.NDArray[np.int64]
    ptr: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    reversible: npt.NDArray[np.int8]


class UnitTable(NamedTuple):
    """Units of single hosts as arrays for :func:`solvers.ordering.move_kernels.draw_aimed_move`, shape (N,), by rank.

    ``unit_of``: the first rank of the host at this rank; ``class_of``, ``size_of``: class and length of that unit. A
    pinned host has -1.
    """

    unit_of: npt.NDArray[np.int64]
    class_of: npt.NDArray[np.int64]
    size_of: npt.NDArray[np.int64]


class Moves(NamedTuple):
    """All moves of a search, as tables by class and by rank."""

    classes: ClassTable
    units: UnitTable


def moves_of(classes: Sequence[ExchangeClass], ranks: int) -> Moves | None:
    """Return the moves that exchange classes allow; None when nothing can be exchanged.

    A class of hosts is drawn as often as it has hosts, all blocks together a tenth as often as all hosts: they take
    longer, and few of them help.
    """
    usable = [item for item in classes if len(item.first_ranks) > 1]
    if not usable:
        return None
    block_classes = sum(not item.single_hosts for item in usable)
    host_units = sum(len(item.first_ranks) for item in usable if item.single_hosts)
    wheel: list[int] = []
    units_by_rank = np.full((3, ranks), -1, dtype=np.int64)
    for class_number, item in enumerate(usable):
        if not item.single_hosts:
            wheel.append(class_number)
            continue
        share = _HOSTS_PER_BLOCK_DRAW * max(1, block_classes) * len(item.first_ranks) / host_units
        wheel += [class_number] * max(1, round(share))
        for first in item.first_ranks:
            units_by_rank[:, first : first + item.length] = [[first], [class_number], [item.length]]
    table = ClassTable(
        np.array(wheel, dtype=np.int64),
        np.concatenate([[0], np.cumsum([len(item.first_ranks) for item in usable])]).astype(np.int64),
        np.concatenate([item.first_ranks for item in usable]).astype(np.int64),
        np.array([item.length for item in usable], dtype=np.int64),
        np.array([item.single_hosts for item in usable], dtype=np.int8),
    )
    return Moves(table, UnitTable(*units_by_rank))


@dataclass(frozen=True)
class PlacementConstraints:
    """Constraints of a user: ``pinned_ranks``, the first rank of some hosts (both by number), and ``host_groups``.

    The hosts of a group take consecutive ranks. Every host is in one group; None: no groups.
    """

    pinned_ranks: Mapping[int, int] = field(default_factory=dict)
    host_groups: Sequence[Sequence[int]] | None = None


class FeasibleOrders:
    """The orders that meet placement constraints.

    :param baseline: shape (N,), the host at each rank; the ranks of a host are consecutive.
    :param names: of all hosts, for errors.
    :raises UsageError: for pins that exclude each other or do not fit hosts' ranks or groups, and for groups that are
        no partition of the hosts.
    :raises NoAnswer: for a pin to another rank than 0 where hosts or groups have different numbers of ranks.
    """

    def __init__(self, baseline: Order, names: Sequence[str], constraints: PlacementConstraints) -> None:
        self.hosts: list[int] = list(dict.fromkeys(baseline.tolist()))
        self.ranks = len(baseline)
        self._names = names
        self.slots = np.bincount(baseline, minlength=len(names))
        self.pinned_ranks = dict(constraints.pinned_ranks)
        groups = constraints.host_groups
        self.host_groups = None if groups is None else [list(group) for group in groups]
        self._check_groups()
        self._check_pins()
        self.group_of = {host: k for k, group in enumerate(self.host_groups or [self.hosts]) for host in group}

    @property
    def unconstrained(self) -> bool:
        """Whether there are no constraints."""
        return not self.pinned_ranks and self.host_groups is None

    @property
    def has_equal_groups(self) -> bool:
        """Whether all groups have as many ranks."""
        return len({int(self.slots[group].sum()) for group in self.host_groups or [self.hosts]}) == 1

    def allows(self, order: Order) -> bool:
        """Whether an order, shape (N,), in which the ranks of a host are consecutive, is feasible."""
        return np.array_equal(self.materialise(list(dict.fromkeys(order.tolist()))), order)

    def materialise(self, preference: Sequence[int]) -> Order:
        """Return the feasible order, shape (N,), that is nearest to a list of all hosts.

        Pinned hosts take their ranks, the others the remaining ones in the list's order. Groups follow each other as
        their first hosts do.
        """
        if self.host_groups is None:
            return self._expand(_fill_around(list(preference), self._to_host_positions(self.pinned_ranks)))
        groups = self._sort_by_baseline_sizes(list(dict.fromkeys(self.group_of[host] for host in preference)))
        members = [[host for host in preference if self.group_of[host] == k] for k in range(len(self.host_groups))]
        size = int(self.slots[self.host_groups[0]].sum())
        pinned_groups = {self.group_of[host]: rank // size for host, rank in self.pinned_ranks.items()}
        hosts: list[int] = []
        for position, group in enumerate(_fill_around(groups, pinned_groups)):
            pins = self.pinned_ranks.items()
            in_group = {host: rank - position * size for host, rank in pins if self.group_of[host] == group}
            hosts += _fill_around(members[group], self._to_host_positions(in_group))
        return self._expand(hosts)

    def _sort_by_baseline_sizes(self, preference: list[int]) -> list[int]:
        """Return the groups in the order of preference, but with the baseline's sequence of sizes.

        So the ranks that make up a group are always the same.
        """
        assert self.host_groups is not None
        size = [int(self.slots[group].sum()) for group in self.host_groups]
        queues = {ranks: [k for k in preference if size[k] == ranks] for ranks in set(size)}
        baseline_groups = dict.fromkeys(self.group_of[host] for host in self.hosts)
        return [queues[size[k]].pop(0) for k in baseline_groups]

    def exchange_classes(self, order: Order) -> list[ExchangeClass]:
        """Return what may be exchanged in a feasible order, shape (N,), and in all orders that come of it.

        That are free hosts with equally many ranks (in one group), whole groups whose hosts have the same sequence of
        slots, and blocks of 2, 4 and 8 hosts.
        """
        classes: list[ExchangeClass] = []
        first_rank = {host: rank for rank, host in reversed(list(enumerate(order.tolist())))}
        groups = [sorted(group, key=first_rank.__getitem__) for group in self.host_groups or [self.hosts]]
        groups.sort(key=lambda group: first_rank[group[0]])
        for group in groups:
            free = [host for host in group if host not in self.pinned_ranks]
            for slots in sorted(set(self.slots[free].tolist())):
                first_ranks = tuple(first_rank[host] for host in free if self.slots[host] == slots)
                classes.append(ExchangeClass(first_ranks, slots, single_hosts=True))
            classes += self._block_classes([first_rank[host] for host in free], free)
        if self.host_groups is not None:
            by_slots: dict[tuple[int, ...], list[int]] = {}
            for group in groups:
                if not self.pinned_ranks.keys() & set(group):
                    by_slots.setdefault(tuple(self.slots[group].tolist()), []).append(first_rank[group[0]])
            classes += [ExchangeClass(tuple(firsts), sum(slots)) for slots, firsts in sorted(by_slots.items())]
        return [item for item in classes if len(item.first_ranks) > 1]

    def _block_classes(self, first_ranks: list[int], hosts: list[int]) -> list[ExchangeClass]:
        """Return classes of aligned blocks of 2, 4 and 8 hosts without a gap, each at most a quarter of the hosts."""
        slots = set(self.slots[hosts].tolist())
        if len(slots) != 1:
            return []
        ranks, classes, length = slots.pop(), [], 2
        while length <= _MAX_BLOCK_HOSTS and 4 * length <= len(first_ranks):
            starts = range(0, len(first_ranks) - length + 1, length)
            no_gap = (length - 1) * ranks
            blocks = tuple(first_ranks[k] for k in starts if first_ranks[k + length - 1] == first_ranks[k] + no_gap)
            if len(blocks) > 1:
                classes.append(ExchangeClass(blocks, length * ranks))
            length *= 2
        return classes

    def _to_host_positions(self, pins: Mapping[int, int]) -> dict[int, int]:
        """Return pins as positions among hosts instead of ranks; hosts with unequal slots allow only position 0."""
        slots = int(self.slots[self.hosts[0]])
        return {host: rank // slots for host, rank in pins.items()}

    def _expand(self, hosts: Sequence[int]) -> Order:
        return np.repeat(np.array(hosts, dtype=np.intp), self.slots[np.array(hosts, dtype=np.intp)])

    def _check_groups(self) -> None:
        if self.host_groups is None:
            return
        members = [host for group in self.host_groups for host in group]
        has_twice = len(set(members)) < len(members)
        twice = sorted({host for host in members if members.count(host) > 1}) if has_twice else []
        missing = sorted(set(self.hosts) - set(members))
        if twice:
            raise UsageError(f"--groups: {self._names[twice[0]]} is in more than one group")
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise UsageError(f"--groups: {self._names[missing[0]]}{more} in no group; name every host in one group")
        if not all(self.host_groups):
            raise UsageError("--groups: a group has no hosts")

    def _check_pins(self) -> None:
        if not self.pinned_ranks:
            return
        host_at_rank: dict[int, int] = {}
        for host, rank in self.pinned_ranks.items():
            name = self._names[host]
            if not 0 <= rank < self.ranks:
                raise UsageError(f"--pin {name}={rank}: choose a rank from 0 to {self.ranks - 1}")
            if rank in host_at_rank:
                raise UsageError(f"--pin: {self._names[host_at_rank[rank]]} and {name} cannot both have rank {rank}")
            host_at_rank[rank] = host
        equal_slots = len(set(self.slots[self.hosts].tolist())) == 1
        sizes = {int(self.slots[group].sum()) for group in self.host_groups or [self.hosts]}
        if not equal_slots or len(sizes) > 1:
            not_first = [host for host, rank in self.pinned_ranks.items() if rank != 0]
            if not_first:
                reason = "hosts have different numbers of slots" if not equal_slots else "groups have different sizes"
                raise NoAnswer(
                    f"--pin {self._names[not_first[0]]}={self.pinned_ranks[not_first[0]]}: {reason}; pin rank 0 only"
                )
            return
        slots, size = int(self.slots[self.hosts[0]]), sizes.pop()
        for host, rank in self.pinned_ranks.items():
            if rank % slots:
                raise UsageError(
                    f"--pin {self._names[host]}={rank}: hosts have {slots} ranks each; choose a first rank that "
                    f"is a multiple of {slots}"
                )
        if self.host_groups is not None:
            group_of = {host: k for k, group in enumerate(self.host_groups) for host in group}
            group_pins: dict[int, tuple[int, int]] = {}
            position_pins: dict[int, tuple[int, int]] = {}
            for host, rank in self.pinned_ranks.items():
                group, position = group_of[host], rank // size
                for pins_by, key, value in ((group_pins, group, position), (position_pins, position, group)):
                    pinned_value, pinned_host = pins_by.setdefault(key, (value, host))
                    if pinned_value != value:
                        other = f"{self._names[pinned_host]}={self.pinned_ranks[pinned_host]}"
                        raise UsageError(
                            f"--pin: {other} and {self._names[host]}={rank} cannot both be with groups of {size} "
                            "consecutive ranks"
                        )


def _fill_around(preference: list[int], positions: Mapping[int, int]) -> list[int]:
    """Return the items in the order of preference, around those that have a fixed position."""
    item_at = {position: item for item, position in positions.items()}
    remaining = (item for item in preference if item not in positions)
    return [item_at[position] if position in item_at else next(remaining) for position in range(len(preference))]
