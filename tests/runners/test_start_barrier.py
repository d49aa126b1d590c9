"""Start barrier under external launchers, and the passthrough of the user's environment."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
from plink.transport import start_barrier
from plink.transport.start_barrier import BarrierClosed, serve_barrier, wait_at_barrier
from runners.job.runner import Job
from runners.launchers import external_runner
from runners.launchers.mpi import Mpich, OpenMpi
from runners.launchers.shim import USER_ENVIRONMENT, pack_environment, unpack_environment
from runners.ssh.connector import SshConnector
from tests.runners.test_connectivity import _TIME_WAIT, states

HERE = "127.0.0.1"


@pytest.fixture
def port() -> int:
    """One that is free."""
    with socket.socket() as sock:
        sock.bind((HERE, 0))
        return int(sock.getsockname()[1])


def test_barrier_opens_when_all_ranks_have_connected(port: int) -> None:
    """Also those who come before it is there; then the port is free."""
    with ThreadPoolExecutor(40) as pool:
        early = [pool.submit(wait_at_barrier, HERE, port, "word", rank) for rank in range(1, 20)]
        server = pool.submit(serve_barrier, HERE, port, "word", 30)
        with pytest.raises(TimeoutError):
            server.result(0.5)
        late = [pool.submit(wait_at_barrier, HERE, port, "word", rank) for rank in range(20, 31)]
        assert [future.result(60) for future in (server, *early, *late)] == [None] * 31
    assert _TIME_WAIT not in states(port)
    with socket.socket() as sock:  # without SO_REUSEADDR
        sock.bind((HERE, port))


def test_unauthenticated_and_disconnected_clients_do_not_count(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_barrier, "_BARRIER_TIMEOUT_S", 3.0)
    errors: list[str | None] = []
    server = threading.Thread(target=lambda: errors.append(serve_barrier(HERE, port, "word", 3)))
    server.start()
    refused: list[type[BaseException]] = []

    def come() -> None:
        try:
            wait_at_barrier(HERE, port, "word", 1)
        except BarrierClosed:
            refused.append(BarrierClosed)

    rank = threading.Thread(target=come)
    rank.start()
    for hello in (b"GET / HTTP/1.0\r\n\r\n", b"other 2\n", b"word 2\n", b"word 99\n"):
        with socket.socket() as sock:
            while sock.connect_ex((HERE, port)):
                pass
            sock.sendall(hello)
    server.join(60)
    rank.join(60)
    assert errors == [f"not all ranks connected to port {port} of {HERE} within 3 s (missing: 2, 3)"]
    assert refused == [BarrierClosed]


def test_silent_client_is_disconnected(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time in which a rank would have said which one it is; the barrier still opens for the ranks."""
    monkeypatch.setattr(start_barrier, "_HELLO_TIMEOUT_S", 0.3)
    with ThreadPoolExecutor(2) as pool:
        server = pool.submit(serve_barrier, HERE, port, "word", 1)
        with socket.socket() as client:
            while client.connect_ex((HERE, port)):
                time.sleep(0.01)
            client.sendall(b"wo")
            client.settimeout(60)
            assert client.recv(1) == b""
        assert not server.done()
        assert wait_at_barrier(HERE, port, "word", 1) is None
        assert server.result(60) is None


_FEW_DESCRIPTORS = """
import os, resource, sys, time
from plink.transport.start_barrier import serve_barrier
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
error = serve_barrier("127.0.0.1", int(sys.argv[1]), "word", 1)
print(error, time.process_time() < 2)
"""


def test_barrier_opens_although_clients_use_up_all_descriptors(port: int) -> None:
    """And it does not spin meanwhile: the processor time is that of starting, not that of waiting."""
    words = [sys.executable, "-c", _FEW_DESCRIPTORS, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server, contextlib.ExitStack() as clients:
        for _ in range(60):
            client = clients.enter_context(socket.socket())
            while client.connect_ex((HERE, port)):
                time.sleep(0.01)
        assert wait_at_barrier(HERE, port, "word", 1) is None
        assert server.communicate(timeout=60)[0] == "None True\n"


def test_port_in_use_and_port_without_server(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_barrier, "_REFUSED_TIMEOUT_S", 0.3)
    assert wait_at_barrier(HERE, port, "word", 1) == "Connection refused"
    with socket.socket() as taken:
        taken.bind((HERE, port))
        taken.listen()
        assert serve_barrier(HERE, port, "word", 1) == f"port {port} of {HERE} cannot be used: Address already in use"


def test_user_environment_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no UTF-8 as well."""
    words = {"A": "a b=c\n", "B": "\udcff", "C": ""}
    monkeypatch.setenv(USER_ENVIRONMENT, pack_environment(words))
    assert unpack_environment() == words
    assert USER_ENVIRONMENT not in os.environ
    assert unpack_environment() is None


def test_user_environment_too_long() -> None:
    with pytest.raises(UsageError, match=r"these variables take \d+ bytes, compressed"):
        external_runner._forwarded({"A": os.urandom(200_000).hex()})
    assert external_runner._forwarded({}) == {}


def test_launcher_commands_have_names_of_variables_only() -> None:
    hosts, job = Hosts((Host("a", HERE), Host("b", "127.0.0.2"))), Job("x", (), ("/",))
    for launcher, words in (
        (OpenMpi(SshConnector(), 4), ("-x", USER_ENVIRONMENT)),
        (OpenMpi(SshConnector(), 5), ("-x", USER_ENVIRONMENT)),
        (Mpich(SshConnector()), ("-genvlist", USER_ENVIRONMENT)),
    ):
        command = launcher.command(hosts, job, Path("/"), ("x",), (USER_ENVIRONMENT,))
        argv = command.argv
        place = argv.index(USER_ENVIRONMENT)
        assert argv[place - 1 : place + 1] == words
        assert "-genvnone" not in argv
        # Hydra forgets the last variable of its environment: one of no use stands there.
        assert ("PLINK_LAST" in command.env) == isinstance(launcher, Mpich)
