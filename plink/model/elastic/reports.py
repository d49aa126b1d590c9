"""Messages of a node to the controller of its job. The tag is the message's type on the wire."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from plink.model.elastic.fields import Amount, DivergenceReport, Index, Int, Positive, TrafficCounters


class NodeMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all messages of nodes."""


class Hello(NodeMessage, frozen=True, tag="hello"):
    """What a node is: versions, program, and shape of its tables (rows, bytes of a row); the first message.

    ``memory``: bytes that are available, ``pool``: what they are taken from, the same on hosts that share it.
    ``optimisers``: names of the tables that have one. ``float_tables``: how many of the program's are of floats.
    """

    version: Int
    plink: str
    app: str
    pid: Int
    tables: Int
    shards: Positive
    batches: Positive
    grains: Positive
    shapes: Annotated[tuple[tuple[Positive, Positive], ...], Meta(min_length=1)]
    memory: Amount | None
    pool: str
    optimisers: tuple[str, ...]
    float_tables: Index


class OtherVersion(NodeMessage, frozen=True, tag="other_version"):
    """Never sent: what the first message of a node of another version is decoded to."""

    plink: str
    protocol: str


class Alive(NodeMessage, frozen=True, tag="alive"):
    """A heartbeat, with the bytes carried so far."""

    traffic: TrafficCounters


class Notice(NodeMessage, frozen=True, tag="notice"):
    """The host will be taken away in so many seconds."""

    seconds: Amount
    reason: str


class Failed(NodeMessage, frozen=True, tag="failed"):
    """A worker (-1: the node) cannot go on: the job ends."""

    error: str
    worker: Int = -1
    kind: str = ""


class Log(NodeMessage, frozen=True, tag="log"):
    """A line for whoever looks for the cause of something."""

    text: str


class Answer(NodeMessage, frozen=True, tag="answer"):
    """The answer to a request: its result, or an error and the kind of it."""

    id: Int
    error: str | None = None
    kind: str = ""
    result: dict[str, Any] = {}


class PartitionsChanged(NodeMessage, frozen=True, tag="partitions"):
    """Role, generation, term, clock and clock of the replica, of partitions of which something has changed; how far
    those that are served are from their replicas, where that is bounded."""

    partitions: dict[Index, tuple[str, Int, Int, Int, Int]]
    divergence: dict[Index, DivergenceReport] = {}


class ClockDone(NodeMessage, frozen=True, tag="clock"):
    """A worker has done a clock, or a stand-in in its name. ``is_leader``: it has shard 0. ``evaluated_iteration``: its
    objective is known now.

    ``steps``: mini-batches of each of its ``shards``. ``compute_s``: seconds in the program. ``waited_s``: for others
    before it, without the seconds that parameters took to arrive. ``grains``: parts of its work, 0 where workers do not
    help each other. ``helped``: how many of them other workers did, by worker."""

    clock: Int
    iteration: Int
    batches: Positive
    seconds: Amount
    is_leader: bool
    evaluated_iteration: Int | None
    objective: float | None  # a sum, may be infinite
    generation: Int
    worker: Index
    shards: Index = 0
    steps: Index = 1
    compute_s: Amount = 0.0
    waited_s: Amount = 0.0
    grains: Index = 0
    helped: dict[Index, Index] = {}


class WorkerFinished(NodeMessage, frozen=True, tag="finished"):
    """A worker has ended at a clock: it stood in for another, was released, or nothing is left to do, for a reason."""

    worker: Int
    clock: Int
    takeover: bool
    released: bool
    reason: str = ""


MESSAGES: dict[str, type[NodeMessage]] = {
    str(kind.__struct_config__.tag): kind for kind in NodeMessage.__subclasses__() if kind is not OtherVersion
}  # by type
