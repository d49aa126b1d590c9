"""Types of the fields of messages, with the values that are allowed, and records that several messages share."""

from itertools import zip_longest
from typing import Annotated

from msgspec import Meta, Struct

from plink.model.elastic.summary import DelayCount, UpdatesSummary

_LARGEST = (1 << 63) - 1
MAX_DELAY_BINS = 32

Int = Annotated[int, Meta(ge=-_LARGEST - 1, le=_LARGEST)]
Index = Annotated[int, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=_LARGEST)]
Amount = Annotated[float, Meta(ge=0, lt=float(_LARGEST))]  # finite, not negative


class UpdateCounts(Struct, frozen=True, forbid_unknown_fields=True):
    """Updates of asynchronous workers, one for each partition and step, by delay: how many others the partition applied
    between the read that an update was computed from and itself.

    ``delays``: how many were applied with delay 0, 1, 2 to 3, 4 to 7 and so on; the last of 32 has all above.
    ``total`` and ``largest``: of these delays. ``dropped``: how many were not applied when they arrived. ``unsent``:
    how many were dropped before that, and did not travel.

    ``planned_s`` and ``took_s``: seconds of transfers that an arbiter planned, one for each step, by plan and really;
    ``planned``: how many, of which ``grouped`` carried the updates of several workers.
    """

    delays: Annotated[tuple[Index, ...], Meta(max_length=MAX_DELAY_BINS)] = ()
    total: Index = 0
    largest: Index = 0
    dropped: Index = 0
    unsent: Index = 0
    planned: Index = 0
    grouped: Index = 0
    planned_s: Amount = 0.0
    took_s: Amount = 0.0

    @property
    def applied(self) -> int:
        """Updates that were applied."""
        return sum(self.delays)

    def with_one(self, delay: int | None) -> "UpdateCounts":
        """Return the counts with one more update, applied with this delay, or dropped (None)."""
        if delay is None:
            return self + UpdateCounts(dropped=1)
        place = min(delay.bit_length(), MAX_DELAY_BINS - 1)
        return self + UpdateCounts((0,) * place + (1,), delay, delay)

    def __add__(self, other: "UpdateCounts") -> "UpdateCounts":
        """Return the counts of both."""
        delays = tuple(map(sum, zip_longest(self.delays, other.delays, fillvalue=0)))
        largest = max(self.largest, other.largest)
        sums = (getattr(self, name) + getattr(other, name) for name in self.__struct_fields__[3:])
        return UpdateCounts(delays, self.total + other.total, largest, *sums)

    def summary(self) -> UpdatesSummary | None:
        """Return them for a person or a program of theirs; None where there was no update."""
        if not self.applied + self.dropped + self.unsent:
            return None
        bounds = [(1 << place >> 1, (1 << place) - 1) for place in range(len(self.delays))]
        return UpdatesSummary(
            applied=self.applied,
            dropped=self.dropped,
            unsent=self.unsent,
            mean_delay=round(self.total / self.applied, 3) if self.applied else None,
            largest_delay=self.largest if self.applied else None,
            delays=tuple(
                DelayCount(least=least, most=min(most, self.largest), updates=updates)
                for (least, most), updates in zip(bounds, self.delays, strict=True)
            ),
            planned=self.planned,
            grouped=self.grouped,
            lateness=round(self.took_s / self.planned_s, 3) if self.planned_s else None,
        )


class TrafficCounters(Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that a host has sent and received over the connections of its job, sealed and with all around them; and the
    updates that its partitions took.

    ``client_*``: over connections that its process made, as its workers do; ``server_*``: over those made to it.
    ``replicated``: of these, what it pushed to replicas, without what is around it.
    """

    client_sent: Int = 0
    client_received: Int = 0
    server_sent: Int = 0
    server_received: Int = 0
    replicated: Int = 0
    updates: UpdateCounts = UpdateCounts()

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
