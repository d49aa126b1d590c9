"""Clean up what a test process registered, however it ends: labs, daemons and folders.

A child in a session of its own reads registrations from a pipe. When the pipe closes, because the test process has
ended, it does what is left to do. What the tests removed themselves costs nothing.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

_ROOT = Path(__file__).parent.parent


def take_down_lab(name: str) -> None:
    """Take this lab down when the test process ends."""
    _register("lab", name)


def kill_process(pid: int) -> None:
    """Kill this process when the test process ends, unless its id belongs to another one by then."""
    started = _start_time(pid)
    if started:
        _register("process", f"{pid} {started}")


def remove_folder(path: Path) -> None:
    """Remove this folder when the test process ends."""
    _register("folder", str(path))


def _register(kind: str, value: str) -> None:
    pipe = _pipe_to_reaper()
    pipe.write(f"{kind} {value}\n".encode())
    pipe.flush()


@functools.cache
def _pipe_to_reaper() -> BinaryIO:
    """Start the child; its end of the pipe closes with this process, and with no other."""
    reading, writing = os.pipe()
    subprocess.Popen(
        [sys.executable, "-m", "tests.reaper"],
        cwd=_ROOT, stdin=reading, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ).returncode = 0  # nobody waits for it: it outlives this process  # fmt: skip
    os.close(reading)
    return os.fdopen(writing, "wb")


def _start_time(pid: int) -> str:
    """Field 22 of ``/proc/PID/stat`` (proc(5)): with the id it names one process for good; empty if there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _is_up(lab: str) -> bool:
    return Path("/run/plink/labs", lab).exists() or any(Path("/run/netns").glob(f"plink.{lab}.*"))


def main() -> None:
    """Read registrations until the pipe closes, then clean up: processes first, folders last."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    rows = [line.rstrip("\n").partition(" ")[::2] for line in sys.stdin]
    for kind, value in rows:
        pid, _, started = value.partition(" ")
        if kind == "process" and _start_time(int(pid)) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    for kind, value in rows:
        if kind == "lab" and _is_up(value):
            subprocess.run([sys.executable, "-m", "plink", "lab", "down", "--name", value], check=False)
    for kind, value in rows:
        if kind == "folder":
            shutil.rmtree(value, ignore_errors=True)


if __name__ == "__main__":
    main()
