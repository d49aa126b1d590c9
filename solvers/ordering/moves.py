"""What a search may exchange: classes of units, blocks of ranks of one length whose contents may change places."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_SINGLES = 10  # times as often as blocks: a host alone


@dataclass(frozen=True)
class Class:
    """Units that begin at the ranks ``firsts`` (ascending) and are ``length`` ranks long. ``hosts``: each is the ranks
    of one host, so that those that follow each other may also be reversed and moved on by one."""

    firsts: tuple[int, ...]
    length: int
    hosts: bool = False

    @property
    def units(self) -> list[list[int]]:
        """The ranks of every unit."""
        return [list(range(first, first + self.length)) for first in self.firsts]


class ClassTable(NamedTuple):
    """Classes as arrays for :func:`solvers.ordering.drawing.draw`: ``wheel`` is what classes are drawn from; the units
    of class c are ``ptr[c]`` to ``ptr[c + 1]``, their first ranks in ``first``, ``length`` ranks each; ``stretch``:
    whether neighbours may be reversed."""

    wheel: npt.NDArray[np.int64]
    ptr: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    stretch: npt.NDArray[np.int8]


class UnitTable(NamedTuple):
    """Hosts' units as arrays for :func:`solvers.ordering.drawing.aim`, shape (N,), by rank: ``unit_of``, the first rank
    of the host that has it; ``class_of`` and ``size_of`` of that unit; -1 for a host that stays."""

    unit_of: npt.NDArray[np.int64]
    class_of: npt.NDArray[np.int64]
    size_of: npt.NDArray[np.int64]


class Moves(NamedTuple):
    """What may be exchanged, by classes and by ranks."""

    classes: ClassTable
    units: UnitTable


def moves_of(classes: Sequence[Class], ranks: int) -> Moves | None:
    """None when nothing can be exchanged.

    A class of hosts is drawn as often as it has hosts, all blocks together a tenth as often as all hosts: they take
    longer, and few of them help.
    """
    useful = [one for one in classes if len(one.firsts) > 1]
    if not useful:
        return None
    blocks = sum(not one.hosts for one in useful)
    alone = sum(len(one.firsts) for one in useful if one.hosts)
    wheel: list[int] = []
    by_rank = np.full((3, ranks), -1, dtype=np.int64)
    for number, one in enumerate(useful):
        if not one.hosts:
            wheel.append(number)
            continue
        wheel += [number] * max(1, round(_SINGLES * max(1, blocks) * len(one.firsts) / alone))
        for first in one.firsts:
            by_rank[:, first : first + one.length] = [[first], [number], [one.length]]
    table = ClassTable(
        np.array(wheel, dtype=np.int64),
        np.concatenate([[0], np.cumsum([len(one.firsts) for one in useful])]).astype(np.int64),
        np.concatenate([one.firsts for one in useful]).astype(np.int64),
        np.array([one.length for one in useful], dtype=np.int64),
        np.array([one.hosts for one in useful], dtype=np.int8),
    )
    return Moves(table, UnitTable(*by_rank))
