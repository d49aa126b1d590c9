"""No space left for logs: the job goes on to its end, all of its output is shown, and one line says where logs end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import typed

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

FULL = Path("/dev/full")
# More than any buffer takes, so that it is found while the job runs, or so little that it is found at its end.
MUCH, LITTLE = 3000, 3
# In a mount namespace of its own: a small file system in the folder $1, and then the command.
_SMALL = 'folder=$1; shift; mount -t tmpfs -o size=64k,mode=755 plink-test "$folder" && exec "$@"'


def printing(folder: Path, lines: int) -> str:
    """A program that prints so many lines and then leaves a file that shows it came to its end."""
    (folder / "train.py").write_text(
        f"import os\nfor k in range({lines}): print(k, 'x' * 60)\nopen('ended-' + os.environ['RANK'], 'w').close()\n"
    )
    return "train.py"


def job(folder: Path, lines: int, *words: str) -> list[str]:
    """Two ranks on this machine."""
    return ["launch", "--runner", "local", "--slots", "2", *words, printing(folder, lines)]


def all_is_shown(done: "subprocess.CompletedProcess[str]", folder: Path, lines: int) -> None:
    """It ended well, and nothing of either rank is missing on the screen."""
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for rank in range(2):
        shown = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert shown == [f"[{rank}] {k} {'x' * 60}" for k in range(lines)]
        assert (folder / f"ended-{rank}").exists()


def about_logs(done: "subprocess.CompletedProcess[str]") -> str:
    """The one line of plink's own about logs."""
    (line,) = [line for line in done.stderr.splitlines() if "logs" in line]
    return line


@pytest.mark.quick
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("file", "lines", "expected"), [("rank-1.out", MUCH, "end here"), ("all.log", LITTLE, "are not complete")]
)
def test_a_log_file_that_takes_nothing(tmp_path: Path, file: str, lines: int, expected: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / file).symlink_to(FULL)
    done = typed(*job(tmp_path, lines, "--log-dir", "logs"), cwd=tmp_path)
    all_is_shown(done, tmp_path, lines)
    assert about_logs(done) == f"plink: the logs in logs {expected}: No space left on device"


def test_reader_that_goes_away_ends_the_job(tmp_path: Path) -> None:
    """As ``| head`` does: nothing is said, the exit code is that of SIGPIPE, and the run's too."""
    with subprocess.Popen(
        [sys.executable, "-m", "plink", "launch", "--runner", "local", "--slots", "1", "yes"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "[0] y\n"
        process.stdout.close()
        assert process.wait(60) == 128 + signal.SIGPIPE
        assert "error" not in process.stderr.read()
    (run,) = (tmp_path / ".plink" / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["exit_code"] == 128 + signal.SIGPIPE


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("lines", [MUCH, LITTLE])
@pytest.mark.parametrize("size", ["64k", "4k"])
def test_full_disk_behind_standard_output(tmp_path: Path, lines: int, size: str) -> None:
    """Told once; the job goes on to its end, and its logs are whole. The exit code says that something was lost."""
    (tmp_path / "small").mkdir()
    script = _SMALL.replace("64k", size).replace('exec "$@"', 'cat /dev/zero > "$folder/out" 2>/dev/null; exec "$@"')
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{script} >> "$folder/out"', "sh", str(tmp_path / "small"),
         sys.executable, "-m", "plink", *job(tmp_path, lines)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "standard output" in line]
    assert line.startswith("plink: ")
    (run,) = (tmp_path / ".plink" / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["exit_code"] == 0
    for rank in range(2):
        assert (tmp_path / f"ended-{rank}").exists()
        assert (run / "logs" / f"rank-{rank}.out").read_text().count("\n") == lines


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("folder", ["logs", ".plink"])
def test_a_file_system_that_gets_full(tmp_path: Path, folder: str) -> None:
    """The logs', or the one that the whole run is kept on."""
    (tmp_path / folder).mkdir()
    words = ("--log-dir", "logs") if folder == "logs" else ()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _SMALL, "sh", str(tmp_path / folder),
         sys.executable, "-m", "plink", *job(tmp_path, MUCH, *words)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    all_is_shown(done, tmp_path, MUCH)
    line = about_logs(done)
    assert line.startswith("plink: the logs in ")
    assert line.endswith(" end here: No space left on device")
