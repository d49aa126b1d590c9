"""Cache of the user's folder on a host: copies by the digest of their content, written whole or not at all.

Runs on the hosts: standard library only. It overwrites nothing of the user's: copies are in ~/.cache/plink/sync.
Beside each is a lock file that its users share (a file, not the folder: on NFS only files lock across hosts). Only
copies that nobody uses are removed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

_MAX_COPIES = 8
_REMOVED_PREFIX = ".old-"


class WorkspaceCache:
    """Folder of copies, and the archive that is being received."""

    def __init__(self) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self._folder = os.path.join(cache, "plink", "sync")
        self._file: str | None = None
        self._lock_fd: int | None = None  # of the copy in use, until this process ends

    def find(self, digest: str) -> str | None:
        """Return the copy with that digest, None when it has to be sent; it is kept until this process ends.

        :raises OSError: when it is no digest.
        """
        path = self._path(digest)
        if not os.path.isdir(path):
            return None
        self._share_lock(path)
        if not os.path.isdir(path):  # removed before it was locked
            return None
        os.utime(path)
        return path

    def append(self, data: str) -> int:
        """Append the next part of the archive, base64; return its length in bytes.

        :raises OSError: when it cannot be written.
        """
        if self._file is None:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            handle, self._file = tempfile.mkstemp(prefix=".tar-", dir=self._folder)
            os.close(handle)
        with open(self._file, "ab") as file:
            return file.write(base64.b64decode(data))

    def discard(self) -> None:
        """Delete what was received so far."""
        if self._file is not None:
            os.unlink(self._file)
            self._file = None

    def extract(self, digest: str, renew_lease: Callable[[], None] = lambda: None) -> str:
        """Extract what was received; return the path of the copy, which is kept until this process ends.

        :param renew_lease: called now and then, for this may take minutes.
        :raises OSError: when the disk is full, or the archive is damaged.
        """
        path, archive = self._path(digest), self._file
        self._file = None
        if archive is None:
            raise OSError(0, "nothing was received")
        folder = None
        try:
            with open(archive, "rb") as file:
                if _digest(file, renew_lease) != digest:
                    raise OSError(0, "the archive was damaged on its way")
            folder = tempfile.mkdtemp(prefix=".new-", dir=self._folder)
            with tarfile.open(archive) as tar:
                tar.extraction_filter = lambda member, _: (
                    member
                )  # 3.14 would take bits of modes away; these are checked
                for member in tar.getmembers():
                    if not (member.isreg() or member.isdir()) or not _is_inside(member.name):
                        raise OSError(0, f"{member.name} is no plain file inside the folder")
                    renew_lease()
                    tar.extract(member, folder)
            self._share_lock(path)
            try:
                os.rename(folder, path)
            except OSError:
                if not os.path.isdir(path):  # another agent of this user was first
                    raise
        finally:
            os.unlink(archive)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        self._remove_old()
        return path

    def _path(self, digest: str) -> str:
        if not digest.isalnum():
            raise OSError(0, f"{digest!r} is no digest")
        return os.path.join(self._folder, digest)

    def _share_lock(self, path: str) -> None:
        """Share the lock of a copy, which need not exist yet; nothing where the file system has no locks."""
        while True:
            try:
                lock = os.open(_lock(path), os.O_RDWR | os.O_CREAT, 0o600)
            except OSError:
                return
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(lock), os.stat(_lock(path))):
                    if self._lock_fd is not None:
                        os.close(self._lock_fd)
                    self._lock_fd = lock
                    return
            except FileNotFoundError:  # removed together with the copy meanwhile
                pass
            except OSError:
                os.close(lock)
                return
            os.close(lock)

    def _remove_old(self) -> None:
        """Remove all but the copies used last, and those in use."""
        for name in os.listdir(self._folder):
            if name.startswith(_REMOVED_PREFIX):  # left by an agent that was ended
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)
        copies = [os.path.join(self._folder, name) for name in os.listdir(self._folder) if not name.startswith(".")]
        for path in sorted(copies, key=_last_used)[:-_MAX_COPIES]:
            removed = os.path.join(self._folder, _REMOVED_PREFIX + os.path.basename(path))
            with _exclusive(path) as exclusive:
                if not exclusive:
                    continue
                # Renamed first: whoever waits for the lock does not wait for the removal.
                with contextlib.suppress(OSError):
                    os.rename(path, removed)
                os.unlink(_lock(path))
            shutil.rmtree(removed, ignore_errors=True)


def _lock(path: str) -> str:
    """Return the lock file of a copy."""
    return os.path.join(os.path.dirname(path), f".lock-{os.path.basename(path)}")


@contextlib.contextmanager
def _exclusive(path: str) -> Iterator[bool]:
    """Lock a copy exclusively; yield whether that worked."""
    try:
        lock = os.open(_lock(path), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            exclusive = os.path.samestat(os.fstat(lock), os.stat(_lock(path)))
        except OSError:  # in use, or no locks here, or removed by another agent
            exclusive = False
        yield exclusive
    finally:
        os.close(lock)


def _last_used(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:  # removed by another agent of this user
        return 0.0


def _is_inside(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in name.split("/")


def _digest(file: BinaryIO, renew_lease: Callable[[], None]) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        renew_lease()
        digest.update(block)
    return digest.hexdigest()
