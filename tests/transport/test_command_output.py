"""Commands that are run to their end."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plink.model.dry_run import LaunchCommand
from plink.transport.command_output import MAX_OUTPUT_BYTES, TooMuchOutput, run_to_end
from runners.launchers.launcher import LauncherProcess
from tests.lab.waiting import until


def has_ended(pid_file: Path) -> bool:
    stat = Path("/proc", pid_file.read_text().strip(), "stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_output_and_input_larger_than_a_pipe() -> None:
    data = bytes(range(32, 127)) * 20_000
    done = run_to_end(["sh", "-c", "cat; echo no >&2; exit 3"], 20, data)
    assert (done.stdout, done.stderr, done.returncode) == (data.decode(), "no\n", 3)
    assert run_to_end(["true"], 20, data).returncode == 0  # which reads nothing


@pytest.mark.parametrize("script", ["exec yes", "exec yes >&2"])
def test_endless_output_is_an_error(script: str) -> None:
    with pytest.raises(TooMuchOutput, match=f"{MAX_OUTPUT_BYTES >> 20} MiB"):
        run_to_end(["sh", "-c", script], 20)


def test_command_that_hides_its_output_is_ended_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid_file}; exec >/dev/null 2>&1; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        run_to_end(["sh", "-c", script], 0.5)
    until(lambda: has_ended(pid_file), 10, "its child ends")


def test_lost_lease_ends_the_command() -> None:
    def renew() -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        run_to_end(["sleep", "60"], 60, renew=renew)


def test_launcher_behind_a_wrapper_ends_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}; wait"
    with LauncherProcess(LaunchCommand(("sh", "-c", script))):
        until(pid_file.exists, 10, "it has started")
    until(lambda: has_ended(pid_file), 10, "its child ends")


def test_launcher_that_ignores_sigterm_is_killed() -> None:
    began = time.monotonic()
    with LauncherProcess(LaunchCommand(("sh", "-c", "trap '' TERM; echo on; sleep 60")), True) as process:
        next(process.lines(time.monotonic, None))
        assert process.end(0.0) == 128 + signal.SIGKILL
    assert time.monotonic() - began < 4


def test_endless_line_of_a_launcher_comes_in_pieces() -> None:
    with LauncherProcess(LaunchCommand((sys.executable, "-c", "print('x' * (1 << 23))"))) as process:
        lines = [line for _, line in process.lines(lambda: 0.0, None)]
    assert "".join(lines) == "x" * (1 << 23)
    assert max(map(len, lines)) < 1 << 22
