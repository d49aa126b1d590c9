"""What a controller of an elastic job is to bring about. Hosts by number; ``reason``: a line for the run's log.

Every ``term``, ``version``, ``ticket`` and ``generation`` is the next number of one count, so that the larger one is
the later one whatever it counts, and a message that carries another one than the last is stale.
"""

from dataclasses import dataclass

from solvers.elastic.placement.hosts import JobHost
from solvers.elastic.placement.stages import Stage


@dataclass(frozen=True)
class Welcome:
    """A host is a member from now on."""

    host: JobHost
    reason: str


@dataclass(frozen=True)
class ChangeStage:
    """The stage to which what follows leads."""

    stage: Stage
    reason: str


@dataclass(frozen=True)
class Serve:
    """Serve a partition that has no state yet, or that of a checkpoint.

    ``host`` pushes to ``replica`` (itself, where it is a ParamServ).
    """

    host: int
    partition: int
    term: int
    replica: int
    reason: str


@dataclass(frozen=True)
class HandOver:
    """Migrate a partition from ``source`` to ``to``. Answered by ``Moved``.

    ``source`` sends its state and the updates since the clock that all replicas have, so that ``to`` can roll back to
    it too. ``source`` serves on, and applies and forwards every update, until the next map names ``to``.
    """

    source: int
    to: int
    partition: int
    term: int
    reason: str


@dataclass(frozen=True)
class Drain:
    """Push what the replica ``to`` lacks, as the last message of ``source``. Answered by ``Moved``.

    Until the next map names ``to``, as a ParamServ, ``source`` applies and forwards what still comes in.
    """

    source: int
    to: int
    partition: int
    term: int
    reason: str


@dataclass(frozen=True)
class CancelMove:
    """Cancel the move of that term.

    ``hosts`` (those that are left of its two ends) forget it; the primary serves on.
    """

    hosts: tuple[int, ...]
    partition: int
    term: int
    reason: str


@dataclass(frozen=True)
class Replicate:
    """Make ``host`` a partition's replica. Answered by ``Moved``.

    ``source``, which serves it, sends its state and what followed the common clock. It pushes to ``host`` beside the
    old replica, if there is one, until :class:`ReplicateTo`.
    """

    host: int
    partition: int
    term: int
    source: int
    reason: str


@dataclass(frozen=True)
class ReplicateTo:
    """``host`` serves a partition and pushes it from now on to this replica alone."""

    host: int
    partition: int
    replica: int
    reason: str


@dataclass(frozen=True)
class RestorePartition:
    """Restore a partition from its replica. Answered by ``Moved``.

    The replica sends its state at ``clock`` to ``to``, which serves the partition from there on.

    Answered by ``Moved``.
    """

    source: int
    to: int
    partition: int
    term: int
    clock: int
    reason: str


@dataclass(frozen=True)
class PromoteReplica:
    """A BackupPS serves these partitions as a ParamServ, from the state that it has."""

    host: int
    partitions: tuple[int, ...]
    term: int
    reason: str


@dataclass(frozen=True)
class ForgetMoves:
    """Moves of a term before this one that are still under way are off: who wanted them is no more."""

    term: int
    reason: str


@dataclass(frozen=True)
class RollBackAll:
    """Servers and replicas go back to ``clock`` and forget what came after it; workers do again what did.

    Messages of an earlier generation change nothing any more.
    """

    clock: int
    generation: int
    reason: str


@dataclass(frozen=True)
class Consistent:
    """Every replica has all up to ``clock``: nobody will have to go back behind it."""

    clock: int
    reason: str


@dataclass(frozen=True)
class PointWorkers:
    """Address partition p of all workers to ``primaries[p]``.

    A server that the map does not name for a partition forwards what still comes in.

    A server that the map does not name for a partition sends on what still comes in.
    """

    version: int
    primaries: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Load:
    """Load shards of the input data. Answered by ``Ready``.

    ``ahead``: without haste, nobody waits for them.
    """

    host: int
    shards: tuple[int, ...]
    ticket: int
    ahead: bool
    reason: str


@dataclass(frozen=True)
class Work:
    """``host`` works on these shards, all of which it has, and no others."""

    host: int
    shards: tuple[int, ...]
    version: int
    reason: str


@dataclass(frozen=True)
class StopWork:
    """``host`` works on nothing."""

    host: int
    version: int
    reason: str


@dataclass(frozen=True)
class Release:
    """A host that is to be taken away has nothing left that anybody needs."""

    host: int
    reason: str


@dataclass(frozen=True)
class UrgentCheckpoint:
    """The last reliable host is to be taken away: write the state down at once, or add a reliable host."""

    reason: str


@dataclass(frozen=True)
class Halt:
    """Halt: the state of these partitions is lost.

    Nothing goes on without a checkpoint (:func:`.start.start` with the hosts that are left, a reliable one among them).
    """

    lost: tuple[int, ...]
    reason: str


Action = (
    Welcome | ChangeStage | Serve | HandOver | Drain | CancelMove | Replicate | ReplicateTo | RestorePartition
    | PromoteReplica | ForgetMoves | RollBackAll
    | Consistent | PointWorkers | Load | Work | StopWork | Release | UrgentCheckpoint | Halt
)  # fmt: skip
