"""Distances between a partition and its replicas: a clock waits that would exceed their bound.

They are exact: a replica's vectors are kept beside the state, and a clock changes a distance by its own rows alone. A
push whose answer has not come may have arrived or not, so both states count. The partition's undo log grows meanwhile,
and is bounded in the same way.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plink.elastic.app import RESERVED
from plink.elastic.tables import Values
from plink.model.divergence import DivergenceBound
from plink.model.elastic.fields import DivergenceReport
from plink.runtime.elastic.arrays.layout import Layout, index
from plink.runtime.elastic.partition.changes import Undo

MAX_UNDO_COPIES = 8  # times the partition, that undo records since a replica's state may take
MAX_CLOCKS_BEHIND = 256
_BLOCK_ELEMENTS = 1 << 16  # numbers
_MAX_REPORTED = 1e18


def float_tables(layout: Layout) -> list[int]:
    """Return the tables that count: all of floats but plink's own."""
    tables = enumerate(layout.tables)
    return [number for number, table in tables if "float" in table.dtype and not table.name.startswith(RESERVED)]


@dataclass
class _ReplicaState:
    """A state that a replica may have, of a clock; the partition's squared distance to it, and the bytes of undo
    records since."""

    clock: int
    values: dict[int, Values]
    norm_square: float
    square: float
    undo_bytes: int

    def moved(self, values: Sequence[Values], step: Undo) -> float:
        """Return the squared distance after a step."""
        square = self.square
        for block in step.blocks:
            if block.table in self.values:
                rows = index(block.rows)
                there = self.values[block.table][rows]
                square += _square(values[block.table][rows], there) - _square(block.values, there)
        return max(0.0, square)


class ReplicaDistances:
    """Distances of one partition to all its replicas, which never exceed the bound at a clock, but for one that is by
    itself farther: it is added once replicas have all before it.

    :param copying: addresses that are no replicas yet.
    :ivar held: whether the next clock waits for a push.
    :ivar largest_square: after clock 0, which has the first values.
    :ivar unconfirmed: clocks of pushes, by replica, whose answers have not come.
    """

    def __init__(self, bound: DivergenceBound, layout: Layout, number: int, copying: Collection[str]) -> None:
        self._bound, self._copying, self._tables = bound, copying, float_tables(layout)
        sizes = [(layout.rows_in(t, number), table.rows, table.width) for t, table in enumerate(layout.tables)]
        counted = [sizes[table] for table in self._tables]
        self._share = sum(here * width for here, _, width in counted) / sum(rows * width for _, rows, width in counted)
        row_bytes = [table.row_bytes for table in layout.tables]
        self._max_undo_bytes = MAX_UNDO_COPIES * sum(size[0] * row for size, row in zip(sizes, row_bytes, strict=True))
        self._states: dict[int, _ReplicaState] = {}
        self.unconfirmed: dict[str, set[int]] = {}
        self._lead, self._due_at = 1, -1  # clocks that a round takes; the clock since which one is due
        self.held, self.largest_square = False, 0.0

    def follow(self, replicas: Mapping[str, int], values: Sequence[Values], history: Collection[Undo]) -> None:
        """Know the states that replicas may have, before a clock is added. ``replicas``: clocks that they have."""
        clocks = self._clocks(replicas)
        self._states = {clock: self._states.get(clock) or self._as_of(clock, values, history) for clock in clocks}

    def _clocks(self, replicas: Mapping[str, int]) -> set[int]:
        """Return the clocks of the states that replicas may have."""
        there = {address: clock for address, clock in replicas.items() if address not in self._copying}
        return {*there.values(), *(clock for address in there for clock in self.unconfirmed.get(address, ()))}

    def _as_of(self, clock: int, values: Sequence[Values], history: Collection[Undo]) -> _ReplicaState:
        result = {table: values[table].copy() for table in self._tables}
        steps = [step for step in history if step.after > clock]
        for block in (block for step in reversed(steps) for block in step.blocks if block.table in result):
            result[block.table][index(block.rows)] = block.values
        return _ReplicaState(
            clock,
            result,
            sum(_square(each) for each in result.values()),
            sum(_square(values[table], each) for table, each in result.items()),
            sum(map(_undo_bytes, steps)),
        )

    def admits(self, values: Sequence[Values], step: Undo) -> bool:
        """Return whether a clock may be added, whose ``values`` are there already; it then counts."""
        squares = [state.moved(values, step) for state in self._states.values()]
        moved = list(zip(self._states.values(), squares, strict=True))
        more = _undo_bytes(step)
        used = max((self._used(state, step.after, square, more) for state, square in moved), default=0.0)
        self.held = used > 1 and any(state.clock < step.before for state in self._states.values())
        if not self.held:
            for state, square in moved:
                state.square, state.undo_bytes = square, state.undo_bytes + more
            if step.after > 0:
                self.largest_square = max(self.largest_square, *squares, 0.0)
        clock = step.before if self.held else step.after
        if self._due_at < 0 and self._due(clock):
            self._due_at = clock
        return not self.held

    def _used(self, state: _ReplicaState, clock: int, square: float, more: int = 0) -> float:
        """Return what is used up of a bound, of the one of which it is most; over 1: too much."""
        limit = self._bound.square(self._share, state.norm_square)
        distance = math.sqrt(square / limit) if square and limit else math.inf if square else 0.0
        undo = (state.undo_bytes + more) / max(1, self._max_undo_bytes)
        return max(distance if math.isfinite(square) else math.inf, undo, (clock - state.clock) / MAX_CLOCKS_BEHIND)

    def _due(self, clock: int) -> bool:
        """Return whether a round is due at a clock: at this pace a bound is reached before it is over."""
        behind = [(state, clock - state.clock) for state in self._states.values() if state.clock < clock]
        return any(
            self.held or self._used(state, clock, state.square) * (1 + self._lead / clocks) > 1
            for state, clocks in behind
        )

    def sent(self, to: str, clock: int) -> None:
        """Note that a push may arrive from now on."""
        self.unconfirmed.setdefault(to, set()).add(clock)

    def arrived(self, to: str, replicas: Mapping[str, int], clock: int) -> None:
        """Note that a push has arrived, when the partition is at a clock; one sent before it comes too late."""
        after = replicas[to]
        self.unconfirmed[to] = {sent for sent in self.unconfirmed.get(to, ()) if sent > after}
        self._states = {there: state for there, state in self._states.items() if there in self._clocks(replicas)}
        if self._due_at >= 0:
            self._lead, self._due_at = clock - self._due_at + 1 + self.held, -1

    def rolled_back(self, replicas: Iterable[str], clock: int) -> None:
        """Forget what was: replicas have the state of that clock, whatever is known to have arrived."""
        self._states, self.held, self._due_at = {}, False, -1
        self.unconfirmed = {address: {clock} for address in replicas}

    def report(self, clock: int) -> DivergenceReport:
        """Return what a controller goes by, at a clock."""
        square = max((state.square for state in self._states.values()), default=0.0)
        largest = min(self.largest_square, _MAX_REPORTED)
        return DivergenceReport(min(square, _MAX_REPORTED), largest, self._due(clock))


def _undo_bytes(step: Undo) -> int:
    return sum(block.values.nbytes for block in step.blocks)


def _square(first: Values, second: Values | None = None) -> float:
    """Return the squared distance of two arrays of one shape; of one its squared norm."""
    total, rows = 0.0, max(1, _BLOCK_ELEMENTS // first.shape[1])
    with np.errstate(all="ignore"):
        for start in range(0, len(first), rows):
            part = first[start : start + rows]
            difference = np.subtract(part, 0 if second is None else second[start : start + rows], dtype=np.float64)
            total += float(np.einsum("ij,ij->", difference, difference))
    return total
