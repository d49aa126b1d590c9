"""Where a rank that hangs is: the stacks of its threads.

Runs on the hosts: standard library only. py-spy tells without touching the program (https://github.com/benfred/py-spy);
where it is missing or may not look, SIGABRT makes a Python program that was started with PYTHONFAULTHANDLER=1 print the
stack of every thread, and end ("faulthandler", Python's documentation).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time

_LOOK_S = 10.0
_SHORT_S = 0.05  # to take what one that is done has said


def stacks(pids: list[int]) -> dict[int, str]:
    """What py-spy says of these processes, by process id; Python programs that it says nothing of are sent SIGABRT.

    Programs of another kind are left alone.
    """
    pythons = {pid: exe for pid in pids if "python" in os.path.basename(exe := _exe(pid))}
    looking: dict[int, subprocess.Popen[bytes]] = {}
    for pid, exe in pythons.items():
        spy = shutil.which("py-spy", path=os.pathsep.join([os.path.dirname(exe), os.environ.get("PATH", os.defpath)]))
        if spy is not None:
            looking[pid] = subprocess.Popen(
                [spy, "dump", "--pid", str(pid)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
    found, deadline = {}, time.monotonic() + _LOOK_S  # one for all: a host may have many ranks
    for pid, spy_process in looking.items():
        try:
            said = spy_process.communicate(timeout=max(_SHORT_S, deadline - time.monotonic()))[0]
            if spy_process.returncode == 0 and said:
                found[pid] = said.decode(errors="replace")
        except subprocess.TimeoutExpired:
            spy_process.kill()
            spy_process.communicate()
    for pid in pythons:
        if pid not in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGABRT)
    return found


def _exe(pid: int) -> str:
    """The program that a process runs, as it was called: the venv's python, not what it links to."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            called = os.fsdecode(file.read().split(b"\0")[0])
        if "/" in called:
            return called
        return os.readlink(f"/proc/{pid}/exe")
    return ""
