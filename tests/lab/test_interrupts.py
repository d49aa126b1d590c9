"""Ctrl-C, twice, kill -9: whatever ends plink, nothing of it goes on running on a host."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Lab
from tests.lab.jobs import Running, write_hosts, write_script
from tests.lab.traces import agents, guests
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(100)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP


def launched(lab: Lab, folder: Path, start: Callable[..., Running], script: str) -> Running:
    """A job on four hosts, all ranks in the user's code."""
    write_hosts(lab, folder)
    running = start("launch", "--hosts", "hosts.txt", "--order", "given", write_script(folder, script))
    running.await_lines(4, "begun")
    assert len(guests(lab)) >= 8, "this file counts agents and ranks"
    return running


def await_agents(lab: Lab, running: Running) -> None:
    """Until an agent runs on each of the four hosts."""

    def look() -> bool:
        assert running.process.poll() is None, f"it has ended: {running.err}"
        return len(agents(lab)) >= 4

    until(look, 10, "four agents")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_during_launch(
    small_lab: Lab, tmp_path: Path, start: Callable[..., Running], number: signal.Signals
) -> None:
    """Exit code 128 + signal (130 for Ctrl-C), and all ranks and agents end with it."""
    running = launched(small_lab, tmp_path, start, SLEEP)
    running.process.send_signal(number)
    assert running.ends(6) == 128 + number
    until(lambda: not guests(small_lab), 4, "ranks and agents to be gone")
    assert "Traceback" not in running.err


def test_ctrl_c_while_connecting(small_lab: Lab, tmp_path: Path, start: Callable[..., Running]) -> None:
    """Before any rank runs."""
    write_hosts(small_lab, tmp_path)
    running = start("launch", "--hosts", "hosts.txt", "--order", "given", write_script(tmp_path, SLEEP))
    until(lambda: guests(small_lab), 10, "the first SSH session")
    running.process.send_signal(signal.SIGINT)
    assert running.ends(6) == 130
    until(lambda: not guests(small_lab), 4, "sessions and agents to be gone")
    assert running.out == ""


def test_ctrl_c_during_doctor(small_lab: Lab, tmp_path: Path, start: Callable[..., Running]) -> None:
    """Nothing is kept, and the command that keeps what it measured is named."""
    write_hosts(small_lab, tmp_path)
    running = start("doctor", "hosts.txt")
    await_agents(small_lab, running)
    running.process.send_signal(signal.SIGINT)
    assert running.ends(6) == 130
    assert "plink probe" in running.err
    assert running.out == ""


def test_a_second_ctrl_c_leaves_at_once(small_lab: Lab, tmp_path: Path, start: Callable[..., Running]) -> None:
    """While the first still waits for ranks that will not end; they end by themselves then."""
    running = launched(small_lab, tmp_path, start, STUBBORN)
    running.process.send_signal(signal.SIGINT)
    until(lambda: "again to exit at once" in running.err, 3, "the hint")
    assert running.process.poll() is None
    running.process.send_signal(signal.SIGINT)
    assert running.ends(0.5) == 130
    until(lambda: not guests(small_lab), 6, "ranks and agents to be gone")


def test_agents_and_ranks_end_when_plink_is_killed(
    small_lab: Lab, tmp_path: Path, start: Callable[..., Running]
) -> None:
    """kill -9 of plink itself: nobody is there to end them, so they end by themselves."""
    running = launched(small_lab, tmp_path, start, STUBBORN)
    running.process.kill()
    running.ends(2)
    until(lambda: not guests(small_lab), 6, "ranks and agents to be gone")


def test_a_closed_terminal_is_survived_under_nohup(
    small_lab: Lab, tmp_path: Path, start: Callable[..., Running]
) -> None:
    """Who ignores SIGHUP (nohup) means it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        running = launched(small_lab, tmp_path, start, SLEEP)
    finally:
        signal.signal(signal.SIGHUP, before)
    os.kill(running.process.pid, signal.SIGHUP)
    with pytest.raises(AssertionError, match="still running"):
        running.ends(1)
