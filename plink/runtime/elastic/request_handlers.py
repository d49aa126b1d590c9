"""Requests of a controller that concern partitions: each as a call of the host's server."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plink.errors import PlinkError
from plink.model.checkpoint_names import partition_file
from plink.model.elastic import requests as r
from plink.runtime.elastic.server import SavedState, Server

Does = Callable[[Server, Any], r.Result | None]


def _restore(server: Server, request: r.Restore) -> None:
    saved = SavedState(Path(request.path), request.clock, request.of_another_job)
    server.restore(request.partition, saved, {}, generation=request.generation, term=request.term)


def _forget(server: Server, request: r.Forget) -> None:
    """Cancel moves of earlier terms."""
    for status in server.status():
        server.cancel(status.partition, request.term)


def _set_participants(server: Server, request: r.SetParticipants) -> r.Result:
    """Set the participants of partitions from a clock on; return the partitions that are not served here."""
    elsewhere = []
    for partition in request.partitions:
        try:
            server.workers_from(partition, request.workers, request.first)
        except PlinkError as error:
            elsewhere.append((partition, str(error)))
    return r.ParticipantsSet(tuple(elsewhere))


def _checkpoint(server: Server, request: r.WriteCheckpoint) -> r.Result:
    """Write partitions into files of a folder."""
    folder, begun, size = Path(request.folder), time.monotonic(), 0
    folder.mkdir(parents=True, exist_ok=True)
    for partition in request.partitions:
        path = folder / partition_file(partition)
        server.checkpoint(partition, path)
        size += path.stat().st_size
    return r.CheckpointWritten(time.monotonic() - begun, size)


AT_ONCE: Mapping[type[r.Request], Does] = {
    r.Open: lambda server, q: server.open(q.partition, {}, generation=q.generation, term=q.term, history=True),
    r.Cancel: lambda server, q: r.Cancelled(off=server.cancel(q.partition, q.term)),
    r.SetReplica: lambda server, q: server.set_replica(q.partition, q.address),
    r.StopReplicating: lambda server, q: server.stop_replicating(q.partition, q.address),
    r.Drop: lambda server, q: server.drop(q.partition, q.term),
    r.Promote: lambda server, q: server.promote(q.partition, {}, q.first, q.term),
    r.Forget: _forget,
    r.Truncate: lambda server, q: server.truncate(q.clock),
    r.ReplicateUpTo: lambda server, q: server.replicate_up_to(q.clock),
    r.SetParticipants: _set_participants,
}
MOVING: Mapping[type[r.Request], Does] = {
    r.Prepare: lambda server, q: server.prepare(q.partition, q.address, q.term, replica=q.replica),
    r.AddReplica: lambda server, q: server.add_replica(q.partition, q.address),
    r.RestoreTo: lambda server, q: server.restore_to(q.partition, q.address, q.term, {}, q.first),
}
LONG: Mapping[type[r.Request], Does] = {
    **MOVING,
    r.Commit: lambda server, q: server.commit(q.partition, q.term),
    r.Restore: _restore,
    r.WriteCheckpoint: _checkpoint,
}
