"""Which pieces a worker has at which clock, as told by others: from some clock on, in some era.

Who changes the pieces of several workers must know a clock that none of them has begun: :meth:`Assigned.hold` lets none
begin, :meth:`Assigned.add` says what is to be done at it, :meth:`Assigned.let_go` ends the wait.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from plink.errors import PlinkError
from plink.runtime.agileml.worker.client import RolledBack


@dataclass(frozen=True)
class Assignment:
    """From ``clock`` on, once the era is ``era`` or later; ``pieces`` None: the worker is no longer needed."""

    clock: int
    era: int
    pieces: tuple[int, ...] | None


class Assigned:
    """For any thread. Nothing is forgotten: after a roll-back every clock is redone with the pieces it had, unless an
    assignment of the new era says otherwise.

    :param every_era: there will be an assignment of every era, and nothing is begun in one before that is there.
    """

    def __init__(self, pieces: Sequence[int], *, era: int = -1, every_era: bool = False) -> None:
        self._known = [Assignment(-1, era, tuple(pieces))]
        self._begun = (-1, -1)  # era, clock
        self._every_era = every_era
        self._held: int | None = None
        self._back: RolledBack | None = None
        self._ended = False
        self._changed = threading.Condition()

    def add(self, assignment: Assignment) -> None:
        """The latest that was added counts. :raises PlinkError: the clock has begun; choose a later one."""
        with self._changed:
            era, clock = self._begun
            if assignment.era <= era and assignment.clock <= clock:
                raise PlinkError(f"pieces cannot change at clock {assignment.clock}: clock {clock} has begun")
            self._known.append(assignment)
            self._changed.notify_all()

    def hold(self, clock: int) -> int:
        """Nothing from ``clock`` on is begun until :meth:`let_go`, unless it has been begun already: the latest that
        was, which is to be held against ``clock``."""
        with self._changed:
            if self._begun[1] < clock:
                self._held = clock
            return self._begun[1]

    @property
    def begun(self) -> int:
        """The latest clock that was."""
        return self._begun[1]

    def let_go(self) -> None:
        """Nothing is held any more."""
        with self._changed:
            self._held = None
            self._changed.notify_all()

    def rolled_back(self, clock: int, era: int) -> None:
        """All are back at a clock: whoever waits here is told. What was held is not any more."""
        with self._changed:
            self._back, self._held = RolledBack(clock, era), None
            self._changed.notify_all()

    def end(self) -> None:
        """No clock is begun any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def begin(self, clock: int, era: int) -> tuple[int, ...] | None:
        """The pieces of a clock that is begun now; waits while it is held. :raises RolledBack: it is not to be."""
        with self._changed:
            while not self._ended:
                if self._back is not None and self._back.era > era:
                    raise self._back
                if (self._held is None or clock < self._held) and self._told(era):
                    break
                self._changed.wait()
            else:
                return None
            self._begun = era, clock
            fitting = [cached for cached in self._known if cached.clock <= clock and cached.era <= era]
            return fitting[-1].pieces

    def _told(self, era: int) -> bool:
        return not self._every_era or any(cached.era == era for cached in self._known)
