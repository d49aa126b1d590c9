"""Processes that are recognised by a variable in their environment, wherever they went."""

import contextlib
import os
import secrets
import signal
from pathlib import Path

from tests.child_hosts import WAIT_S
from tests.lab.waiting import until

_NAME = "PLINK_TEST_MARK"


class Marked:
    """What is started with ``env``, and all that it starts."""

    def __init__(self) -> None:
        self.env = {_NAME: secrets.token_hex(8)}

    def pids(self) -> set[int]:
        """Those that run."""
        wanted, pids = f"{_NAME}={self.env[_NAME]}".encode(), set()
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                    pids.add(int(folder.name))
            except OSError:  # it has ended
                continue
        return pids

    def gone(self) -> bool:
        """Whether all of them end in time."""
        until(lambda: not self.pids(), WAIT_S, "processes to be gone")
        return True

    def kill(self) -> None:
        """What a failed test has left."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def parent_of(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
