"""Events on which the placement of an elastic job is decided anew (:func:`.cluster.apply`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from solvers.elastic.placement.hosts import JobHost
from solvers.elastic.placement.stages import MeasuredTraffic


@dataclass(frozen=True)
class Joined:
    """Hosts are there and run.

    ``bulk``: they were rented together and take over together, when the last one of them has loaded its data; else each
    when it has its own.
    """

    hosts: tuple[JobHost, ...]
    bulk: bool = False


@dataclass(frozen=True)
class Ready:
    """A host has loaded what the order to load of that ticket named."""

    host: int
    ticket: int


@dataclass(frozen=True)
class Warned:
    """Hosts are to be taken away, each in so many seconds.

    ``unreplicated``: bytes by partition that its replica lacks, where that is known; else it is taken to lack all of
    it. ``others``: seconds that those have left by now who were warned before.
    """

    deadlines: Mapping[int, float]
    unreplicated: Mapping[int, float] = field(default_factory=dict)
    others: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class HostsLeft:
    """Hosts that were warned are gone. One that still served something has failed."""

    hosts: tuple[int, ...]


@dataclass(frozen=True)
class HostsFailed:
    """Hosts are gone, or as good as gone, without having been released."""

    hosts: tuple[int, ...]


@dataclass(frozen=True)
class Moved:
    """The state of a partition has arrived where the action with that term sent it."""

    partition: int
    term: int


@dataclass(frozen=True)
class Replicated:
    """The partition's replica has all updates up to a clock. A ParamServ, its own replica, says so of its own clock.
    ``generation``: of the last roll-back that the sender knows of; 0 before the first."""

    partition: int
    clock: int
    generation: int


@dataclass(frozen=True)
class Measured:
    """The traffic of the reliable hosts, from which thresholds are to be set."""

    traffic: MeasuredTraffic


@dataclass(frozen=True)
class SpeedsMeasured:
    """How fast a slot of each host is, as whole numbers in proportion: shares of the data are to go by that."""

    speeds: Mapping[int, int]


@dataclass(frozen=True)
class Unserved:
    """The primary that took the partition over in that term does not have it after all.

    Its source was lost before the last message. ``has_replica``: the partition's replica has the clock that all can
    roll back to.
    """

    partition: int
    term: int
    has_replica: bool


Event = Joined | Ready | Warned | HostsLeft | HostsFailed | Moved | Replicated | Measured | SpeedsMeasured | Unserved
