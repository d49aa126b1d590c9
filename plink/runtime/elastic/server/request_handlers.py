"""Requests of a controller that concern partitions, each carried out by the server of a host."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plink.errors import PlinkError
from plink.model.checkpoint_names import partition_file
from plink.model.elastic import requests as r
from plink.model.elastic.results import Cancelled, CheckpointWritten, ParticipantsSet, Result
from plink.runtime.elastic.server.server import SavedState, Server

Does = Callable[[Server, Any], Result | None]


def _open(server: Server, request: r.Open) -> None:
    """Serve a partition that nobody has."""
    server.open(request.partition, {}, generation=request.generation, term=request.term, history=True)


def _restore(server: Server, request: r.Restore) -> None:
    """Serve a partition as of a clock of a checkpoint."""
    saved = SavedState(Path(request.path), request.clock, request.of_another_job)
    server.restore(request.partition, saved, {}, generation=request.generation, term=request.term)


def _prepare(server: Server, request: r.Prepare) -> None:
    """Send a partition on its way."""
    server.prepare(request.partition, request.address, request.term, replica=request.replica)


def _commit(server: Server, request: r.Commit) -> None:
    """Let the new primary begin."""
    server.commit(request.partition, request.term)


def _cancel(server: Server, request: r.Cancel) -> Result:
    """Cancel a move."""
    return Cancelled(off=server.cancel(request.partition, request.term))


def _add_replica(server: Server, request: r.AddReplica) -> None:
    """Add a replica beside the present one."""
    server.add_replica(request.partition, request.address)


def _set_replica(server: Server, request: r.SetReplica) -> None:
    """Replicate to this replica alone."""
    server.set_replica(request.partition, request.address)


def _stop_replicating(server: Server, request: r.StopReplicating) -> None:
    """Stop replicating to that replica."""
    server.stop_replicating(request.partition, request.address)


def _restore_to(server: Server, request: r.RestoreTo) -> None:
    """Send a replica's state to the host that is to serve it."""
    server.restore_to(request.partition, request.address, request.term, {}, request.first)


def _drop(server: Server, request: r.Drop) -> None:
    """Drop what is here of a partition."""
    server.drop(request.partition, request.term)


def _promote(server: Server, request: r.Promote) -> None:
    """Promote a replica to primary."""
    server.promote(request.partition, {}, request.first, request.term)


def _forget(server: Server, request: r.Forget) -> None:
    """Cancel moves of earlier terms."""
    for status in server.status():
        server.cancel(status.partition, request.term)


def _truncate(server: Server, request: r.Truncate) -> None:
    """Truncate undo logs: all replicas have that clock."""
    server.truncate(request.clock)


def _replicate_up_to(server: Server, request: r.ReplicateUpTo) -> None:
    """Begin the next round of replication."""
    server.replicate_up_to(request.clock)


def _take_part(server: Server, request: r.SetParticipants) -> Result:
    """Set the participants of partitions from a clock on; return those that are not served here."""
    elsewhere = []
    for partition in request.partitions:
        try:
            server.workers_from(partition, request.workers, request.first)
        except PlinkError as error:
            elsewhere.append((partition, str(error)))
    return ParticipantsSet(tuple(elsewhere))


def _checkpoint(server: Server, request: r.WriteCheckpoint) -> Result:
    """Write partitions into files of a folder."""
    folder, begun, size = Path(request.folder), time.monotonic(), 0
    folder.mkdir(parents=True, exist_ok=True)
    for partition in request.partitions:
        path = folder / partition_file(partition)
        server.checkpoint(partition, path)
        size += path.stat().st_size
    return CheckpointWritten(time.monotonic() - begun, size)


AT_ONCE: Mapping[type[r.Request], Does] = {
    r.Open: _open, r.Cancel: _cancel, r.SetReplica: _set_replica, r.StopReplicating: _stop_replicating, r.Drop: _drop,
    r.Promote: _promote, r.Forget: _forget, r.Truncate: _truncate, r.ReplicateUpTo: _replicate_up_to,
    r.SetParticipants: _take_part,
}  # fmt: skip
MOVING: Mapping[type[r.Request], Does] = {r.Prepare: _prepare, r.AddReplica: _add_replica, r.RestoreTo: _restore_to}
LONG: Mapping[type[r.Request], Does] = {
    **MOVING, r.Commit: _commit, r.Restore: _restore, r.WriteCheckpoint: _checkpoint
}  # fmt: skip
