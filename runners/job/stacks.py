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
import threading

from plink.transport.command_output import run_to_end

_SPY_TIMEOUT_S = 10.0


def stacks(pids: list[int]) -> dict[int, str]:
    """Return py-spy's dumps of these processes, by process id; Python programs without a dump are sent SIGABRT.

    Other programs are left alone.
    """
    pythons = {pid: exe for pid in pids if "python" in os.path.basename(exe := _exe(pid))}
    dumps: dict[int, str] = {}

    def dump(pid: int, exe: str) -> None:
        spy = shutil.which("py-spy", path=os.pathsep.join([os.path.dirname(exe), os.environ.get("PATH", os.defpath)]))
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = run_to_end([spy, "dump", "--pid", str(pid)], _SPY_TIMEOUT_S) if spy is not None else None
            if done is not None and done.returncode == 0 and done.stdout:
                dumps[pid] = done.stdout

    spies = [threading.Thread(target=dump, args=each) for each in pythons.items()]  # at once: a host may have many
    for spy in spies:
        spy.start()
    for spy in spies:
        spy.join()
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
