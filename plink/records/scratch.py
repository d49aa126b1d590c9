"""Temporary folders of this process, and removal of those that killed processes left behind.

Each holds the lock of its folder (flock(2)) while it lives: the kernel lets go of it however the process ends, also for
another container that shares the folder of temporary files.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "plink-held-"


class ScratchFolder:
    """A folder of this process, removed by :meth:`close`, or by the next plink of this user after a kill."""

    def __init__(self) -> None:
        """:raises OSError: when none can be made."""
        remove_abandoned()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            try:
                self._lock: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # another plink took it for abandoned before it was locked
            with contextlib.suppress(OSError):  # there are file systems without locks
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():
                return
            os.close(self._lock)  # the same, a moment later

    def close(self) -> None:
        """Remove it with all that is in it."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a folder that exists as long as the context.

    :raises OSError: when none can be made.
    """
    folder = ScratchFolder()
    try:
        yield folder.path
    finally:
        folder.close()


def remove_abandoned() -> None:
    """Remove this user's temporary folders whose process has ended; errors are ignored."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    """:raises OSError: when it is held, or no longer there."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(lock)
        if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
