"""The elasticity controller: the state machine of :mod:`solvers.elastic` with a clock and a line to the supervisor.

One thread, which never waits. All that it knows can be had again from the hosts: it may be killed at any time, and
another goes on.
"""

from collections.abc import Callable
from typing import Any

from runners.agile.wire import encode
from solvers.elastic.events import Tick
from solvers.elastic.settings import Settings
from solvers.elastic.state import State, initial
from solvers.elastic.step import step


class Controller:
    """Controller of one job.

    :param write: takes a message on its way to the supervisor. :param term: greater than any before it.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, write: Callable[[dict[str, Any]], None], settings: Settings, term: int, clock: Callable[[], float]
    ) -> None:  # fmt: skip
        self._write, self._clock = write, clock
        self.state: State = initial(settings, term, clock())

    def tick(self) -> float:
        """Do what is due; returns the seconds until something else is."""
        return self.handle(Tick())

    def handle(self, event: Any) -> float:
        """Do what follows from an event (:mod:`solvers.elastic.events`); returns as :meth:`tick`."""
        outcome = step(self.state, event, self._clock())
        self.state = outcome.state
        for item in (*outcome.entries, *outcome.commands):
            self._write(encode(item, self.state.term))
        return outcome.wait_s
