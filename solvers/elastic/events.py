"""Events of an elastic job: what its supervisor reports, and messages of hosts."""

from dataclasses import dataclass

from plink.model.elastic.reports import NodeMessage
from solvers.elastic.member import Member
from solvers.elastic.placement.actions import Halt


@dataclass(frozen=True)
class JobStarted:
    """A new job begins with these hosts."""

    hosts: tuple[Member, ...]


@dataclass(frozen=True)
class ControllerRestarted:
    """Another controller was lost; these hosts are there."""

    hosts: tuple[Member, ...]


@dataclass(frozen=True)
class HostsJoined:
    """Hosts were started for a job that runs. ``bulk``: they take over work together."""

    hosts: tuple[Member, ...]
    bulk: bool


@dataclass(frozen=True)
class HostsLost:
    """Hosts are gone at once, or as good as gone."""

    hosts: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class HostUnfit:
    """A member cannot do its part."""

    host: int
    reason: str


@dataclass(frozen=True)
class EvictionNotice:
    """Hosts will be taken away, all in so many seconds."""

    hosts: tuple[int, ...]
    seconds: float
    reason: str


@dataclass(frozen=True)
class StatusRequested:
    """A user asks for the state of the job."""

    request_id: int


@dataclass(frozen=True)
class CheckpointRequested:
    """A user asks for a checkpoint."""

    request_id: int


@dataclass(frozen=True)
class HostMessage:
    """A host has sent a message."""

    host: int
    message: NodeMessage


@dataclass(frozen=True)
class SupervisorAlive:
    """The supervisor is connected, and would have passed messages on."""


@dataclass(frozen=True)
class Tick:
    """Time has passed: do what is due."""


@dataclass(frozen=True)
class ServersStarted:
    """All servers of a group of hosts listen, or are lost (:mod:`solvers.elastic.joining`)."""

    purpose: "BeginJob | AdmitArrival"


@dataclass(frozen=True)
class ReportsComplete:
    """All hosts have reported to a restarted controller, or are lost."""


@dataclass(frozen=True)
class StateLost:
    """Nothing goes on without a checkpoint."""

    halt: Halt


@dataclass(frozen=True)
class BeginJob:
    """Begin the job; ``number``: the last number that a controller before gave."""

    number: int = 0


@dataclass(frozen=True)
class AdmitArrival:
    """Let newcomers join that came together."""

    arrival: int
