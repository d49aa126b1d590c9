"""Requests of a controller that concern partitions, each carried out by the server of a host."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plink.errors import PlinkError
from plink.model.checkpoint_names import partition_file
from plink.model.elastic import requests as r
from plink.model.elastic.results import Cancelled, CheckpointWritten, ParticipantsSet, Result
from plink.runtime.agileml.server.server import Server

Does = Callable[[Server, Any], Result | None]


def _open(server: Server, request: r.Open) -> None:
    """Serve a partition that nobody has."""
    server.open(request.partition, {}, era=request.era, epoch=request.epoch, history=True)


def _restore(server: Server, request: r.Restore) -> None:
    """Serve a partition as of a clock of a checkpoint."""
    server.restore(
        request.partition, Path(request.path), {}, era=request.era, epoch=request.epoch,
        clock=request.clock,
    )  # fmt: skip


def _prepare(server: Server, request: r.Prepare) -> None:
    """Send a partition on its way."""
    server.prepare(request.partition, request.address, request.epoch, backup=request.backup)


def _commit(server: Server, request: r.Commit) -> None:
    """Let the new owner begin."""
    server.commit(request.partition, request.epoch)


def _cancel(server: Server, request: r.Cancel) -> Result:
    """A move is off."""
    return Cancelled(off=server.cancel(request.partition, request.epoch))


def _back_up(server: Server, request: r.AddReplica) -> None:
    """Another backup beside the one that is there."""
    server.back_up(request.partition, request.address)


def _push_to(server: Server, request: r.SetReplica) -> None:
    """This backup alone."""
    server.push_to(request.partition, request.address)


def _stop_pushing(server: Server, request: r.StopReplicating) -> None:
    """Not that backup any more."""
    server.stop_pushing(request.partition, request.address)


def _restore_to(server: Server, request: r.RestoreTo) -> None:
    """A backup sends its state to who is to serve it."""
    server.restore_to(request.partition, request.address, request.epoch, {}, request.first)


def _drop(server: Server, request: r.Drop) -> None:
    """What is here of a partition is of no use."""
    server.drop(request.partition, request.epoch)


def _take_over(server: Server, request: r.Promote) -> None:
    """A backup serves."""
    server.take_over(request.partition, {}, request.first, request.epoch)


def _forget(server: Server, request: r.Forget) -> None:
    """Moves of before an epoch are off."""
    for status in server.status():
        server.cancel(status.partition, request.epoch)


def _release(server: Server, request: r.Truncate) -> None:
    """All backups have that clock."""
    server.release(request.clock)


def _push_up_to(server: Server, request: r.ReplicateUpTo) -> None:
    """The next round of pushes."""
    server.push_up_to(request.clock)


def _take_part(server: Server, request: r.SetParticipants) -> Result:
    """From a clock on these workers take part in partitions; those that are not served here are told."""
    elsewhere = []
    for partition in request.partitions:
        try:
            server.workers_from(partition, request.workers, request.first)
        except PlinkError as error:
            elsewhere.append((partition, str(error)))
    return ParticipantsSet(tuple(elsewhere))


def _checkpoint(server: Server, request: r.WriteCheckpoint) -> Result:
    """Partitions into files of a folder."""
    folder, begun, size = Path(request.folder), time.monotonic(), 0
    folder.mkdir(parents=True, exist_ok=True)
    for partition in request.partitions:
        path = folder / partition_file(partition)
        server.checkpoint(partition, path)
        size += path.stat().st_size
    return CheckpointWritten(time.monotonic() - begun, size)


AT_ONCE: Mapping[type[r.Request], Does] = {
    r.Open: _open, r.Cancel: _cancel, r.SetReplica: _push_to, r.StopReplicating: _stop_pushing, r.Drop: _drop,
    r.Promote: _take_over, r.Forget: _forget, r.Truncate: _release, r.ReplicateUpTo: _push_up_to,
    r.SetParticipants: _take_part,
}  # fmt: skip
MOVING: Mapping[type[r.Request], Does] = {r.Prepare: _prepare, r.AddReplica: _back_up, r.RestoreTo: _restore_to}
LONG: Mapping[type[r.Request], Does] = {
    **MOVING, r.Commit: _commit, r.Restore: _restore, r.WriteCheckpoint: _checkpoint
}  # fmt: skip
