"""One step of the state machine under way: a copy of the state, and what has come of it so far."""

import copy
from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from plink.model.elastic.requests import Request
from solvers.elastic.commands import Command, LogEntry, LogLine, Note, Say, Send
from solvers.elastic.pending import PendingRequest, Timer
from solvers.elastic.state import State


@dataclass
class Context:
    """Context of one step.

    ``state``: replace its values freely, never what they hold. ``emitted``: events that follow from this one, which are
    handled after it and before anything else. ``now``: seconds, monotonic.
    """

    state: State
    now: float
    commands: list[Command] = field(default_factory=list)
    entries: list[LogEntry] = field(default_factory=list)
    emitted: deque[Any] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.state = copy.copy(self.state)

    def command(self, command: Command) -> None:
        """Have the shell do something."""
        self.commands.append(command)

    def send(self, host: int, request: Request) -> None:
        """Send a request whose answer is not wanted."""
        self.commands.append(Send(host, request))

    def send_all(self, request: Request) -> None:
        """Send a request to all members."""
        for host in self.state.members:
            self.commands.append(Send(host, request))

    def request(self, host: int, request: Request, purpose: Any) -> None:
        """Send a request, whose answer goes to the handler of its purpose (:mod:`solvers.elastic.dispatch`)."""
        number = self.state.latest_request = self.state.latest_request + 1
        self.state.requests = {**self.state.requests, number: PendingRequest(host, type(request), purpose)}
        self.commands.append(Send(host, request, number))

    def later(self, seconds: float, due: Any) -> None:
        """Set a timer, for the handler of what is due then."""
        timers = list(self.state.timers)
        insort(timers, Timer(self.now + seconds, self.state.timers_set, due))
        self.state.timers, self.state.timers_set = tuple(timers), self.state.timers_set + 1

    def emit(self, event: Any) -> None:
        """Have an event handled after this one."""
        self.emitted.append(event)

    def log(self, **fields: Any) -> None:
        """Add a line to the run's log."""
        self.entries.append(LogLine(fields))

    def note(self, text: str) -> None:
        """Add a line for whoever looks for the cause of something."""
        self.entries.append(Note(text))

    def say(self, text: str) -> None:
        """Show a line to the user."""
        self.commands.append(Say(text))
