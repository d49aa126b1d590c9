"""One step of the state machine under way, and a decision on the placement in it."""

import copy
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVarTuple

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import Request, Result
from solvers.elastic.commands import Command, LogEntry, LogLine, Note, Say, Send
from solvers.elastic.events import PlacementEvent
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.state import PendingRequest, State, Timer

_Arguments = TypeVarTuple("_Arguments")


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

    def request(
        self,
        host: int,
        request: Request,
        handler: Callable[["Context", *_Arguments, Answer, Result | None], None],
        *arguments: *_Arguments,
    ) -> None:
        """Send a request, whose answer and result ``handler`` gets after frozen arguments."""
        number = self.state.latest_request = self.state.latest_request + 1
        pending = PendingRequest(host, type(request), handler, arguments)
        self.state.requests = {**self.state.requests, number: pending}
        self.commands.append(Send(host, request, number))

    def later(self, seconds: float, handler: Callable[["Context", *_Arguments], None], *arguments: *_Arguments) -> None:
        """Set a timer, at which ``handler`` is called with frozen arguments."""
        timers = list(self.state.timers)
        insort(timers, Timer(self.now + seconds, self.state.timers_set, handler, arguments))
        self.state.timers, self.state.timers_set = tuple(timers), self.state.timers_set + 1

    def emit(self, event: Any) -> None:
        """Have an event handled after this one."""
        self.emitted.append(event)

    def decide(self, event: PlacementEvent) -> None:
        """Have the placement decided anew, after the events before this one (:mod:`solvers.elastic.decisions`)."""
        self.state.undecided = (*self.state.undecided, event)

    def log(self, **fields: Any) -> None:
        """Add a line to the run's log."""
        self.entries.append(LogLine(fields))

    def note(self, text: str) -> None:
        """Add a line for whoever looks for the cause of something."""
        self.entries.append(Note(text))

    def say(self, text: str) -> None:
        """Show a line to the user."""
        self.commands.append(Say(text))


@dataclass(frozen=True)
class Action:
    """Part of a decision. ``name``, ``reason``: in the run's log, where it has a name; ``effect`` brings it about."""

    name: str
    reason: str
    effect: Callable[..., None] | None = None
    arguments: tuple[Any, ...] = ()


class PlacementDecision:
    """PlacementDecision on the placement under way.

    ``before``, ``cluster``: the placement before it and by now. ``cause``: what it follows from, for the reasons of its
    parts. ``actions``: those parts, in the order in which they are brought about when the decision is complete.
    ``halted``: why the job cannot go on from here; None: it can.
    """

    def __init__(self, cluster: Cluster, cause: str = "") -> None:
        self.before = self.cluster = cluster
        self.cause = cause
        self.actions: list[Action] = []
        self.halted: str | None = None

    def act(
        self, name: str, reason: str, effect: Callable[[Context, *_Arguments], None], *arguments: *_Arguments
    ) -> None:
        """Have something done, and logged under this name."""
        self.actions.append(Action(name, reason, effect, arguments))

    def do(self, effect: Callable[[Context, *_Arguments], None], *arguments: *_Arguments) -> None:
        """Have something done that is logged as something else, or not at all."""
        self.actions.append(Action("", "", effect, arguments))

    def note(self, name: str, reason: str) -> None:
        """Log what the state of the placement alone brings about."""
        self.actions.append(Action(name, reason))

    def halt(self, reason: str) -> None:
        """Halt the job, and do nothing else: state was lost."""
        self.actions, self.halted = [Action("Halt", reason)], reason
        self.change(halted=True)

    def change(self, **values: Any) -> None:
        """Replace fields of the placement."""
        self.cluster = replace(self.cluster, **values)

    def next(self) -> int:
        """Return a number that was never given before."""
        self.change(number=self.cluster.number + 1)
        return self.cluster.number

    def partition(self, index: int, **values: Any) -> None:
        """Replace fields of a partition."""
        partitions = list(self.cluster.partitions)
        partitions[index] = replace(partitions[index], **values)
        self.change(partitions=tuple(partitions))
