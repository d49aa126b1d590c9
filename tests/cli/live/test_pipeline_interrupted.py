"""A pipeline that its user ends, or whose time is up, is not started again."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.test_pipeline_launching import EXAMPLE, plan_in
from tests.lab.jobs import Running
from tests.runtime.ranks import wait_until

LIMIT_S = 60
# It hangs at minibatch 18, once there is a checkpoint that all ranks have.
HANGING = f"""
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(EXAMPLE).parent)!r})
import pipeline_mlp

class Hanging(pipeline_mlp.Points):
    def batch(self, number):
        if number == 18:
            while not all(Path(f"kept/minibatch-15/stage-{{stage}}-replica-0.pt").exists() for stage in (0, 1)):
                time.sleep(0.01)
            time.sleep(1)  # the last report is on its way
            if self.is_stubborn:
                for name in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(name, signal.SIG_IGN)
            Path(f"pid-{{os.environ['RANK']}}").write_text(str(os.getpid()))
            time.sleep(1000)
        return super().batch(number)

def make(arguments):
    app = Hanging(40, 8, 8)
    app.is_stubborn = "stubborn" in arguments
    return app
"""


def hanging(folder: Path, *words: str) -> Running:
    plan = plan_in(folder, [1, 1])
    (folder / "program.py").write_text(HANGING)
    options = ["--checkpoint", "kept", "--set", "checkpoint-every=5", "--set", "restarts=3"]
    command = ["launch", "--runner", "local", "--pipeline", plan, "--env", "OMP_NUM_THREADS=1", *options]
    return Running(folder, *command, *words)


def pids(folder: Path) -> list[int]:
    texts = [path.read_text() for path in folder.glob("pid-*")]
    return [int(text) for text in texts if text] if len(texts) == 2 else []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("signals", [1, 2])
def test_interrupted_pipeline_ends_and_is_not_restarted(signals: int, tmp_path: Path) -> None:
    """At once after a second Ctrl-C, though ranks ignore the first."""
    running = hanging(tmp_path, "program.py", *(["stubborn"] if signals == 2 else []))
    try:
        wait_until(lambda: running.process.poll() is not None or len(pids(tmp_path)) == 2)
        assert running.process.poll() is None, running.err
        ranks = pids(tmp_path)
        running.process.send_signal(signal.SIGINT)
        if signals == 2:
            wait_until(lambda: running.process.poll() is not None or "again to exit at once" in running.err)
            running.process.send_signal(signal.SIGINT)
        assert running.ends(LIMIT_S) == 130
        assert "restarts left" not in running.err
        wait_until(lambda: not any(map(is_alive, ranks)))
    finally:
        running.close()


def test_pipeline_whose_time_is_up_is_not_restarted(tmp_path: Path) -> None:
    running = hanging(tmp_path, "--timeout", "15s", "program.py")
    try:
        assert running.ends(2 * LIMIT_S) not in (0, 130)
        assert "restarts left" not in running.err
    finally:
        running.close()
