"""Ports of this machine: some that nobody uses, and one that refuses."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

HERE = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """TCP ports that nobody uses now; none is reserved."""
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(socket.create_server((HERE, 0))).getsockname()[1] for _ in range(count)]


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken and does not listen: connections are refused."""
    with socket.socket() as sock:
        sock.bind((HERE, 0))
        yield sock.getsockname()[1]
