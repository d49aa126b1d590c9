"""What is stopped is blamed: the launcher for longer than its agents' leases, a rank that others wait for."""

import os
import signal
import time
from pathlib import Path

from tests.lab.jobs import Running, write_script
from tests.lab.waiting import until

PIDS = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)\n"
FAILS = """import os, pathlib, sys, time
print("ready", flush=True)
while not pathlib.Path(os.environ["NOW"]).exists():
    time.sleep(0.1)
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(600)
"""
STOPS = """import datetime, os, signal, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
data = torch.ones(4)
dist.all_reduce(data)
if dist.get_rank() == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
dist.all_reduce(data)
"""


def test_stopped_rank_in_a_collective_is_named(tmp_path: Path) -> None:
    """The others give up after Gloo's time-out, and are not the cause."""
    running = Running(tmp_path, "launch", "--runner", "local", "--slots", "4", write_script(tmp_path, STOPS))
    assert running.ends(120) == 1
    assert "rank 2 on localhost: stopped" in running.err.splitlines()[-1]


def test_stopped_launcher_blames_no_rank(tmp_path: Path) -> None:
    script = write_script(tmp_path, PIDS)
    running = Running(tmp_path, "launch", "--runner", "local", "--slots", "2", script)
    try:
        pids = [int(line.split()[-1]) for line in running.await_lines(2, "] pid ", 60)]
        running.process.send_signal(signal.SIGSTOP)
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 120, "the ranks to be ended")
        running.process.send_signal(signal.SIGCONT)
        assert running.ends(60) == 1
    finally:
        running.process.kill()
        running.process.wait()
    last = running.err.splitlines()[-1]
    assert "plink itself was not running" in last
    assert "rank" not in last


def test_rank_that_fails_by_itself_after_a_pause_is_blamed(tmp_path: Path) -> None:
    """Shorter than a lease: every host is still there."""
    now = tmp_path / "now"
    script = write_script(tmp_path, FAILS)
    running = Running(tmp_path, "launch", "--runner", "local", "--slots", "2", script, NOW=str(now))
    try:
        running.await_lines(2, "] ready", 60)
        running.process.send_signal(signal.SIGSTOP)
        time.sleep(20)
        running.process.send_signal(signal.SIGCONT)
        now.touch()
        assert running.ends(60) == 3
    finally:
        running.process.kill()
        running.process.wait()
    last = running.err.splitlines()[-1]
    assert "rank 1" in last
    assert "plink itself" not in last
