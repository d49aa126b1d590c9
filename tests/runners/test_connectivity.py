"""Connectivity check: rank 0's listener accepts everyone, and leaves the port free."""

import socket
import threading
from pathlib import Path

import pytest

from runners.job import connectivity
from runners.job.connectivity import connection_error, open_listener

_TIME_WAIT = "06"


def states(port: int) -> set[str]:
    """The states of the TCP connections whose own end has that port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[3] for row in rows if row[1].endswith(f":{port:04X}")}


@pytest.mark.extended
def test_more_clients_than_the_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two that nobody has taken yet, sixty come, some of whom never hang up; then the port is free."""
    monkeypatch.setattr(connectivity, "_BACKLOG", 1)
    listener = open_listener("127.0.0.1", 0)
    port = listener.getsockname()[1]
    staying = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(20)]
    assert [connection_error("127.0.0.1", port) for _ in range(40)] == [None] * 40
    listener.close()
    assert _TIME_WAIT not in states(port)
    with socket.socket() as sock:  # without SO_REUSEADDR
        sock.bind(("127.0.0.1", port))
    for sock in staying:
        sock.close()
    assert connection_error("127.0.0.1", port) == "Connection refused"
    assert not [thread for thread in threading.enumerate() if thread.name == "plink-listener"]


def test_port_in_use() -> None:
    with open_listener("127.0.0.1", 0) as listener, pytest.raises(OSError, match="in use"):
        open_listener("127.0.0.1", listener.getsockname()[1])
