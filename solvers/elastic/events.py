"""Events of an elastic job: what its supervisor reports, messages of hosts, and what changes its placement."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from plink.model.elastic.reports import NodeMessage
from solvers.elastic.member import Member
from solvers.elastic.placement.stages import MeasuredTraffic


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
    """Hosts were started for a job that runs; the placement is told when their servers listen.

    ``bulk``: they were rented together and take over together, when the last one of them has loaded its data; else each
    when it has its own.
    """

    hosts: tuple[Member, ...]
    bulk: bool = False


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
class LogRequested:
    """The supervisor is about to end the job: what is done and not in the log yet is to be written."""


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
class ReportsComplete:
    """All hosts have reported to a restarted controller, or are lost."""


@dataclass(frozen=True)
class StateLost:
    """Nothing goes on without a checkpoint."""

    reason: str


@dataclass(frozen=True)
class BeginJob:
    """All servers listen, or are lost: begin the job. ``number``: the last number that a controller before gave."""

    number: int = 0


# On these the placement is decided anew (:func:`solvers.elastic.decisions.decide`), and on HostsJoined.


@dataclass(frozen=True)
class ShardsReady:
    """A host has loaded what the order to load of that ticket named."""

    host: int
    ticket: int


@dataclass(frozen=True)
class HostsWarned:
    """Hosts are to be taken away, each in so many seconds.

    ``unreplicated``: bytes by partition that its replica lacks, where that is known; else it is taken to lack all of
    it. ``others``: seconds that those have left by now who were warned before.
    """

    deadlines: Mapping[int, float]
    unreplicated: Mapping[int, float] = field(default_factory=dict)
    others: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class HostsGone:
    """Hosts are gone, or as good as gone.

    ``released``: they were let go; one that still served something has failed.
    """

    hosts: tuple[int, ...]
    released: bool = False


@dataclass(frozen=True)
class PartitionMoved:
    """The state of a partition has arrived where the decision of that term sent it."""

    partition: int
    term: int


@dataclass(frozen=True)
class PartitionUnserved:
    """The primary that took the partition over in that term does not have it after all.

    Its source was lost before the last message. ``has_replica``: the partition's replica has the clock that all can
    roll back to.
    """

    partition: int
    term: int
    has_replica: bool


@dataclass(frozen=True)
class PartitionReplicated:
    """The partition's replica has all updates up to a clock. A ParamServ, its own replica, says so of its own clock.
    ``generation``: of the last roll-back that the sender knows of; 0 before the first."""

    partition: int
    clock: int
    generation: int


@dataclass(frozen=True)
class TrafficMeasured:
    """The traffic of the reliable hosts, from which thresholds are to be set."""

    traffic: MeasuredTraffic


@dataclass(frozen=True)
class SpeedsMeasured:
    """Speeds of a slot of each host, as whole numbers in proportion: shares of the data are to go by them."""

    speeds: Mapping[int, int]


PlacementEvent = (
    HostsJoined
    | ShardsReady
    | HostsWarned
    | HostsGone
    | PartitionMoved
    | PartitionUnserved
    | PartitionReplicated
    | TrafficMeasured
    | SpeedsMeasured
)
