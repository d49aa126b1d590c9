"""Types of the fields of messages, with the values that are allowed, and records that several messages share."""

import math
from itertools import accumulate, zip_longest
from typing import Annotated, Any

from msgspec import Meta, Struct

_LARGEST = (1 << 63) - 1
MAX_DELAY_BINS = 32
_LATENESS_STEPS = 8  # to the double

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

    ``lateness``: planned transfers of whole updates, one for each step, by how long they took in terms of their plan:
    2 ** -2 and below, and then in steps of 2 ** (1/8); the last of 32 has all above. ``grouped``: how many of them
    carried the updates of several workers.
    """

    delays: Annotated[tuple[Index, ...], Meta(max_length=MAX_DELAY_BINS)] = ()
    total: Index = 0
    largest: Index = 0
    dropped: Index = 0
    unsent: Index = 0
    lateness: Annotated[tuple[Index, ...], Meta(max_length=MAX_DELAY_BINS)] = ()
    grouped: Index = 0

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

    def with_transfer(self, ratio: float, grouped: bool) -> "UpdateCounts":
        """Return the counts with one more planned transfer, which took so many times what was planned."""
        place = 0 if ratio <= 0 else round(_LATENESS_STEPS * math.log2(ratio)) + MAX_DELAY_BINS // 2
        place = min(max(place, 0), MAX_DELAY_BINS - 1)
        return self + UpdateCounts(lateness=(0,) * place + (1,), grouped=int(grouped))

    @property
    def median_lateness(self) -> float | None:
        """The median of how long planned transfers took in terms of their plan, to a twentieth; None without any."""
        half = sum(self.lateness) / 2
        ends = enumerate(accumulate(self.lateness))
        return next(
            (2 ** ((place - MAX_DELAY_BINS // 2) / _LATENESS_STEPS) for place, count in ends if count >= half > 0), None
        )

    def __add__(self, other: "UpdateCounts") -> "UpdateCounts":
        """Return the counts of both."""
        delays, lateness = (
            tuple(map(sum, zip_longest(*both, fillvalue=0)))
            for both in ((self.delays, other.delays), (self.lateness, other.lateness))
        )
        return UpdateCounts(
            delays, self.total + other.total, max(self.largest, other.largest), self.dropped + other.dropped,
            self.unsent + other.unsent, lateness, self.grouped + other.grouped,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any] | None:
        """Return them for a person or a program of theirs; None where there was no update."""
        if not self.applied + self.dropped + self.unsent:
            return None
        lateness = self.median_lateness
        bounds = [(1 << place >> 1, (1 << place) - 1) for place in range(len(self.delays))]
        return {
            "applied": self.applied,
            "dropped": self.dropped,
            "unsent": self.unsent,
            "mean_delay": round(self.total / self.applied, 3) if self.applied else None,
            "largest_delay": self.largest if self.applied else None,
            "delays": [
                {"least": least, "most": min(most, self.largest), "updates": updates}
                for (least, most), updates in zip(bounds, self.delays, strict=True)
            ],
            "transfers": {
                "planned": sum(self.lateness),
                "grouped": self.grouped,
                "median_lateness": None if lateness is None else round(lateness, 3),
            },
        }


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
