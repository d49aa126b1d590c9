"""Requests of a controller to a node, and their results.

The tag of a request is the method's name on the wire; fields are its parameters.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from plink.model.elastic.fields import Amount, Index, Int, SavedCheckpoint, ShardMap, StageThresholds, TrafficCounters


class Request(Struct, frozen=True, forbid_unknown_fields=True, tag_field="method"):
    """Base of all requests."""


class Begin(Request, frozen=True, tag="begin"):
    """Start the server and the (idle) workers of a host. ``link_bytes_s``: what it carries in a second; 0: unknown."""

    number: Int
    address: str
    keys: str
    partitions: Int
    rule: str
    started: float
    notice_s: Amount
    notices: str
    checkpoints: str
    restore: str
    job: str
    reliable: bool
    rebalance: bool
    divergence: str = ""
    link_bytes_s: Amount = 0.0


class Report(Request, frozen=True, tag="report"):
    """Report all that a controller has to know that was started again."""


class MarkFolder(Request, frozen=True, tag="mark_folder"):
    """Write the mark by which other hosts recognise the folder of checkpoints."""


class CheckFolder(Request, frozen=True, tag="check_folder"):
    """Fail where the mark of another host cannot be seen."""


class Open(Request, frozen=True, tag="open"):
    """Serve a partition that has no state yet."""

    partition: Int
    term: Int
    generation: Int


class Restore(Request, frozen=True, tag="restore"):
    """Serve a partition as of a clock, from a file of a checkpoint. ``of_another_job``: without its decision to end."""

    partition: Int
    term: Int
    generation: Int
    clock: Int
    path: str
    of_another_job: bool


class Prepare(Request, frozen=True, tag="prepare"):
    """Send a partition on its way to another server; ``replica``: where that one replicates to."""

    partition: Int
    term: Int
    address: str
    replica: str


class Commit(Request, frozen=True, tag="commit"):
    """Let the new primary of a partition begin, and end serving it here."""

    partition: Int
    term: Int


class Cancel(Request, frozen=True, tag="cancel"):
    """Call a move off."""

    partition: Int
    term: Int


class AddReplica(Request, frozen=True, tag="add_replica"):
    """Send a partition's state to one more replica, and replicate to it."""

    partition: Int
    term: Int
    address: str


class SetReplica(Request, frozen=True, tag="set_replica"):
    """Replicate to this replica alone."""

    partition: Int
    address: str


class StopReplicating(Request, frozen=True, tag="stop_replicating"):
    """Replicate to this replica no longer."""

    partition: Int
    address: str


class RestoreTo(Request, frozen=True, tag="restore_to"):
    """Send a replica's state to the host that is to serve it, from clock ``first`` on."""

    partition: Int
    term: Int
    address: str
    first: Int


class Drop(Request, frozen=True, tag="drop"):
    """Forget what is here of a partition."""

    partition: Int
    term: Int


class Promote(Request, frozen=True, tag="promote"):
    """Serve a partition from the replica that is here, from clock ``first`` on."""

    partition: Int
    term: Int
    first: Int


class Forget(Request, frozen=True, tag="forget"):
    """Call off moves of before a term."""

    term: Int


class Truncate(Request, frozen=True, tag="truncate"):
    """Truncate the undo log: nobody goes back to before this clock."""

    clock: Int


class ReplicateUpTo(Request, frozen=True, tag="replicate_up_to"):
    """Replicate up to a clock: the next round."""

    clock: Int


class SetParticipants(Request, frozen=True, tag="set_participants"):
    """Take updates of these workers, and of no others, in partitions from a clock on."""

    partitions: tuple[Int, ...]
    workers: tuple[Int, ...]
    first: Int


class Pause(Request, frozen=True, tag="pause"):
    """Let no worker begin a clock."""

    clock: Int


class Resume(Request, frozen=True, tag="resume"):
    """Let workers begin what they like."""


class AssignShards(Request, frozen=True, tag="assign_shards"):
    """Work on these shards from a clock on; ``workers``: of this host, ``everywhere`` and ``left``: as a ShardMap.

    ``addresses``: of the servers of all hosts with workers, where these help each other.
    """

    clock: Int
    generation: Int
    workers: dict[Index, tuple[Int, ...]]
    everywhere: dict[Index, tuple[Int, tuple[Int, ...], Int]]
    left: tuple[tuple[Int, Int], ...]
    addresses: dict[Index, str]


class TakeOver(Request, frozen=True, tag="take_over"):
    """Do the clocks from ``clock`` to before ``until`` of a lost worker; ``had``: its shards, each since a clock."""

    worker: Int
    had: tuple[tuple[Int, tuple[Int, ...]], ...]
    clock: Int
    until: Int
    generation: Int


class LoadShards(Request, frozen=True, tag="load_shards"):
    """Load shards of the input data into memory."""

    shards: tuple[Int, ...]


class WriteCheckpoint(Request, frozen=True, tag="write_checkpoint"):
    """Write the states of partitions at a clock into files of a folder, that of a checkpoint of the job."""

    folder: str
    partitions: tuple[Int, ...]
    clock: Int
    job: str


class KeepCheckpoint(Request, frozen=True, tag="keep_checkpoint"):
    """Name a whole checkpoint as the latest."""

    folder: str
    saved: SavedCheckpoint
    job: str


class DiscardCheckpoint(Request, frozen=True, tag="discard_checkpoint"):
    """Remove a checkpoint that failed."""

    folder: str
    job: str


class WriteResult(Request, frozen=True, tag="write_result"):
    """Run the program's ``result()`` on the state of a clock."""

    clock: Int
    generation: Int


class RollBack(Request, frozen=True, tag="roll_back"):
    """Go back to a clock, in a new generation."""

    clock: Int
    generation: Int


class Reset(Request, frozen=True, tag="reset"):
    """Forget all partitions, and begin a new generation at a clock."""

    clock: Int
    generation: Int


class ReportPartitions(Request, frozen=True, tag="report_partitions"):
    """Report anew of all partitions."""


class SetPrimaries(Request, frozen=True, tag="set_primaries"):
    """Address partitions to these primaries: address and term by partition. ``count``: the largest number given."""

    primaries: dict[Index, tuple[str, Int]]
    count: Int


class KeepThresholds(Request, frozen=True, tag="keep_thresholds"):
    """Keep what was measured for a controller that is started again."""

    measure: Int
    worker: Amount
    active: Amount
    backup_only: Amount


class Bye(Request, frozen=True, tag="bye"):
    """End the node; ``over``: the job has ended."""

    over: bool = False


REQUESTS: dict[str, type[Request]] = {
    str(kind.__struct_config__.tag): kind for kind in Request.__subclasses__()
}  # by method


def method_of(request: Request) -> str:
    """Return the name of a request's method on the wire."""
    return str(request.__struct_config__.tag)


def params_of(request: Request) -> dict[str, Any]:
    """Return a request's parameters by name, as they are sent."""
    return {name: getattr(request, name) for name in request.__struct_fields__}


def method_of_type(kind: type[Request]) -> str:
    """Return the name of a kind of request on the wire."""
    return str(kind.__struct_config__.tag)


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


class CheckpointDiscarded(Result, frozen=True):
    """``latest``: of the job; None: it has none, or the host cannot read which."""

    latest: SavedCheckpoint | None = None


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


RESULTS: dict[type[Request], type[Result]] = {
    Begin: Begun,
    Pause: Paused,
    SetParticipants: ParticipantsSet,
    WriteCheckpoint: CheckpointWritten,
    DiscardCheckpoint: CheckpointDiscarded,
    Cancel: Cancelled,
    Report: HostReport,
}


def result_of(request: type[Request], result: dict[str, Any]) -> Result:
    """Decode the result of a request that was done. :raises msgspec.ValidationError: it is not of that form."""
    return msgspec.convert(result, RESULTS.get(request, Result), str_keys=True)
