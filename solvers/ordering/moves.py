"""Moves of a search: which blocks of ranks may exchange their hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_HOSTS_PER_BLOCK_DRAW = 10  # single hosts are drawn so many times as often as blocks


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
