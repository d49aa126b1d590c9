"""Bytes that this process has sent and received over the connections of its job, sealed and with all around them."""

import threading
from typing import Protocol
from weakref import WeakSet

from plink.model.elastic.fields import TrafficCounters


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

    def total(self) -> TrafficCounters:
        """Return the bytes so far."""
        with self._guard:
            result = self._past
            for connection in self._open:
                result = _with(result, connection)
            return result


def _with(traffic: TrafficCounters, item: Counted) -> TrafficCounters:
    if item.accepted:
        return TrafficCounters(
            traffic.client_sent, traffic.client_received, traffic.server_sent + item.sent,
            traffic.server_received + item.received,
        )  # fmt: skip
    return TrafficCounters(
        traffic.client_sent + item.sent, traffic.client_received + item.received, traffic.server_sent,
        traffic.server_received,
    )  # fmt: skip


TRAFFIC = TrafficAccount()
