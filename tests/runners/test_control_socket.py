"""Doors and files on the launching machine that other users stand before."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plink.records.runs import Record
from runners.elastic.control_socket import Answer, ControlSocket

# Somebody else, who asks for the status and prints what is answered.
OTHER_USER_CLIENT = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as peer:
    peer.settimeout(50)
    peer.connect(sys.argv[1])
    try:
        peer.sendall(b'{"method": "status"}\\n')
        print(peer.recv(1 << 16))
    except (BrokenPipeError, ConnectionResetError):
        print(b"")
"""


@pytest.fixture
def received() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def control_socket(received: list[dict[str, Any]]) -> Iterator[ControlSocket]:
    def hear(request: dict[str, Any], answer: Answer) -> None:
        received.append(request)
        answer({"ok": True})

    asking = ControlSocket(hear)
    yield asking
    asking.close()


def call(name: str) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(60)
        peer.connect(name)
        try:
            peer.sendall(b'{"method": "status"}\n')
            return peer.recv(1 << 16)
        except (BrokenPipeError, ConnectionResetError):
            return b""


def test_request_of_the_same_user_is_answered(control_socket: ControlSocket, received: list[dict[str, Any]]) -> None:
    assert b"ok" in call(control_socket.name)
    assert received == [{"method": "status"}]


def test_nobody_else_gets_to_the_socket(control_socket: ControlSocket) -> None:
    assert stat.S_IMODE(Path(control_socket.name).parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_another_user_is_hung_up_on(control_socket: ControlSocket, received: list[dict[str, Any]]) -> None:
    """Should the folder's mode not hold them, by the kernel's word for who called."""
    Path(control_socket.name).parent.chmod(0o755)
    Path(control_socket.name).chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", OTHER_USER_CLIENT, control_socket.name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "b''\n"), done.stderr
    assert received == []


def test_a_run_is_for_its_own_user(tmp_path: Path) -> None:
    """What --env gave stands in it, and what the ranks printed."""
    folder = tmp_path / ".plink" / "runs" / "abc"
    before = os.umask(0)
    try:
        Record(folder, {"env": {"TOKEN": "x"}}).finish({})
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
