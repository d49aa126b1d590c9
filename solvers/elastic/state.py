"""The state of an elastic job's controller: one record of frozen sub-states, which are replaced and never changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeVar

from plink.model.checkpoint_names import name_of
from plink.model.elastic.fields import DivergenceReport, SavedCheckpoint
from plink.model.elastic.reports import ClockDone
from plink.model.elastic.requests import HostReport, Request
from solvers.elastic.events import BeginJob, PlacementEvent
from solvers.elastic.failures import CrashLoop, FailureDetector
from solvers.elastic.member import Member
from solvers.elastic.observations import MeasuredSpeeds, ReportedWork, Stragglers, TrafficMonitor, TrainingProgress
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.settings import Settings

GONE = "Gone"  # kind of the error of a request whose host is lost
REFUSED = "RejectedRequest"  # kind of the error where a partition is not here, or not as it was

ShardNumbers = tuple[int, ...]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def omit(values: Mapping[_Key, _Value], *keys: _Key) -> dict[_Key, _Value]:
    """Return a mapping without some keys."""
    return {key: value for key, value in values.items() if key not in keys}


@dataclass(frozen=True)
class PendingRequest:
    """A request that has no answer yet. ``handler`` gets it after the context and ``arguments``, which are frozen."""

    host: int
    method: type[Request]
    handler: Callable[..., None]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, order=True)
class Timer:
    """A timer, due at a time in seconds; of two at the same time the one that was set first is first."""

    at_s: float
    number: int
    handler: Callable[..., None]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class StartGroup:
    """Hosts whose servers start together, or that check the folder of checkpoints.

    ``then``: what follows; None: they join a job that runs, as one where that is ``bulk``. ``waiting``: those that have
    not answered. ``marked``: those that marked the folder, or could not. ``ready``: all is done.
    """

    members: tuple[Member, ...]
    then: BeginJob | None = None
    bulk: bool = False
    waiting: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    ready: bool = False

    @property
    def unmarked(self) -> dict[int, Member]:
        """Return those that the folder is yet to be checked on, by number."""
        return {member.number: member for member in self.members if member.number not in self.marked}


@dataclass(frozen=True)
class Joining:
    """Hosts on their way in.

    ``starting``: those that have not answered yet. ``refused``: errors of those that could not begin, and why reliable
    ones were lost before the job had begun. ``arrivals``: groups that join a job that runs, in the order in which they
    may. ``saved``: a checkpoint found where the job was told to look, ``own``: the latest of this very job.
    ``reporting``, ``reports``, ``unbegun``: of hosts that another controller began.
    """

    starting: Mapping[int, Member] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    groups: Mapping[int, StartGroup] = field(default_factory=dict)
    next_group: int = 0
    arrivals: tuple[int, ...] = ()
    folder_marked: bool = False
    saved: SavedCheckpoint | None = None
    own: SavedCheckpoint | None = None
    reporting: frozenset[int] = frozenset()
    reports: Mapping[int, HostReport] = field(default_factory=dict)
    unbegun: tuple[Member, ...] = ()


@dataclass(frozen=True)
class Draining:
    """Hosts on their way out.

    ``deadlines``: of those that were warned. ``free``: those that may go as soon as they hold nothing. ``released``:
    those that were told to. ``early``: warnings of hosts on their way in.
    """

    deadlines: Mapping[int, float] = field(default_factory=dict)
    free: frozenset[int] = frozenset()
    released: frozenset[int] = frozenset()
    early: Mapping[int, tuple[float, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerAssignment:
    """The work of one worker: on ``host``, from clock ``first`` on."""

    host: int
    shards: ShardNumbers
    first: int


@dataclass(frozen=True)
class PendingClocks:
    """Clocks left by a lost worker: from ``first`` to before ``until``, done by ``host`` in its name."""

    shards: ShardNumbers
    first: int
    until: int
    host: int


@dataclass(frozen=True)
class Barrier:
    """Barrier at which shards change hands.

    ``number``: of the last barrier; answers to an earlier one change nothing. At ``clock`` the work changes hands,
    ``ahead`` clocks after it was chosen; ``waiting``: hosts, or partitions, that have not answered; ``begun``: the
    latest clock that a host has begun.
    """

    under_way: bool = False
    number: int = 0
    clock: int = 0
    ahead: int = 0
    waiting: frozenset[int] = frozenset()
    begun: int = -1


@dataclass(frozen=True)
class Rebalancing:
    """State of rebalancing.

    ``target``: shards by host, as decided. ``pending``: clocks of lost workers, by worker; ``leaving``: of workers that
    were told to leave. ``frozen``: the job is about to end. ``start_at``: the clock of a barrier that no worker has to
    be paused for. ``history``: shards of each worker since a clock, in this generation.
    """

    target: Mapping[int, ShardNumbers] = field(default_factory=dict)
    workers: Mapping[int, WorkerAssignment] = field(default_factory=dict)
    pending: Mapping[int, PendingClocks] = field(default_factory=dict)
    leaving: Mapping[int, PendingClocks] = field(default_factory=dict)
    begun: int = -1
    next_worker: int = 0
    frozen: bool = False
    start_at: int | None = 0
    barrier: Barrier = Barrier()
    next_workers: Mapping[int, WorkerAssignment] = field(default_factory=dict)
    history: Mapping[int, tuple[tuple[int, ShardNumbers], ...]] = field(default_factory=dict)

    def late(self, clock: int, reached: Mapping[int, int]) -> bool:
        """Return whether a worker is still to report its part up to a clock.

        :param reached: the latest clock that each has reported.
        """
        left = (*self.pending.items(), *self.leaving.items())
        return any(
            reached.get(number, 0) < clock for number, each in self.workers.items() if each.first <= clock
        ) or any(reached.get(number, 0) < min(clock, each.until - 1) for number, each in left if each.first <= clock)

    def count(self, clock: int) -> int:
        """Return how many workers do a clock, stand-ins for lost ones included."""
        left = (*self.pending.values(), *self.leaving.values())
        return sum(each.first <= clock for each in self.workers.values()) + sum(
            each.first <= clock < each.until for each in left
        )

    @property
    def assigned(self) -> bool:
        """Return whether workers were told what to do, since the beginning and since the last roll-back."""
        return self.start_at is None

    def works(self, host: int) -> bool:
        """Return whether a host has workers, or will have, also such as took over for others."""
        workers = (*self.workers.values(), *self.next_workers.values())
        rest = (*self.pending.values(), *self.leaving.values())
        return host in {worker.host for worker in workers} | {part.host for part in rest}


@dataclass(frozen=True)
class Replication:
    """State of replication.

    ``clocks``: of each partition. ``replicated``: the primary of each, and the clock that its replicas have.
    ``watermark``: up to which they are replicated to now. ``rounds``: begun so far; ``divergence``: of each partition,
    where that is bounded; ``logged``: rounds and bytes in the log.
    """

    clocks: Mapping[int, int] = field(default_factory=dict)
    replicated: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    watermark: int = -1
    rounds: int = 0
    divergence: Mapping[int, DivergenceReport] = field(default_factory=dict)
    logged: tuple[int, int] = (0, 0)

    def clock(self, partitions: int) -> int:
        """Return the clock that all partitions have reached."""
        return min((self.clocks.get(number, -1) for number in range(partitions)), default=-1)


@dataclass(frozen=True)
class Migration:
    """State of moves.

    ``opening``: terms of partitions that nobody serves yet. ``commits``: (term, source) of moves whose new primary is
    to begin. ``restore_from``: a checkpoint's folder and clock. ``replicas``: address of a new replica by partition and
    term. ``in_transit``: both hosts of a move by these. ``resting``: hosts that are left to the job for a while, until
    when.
    """

    opening: Mapping[int, int] = field(default_factory=dict)
    commits: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    restore_from: tuple[str, int] | None = None
    replicas: Mapping[tuple[int, int], str] = field(default_factory=dict)
    in_transit: Mapping[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    resting: tuple[tuple[frozenset[int], float], ...] = ()

    def sends(self, host: int) -> bool:
        """Return whether a host still has to end the move of a partition."""
        return any(source == host for _, source in self.commits.values())


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: its folder on the reliable hosts, and the clock whose state it has."""

    folder: str
    clock: int


@dataclass(frozen=True)
class CheckpointAttempt:
    """One that is being written, named or removed; ``waiting``: those that have not answered. ``named``: a host was
    told to name it, and may have done so. ``lost``: state that was lost meanwhile, and waits for what hosts say of it.
    """

    checkpoint: Checkpoint
    urgent: bool
    waiting: frozenset[int]
    seconds: float = 0.0
    bytes: int = 0
    error: str | None = None
    kind: str = ""
    abandoned: bool = False
    named: bool = False
    lost: str = ""


@dataclass(frozen=True)
class Checkpointing:
    """State of checkpointing. ``urgent``: one is due whatever the time. ``clock``: that all replicas have. ``over_s``:
    when the last ended, ``next_s``: when one is due, ``retry_s``: before which none is tried again. ``ending``: since
    when all is done, and the failures before. ``requests``: of users, with the clock that they want."""

    over_s: float
    next_s: float
    last: Checkpoint | None = None
    urgent: bool = False
    attempt: CheckpointAttempt | None = None
    clock: int = -1
    failures: int = 0
    ending: tuple[float, int] | None = None
    retry_s: float = 0.0
    requests: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Ending:
    """State of the job's end.

    ``finished``: the clock at which a worker had nothing left to do, and the ``reason``. ``over``: the job has ended.
    ``writing``: the program writes its result.
    """

    finished: Mapping[int, int] = field(default_factory=dict)
    reason: str = ""
    over: bool = False
    writing: bool = False


@dataclass(frozen=True)
class Resuming:
    """State of how the job begins.

    ``waits``: for a reliable host to begin with, with this number. ``lost``: what only a checkpoint brings back.
    ``searched``: a host has looked for checkpoints that can read them. ``early``: clocks done while hosts reported.
    """

    waits: int | None = None
    lost: str = ""
    searched: bool = True
    early: tuple[tuple[int, ClockDone], ...] = ()


@dataclass
class State:
    """State of the controller. Every value in it is frozen.

    So :func:`solvers.elastic.step.step` works on a shallow copy and replaces values: a state that was returned never
    changes.

    ``welcomed``: members whose coming is in the log. ``undecided``: events for the placement. ``latest_request``: the
    number of the last request. ``sizes``: workers, and hosts that have some, as the user was last told.
    ``unloadable``: the first host that could not load a shard.
    """

    settings: Settings
    term: int
    checkpointing: Checkpointing
    members: Mapping[int, Member] = field(default_factory=dict)
    placement: Cluster | None = None
    undecided: tuple[PlacementEvent, ...] = ()
    welcomed: frozenset[int] = frozenset()
    requests: Mapping[int, PendingRequest] = field(default_factory=dict)
    latest_request: int = -1
    timers: tuple[Timer, ...] = ()
    timers_set: int = 0
    detector: FailureDetector = field(default_factory=FailureDetector)
    joining: Joining = Joining()
    draining: Draining = Draining()
    rebalancing: Rebalancing = Rebalancing()
    replication: Replication = Replication()
    migration: Migration = Migration()
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    stragglers: Stragglers = field(default_factory=Stragglers)
    traffic: TrafficMonitor = field(default_factory=TrafficMonitor)
    speeds: MeasuredSpeeds = field(default_factory=MeasuredSpeeds)
    work: ReportedWork = field(default_factory=ReportedWork)
    crash_loop: CrashLoop = field(default_factory=CrashLoop)
    ending: Ending = Ending()
    resuming: Resuming = Resuming()
    sizes: tuple[int, int] | None = None
    unloadable: Mapping[int, str] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        """Return the placement, once the job has begun."""
        assert self.placement is not None
        return self.placement

    @property
    def ready(self) -> tuple[Member, ...]:
        """Return members without those of groups on their way in, whose folder may be another one."""
        on_their_way = {member.number for group in self.joining.groups.values() for member in group.members}
        return tuple(member for number, member in self.members.items() if number not in on_their_way)

    @property
    def any_reliable(self) -> bool:
        """Return whether a reliable host is a member, and not on its way in."""
        return any(member.reliable for member in self.ready)

    @property
    def clock(self) -> int:
        """Return the clock that all partitions have reached."""
        return self.replication.clock(len(self.cluster.partitions))

    @property
    def goes_on_from_another_job(self) -> bool:
        """Return whether the job's state is that of another job's checkpoint."""
        if self.migration.restore_from is None:
            return False
        folder, clock = self.migration.restore_from
        return PurePosixPath(folder).name != name_of(clock, self.settings.job)

    def address(self, host: int) -> str:
        """Return the address of a host's server; empty for one that is gone."""
        return self.members[host].address if host in self.members else ""


def initial(settings: Settings, term: int, now: float) -> State:
    """Return the state of a controller that has not been told of any host. ``term``: greater than any before it."""
    return State(
        settings,
        term,
        Checkpointing(over_s=now, next_s=now + settings.checkpoint_every_s),
        latest_request=(term << 32) - 1,  # or an answer to the controller before would be taken for one
    )
