"""A line to a server that has vanished: who waits for it can be woken, however far the connection has come."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from plink.elastic import Table
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.transport.connection import Connection
from plink.runtime.elastic.transport.messages import Read
from plink.runtime.elastic.transport.records import ConnectionLost
from tests.runtime.elastic.stores import KEYS

WAIT_S = 30.0
LAYOUT = Layout((Table("w", 1, 1),), 1)


@contextlib.contextmanager
def that_takes_nobody() -> Iterator[int]:
    """A port whose queue is full: like a host that is gone, it answers no SYN."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            guest = stack.enter_context(socket.socket())
            guest.setblocking(False)
            guest.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@contextlib.contextmanager
def that_says_nothing() -> Iterator[int]:
    """A port that takes whoever comes, and does not go on to meet him."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("vanished", [that_takes_nobody, that_says_nothing])
def test_who_still_connects_is_woken(vanished: "type[contextlib.AbstractContextManager[int]]") -> None:
    with vanished() as port:
        line, output = Connection(f"127.0.0.1:{port}", KEYS, LAYOUT, 2 * WAIT_S), list[str]()

        def ask() -> None:
            with pytest.raises(ConnectionLost) as lost:
                line.ask(Read(0))
            output.append(str(lost.value))

        asking = threading.Thread(target=ask)
        asking.start()
        deadline = time.monotonic() + WAIT_S
        while line._pending is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)  # it waits now
        line.wake()
        asking.join(WAIT_S)
        assert not asking.is_alive()
        assert output[0].startswith(f"127.0.0.1:{port}: ")


def test_who_is_woken_just_before_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that is not connected yet cannot be shut down."""

    class Waking(socket.socket):
        def connect(self, where: object) -> None:
            line.wake()
            super().connect(where)  # type: ignore[arg-type]

        def connect_ex(self, where: object) -> int:
            line.wake()
            return super().connect_ex(where)  # type: ignore[arg-type]

    with that_takes_nobody() as port, monkeypatch.context() as patched:
        line = Connection(f"127.0.0.1:{port}", KEYS, LAYOUT, 3.0)
        patched.setattr(socket, "socket", Waking)
        with pytest.raises(ConnectionLost, match="nobody waits for it any more"):
            line.ask(Read(0))
        assert line._pending is None


def test_an_address_of_a_family_that_the_kernel_lacks_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with that_says_nothing() as port:
        cached = socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)
        lacking = [(255, *cached[0][1:])]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [*lacking, *cached])
        with pytest.raises(ConnectionLost, match="timed out"):  # of the handshake with the other
            Connection(f"anybody:{port}", KEYS, LAYOUT, 0.3).ask(Read(0))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: lacking)
        with pytest.raises(ConnectionLost, match=r"cannot connect: .*not supported"):
            Connection(f"anybody:{port}", KEYS, LAYOUT, 0.3).ask(Read(0))


def test_next_request_reconnects() -> None:
    """A word to wake is for those who wait then."""
    with that_says_nothing() as port:
        line = Connection(f"127.0.0.1:{port}", KEYS, LAYOUT, 0.3)
        line.wake()
        with pytest.raises(ConnectionLost, match="timed out"):
            line.ask(Read(0))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "nobody.invalid:1"])
def test_nobody_there(address: str) -> None:
    with pytest.raises(ConnectionLost, match="cannot connect: "):
        Connection(address, KEYS, LAYOUT, WAIT_S).ask(Read(0))
