"""Results of requests that have one, as a node answers them."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from plink.model.elastic import requests
from plink.model.elastic.fields import Amount, Index, Int, SavedCheckpoint, ShardMap, StageThresholds, TrafficCounters

Clocks = Annotated[tuple[Int, ...], Meta(min_length=1)]  # that a partition can go back to, rising


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all results, and that of requests that answer nothing but whether they were done."""


class Begun(Result, frozen=True):
    """The server listens. ``unwritable``, ``unsaved``: why checkpoints, or what is learnt, cannot be written here;
    ``saved``, ``own``: checkpoints found where the job was told to look, and of the job itself."""

    address: str
    unwritable: str | None
    unsaved: str | None
    saved: SavedCheckpoint | None
    own: SavedCheckpoint | None


class Paused(Result, frozen=True):
    """``begun``: the latest clock that a worker of the host has begun."""

    begun: Int


class ParticipantsSet(Result, frozen=True):
    """``elsewhere``: partitions that are not served here, and why."""

    elsewhere: tuple[tuple[Int, str], ...]


class CheckpointWritten(Result, frozen=True):
    """How long it took, and how large it is."""

    seconds: Amount
    bytes: Int


class Cancelled(Result, frozen=True):
    """``off``: whether there was a move to call off."""

    off: bool


class HostReport(Result, frozen=True):
    """All that a host knows of the job.

    ``serves``: partitions whose state it has as their server, with the term of that; ``replicas``: those that it has a
    whole copy of, with the clocks that this can go back to; ``in_doubt``: the same of those that it gave to a host of
    which it does not know whether that has begun to serve them. ``number``: the largest term, ticket or generation it
    was ever told; ``generation``: of the last roll-back. ``loaded``: shards in memory; ``workers``: shards by worker.
    """

    serves: dict[Index, Int]
    replicas: dict[Index, Clocks]
    in_doubt: dict[Index, Clocks]
    generation: Int
    number: Int
    loaded: tuple[Int, ...]
    map: ShardMap | None
    address: str
    workers: dict[Index, tuple[Int, ...]]
    takeovers: dict[Index, Int]
    begun: Int
    finished: dict[Index, Int]
    paused: bool
    saved: SavedCheckpoint | None
    own: SavedCheckpoint | None
    traffic: TrafficCounters
    thresholds: StageThresholds | None


RESULTS: dict[type[requests.Request], type[Result]] = {
    requests.Begin: Begun,
    requests.Pause: Paused,
    requests.SetParticipants: ParticipantsSet,
    requests.WriteCheckpoint: CheckpointWritten,
    requests.Cancel: Cancelled,
    requests.Report: HostReport,
}


def result_of(request: type[requests.Request], result: dict[str, Any]) -> Result:
    """Decode the result of a request that was done. :raises msgspec.ValidationError: it is not of that form."""
    return msgspec.convert(result, RESULTS.get(request, Result), str_keys=True)
