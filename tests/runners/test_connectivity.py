"""The door at which hosts try whether they reach the first rank's: takes everyone, and leaves the port free."""

import socket
import threading
from pathlib import Path

import pytest

from runners.job import reach
from runners.job.connectivity import connection_error, open_listener

_TIME_WAIT = "06"


def states(port: int) -> set[str]:
    """The states of the TCP connections whose own end has that port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[3] for row in rows if row[1].endswith(f":{port:04X}")}


def test_more_come_than_a_kernel_lets_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two that nobody has taken yet, sixty come, some of whom never hang up; then the port is free."""
    monkeypatch.setattr(reach, "_MOST_AT_ONCE", 1)
    door = open_listener("127.0.0.1", 0)
    port = door.getsockname()[1]
    staying = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(20)]
    assert [connection_error("127.0.0.1", port) for _ in range(40)] == [None] * 40
    door.close()
    assert _TIME_WAIT not in states(port)
    with socket.socket() as sock:  # without SO_REUSEADDR
        sock.bind(("127.0.0.1", port))
    for sock in staying:
        sock.close()
    assert connection_error("127.0.0.1", port) == "Connection refused"
    assert not [thread for thread in threading.enumerate() if thread.name == "plink-door"]


def test_a_port_that_cannot_be_had() -> None:
    with open_listener("127.0.0.1", 0) as door, pytest.raises(OSError, match="in use"):
        open_listener("127.0.0.1", door.getsockname()[1])
