"""Assignment of shards to a worker: from some clock on, in some generation.

Who changes the shards of several workers must know a clock that none of them has begun: :meth:`Assigned.pause` lets
none begin, :meth:`Assigned.add` assigns what is to be done at it, :meth:`Assigned.resume` ends the wait.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from plink.errors import PlinkError
from plink.runtime.elastic.worker.client import RolledBack


@dataclass(frozen=True)
class Assignment:
    """Shards of a worker from ``clock`` on, once the generation is ``generation`` or later; ``shards`` None: the worker
    is no longer needed."""

    clock: int
    generation: int
    shards: tuple[int, ...] | None


class Assigned:
    """Assignments of one worker; for any thread. Nothing is forgotten: after a roll-back every clock is redone with the
    shards it had, unless an assignment of the new generation says otherwise.

    :param every_era: there will be an assignment of every generation, and nothing is begun in one before that is there.
    """

    def __init__(self, shards: Sequence[int], *, generation: int = -1, every_generation: bool = False) -> None:
        self._assignments = [Assignment(-1, generation, tuple(shards))]
        self._begun = (-1, -1)  # generation, clock
        self._every_generation = every_generation
        self._paused: int | None = None
        self._back: RolledBack | None = None
        self._ended = False
        self._changed = threading.Condition()

    def add(self, assignment: Assignment) -> None:
        """Add an assignment; the latest counts. :raises PlinkError: the clock has begun; choose a later one."""
        with self._changed:
            generation, clock = self._begun
            if assignment.generation <= generation and assignment.clock <= clock:
                raise PlinkError(f"shards cannot change at clock {assignment.clock}: clock {clock} has begun")
            self._assignments.append(assignment)
            self._changed.notify_all()

    def pause(self, clock: int) -> int:
        """Pause before ``clock`` until :meth:`resume`, unless it has begun already. Return the latest clock that has
        begun, to be compared with ``clock``."""
        with self._changed:
            if self._begun[1] < clock:
                self._paused = clock
            return self._begun[1]

    @property
    def wants_changes(self) -> bool:
        """Return whether somebody waits for the clock that has begun to end."""
        return self._paused is not None or self._ended

    @property
    def begun(self) -> int:
        """Return the latest clock that has begun."""
        return self._begun[1]

    def resume(self) -> None:
        """Resume: nothing is paused any more."""
        with self._changed:
            self._paused = None
            self._changed.notify_all()

    def rolled_back(self, clock: int, generation: int) -> None:
        """Notify the waiting worker that all are back at a clock; a pause ends."""
        with self._changed:
            self._back, self._paused = RolledBack(clock, generation), None
            self._changed.notify_all()

    def end(self) -> None:
        """End: no clock is begun any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def begin(self, clock: int, generation: int) -> tuple[int, ...] | None:
        """Return the shards of a clock that begins now; waits during a pause.

        :raises RolledBack: it is not to be.
        """
        with self._changed:
            while not self._ended:
                if self._back is not None and self._back.generation > generation:
                    raise self._back
                if (self._paused is None or clock < self._paused) and self._has_assignment(generation):
                    break
                self._changed.wait()
            else:
                return None
            self._begun = generation, clock
            fitting = [
                cached for cached in self._assignments if cached.clock <= clock and cached.generation <= generation
            ]
            return fitting[-1].shards

    def _has_assignment(self, generation: int) -> bool:
        return not self._every_generation or any(cached.generation == generation for cached in self._assignments)
