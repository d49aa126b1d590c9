"""One TCP flow between two agents, on loopback: counted after its ramp, from the right sender only, and it ends."""

import contextlib
import socket
import threading
from typing import Any

import pytest

from plink.transport import flows

WAIT_S = 60.0
TOKEN = bytes(range(32))


def received(listener: socket.socket, seconds: float = 0.3) -> tuple[threading.Thread, list[dict[str, Any]]]:
    """A sink at work in a thread, and where its result will be."""
    results: list[dict[str, Any]] = []

    def run() -> None:
        results.append(flows.receive(listener, {"token": TOKEN.hex(), "seconds": seconds}))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_a_flow_is_counted() -> None:
    with flows.listen("127.0.0.1") as listener:
        thread, results = received(listener)
        port = listener.getsockname()[1]
        sent = flows.send({"peer": ["127.0.0.1", port], "token": TOKEN.hex(), "seconds": 1.0})
        thread.join(WAIT_S)
    assert results[0]["gbps"] > 0
    assert sent["sent_bytes"] > 0


def test_clients_without_the_token_are_dropped() -> None:
    """A client with another token, or without one, is dropped."""
    with flows.listen("127.0.0.1") as listener:
        thread, results = received(listener)
        address = listener.getsockname()
        for data in (b"", bytes(32), TOKEN[:31]):
            with socket.create_connection(address) as client:
                client.sendall(data)
        flows.send({"peer": [*address], "token": TOKEN.hex(), "seconds": 1.0})
        thread.join(WAIT_S)
    assert results[0]["gbps"] > 0


def test_a_sender_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "_ACCEPT_S", 0.1)
    with flows.listen("127.0.0.1") as listener:
        results = flows.receive(listener, {"token": TOKEN.hex(), "seconds": 0.3})
    assert results["error"].startswith("the flow's sender did not connect")


def test_a_sender_that_leaves_early_is_an_error() -> None:
    with flows.listen("127.0.0.1") as listener:
        thread, results = received(listener, seconds=60.0)
        with socket.create_connection(listener.getsockname()) as sender:
            sender.sendall(TOKEN + bytes(100_000))
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert results == [{"error": "the flow ended early"}]


def test_a_sink_that_is_not_there_is_an_error() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        results = flows.send({"peer": [*sock.getsockname()], "token": TOKEN.hex(), "seconds": 0.2})
    assert results["error"].startswith("no flow to 127.0.0.1: ")


def test_slow_client_does_not_delay_the_sender() -> None:
    """A client that sends a byte of some token now and then is read beside the sender, not before it."""
    with flows.listen("127.0.0.1") as listener, socket.create_connection(listener.getsockname()) as client:
        client.sendall(TOKEN[:1])
        thread, results = received(listener)
        port = listener.getsockname()[1]
        over = threading.Event()

        def dribble() -> None:
            for byte in TOKEN[1:-1]:
                if over.wait(0.3):
                    return
                with contextlib.suppress(OSError):
                    client.sendall(bytes([byte]))

        dribbling = threading.Thread(target=dribble)
        dribbling.start()
        flows.send({"peer": ["127.0.0.1", port], "token": TOKEN.hex(), "seconds": 1.0})
        thread.join(WAIT_S)
        over.set()
        dribbling.join()
    assert results[0]["gbps"] > 0


def test_one_deadline_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly they send their greeting, and however many they are."""
    monkeypatch.setattr(flows, "_ACCEPT_S", 0.5)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(flows.listen("127.0.0.1"))
        clients = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(40)]
        thread, results = received(listener)
        for _ in range(100):
            if not thread.is_alive():
                break
            with contextlib.suppress(OSError):
                clients[-1].sendall(b"x")
            thread.join(0.1)
        assert not thread.is_alive(), "clients extended the deadline"
    assert results[0]["error"].startswith("the flow's sender did not connect")
