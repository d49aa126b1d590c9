"""Types of the fields of messages, with the values that are allowed, and records that several messages share."""

from typing import Annotated

from msgspec import Meta, Struct

_LARGEST = (1 << 63) - 1

Int = Annotated[int, Meta(ge=-_LARGEST - 1, le=_LARGEST)]
Index = Annotated[int, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=_LARGEST)]
Amount = Annotated[float, Meta(ge=0, lt=float(_LARGEST))]  # finite, not negative


class TrafficCounters(Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that a host has sent and received over the connections of its job, sealed and with all around them.

    ``client_*``: over connections that its process made, as its workers do; ``server_*``: over those made to it.
    ``replicated``: of these, what it pushed to replicas, without what is around it.
    """

    client_sent: Int = 0
    client_received: Int = 0
    server_sent: Int = 0
    server_received: Int = 0
    replicated: Int = 0

    @property
    def sent(self) -> int:
        """Bytes sent in all."""
        return self.client_sent + self.server_sent

    @property
    def received(self) -> int:
        """Bytes received in all."""
        return self.client_received + self.server_received


class SavedCheckpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole checkpoint on disk: its clock, of how many partitions it is, and the name of its folder."""

    clock: Int
    partitions: Int
    folder: str


class ShardMap(Struct, frozen=True, forbid_unknown_fields=True):
    """Who works on which shards from a clock on.

    ``everywhere``: host, shards and first clock by worker. ``left``: host and last clock, exclusive, of workers that
    were told to leave.
    """

    clock: Int
    generation: Int
    everywhere: dict[Index, tuple[Int, tuple[Int, ...], Int]]
    left: tuple[tuple[Int, Int], ...]


class StageThresholds(Struct, frozen=True, forbid_unknown_fields=True):
    """What the last measure of the traffic led to: its number, a worker's bytes per second, and both ratios."""

    measure: Int
    worker: Amount
    active: Amount
    backup_only: Amount


class DivergenceReport(Struct, frozen=True, forbid_unknown_fields=True):
    """Squared distance of a partition to the farthest of its replicas, and the largest so far; whether it is time for a
    round of replication."""

    square: Amount = 0.0
    largest_square: Amount = 0.0
    due: bool = False
