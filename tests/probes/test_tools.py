"""Measuring with what the host has, on loopback: fping, TCP handshakes; bounded, and in words where it is missing."""

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import probes.agent.tools
from probes.agent.tools import icmp, tcp, which
from tests.ports import closed_port
from tests.stand_ins import program

__all__ = ["closed_port"]
WAIT_S = 60.0


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host with no tools; programs put into the folder are found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(probes.agent.tools, "_PATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def listening() -> Iterator[int]:
    """A port that is listened on, and nobody accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


@pytest.mark.skipif(which("fping") is None, reason="needs fping")
def test_echoes_of_loopback() -> None:
    result = icmp({"peer": "127.0.0.1", "count": 5, "timeout_s": 5.0})
    assert (result["sent"], result["received"], result["error"]) == (5, 5, None)
    assert result["percentiles_us"] == sorted(result["percentiles_us"])
    assert result["percentiles_us"][0] > 0


@pytest.mark.parametrize(
    ("output", "received", "tenth"),
    [
        ("198.18.1.5 : 0.035 - 0.031 0.041 -", 3, 31.0),
        ("198.18.1.5 : - - - - -", 0, None),
        (
            "ICMP Host Unreachable from 198.18.1.1 for ICMP Echo sent to 198.18.1.5\\n198.18.1.5 : 0.100 - - - -",
            1,
            100.0,
        ),
        ("198.18.1.5 : duplicate for [0], 64 bytes, 0.21 ms\\n198.18.1.5 : 0.100 0.200 - - -", 2, 100.0),
        ("fe80::1 : 1.25 - - - -", 1, 1250.0),
    ],
)
def test_output_of_fping_is_parsed(output: str, received: int, tenth: float | None, nothing_installed: Path) -> None:
    program(nothing_installed, "fping", f"printf '{output}\\n' >&2; exit 1")
    result = icmp({"peer": "198.18.1.5", "count": 5, "timeout_s": 0.1})
    assert (result["sent"], result["received"], result["error"]) == (5, received, None)
    assert result["percentiles_us"][1] == tenth


def test_error_of_fping_is_the_error(nothing_installed: Path) -> None:
    program(nothing_installed, "fping", "echo 'fping: cannot create raw socket (must run as root?)' >&2; exit 4")
    result = icmp({"peer": "198.18.1.5", "count": 5, "timeout_s": 0.1})
    assert (result["received"], result["error"]) == (0, "fping: cannot create raw socket (must run as root?)")


def test_an_fping_that_hangs_is_killed(nothing_installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes.agent.tools, "_GRACE_S", 0.1)
    program(nothing_installed, "fping", "exec 2>/dev/null; while :; do :; done")
    result = icmp({"peer": "198.18.1.5", "count": 1, "timeout_s": 0.1})
    assert result["received"] == 0
    assert "timed out" in result["error"]


def test_neither_fping_nor_scapy(nothing_installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scapy.config", None)
    result = icmp({"peer": "127.0.0.1", "count": 5, "timeout_s": 0.1})
    assert (result["sent"], result["received"]) == (5, 0)
    assert result["error"] == "neither fping nor Scapy is installed there"


def test_no_right_to_open_raw_sockets(nothing_installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scapy.supersocket import L3RawSocket

    def refuse(*args: object, **more: object) -> None:
        raise PermissionError

    monkeypatch.setattr(L3RawSocket, "__init__", refuse)
    monkeypatch.setattr(L3RawSocket, "__del__", lambda self: None, raising=False)
    result = icmp({"peer": "127.0.0.1", "count": 5, "timeout_s": 0.1})
    assert result["received"] == 0
    assert "CAP_NET_RAW" in result["error"]


def test_handshakes_are_measured_by_the_kernel(listening: int) -> None:
    result = tcp({"peer": "127.0.0.1", "ports": [listening, None], "count": 20})
    assert (result["sent"], result["received"], result["clock"], result["port"]) == (20, 20, "kernel", listening)
    assert result["percentiles_us"][0] > 0


def test_the_second_port_is_taken_where_the_first_is_closed(closed_port: int, listening: int) -> None:
    """It is SSH's, which refuses more than a few connections at once."""
    result = tcp({"peer": "127.0.0.1", "ports": [closed_port, listening], "count": 200})
    assert (result["sent"], result["received"], result["port"]) == (10, 10, listening)


def test_no_open_port_is_an_error(closed_port: int) -> None:
    result = tcp({"peer": "127.0.0.1", "ports": [closed_port, None], "count": 5})
    assert (result["sent"], result["received"]) == (5, 0)
    assert result["error"].startswith("no TCP port of")


def test_handshakes_leave_no_connection_waiting() -> None:
    """Closed with a reset: thousands of pairs must not fill either end's table with TIME_WAIT."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)
        port = server.getsockname()[1]
        ends: list[bytes | type[OSError]] = []

        def accept() -> None:
            for _ in range(4):  # one to see whether the port answers, then three
                with server.accept()[0] as flow:
                    flow.settimeout(WAIT_S)
                    try:
                        ends.append(flow.recv(1))
                    except ConnectionResetError as error:
                        ends.append(type(error))

        thread = threading.Thread(target=accept)
        thread.start()
        tcp({"peer": "127.0.0.1", "ports": [port], "count": 3})
        thread.join(WAIT_S)
    assert ends == [ConnectionResetError] * 4


def test_programs_outside_the_login_path_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert shutil.which("sh") is None
    assert which("sh") in ("/usr/bin/sh", "/bin/sh")
    assert which("no-such-program-anywhere") is None
