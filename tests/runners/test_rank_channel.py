"""The line between a rank and the agent beside it: both ends, and what comes of a rank that is not there."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from plink.runtime.allreduce.launcher_channel import LauncherChannel
from runners.job.rank_channel import RankChannel

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="abstract sockets are Linux's")


# Somebody else, whose exit code is the number of bytes that it is told.
OTHER_USER_CLIENT = """
import os, socket, sys
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect("\\0" + sys.argv[1])
    sys.exit(len(sock.recv(1)))
"""


def turn(line: RankChannel, number: int, seconds: float = 60.0) -> list[str]:
    """So many lines from the rank."""
    result, end = [], time.monotonic() + seconds
    while len(result) < number and time.monotonic() < end:
        result += line.poll()
        time.sleep(0.001)
    return result


def test_lines_both_ways() -> None:
    """What was said before the rank called waits for it; long lines come in pieces."""
    line = RankChannel()
    line.send(json.dumps({"early": 1}))
    rank = LauncherChannel(line.name)
    assert rank.connected
    for k in (1, 2):
        rank.send(lambda k=k: {"count": k, "much": "x" * 1_000_000})
    assert [json.loads(text)["count"] for text in turn(line, 2)] == [1, 2]
    line.send(json.dumps({"late": "y" * 1_000_000}))
    line.send("no JSON")
    line.send("[5]")
    result: list[dict[str, object]] = []
    end = time.monotonic() + 60
    while len(result) < 2 and time.monotonic() < end:
        line.poll()
        result += rank.received()
    assert [next(iter(message)) for message in result] == ["early", "late"]
    assert rank.received() == []
    rank.close()
    line.poll()
    line.close()
    assert not LauncherChannel(line.name).connected


def test_a_rank_that_never_calls_holds_nobody_up() -> None:
    line = RankChannel()
    for _ in range(100):
        line.send("x" * 1_000_000)
    assert line.poll() == []
    assert len(line._outgoing) <= 12 << 20
    line.close()


def test_a_rank_that_does_not_read_holds_nobody_up() -> None:
    line = RankChannel()
    rank = LauncherChannel(line.name)
    line.send("x" * 10_000_000)
    began = time.monotonic()
    assert [line.poll() for _ in range(50)] == [[]] * 50
    assert time.monotonic() - began < 30  # a write that waits would wait for ever
    rank.close()
    line.poll()
    assert line._outgoing == b""
    line.close()


def test_whoever_takes_its_place_is_answered() -> None:
    """A script that starts itself anew."""
    line = RankChannel()
    for _ in range(2):
        rank = LauncherChannel(line.name)
        rank.send(lambda: {"count": 1})
        assert turn(line, 1) == ['{"count": 1}']
        rank.close()
        line.poll()
    line.close()


def test_a_launcher_that_takes_nothing_holds_no_rank_up() -> None:
    """What waits for longer is left away; hanging up ends the thread that sends."""
    line = RankChannel()
    rank = LauncherChannel(line.name)
    began = time.monotonic()
    for _ in range(20):
        rank.send(lambda: {"much": "x" * 5_000_000})
        time.sleep(0.01)
    rank.send(lambda: {"more than is taken": "x" * (12 << 20)})
    rank.close()
    assert time.monotonic() - began < 30
    assert rank._thread is not None
    assert not rank._thread.is_alive()
    line.poll()
    line.close()


def test_without_a_line() -> None:
    """Nothing is sent and nothing comes; nothing is raised."""
    for name in ("", "plink-line-nobody"):
        line = LauncherChannel(name)
        assert not line.connected
        line.send(lambda: {"count": 1})
        assert line.received() == []
        line.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_another_user_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    line = RankChannel()
    monkeypatch.setattr(os, "getuid", lambda: 4321)  # the agent's user, neither root nor the caller
    caller = subprocess.Popen([sys.executable, "-c", OTHER_USER_CLIENT, line.name])
    end = time.monotonic() + 60
    while caller.poll() is None and time.monotonic() < end:
        line.send("secret")
        assert line.poll() == []
        time.sleep(0.01)
    caller.kill()
    assert caller.wait() == 0
    line.close()
    with socket.socket(socket.AF_UNIX) as sock, pytest.raises(OSError):
        sock.connect(f"\0{line.name}")
