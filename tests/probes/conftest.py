"""A kernel that stamps packets before the first test looks at its stamps."""

import socket
import time
from collections.abc import Iterator

import pytest

from probes import timestamps


@pytest.fixture(scope="session", autouse=True)
def kernel_that_stamps() -> Iterator[None]:
    """The kernel begins to stamp what arrives a moment after the first socket has asked for it: one that has asked,
    and was heard, stays open while these tests run."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        if timestamps.enable(sock, transmit=False):
            deadline = time.monotonic() + 20.0
            stamped = False
            while not stamped and time.monotonic() < deadline:
                sock.sendto(b"?", sock.getsockname())
                stamped = timestamps.receive(sock, 10)[2] > 0
        yield
