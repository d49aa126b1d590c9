"""Unauthenticated clients of listeners during the start of a job: only authenticated clients are served."""

import contextlib
import json
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plink.errors import PlinkError
from runners.elastic.control_socket import ControlSocket, ask
from runners.kubernetes.inside.rendezvous import Bootstrap, RendezvousServer, send_report
from tests.ports import free_port

INVALID = [
    b"\n",
    b"[" * 100_000 + b"\n",
    b'{"job": "this"}\n',
    b'{"job": "this", "group": 0, "pod": "p", "node": "n", "problems": 5}\n',
    b'{"job": "other", "group": 0, "pod": "p", "node": "n", "problems": []}\n',
    b'{"job": "this", "group": 5, "pod": "p", "node": "n", "problems": []}\n',
    b'{"job": "this", "group": [0], "pod": "p", "node": "n", "problems": []}\n',
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff\xfe\n",
    b"7\n",
    b"x" * (3 << 20),
]


def receive_all(line: socket.socket) -> bytes:
    """All bytes until the peer closes the connection."""
    line.settimeout(20)
    message = b""
    try:
        while data := line.recv(1 << 16):
            message += data
    except ConnectionResetError:
        pass
    return message


def pod(group: int) -> dict[str, Any]:
    """What one reports."""
    return {"job": "this", "group": group, "pod": f"pod-{group}", "node": "ab"[group], "problems": []}


@pytest.mark.parametrize("words", INVALID, ids=range(len(INVALID)))
def test_pods_rendezvous_despite_unauthenticated_clients(words: bytes) -> None:
    bootstrap = Bootstrap("this", "127.0.0.1", free_port(), 30.0, True)
    server = RendezvousServer(["a", "b"], bootstrap)
    with socket.create_connection((bootstrap.host, bootstrap.port)) as client:
        with contextlib.suppress(OSError):  # it was hung up on already
            client.sendall(words)
        answers: list[dict[str, Any]] = []
        places = [
            threading.Thread(target=lambda k=k: answers.append(send_report(bootstrap, pod(k), 20.0))) for k in (0, 1)
        ]
        for thread in places:
            thread.start()
        reports, refused = server.finish()
        for thread in places:
            thread.join()
        assert receive_all(client) == b""
    assert refused is None
    assert [reports[k]["pod"] for k in (0, 1)] == ["pod-0", "pod-1"]
    assert answers == [{"master": pod(0)}] * 2


@pytest.fixture(scope="module")
def job_socket() -> Iterator[str]:
    """Answers every request with the request."""
    control_socket = ControlSocket(lambda request, answer: answer({"request": request}))
    yield control_socket.name
    control_socket.close()


@pytest.mark.parametrize("answer", [b"", b"[]\n", b"[" * 5000 + b"\n"])
def test_an_invalid_answer_is_a_one_line_error(answer: bytes, tmp_path: Path) -> None:
    name = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen(1)

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.recv(100)
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(PlinkError, match="the job ended before it answered"):
            ask(name, {"method": "status"})
        thread.join()


def test_a_job_that_ends_closes_waiting_requests() -> None:
    """At once: whoever asked need not wait for as long as an answer may take."""
    received = threading.Event()
    control_socket = ControlSocket(lambda request, answer: received.set())
    result: list[str] = []

    def wait() -> None:
        with pytest.raises(PlinkError) as error:
            ask(control_socket.name, {"method": "add"})
        result.append(str(error.value))

    thread = threading.Thread(target=wait)
    thread.start()
    assert received.wait(20)
    control_socket.close()
    thread.join(20)
    assert result == ["the job ended before it answered"]


def test_job_answers_after_running_out_of_file_descriptors(job_socket: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A call that is waited for has its file already: the first one takes it, and holds it.
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as line:
        most = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
        fillers = [os.dup(0)]
        while fillers[-1] < most:  # no gap is left below it
            fillers.append(os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
        try:
            first.connect(job_socket)
            line.connect(job_socket)
            line.sendall(b'{"do": 1}\n')
            line.settimeout(0.2)
            with pytest.raises(TimeoutError):  # it cannot take the call
                line.recv(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for filler in fillers:
                os.close(filler)
        line.settimeout(20)
        assert json.loads(line.recv(1000)) == {"request": {"do": 1}}
