"""The gate of jobs under others' launchers: opens when all have come, whoever else comes; and what they are given."""

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
from runners.job.job import Job
from runners.launchers import commanded, gate, given
from runners.launchers.mpich import Mpich
from runners.launchers.openmpi import OpenMpi
from runners.ssh.connector import SshConnector
from tests.runners.test_connectivity import _TIME_WAIT, states

HERE = "127.0.0.1"


@pytest.fixture
def port() -> int:
    """One that is free."""
    with socket.socket() as sock:
        sock.bind((HERE, 0))
        return int(sock.getsockname()[1])


def test_it_opens_when_all_have_come(port: int) -> None:
    """Also those who come before it is there; then the port is free."""
    with ThreadPoolExecutor(40) as pool:
        early = [pool.submit(gate.come, HERE, port, "word", rank) for rank in range(1, 20)]
        keeper = pool.submit(gate.keep, HERE, port, "word", 30)
        with pytest.raises(TimeoutError):
            keeper.result(0.5)
        late = [pool.submit(gate.come, HERE, port, "word", rank) for rank in range(20, 31)]
        assert [one.result(60) for one in (keeper, *early, *late)] == [None] * 31
    assert _TIME_WAIT not in states(port)
    with socket.socket() as sock:  # without SO_REUSEADDR
        sock.bind((HERE, port))


def test_strangers_and_those_who_left_do_not_count(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_ALL_S", 3.0)
    told: list[str | None] = []
    keeper = threading.Thread(target=lambda: told.append(gate.keep(HERE, port, "word", 3)))
    keeper.start()
    refused: list[type[BaseException]] = []

    def come() -> None:
        try:
            gate.come(HERE, port, "word", 1)
        except gate.BarrierClosed:
            refused.append(gate.BarrierClosed)

    one = threading.Thread(target=come)
    one.start()
    for said in (b"GET / HTTP/1.0\r\n\r\n", b"other 2\n", b"word 2\n", b"word 99\n"):
        with socket.socket() as sock:
            while sock.connect_ex((HERE, port)):
                pass
            sock.sendall(said)
    keeper.join(60)
    one.join(60)
    assert told == [f"not all ranks reached port {port} of {HERE} within 3 s (missing: 2, 3)"]
    assert refused == [gate.BarrierClosed]


def test_silent_stranger_is_disconnected(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time in which a rank would have said which one it is; the gate still opens for the ranks."""
    monkeypatch.setattr(gate, "_GREETING_S", 0.3)
    with ThreadPoolExecutor(2) as pool:
        keeper = pool.submit(gate.keep, HERE, port, "word", 1)
        with socket.socket() as stranger:
            while stranger.connect_ex((HERE, port)):
                time.sleep(0.01)
            stranger.sendall(b"wo")
            stranger.settimeout(60)
            assert stranger.recv(1) == b""
        assert not keeper.done()
        assert gate.come(HERE, port, "word", 1) is None
        assert keeper.result(60) is None


_FEW_DESCRIPTORS = """
import os, resource, sys, time
from runners.launchers import gate
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
why = gate.keep("127.0.0.1", int(sys.argv[1]), "word", 1)
print(why, time.process_time() < 2)
"""


def test_gate_opens_when_strangers_use_up_all_descriptors(port: int) -> None:
    """And it does not spin meanwhile: the processor time is that of starting, not that of waiting."""
    words = [sys.executable, "-c", _FEW_DESCRIPTORS, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as keeper, contextlib.ExitStack() as strangers:
        for _ in range(60):
            stranger = strangers.enter_context(socket.socket())
            while stranger.connect_ex((HERE, port)):
                time.sleep(0.01)
        assert gate.come(HERE, port, "word", 1) is None
        assert keeper.communicate(timeout=60)[0] == "None True\n"


def test_a_port_in_use_and_one_that_nobody_opens(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_LATE_S", 0.3)
    assert gate.come(HERE, port, "word", 1) == "Connection refused"
    with socket.socket() as taken:
        taken.bind((HERE, port))
        taken.listen()
        assert gate.keep(HERE, port, "word", 1) == f"port {port} of {HERE} cannot be used: Address already in use"


def test_what_is_given_comes_back_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no UTF-8 as well."""
    words = {"A": "a b=c\n", "B": "\udcff", "C": ""}
    monkeypatch.setenv(given.VARIABLE, given.packed(words))
    assert given.taken() == words
    assert given.VARIABLE not in os.environ
    assert given.taken() is None


def test_more_than_a_variable_holds() -> None:
    with pytest.raises(UsageError, match=r"--env: these variables take \d+ bytes, packed"):
        commanded._forwarded({"A": os.urandom(200_000).hex()})
    assert commanded._forwarded({}) == {}


def test_launchers_are_told_names_only() -> None:
    hosts, job = Hosts((Host("a", HERE), Host("b", "127.0.0.2"))), Job("x", (), ("/",))
    for launcher, words in (
        (OpenMpi(SshConnector(), 4), ("-x", given.VARIABLE)),
        (OpenMpi(SshConnector(), 5), ("-x", given.VARIABLE)),
        (Mpich(SshConnector()), ("-genvlist", given.VARIABLE)),
    ):
        command = launcher.command(hosts, job, Path("/"), ("x",), (given.VARIABLE,))
        argv = command.argv
        place = argv.index(given.VARIABLE)
        assert argv[place - 1 : place + 1] == words
        assert "-genvnone" not in argv
        # Hydra forgets the last variable of its environment: one of no use stands there.
        assert ("PLINK_LAST" in command.env) == isinstance(launcher, Mpich)
