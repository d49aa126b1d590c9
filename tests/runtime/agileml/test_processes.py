"""Servers and workers as processes of their own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.runtime.agileml.client import Client, Ownership
from plink.runtime.agileml.rules import BSP
from tests.runtime.agileml.program import LAYOUT
from tests.runtime.agileml.stores import KEYS, PATIENCE_S, store, together, wait_for

ROOT = Path(__file__).parents[3]
Process = subprocess.Popen[str]


@contextmanager
def processes() -> Iterator[list[Process]]:
    """Killed at the end."""
    started: list[Process] = []
    try:
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()


def start(started: list[Process], **asked: Any) -> Process:
    """One that knows what to be."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.agileml.program"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    started.append(process)
    assert process.stdin is not None
    process.stdin.write(json.dumps({**asked, "keys": KEYS.pem.decode()}))
    process.stdin.close()
    process.stdin = None
    return process


def said(process: Process) -> dict[str, Any]:
    """The next line."""
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


def servers(started: list[Process]) -> list[str]:
    """Two, with two partitions each; the owner of each partition."""
    pair = [start(started, what="server", workers=3, partitions=each) for each in ([0, 2], [1, 3])]
    addresses = [said(process)["address"] for process in pair]
    return [addresses[partition % 2] for partition in range(4)]


def test_three_workers_and_two_servers_count_right() -> None:
    with processes() as started:
        owners = servers(started)
        workers = [
            start(started, what="worker", worker=worker, owners=owners, clocks=20, timeout_s=30) for worker in range(3)
        ]
        wanted = sum(20 * 4 * (worker + 1) * len(range(worker, 1000, 3)) for worker in range(3))
        for process in workers:
            lines = [said(process) for _ in range(21)]
            assert lines[:-1] == [{"clock": clock} for clock in range(20)]
            assert lines[-1] == {"sum": wanted}


def test_a_server_killed_in_mid_run_is_a_clear_error() -> None:
    with processes() as started:
        owners = servers(started)
        workers = [
            start(started, what="worker", worker=worker, owners=owners, clocks=100_000, timeout_s=5)
            for worker in range(3)
        ]
        for process in workers:
            assert said(process) == {"clock": 0}
        started[1].kill()
        for process in workers:
            while "clock" in (line := said(process)):
                pass
            assert line["kind"] == "Unanswered"
            assert f"at {owners[1]}" in line["error"]


@pytest.mark.parametrize("met", [True, False])
def test_a_frozen_server_is_left_as_soon_as_another_is_named(met: bool) -> None:
    """It neither answers nor ends its connections; ``met``: it freezes in an exchange, or before the handshake."""
    with processes() as started:
        frozen, other = (start(started, what="server", workers=1, partitions=[0, 1, 2, 3]) for _ in range(2))
        addresses = [said(process)["address"] for process in (frozen, other)]
        owners = {partition: Ownership(addresses[0]) for partition in range(4)}
        with contextlib.closing(Client(LAYOUT, KEYS, BSP(), 0, owners, timeout_s=PATIENCE_S / 4)) as client:
            if met:
                client.read("n", range(8))
            frozen.send_signal(signal.SIGSTOP)

            def name_another() -> None:
                wait_for(lambda: any(line._meeting or line._ticket > 1 for line in client._lines.values()))
                for partition in range(4):
                    client.point(partition, Ownership(addresses[1], 1))

            found, _ = together(lambda: client.read("n", range(100)), name_another)
            assert isinstance(found, np.ndarray)
            assert found.shape == (100, 4)
            assert {address for address, _ in client._lines} == {addresses[1]}


def test_a_server_that_dies_in_the_handshake_is_asked_again() -> None:
    """Or another that is there by then, at its address."""
    with store(LAYOUT) as run, socket.create_server(("127.0.0.1", 0)) as listening:
        run.open(1)
        owners = {partition: Ownership(f"127.0.0.1:{listening.getsockname()[1]}") for partition in range(4)}
        with contextlib.closing(Client(LAYOUT, KEYS, BSP(), 0, owners, timeout_s=PATIENCE_S)) as client:

            def die() -> None:
                sock = listening.accept()[0]
                sock.recv(10_000)
                sock.shutdown(socket.SHUT_WR)
                for partition in range(4):
                    client.point(partition, Ownership(run.servers[0].address, 1))
                sock.close()

            found, _ = together(lambda: client.read("n", [0]), die)
            assert isinstance(found, np.ndarray)
            assert not found.any()
