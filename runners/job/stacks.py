"""Stacks of the threads of a rank that hangs.

Runs on the hosts: standard library only. py-spy reads them without touching the program (https://github.com/benfred/py-spy);
where it is missing or not permitted, SIGABRT makes a Python program started with PYTHONFAULTHANDLER=1 print the
stack of every thread, and end ("faulthandler", Python's documentation).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time

_SPY_TIMEOUT_S = 10.0
_MIN_WAIT_S = 0.05  # enough to read what a process that has ended wrote


def stacks(pids: list[int]) -> dict[int, str]:
    """Return py-spy's dumps of these processes, by process id; Python programs without a dump are sent SIGABRT.

    Other programs are left alone.
    """
    pythons = {pid: exe for pid in pids if "python" in os.path.basename(exe := _exe(pid))}
    spies: dict[int, subprocess.Popen[bytes]] = {}
    for pid, exe in pythons.items():
        spy = shutil.which("py-spy", path=os.pathsep.join([os.path.dirname(exe), os.environ.get("PATH", os.defpath)]))
        if spy is not None:
            spies[pid] = subprocess.Popen(
                [spy, "dump", "--pid", str(pid)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
    dumps, deadline = {}, time.monotonic() + _SPY_TIMEOUT_S  # one for all: a host may have many ranks
    for pid, spy_process in spies.items():
        try:
            dump = spy_process.communicate(timeout=max(_MIN_WAIT_S, deadline - time.monotonic()))[0]
            if spy_process.returncode == 0 and dump:
                dumps[pid] = dump.decode(errors="replace")
        except subprocess.TimeoutExpired:
            spy_process.kill()
            spy_process.communicate()
    for pid in pythons:
        if pid not in dumps:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGABRT)
    return dumps


def _exe(pid: int) -> str:
    """Return the path by which a process was started: the venv's python, not the link's target."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            program = os.fsdecode(file.read().split(b"\0")[0])
        if "/" in program:
            return program
        return os.readlink(f"/proc/{pid}/exe")
    return ""
