"""WorkspaceCache of the user's folder on a host: each under the digest of what is in it, written whole or not at all.

Runs on the hosts: standard library only. Nothing of the user's is overwritten: copies live in ~/.cache/plink/sync.
Beside each lies a file whose lock its users share (a file, not the folder: on NFS only files lock across hosts). Only
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

_KEPT = 8
_OLD = ".old-"


class WorkspaceCache:
    """The folder of copies, and the one that is being received."""

    def __init__(self) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self._folder = os.path.join(cache, "plink", "sync")
        self._file: str | None = None
        self._held: int | None = None  # the lock of the copy that is used, until this process ends

    def find(self, digest: str) -> str | None:
        """The copy with that digest, None when it has to be sent. It counts as new, and stays as long as this process.

        :raises OSError: when it is no digest.
        """
        path = self._path(digest)
        if not os.path.isdir(path):
            return None
        self._hold(path)
        if not os.path.isdir(path):  # somebody removed it before it was held
            return None
        os.utime(path)
        return path

    def add(self, data: str) -> int:
        """The next piece of the archive, base64; returns its length in bytes.

        :raises OSError: when it cannot be kept.
        """
        if self._file is None:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            handle, self._file = tempfile.mkstemp(prefix=".tar-", dir=self._folder)
            os.close(handle)
        with open(self._file, "ab") as file:
            return file.write(base64.b64decode(data))

    def forget(self) -> None:
        """Drop what was received so far."""
        if self._file is not None:
            os.unlink(self._file)
            self._file = None

    def unpack(self, digest: str, renew: Callable[[], None] = lambda: None) -> str:
        """Make the copy of what was received, which stays as long as this process; returns its path. ``renew`` is
        called now and then: it may take minutes.

        :raises OSError: when there is no room, or the archive is not what it should be.
        """
        path, archive = self._path(digest), self._file
        self._file = None
        if archive is None:
            raise OSError(0, "nothing was received")
        folder = None
        try:
            with open(archive, "rb") as file:
                if _digest(file, renew) != digest:
                    raise OSError(0, "what was received is not what was sent")
            folder = tempfile.mkdtemp(prefix=".new-", dir=self._folder)
            with tarfile.open(archive) as tar:
                for member in tar.getmembers():
                    if not (member.isreg() or member.isdir()) or not _inside(member.name):
                        raise OSError(0, f"{member.name} has no place in a copy")
                    renew()
                    tar.extract(member, folder)
            self._hold(path)
            try:
                os.rename(folder, path)
            except OSError:
                if not os.path.isdir(path):  # another agent of this user was first: theirs is as good
                    raise
        finally:
            os.unlink(archive)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        self._keep_few()
        return path

    def _path(self, digest: str) -> str:
        if not digest.isalnum():
            raise OSError(0, f"{digest!r} is no digest")
        return os.path.join(self._folder, digest)

    def _hold(self, path: str) -> None:
        """Share the lock of a copy, there or to come, from now on; nothing where the file system has no locks."""
        while True:
            try:
                lock = os.open(_lock(path), os.O_RDWR | os.O_CREAT, 0o600)
            except OSError:
                return
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(lock), os.stat(_lock(path))):
                    if self._held is not None:
                        os.close(self._held)
                    self._held = lock
                    return
            except FileNotFoundError:  # removed together with the copy, while it was waited for
                pass
            except OSError:
                os.close(lock)
                return
            os.close(lock)

    def _keep_few(self) -> None:
        """Only the copies used last are kept, and those that are in use."""
        for name in os.listdir(self._folder):
            if name.startswith(_OLD):  # nobody's: who was to remove it was ended meanwhile
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)
        there = [os.path.join(self._folder, name) for name in os.listdir(self._folder) if not name.startswith(".")]
        for path in sorted(there, key=_used_at)[:-_KEPT]:
            old = os.path.join(self._folder, _OLD + os.path.basename(path))
            with _alone(path) as alone:
                if not alone:
                    continue
                # Out of the way at once: whoever waits for the lock need not wait for the rest.
                with contextlib.suppress(OSError):
                    os.rename(path, old)
                os.unlink(_lock(path))
            shutil.rmtree(old, ignore_errors=True)


def _lock(path: str) -> str:
    """The file beside a copy whose lock is that of the copy."""
    return os.path.join(os.path.dirname(path), f".lock-{os.path.basename(path)}")


@contextlib.contextmanager
def _alone(path: str) -> Iterator[bool]:
    """Hold a copy's lock against all others; gives whether it could be had."""
    try:
        lock = os.open(_lock(path), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = os.path.samestat(os.fstat(lock), os.stat(_lock(path)))
        except OSError:  # in use, or a file system without locks; or removed by another a moment ago
            alone = False
        yield alone
    finally:
        os.close(lock)


def _used_at(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:  # another agent of this user removes copies, too
        return 0.0


def _inside(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in name.split("/")


def _digest(file: BinaryIO, renew: Callable[[], None]) -> str:
    found = hashlib.sha256()
    while block := file.read(1 << 20):
        renew()
        found.update(block)
    return found.hexdigest()
