"""Bandwidth by iperf3: what it prints is read with distrust, and every run ends."""

import contextlib
import json
import math
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import probes.agent.tools
from probes.agent.tools import Iperf3Server, iperf3, read_iperf3, which
from tests.probes.test_tools import nothing_installed
from tests.stand_ins import program

__all__ = ["nothing_installed"]
WAIT_S = 60.0
needs_iperf3 = pytest.mark.skipif(which("iperf3") is None, reason="needs iperf3")

# What iperf3 3.12 printed on Debian 12, shortened; it ended with exit status 0 each time.
_START: dict[str, Any] = {"connected": [], "version": "iperf 3.12"}
REFUSED = {"start": _START, "intervals": [], "end": {}, "error": "unable to connect to server: Connection refused"}
BUSY = REFUSED | {"error": "the server is busy running a test. try again later"}


def report(*streams: dict[str, Any]) -> dict[str, Any]:
    """A test that went well, 7.85 Gbit/s received of 15.2 sent."""
    return {
        "start": _START,
        "intervals": [],
        "end": {
            "streams": [{"sender": {"bytes": 1048576, **stream}, "receiver": {}} for stream in streams],
            "sum_sent": {"bits_per_second": 15196753623.188406, "retransmits": 3, "sender": True},
            "sum_received": {"bits_per_second": 7854501872.659177, "sender": True},
            "sender_tcp_congestion": "bbr",
        },
    }


def task(port: int, **changes: Any) -> dict[str, Any]:
    """A short test with a server here."""
    return {"peer": ["127.0.0.1", port], "seconds": 1.0, "bytes": None, "streams": 1, **changes}


def test_what_was_received_counts_and_the_smallest_round_trip_of_the_streams() -> None:
    result = read_iperf3(json.dumps(report({"min_rtt": 31}, {"min_rtt": 12}, {"min_rtt": 0})))
    assert result == {"gbps": pytest.approx(7.854501872659177), "min_rtt_us": 12}


@pytest.mark.parametrize("wrong", [math.inf, -1, None, "31", True])
def test_a_round_trip_that_cannot_be_one_does_not_count(wrong: Any) -> None:
    """One that is not finite would not go back to the controller: the message could not be written."""
    result = read_iperf3(json.dumps(report({"min_rtt": wrong}, {"min_rtt": 31})))
    assert result == {"gbps": pytest.approx(7.8545), "min_rtt_us": 31}


@pytest.mark.parametrize("document", [REFUSED, BUSY, report({}) | {"error": "interrupt - the client has terminated"}])
def test_an_error_in_the_report_is_an_error_whatever_the_exit_status(document: dict[str, Any]) -> None:
    assert read_iperf3(json.dumps(document)) == {"error": document["error"]}


@pytest.mark.parametrize("text", ["", "iperf3: error - unable to connect", "[]", '{"end": []}'])
def test_invalid_report_is_refused(text: str) -> None:
    assert read_iperf3(text)["error"].startswith("unreadable report: ")


def test_a_test_too_short_to_have_counted_anything_is_an_error() -> None:
    """2 MB on a fast link: iperf3 3.12 says 0 bytes received, and no error."""
    document = report({"min_rtt": 8})
    document["end"]["sum_received"] = {"bytes": 0, "bits_per_second": 0, "sender": True}
    assert read_iperf3(json.dumps(document)) == {"error": "the server received no data; the test was too short"}


@needs_iperf3
@pytest.mark.parametrize("streams", [1, 3])
def test_a_test_bounded_by_bytes(streams: int) -> None:
    server = Iperf3Server()
    with contextlib.closing(Stopping(server)):
        port = server.serve("127.0.0.1", WAIT_S)["port"]
        result = iperf3(task(port, bytes=100_000_000, streams=streams))
        assert result["gbps"] > 0
        assert result["min_rtt_us"] > 0


@needs_iperf3
def test_a_server_that_is_busy_says_so() -> None:
    """iperf3 ends with exit status 0 then."""
    server = Iperf3Server()
    with contextlib.closing(Stopping(server)):
        port = server.serve("127.0.0.1", WAIT_S)["port"]
        argv = [str(which("iperf3")), "-c", "127.0.0.1", "-p", str(port), "-t", "60", "-b", "1M", "--forceflush"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as first:
            try:
                assert first.stdout is not None
                assert any("connected to" in line for line in first.stdout)
                assert "busy" in iperf3(task(port))["error"]
            finally:
                first.kill()


@needs_iperf3
def test_a_server_that_is_not_there_is_refused() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        assert "refused" in iperf3(task(sock.getsockname()[1]))["error"]


@needs_iperf3
def test_client_times_out_on_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """No option of iperf3 ends this; the client is killed from outside."""
    monkeypatch.setattr(probes.agent.tools, "_GRACE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)
        accepted: list[socket.socket] = []
        thread = threading.Thread(target=lambda: accepted.append(server.accept()[0]))
        thread.start()
        result = iperf3(task(server.getsockname()[1]))
        thread.join(WAIT_S)
        assert len(accepted) == 1
        accepted[0].close()
    assert result == {"error": "timed out after 2 s; killed"}


def test_where_iperf3_is_missing_both_ends_say_so(nothing_installed: Path) -> None:
    missing = {"error": "iperf3 is not installed there"}
    assert iperf3(task(1)) == missing
    assert Iperf3Server().serve("127.0.0.1", 1.0) == missing


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo 'iperf3: error - unable to start listener'; exit 1", "exited: iperf3: error - unable to start listener"),
        ("exit 0", "the iperf3 server exited: "),
        ("exec sleep 60", "the iperf3 server did not listen"),
    ],
)
def test_server_that_does_not_start_is_an_error(
    script: str, error: str, nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes.agent.tools, "_GRACE_S", 0.5)
    program(nothing_installed, "iperf3", f"PATH=/usr/bin:/bin; {script}")
    assert error in Iperf3Server().serve("127.0.0.1", 1.0)["error"]


def test_a_server_is_killed_when_its_time_is_over(nothing_installed: Path) -> None:
    program(nothing_installed, "iperf3", "echo Server listening; PATH=/usr/bin:/bin; exec sleep 60")
    server = Iperf3Server()
    assert "port" in server.serve("127.0.0.1", 60.0)
    server.reap()
    process = server._process
    assert process is not None
    assert process.poll() is None
    server._deadline = 0.0
    server.reap()
    assert server._process is None
    assert process.returncode == -9


class Stopping:
    """Something whose ``close`` ends a server."""

    def __init__(self, server: Iperf3Server) -> None:
        self.close = server.stop
