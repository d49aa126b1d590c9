"""Events on which the placement of an elastic job is decided anew (:func:`.cluster.apply`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from solvers.elastic.placement.hosts import Host
from solvers.elastic.placement.stages import Traffic


@dataclass(frozen=True)
class Joined:
    """Hosts are there and run. ``bulk``: they were rented together and take over together, when the last one of them
    has loaded its data; else each when it has its own."""

    hosts: tuple[Host, ...]
    bulk: bool = False


@dataclass(frozen=True)
class Ready:
    """A host has loaded what the order to load of that ticket named."""

    host: int
    ticket: int


@dataclass(frozen=True)
class Warned:
    """Hosts are to be taken away, each in so many seconds. ``unpushed``: bytes by partition that its backup lacks,
    where that is known; else it is taken to lack all of it. ``others``: seconds that those have left by now who were
    warned before."""

    deadlines: Mapping[int, float]
    unpushed: Mapping[int, float] = field(default_factory=dict)
    others: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Left:
    """Hosts that were warned are gone. One that still served something has failed."""

    hosts: tuple[int, ...]


@dataclass(frozen=True)
class Failed:
    """Hosts are gone, or as good as gone, without having been let go."""

    hosts: tuple[int, ...]


@dataclass(frozen=True)
class Moved:
    """The state of a partition has arrived where the action with that epoch sent it."""

    partition: int
    epoch: int


@dataclass(frozen=True)
class PushedTo:
    """The partition's backup has all updates up to a clock. A ParamServ, its own backup, says so of its own clock.
    ``era``: of the last roll-back that the sender knows of; 0 before the first."""

    partition: int
    clock: int
    era: int


@dataclass(frozen=True)
class Measured:
    """The traffic of the reliable hosts, from which thresholds are to be set."""

    traffic: Traffic


@dataclass(frozen=True)
class Unserved:
    """The owner that took the partition over in that epoch does not have it after all: who sent it was lost before its
    last word. ``backed``: the partition's backup has what everybody can go back to."""

    partition: int
    epoch: int
    backed: bool


Event = Joined | Ready | Warned | Left | Failed | Moved | PushedTo | Measured | Unserved
