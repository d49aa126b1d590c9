"""The elasticity controller: the state machine of :mod:`solvers.elastic` with a clock and a line to the supervisor.

One thread, which never waits. All that it knows can be had again from the hosts: it may be killed at any time, and
another goes on.
"""

from collections.abc import Callable, Mapping
from typing import Any

from runners.agile.wire import event_of, message_of
from solvers.elastic.events import Tick
from solvers.elastic.settings import Settings
from solvers.elastic.state import State, initial
from solvers.elastic.step import step


class Controller:
    """Of one job.

    :param write: takes a message on its way to the supervisor. :param term: greater than any before it.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, write: Callable[[dict[str, Any]], None], settings: Settings, term: int, clock: Callable[[], float]
    ) -> None:  # fmt: skip
        self._write, self._clock = write, clock
        self.state: State = initial(settings, term, clock())

    def receive(self, message: Mapping[str, Any]) -> None:
        """Take one message of the supervisor's, and do what follows."""
        self._step(event_of(message))

    def tick(self) -> float:
        """Do what is due; returns the seconds until something else is."""
        return self._step(Tick())

    def _step(self, event: Any) -> float:
        outcome = step(self.state, event, self._clock())
        self.state = outcome.state
        for item in (*outcome.entries, *outcome.commands):
            self._write(message_of(item, self.state.term))
        return outcome.wait_s
