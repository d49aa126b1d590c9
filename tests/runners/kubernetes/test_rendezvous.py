"""Bootstrap rendezvous: anybody in the cluster can connect to it, and only the pods of the job count."""

import json
import socket

import pytest

from runners.kubernetes.inside.rendezvous import Bootstrap, RendezvousServer

REPORT = {"job": "j", "group": 0, "pod": "p", "node": "n", "problems": [], "versions": {}}


@pytest.fixture
def server() -> RendezvousServer:
    return RendezvousServer(["n"], Bootstrap("j", "", 0, wait_s=60.0, allow_version_mismatch=False))


def send(server: RendezvousServer, line: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server._listener.getsockname()[1]), timeout=20)
    sock.sendall(line)
    return sock


@pytest.mark.parametrize(
    "client",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"[" * 200_000 + b"\n",
        b"\xff\xfe\n",
        b"7\n",
        json.dumps({"job": "other", "group": 0}).encode() + b"\n",
        json.dumps({"job": "j"}).encode() + b"\n",
        json.dumps(REPORT | {"group": 5}).encode() + b"\n",
        json.dumps(REPORT | {"group": [0]}).encode() + b"\n",
    ],
    ids=[
        "another protocol",
        "nested too deeply",
        "no text",
        "no object",
        "another job",
        "no report",
        "no such group",
        "no group",
    ],
)
def test_clients_do_not_end_it(client: bytes, server: RendezvousServer) -> None:
    with send(server, client), send(server, json.dumps(REPORT).encode() + b"\n") as pod:
        assert json.loads(pod.makefile().readline()) == {"master": REPORT}
    reports, refused = server.finish()
    assert (reports, refused) == ({0: REPORT}, None)
