"""Answers of hosts to requests, each given to the sub-state that its purpose belongs to."""

from msgspec import ValidationError

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import method_of_type
from plink.model.elastic.results import Result, result_of
from solvers.elastic import checkpointing, ending, joining, loading, migration, rebalancing
from solvers.elastic import pending as p
from solvers.elastic.context import Context
from solvers.elastic.events import HostsLost


def answered(ctx: Context, host: int, answer: Answer) -> None:
    """A host has answered a request; what no request waits for changes nothing. A host whose result makes no sense is
    as good as gone."""
    request = ctx.state.requests.get(answer.id)
    if request is None or request.host != host:
        return
    result: Result | None = None
    if answer.error is None:
        try:
            result = result_of(request.method, answer.result)
        except ValidationError as error:
            text = f"what it answered makes no sense: {method_of_type(request.method)}: {error}"
            ctx.emit(HostsLost((host,), text))
            return
    rest = dict(ctx.state.requests)
    del rest[answer.id]
    ctx.state.requests = rest
    _dispatch(ctx, request.purpose, answer, result)


def _dispatch(ctx: Context, purpose: p.Purpose, answer: Answer, result: Result | None) -> None:
    match purpose:
        case p.ServerStarted():
            joining.server_started(ctx, purpose, answer, result)
        case p.FolderMarked():
            joining.folder_marked(ctx, purpose, answer)
        case p.FolderChecked():
            joining.folder_checked(ctx, purpose, answer)
        case p.HostReported():
            joining.reported(ctx, purpose, result)
        case p.WorkersPaused():
            rebalancing.paused(ctx, purpose, result)
        case p.ParticipantsSet():
            rebalancing.participants_set(ctx, purpose, result)
        case p.PartitionOpened():
            migration.opened(ctx, purpose, answer)
        case p.FirstReplicaAdded():
            migration.first_replica_added(ctx, purpose, answer)
        case p.StateTransferred():
            migration.transferred(ctx, purpose, answer)
        case p.TargetCleared():
            migration.target_cleared(ctx, purpose, answer)
        case p.ReplicaPromoted():
            migration.promoted(ctx, purpose, answer)
        case p.ReplicaSet():
            migration.replica_set(ctx, purpose, answer)
        case p.MoveCommitted():
            migration.committed(ctx, purpose, answer)
        case p.ShardsLoaded():
            loading.loaded(ctx, purpose, answer)
        case p.CheckpointPart():
            checkpointing.part_written(ctx, purpose, answer, result)
        case p.CheckpointAnnounced():
            checkpointing.announced(ctx, answer)
        case p.CheckpointDiscarded():
            checkpointing.discarded(ctx, purpose)
        case p.ResultWritten():
            ending.result_written(ctx, purpose, answer)
        case p.LivenessProbe():
            pass
