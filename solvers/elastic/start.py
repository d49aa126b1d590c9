"""The placement with which a job begins, anew or from a checkpoint (Harlap thesis, 4.2.1 and 4.2.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plink.errors import UsageError
from plink.model.checkpoint_names import partition_file
from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import AddReplica, Commit, Open, Prepare, Request, Restore, Result
from solvers.elastic import joining, migration, progress, working
from solvers.elastic.context import Context, PlacementDecision
from solvers.elastic.ending import fail
from solvers.elastic.events import HostsLost
from solvers.elastic.member import Member
from solvers.elastic.placement import data
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.partitions import PartitionPlacement, balanced, place_replicas, serving
from solvers.elastic.placement.stages import Stage, Thresholds, check_reliable, stage_for
from solvers.elastic.state import GONE, State, omit

_RETRY_S = 0.3
_MAX_HAND_ON_ATTEMPTS = 20


@dataclass(frozen=True)
class PartitionOpened:
    """A step of giving a partition its first state, on ``host``, for its ``primary``.

    ``attempt``: failures of handing it on so far.
    """

    partition: int
    term: int
    primary: int
    host: int
    request: Request
    attempt: int = 0
    error: str = ""


def serve(ctx: Context, number: int, term: int, primary: int) -> None:
    """Open a partition that has no state yet, and give it its replica; or restore it from a checkpoint.

    The host of its replica reads the file of a checkpoint, for it is reliable and sees the folder; then it hands the
    partition on to a transient primary, and stays its replica. The move has a later term than the one it reads in.
    """
    migration, cluster = ctx.state.migration, ctx.state.cluster
    ctx.state.migration = replace(migration, opening={**migration.opening, number: term})
    if migration.restore_from is None:
        _open(ctx, PartitionOpened(number, term, primary, primary, Open(number, term, cluster.generation)))
        return
    folder, clock = migration.restore_from
    replica = cluster.partitions[number].replica
    read_term = term if replica == primary else term - 1
    path = f"{folder}/{partition_file(number)}"
    request = Restore(number, read_term, cluster.generation, clock, path, ctx.state.goes_on_from_another_job)
    _open(ctx, PartitionOpened(number, term, primary, replica, request))


def _open(ctx: Context, opened: PartitionOpened) -> None:
    if _opens(ctx.state, opened):
        ctx.request(opened.host, opened.request, _opened, opened)


def _opened(ctx: Context, opened: PartitionOpened, answer: Answer, result: Result | None) -> None:
    """Go on with the next step of opening a partition, or retry."""
    if not _opens(ctx.state, opened) or answer.kind == GONE:
        return
    number, request = opened.partition, opened.request
    if answer.error is None:
        match request:
            case Open():
                _add_first_replica(ctx, opened)
            case Restore() if opened.host != opened.primary:
                _hand_on(ctx, opened)
            case Prepare():
                _commit_opening(ctx, opened)
            case _:
                _end_opening(ctx, number)
    elif isinstance(request, Open | Restore):
        fail(ctx, f"{ctx.state.members[opened.host].name}: partition {number}: {answer.error}")
    elif isinstance(request, AddReplica) and not ctx.state.cluster.serves(number, opened.term):
        _end_opening(ctx, number)  # it moves elsewhere
    else:
        ctx.later(_RETRY_S, _retry, replace(opened, error=answer.error))


def _hand_on(ctx: Context, opened: PartitionOpened) -> None:
    address, replica = ctx.state.address(opened.primary), ctx.state.address(opened.host)
    request = Prepare(opened.partition, opened.term, address, replica)
    _open(ctx, replace(opened, request=request))


def _commit_opening(ctx: Context, opened: PartitionOpened) -> None:
    _open(ctx, replace(opened, request=Commit(opened.partition, opened.term)))


def _retry(ctx: Context, opened: PartitionOpened) -> None:
    """Copy a new partition to its replica, or hand a restored one on, once more.

    The next commit finds out whether one whose answer is lost took place.
    """
    if not _opens(ctx.state, opened):
        return
    if isinstance(opened.request, AddReplica):
        _add_first_replica(ctx, opened)
        return
    opened = replace(opened, attempt=opened.attempt + 1)
    name = ctx.state.members[opened.host].name
    text = f"partition {opened.partition} cannot be handed on by {name}: {opened.error}"
    if opened.attempt == 1:
        ctx.note(text)
    if opened.attempt > _MAX_HAND_ON_ATTEMPTS:
        ctx.emit(HostsLost((opened.primary,), text))
    elif opened.attempt % 2:
        _commit_opening(ctx, opened)
    else:
        _hand_on(ctx, opened)


def _add_first_replica(ctx: Context, opened: PartitionOpened) -> None:
    number, primary = opened.partition, opened.primary
    replica = ctx.state.cluster.partitions[number].replica
    if replica == primary or replica not in ctx.state.members:
        _end_opening(ctx, number)
    else:
        _open(ctx, replace(opened, request=AddReplica(number, opened.term, ctx.state.address(replica))))


def _end_opening(ctx: Context, number: int) -> None:
    migration = ctx.state.migration
    ctx.state.migration = replace(migration, opening=omit(migration.opening, number))


def _opens(state: State, opened: PartitionOpened) -> bool:
    """Return whether a partition is still to be opened: not all has begun anew."""
    return state.migration.opening.get(opened.partition) == opened.term


def start(
    hosts: Sequence[Member],
    partition_bytes: Sequence[float],
    shards: int,
    thresholds: Thresholds = Thresholds(),  # noqa: B008
    *,
    clock: int = -1,
    number: int = 0,
) -> PlacementDecision:
    """Begin a job: all hosts at once share partitions and data, and load.

    :param partition_bytes: of each partition; as many as :func:`.partitions.partition_count` says.
    :param shards: of the input data.
    :param clock: of the checkpoint that servers read their state from; -1 for a new job.
    :param number: the last that a job given up had (``Cluster.number``): what is still under way from it is stale then.
    :raises UsageError: without a reliable host, a partition or a shard; for hosts that are not told apart.
    """
    check_reliable(sum(host.reliable for host in hosts))
    members = tuple(sorted(hosts, key=lambda host: host.number))
    if len({host.number for host in hosts}) < len(hosts) or len({host.name for host in hosts}) < len(hosts):
        raise UsageError("two hosts of one name or number: give every host a name of its own in the hosts file")
    if not partition_bytes or shards < 1:
        raise UsageError("a job needs one partition of parameters and one shard of data at least")
    reliable = [host for host in members if host.reliable]
    stage = stage_for(len(reliable), len(members) - len(reliable), thresholds)
    unplaced = [None] * len(partition_bytes)
    primaries = balanced(unplaced, serving(stage, members, len(unplaced)))
    replicas = primaries
    if stage is not Stage.PARAMETER_SERVERS:
        replicas = place_replicas(unplaced, primaries, reliable, {host.number: host for host in members})
    term = number + 2  # the number before it is free: a replica reads its checkpoint in that term
    cluster = Cluster(
        members,
        tuple(partition_bytes),
        thresholds,
        stage,
        tuple(
            PartitionPlacement(primary, term, replica, clock)
            for primary, replica in zip(primaries, replicas, strict=True)
        ),
        (),
        number=term,
        newest=members[-1].number,
        generation=number,
        consistent=clock,
    )
    decision = PlacementDecision(cluster, "start")
    assigned = data.first_assignment(shards, cluster.workers(newcomers=False))
    decision.change(shards=data.with_homes(assigned, [host.number for host in reliable]))
    for host in members:
        decision.do(joining.welcome, host.number, f"member {host.number}, {host.tier}")
    ratio = f"{len(members) - len(reliable)} transient to {len(reliable)} reliable hosts"
    decision.do(progress.change_stage, stage, f"start: {ratio}")
    for index, primary in enumerate(primaries):
        decision.do(serve, index, term, primary)
    decision.act("PointWorkers", "start: every partition has its primary", migration.send_primaries)
    working.load(decision)
    return decision
