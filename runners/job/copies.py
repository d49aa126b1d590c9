"""Copies of the user's folder on a host: each under the digest of what is in it, written whole or not at all.

Runs on the hosts: standard library only. Nothing of the user's is overwritten: copies live in ~/.cache/plink/sync.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from typing import BinaryIO

_KEPT = 8


class Copies:
    """The folder of copies, and the one that is being received."""

    def __init__(self) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self._folder = os.path.join(cache, "plink", "sync")
        self._file: str | None = None

    def find(self, digest: str) -> str | None:
        """The copy with that digest, None when it has to be sent. A copy that is used counts as new."""
        path = self._path(digest)
        if not os.path.isdir(path):
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
        """Make the copy of what was received; returns its path. ``renew`` is called now and then: it may take minutes.

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

    def _keep_few(self) -> None:
        """Only the copies used last are kept."""
        there = [os.path.join(self._folder, name) for name in os.listdir(self._folder) if not name.startswith(".")]
        for path in sorted(there, key=os.path.getmtime)[:-_KEPT]:
            shutil.rmtree(path, ignore_errors=True)


def _inside(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in name.split("/")


def _digest(file: BinaryIO, renew: Callable[[], None]) -> str:
    found = hashlib.sha256()
    while block := file.read(1 << 20):
        renew()
        found.update(block)
    return found.hexdigest()
