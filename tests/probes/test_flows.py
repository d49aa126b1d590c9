"""One TCP flow between two agents, on loopback: counted after its ramp, from the right sender only, and it ends."""

import contextlib
import socket
import threading
from typing import Any

import pytest

from probes.agent import flows

WAIT_S = 60.0
TOKEN = bytes(range(32))


def received(listener: socket.socket, seconds: float = 0.3) -> tuple[threading.Thread, list[dict[str, Any]]]:
    """A sink at work in a thread, and where its result will be."""
    found: list[dict[str, Any]] = []

    def run() -> None:
        found.append(flows.receive(listener, {"token": TOKEN.hex(), "seconds": seconds}))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_a_flow_is_counted() -> None:
    with flows.listen("127.0.0.1") as listener:
        thread, found = received(listener)
        port = listener.getsockname()[1]
        sent = flows.send({"peer": ["127.0.0.1", port], "token": TOKEN.hex(), "seconds": 1.0})
        thread.join(WAIT_S)
    assert found[0]["gbps"] > 0
    assert sent["sent_bytes"] > 0


def test_nobody_but_the_sender_is_heard() -> None:
    """Somebody with another token, or who says nothing and leaves, is passed over."""
    with flows.listen("127.0.0.1") as listener:
        thread, found = received(listener)
        address = listener.getsockname()
        for said in (b"", bytes(32), TOKEN[:31]):
            with socket.create_connection(address) as stranger:
                stranger.sendall(said)
        flows.send({"peer": [*address], "token": TOKEN.hex(), "seconds": 1.0})
        thread.join(WAIT_S)
    assert found[0]["gbps"] > 0


def test_a_sender_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "_ACCEPT_S", 0.1)
    with flows.listen("127.0.0.1") as listener:
        found = flows.receive(listener, {"token": TOKEN.hex(), "seconds": 0.3})
    assert found == {"error": "the flow's sender did not come"}


def test_a_sender_that_leaves_early_is_an_error() -> None:
    with flows.listen("127.0.0.1") as listener:
        thread, found = received(listener, seconds=60.0)
        with socket.create_connection(listener.getsockname()) as sender:
            sender.sendall(TOKEN + bytes(100_000))
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert found == [{"error": "the flow broke off"}]


def test_a_sink_that_is_not_there_is_an_error() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        found = flows.send({"peer": [*sock.getsockname()], "token": TOKEN.hex(), "seconds": 0.2})
    assert found["error"].startswith("no flow to 127.0.0.1: ")


def test_slow_stranger_does_not_delay_the_sender() -> None:
    """A client that sends a byte of some token now and then is read beside the sender, not before it."""
    with flows.listen("127.0.0.1") as listener, socket.create_connection(listener.getsockname()) as stranger:
        stranger.sendall(TOKEN[:1])
        thread, found = received(listener)
        port = listener.getsockname()[1]
        over = threading.Event()

        def dribble() -> None:
            for byte in TOKEN[1:-1]:
                if over.wait(0.3):
                    return
                with contextlib.suppress(OSError):
                    stranger.sendall(bytes([byte]))

        dribbling = threading.Thread(target=dribble)
        dribbling.start()
        flows.send({"peer": ["127.0.0.1", port], "token": TOKEN.hex(), "seconds": 1.0})
        thread.join(WAIT_S)
        over.set()
        dribbling.join()
    assert found[0]["gbps"] > 0


def test_one_deadline_for_all_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly they send their greeting, and however many they are."""
    monkeypatch.setattr(flows, "_ACCEPT_S", 0.5)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(flows.listen("127.0.0.1"))
        strangers = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(40)]
        thread, found = received(listener)
        for _ in range(100):
            if not thread.is_alive():
                break
            with contextlib.suppress(OSError):
                strangers[-1].sendall(b"x")
            thread.join(0.1)
        assert not thread.is_alive(), "strangers renewed the deadline"
    assert found == [{"error": "the flow's sender did not come"}]
