"""What is pending: for each request the purpose of its answer, for each timer what is due then. All of it is data.

Each class names the module (sub-state) that it belongs to; :mod:`solvers.elastic.answers` and
:mod:`solvers.elastic.timers` dispatch on it.
"""

from dataclasses import dataclass

from plink.model.elastic.requests import Request
from solvers.elastic.placement import actions as act

GONE = "Gone"  # kind of the error of a request whose host is lost
REFUSED = "Refused"  # kind of the error where a partition is not here, or not as it was


@dataclass(frozen=True)
class ServerStarted:
    """joining: a host of a group starts its server."""

    host: int
    group: int


@dataclass(frozen=True)
class FolderMarked:
    """joining: a host marks the folder of checkpoints."""

    host: int
    group: int


@dataclass(frozen=True)
class FolderChecked:
    """joining: a host looks for the mark."""

    host: int
    group: int


@dataclass(frozen=True)
class HostReported:
    """joining: a host reports to a restarted controller."""

    host: int


@dataclass(frozen=True)
class WorkersPaused:
    """rebalancing: a host holds its workers before the barrier."""

    barrier: int
    host: int


@dataclass(frozen=True)
class ParticipantsSet:
    """rebalancing: servers take updates of other workers."""

    barrier: int
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class PartitionOpened:
    """migration: a step of giving a partition its first state. ``attempt``: failures of handing it on so far."""

    serve: act.Serve
    host: int
    request: Request
    attempt: int = 0
    error: str = ""


@dataclass(frozen=True)
class FirstReplicaAdded:
    """migration: a new partition is copied to its backup."""

    serve: act.Serve


@dataclass(frozen=True)
class StateTransferred:
    """migration: a partition's state is sent; ``begun_s``: since when it waits, ``sent_s``: since when it is sent."""

    action: act.HandOver | act.Drain | act.BackUp | act.Restore
    begun_s: float
    sent_s: float = 0.0
    address: str = ""


@dataclass(frozen=True)
class TargetCleared:
    """migration: the target of a restored partition drops what it has of it."""

    action: act.Restore


@dataclass(frozen=True)
class ReplicaPromoted:
    """migration: a backup begins to serve, from clock ``first`` on."""

    action: act.Promote
    partition: int
    first: int


@dataclass(frozen=True)
class ReplicaSet:
    """migration: a server replicates to one backup alone."""

    partition: int


@dataclass(frozen=True)
class MoveCommitted:
    """migration: the new owner of a partition begins; a move that was called off is prepared once more."""

    partition: int
    epoch: int
    source: int
    backed: bool
    preparing: bool = False
    attempt: int = 0


@dataclass(frozen=True)
class ShardsLoaded:
    """loading: a host loads pieces of the input data."""

    action: act.Load


@dataclass(frozen=True)
class CheckpointPart:
    """checkpointing: a host writes its part of a checkpoint."""

    host: int


@dataclass(frozen=True)
class CheckpointAnnounced:
    """checkpointing: a whole checkpoint is named as the latest."""


@dataclass(frozen=True)
class CheckpointDiscarded:
    """checkpointing: a host removes its part of a checkpoint that failed."""

    host: int


@dataclass(frozen=True)
class ResultWritten:
    """ending: the program writes its result."""

    host: int
    era: int


@dataclass(frozen=True)
class LivenessProbe:
    """crash_loop: whoever answers has not died together with the host that was lost before."""


@dataclass(frozen=True)
class WarnedHostsDue:
    """draining: decide on warned hosts, once every backup has something."""

    hosts: tuple[int, ...]


Purpose = (
    ServerStarted | FolderMarked | FolderChecked | HostReported | WorkersPaused | ParticipantsSet | PartitionOpened
    | FirstReplicaAdded | StateTransferred | TargetCleared | ReplicaPromoted | ReplicaSet | MoveCommitted | ShardsLoaded
    | CheckpointPart | CheckpointAnnounced | CheckpointDiscarded | ResultWritten | LivenessProbe
)  # fmt: skip
Due = (
    WarnedHostsDue | ParticipantsSet | PartitionOpened | FirstReplicaAdded | StateTransferred | ReplicaPromoted
    | MoveCommitted
)  # fmt: skip


@dataclass(frozen=True)
class PendingRequest:
    """A request that has no answer yet."""

    host: int
    method: type[Request]
    purpose: Purpose


@dataclass(frozen=True, order=True)
class Timer:
    """What is due at a time, seconds; of two at the same time the one that was set first."""

    at_s: float
    number: int
    due: Due
