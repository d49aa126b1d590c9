"""Bytes that this process has sent and received over the connections of its job, sealed and with all around them."""

import threading
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

from msgspec import structs

from plink.model.elastic.fields import TrafficCounters
from plink.runtime.elastic.arrays.row_blocks import RowBlock


class Counted(Protocol):
    """A connection: bytes so far, and whether this process was connected to."""

    sent: int
    received: int
    accepted: bool


class TrafficAccount:
    """Counters of all connections, also those that have ended; for any thread."""

    def __init__(self) -> None:
        self._open: WeakSet[Counted] = WeakSet()
        self._past = TrafficCounters()
        self._guard = threading.Lock()

    def add(self, connection: Counted) -> None:
        """Count a connection."""
        with self._guard:
            self._open.add(connection)

    def end(self, connection: Counted) -> None:
        """Stop counting a connection; a second time changes nothing."""
        with self._guard:
            if connection in self._open:
                self._open.discard(connection)
                self._past = _with(self._past, connection)

    def replicated(self, blocks: Iterable[RowBlock]) -> None:
        """Count what is pushed to a replica."""
        size = sum(block.values.nbytes for block in blocks)
        with self._guard:
            self._past = structs.replace(self._past, replicated=self._past.replicated + size)

    def total(self) -> TrafficCounters:
        """Return the bytes so far."""
        with self._guard:
            result = self._past
            for connection in self._open:
                result = _with(result, connection)
            return result


def _with(traffic: TrafficCounters, item: Counted) -> TrafficCounters:
    side = "server" if item.accepted else "client"
    more = {f"{side}_sent": item.sent, f"{side}_received": item.received}
    return structs.replace(traffic, **{name: getattr(traffic, name) + size for name, size in more.items()})


TRAFFIC = TrafficAccount()
