"""What a search may exchange: classes of units, blocks of ranks of one length whose contents may change places."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_SINGLES = 2  # times as often as blocks: a host alone


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


@dataclass(frozen=True)
class Moves:
    """Classes as arrays for :mod:`solvers.ordering.kernels`: ``wheel`` is what classes are drawn from; the units of
    class c are ``ptr[c]`` to ``ptr[c + 1]``, their first ranks in ``first``."""

    wheel: npt.NDArray[np.int64]
    ptr: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    stretch: npt.NDArray[np.int8]

    def arrays(self) -> tuple[object, ...]:
        """In the order in which the kernels take them."""
        return (self.wheel, self.ptr, self.first, self.length, self.stretch)


def moves_of(classes: Sequence[Class]) -> Moves | None:
    """None when nothing can be exchanged.

    Hosts alone are drawn twice as often as all blocks together, and a class of them as often as it has hosts.
    """
    useful = [one for one in classes if len(one.firsts) > 1]
    if not useful:
        return None
    blocks = sum(not one.hosts for one in useful)
    alone = sum(len(one.firsts) for one in useful if one.hosts)
    wheel: list[int] = []
    for number, one in enumerate(useful):
        share = max(1, round(_SINGLES * max(1, blocks) * len(one.firsts) / alone * 8)) if one.hosts else 8
        wheel += [number] * share
    return Moves(
        np.array(wheel, dtype=np.int64),
        np.concatenate([[0], np.cumsum([len(one.firsts) for one in useful])]).astype(np.int64),
        np.concatenate([one.firsts for one in useful]).astype(np.int64),
        np.array([one.length for one in useful], dtype=np.int64),
        np.array([one.hosts for one in useful], dtype=np.int8),
    )
