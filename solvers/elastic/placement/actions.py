"""What a controller of an elastic job is to bring about. Hosts by number; ``reason``: a line for the run's log.

Every ``epoch``, ``version``, ``ticket`` and ``era`` is the next number of one count, so that the larger one is the
later one whatever it counts, and a message that carries another one than the last is stale.
"""

from dataclasses import dataclass

from solvers.elastic.placement.hosts import Host
from solvers.elastic.placement.stages import Stage


@dataclass(frozen=True)
class Welcome:
    """A host is a member from now on."""

    host: Host
    reason: str


@dataclass(frozen=True)
class ChangeStage:
    """The stage to which what follows leads."""

    stage: Stage
    reason: str


@dataclass(frozen=True)
class Serve:
    """``host`` serves a partition of which there is no state yet (or that of a checkpoint), and pushes to ``backup``
    (itself, where it is a ParamServ)."""

    host: int
    partition: int
    epoch: int
    backup: int
    reason: str


@dataclass(frozen=True)
class HandOver:
    """``source`` sends a partition to ``to``: its state and the updates since the clock that all backups have, so that
    ``to`` can go back to it too. ``source`` serves on, applies and forwards every update, until the next map names
    ``to``. Answered by ``Moved``."""

    source: int
    to: int
    partition: int
    epoch: int
    reason: str


@dataclass(frozen=True)
class Drain:
    """``source`` pushes what the backup ``to`` lacks, as its last message (end of life); until the next map names
    ``to``, as a ParamServ, it applies and forwards what still comes in. Answered by ``Moved``."""

    source: int
    to: int
    partition: int
    epoch: int
    reason: str


@dataclass(frozen=True)
class Cancel:
    """The move of that epoch is off: ``hosts`` (those that are left of its two ends) forget it, the owner serves on."""

    hosts: tuple[int, ...]
    partition: int
    epoch: int
    reason: str


@dataclass(frozen=True)
class BackUp:
    """``host`` becomes a partition's backup: ``source``, who serves it, sends its state and what followed the common
    clock, and pushes to it beside the old backup, if there is one, until :class:`PushTo`. Answered by ``Moved``."""

    host: int
    partition: int
    epoch: int
    source: int
    reason: str


@dataclass(frozen=True)
class PushTo:
    """``host`` serves a partition and pushes it from now on to this backup alone."""

    host: int
    partition: int
    backup: int
    reason: str


@dataclass(frozen=True)
class Restore:
    """The backup sends its state at ``clock`` to ``to``, which serves the partition from there on. Answered by
    ``Moved``."""

    source: int
    to: int
    partition: int
    epoch: int
    clock: int
    reason: str


@dataclass(frozen=True)
class Promote:
    """A BackupPS serves these partitions as a ParamServ, from the state that it has."""

    host: int
    partitions: tuple[int, ...]
    epoch: int
    reason: str


@dataclass(frozen=True)
class Forget:
    """Moves of an epoch before this one that are still under way are off: who wanted them is no more."""

    epoch: int
    reason: str


@dataclass(frozen=True)
class RollBack:
    """Servers and backups go back to ``clock`` and forget what came after it; workers do again what did. Messages of an
    earlier era change nothing any more."""

    clock: int
    era: int
    reason: str


@dataclass(frozen=True)
class Consistent:
    """Every backup has all up to ``clock``: nobody will have to go back behind it."""

    clock: int
    reason: str


@dataclass(frozen=True)
class PointWorkers:
    """Workers address partition p to ``owners[p]``. A server that the map does not name for a partition sends on what
    still comes in."""

    version: int
    owners: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Load:
    """``host`` loads pieces of the input data; ``ahead``: without haste, nobody waits for them. Answered by
    ``Ready``."""

    host: int
    pieces: tuple[int, ...]
    ticket: int
    ahead: bool
    reason: str


@dataclass(frozen=True)
class Work:
    """``host`` works on these pieces, all of which it has, and no others."""

    host: int
    pieces: tuple[int, ...]
    version: int
    reason: str


@dataclass(frozen=True)
class StopWork:
    """``host`` works on nothing."""

    host: int
    version: int
    reason: str


@dataclass(frozen=True)
class LetGo:
    """A host that is to be taken away has nothing left that anybody needs."""

    host: int
    reason: str


@dataclass(frozen=True)
class Checkpoint:
    """The last reliable host is to be taken away: write the state down at once, or add a reliable host."""

    reason: str


@dataclass(frozen=True)
class Halt:
    """The state of these partitions is lost: nothing goes on without a checkpoint (:func:`.start.start`
    with the hosts that are left, a reliable one among them)."""

    lost: tuple[int, ...]
    reason: str


Action = (
    Welcome | ChangeStage | Serve | HandOver | Drain | Cancel | BackUp | PushTo | Restore | Promote | Forget | RollBack
    | Consistent | PointWorkers | Load | Work | StopWork | LetGo | Checkpoint | Halt
)  # fmt: skip
