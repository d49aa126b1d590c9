"""Files that are whole or not there, and their digest."""

import errno
import hashlib
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


class DigestedWriter(io.RawIOBase):
    """Writes to a file; ``digest``: SHA-256 of all that went through it; ``error``: why it failed first."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()
        self.error: OSError | None = None

    def writable(self) -> bool:
        """Return that it is."""
        return True

    def write(self, data: Any) -> int:
        """Write, and return how many bytes."""
        self.digest.update(data)
        try:
            return int(self._file.write(data))
        except OSError as error:
            self.error = self.error or error
            raise


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # errors of a disk, or a quota, that is full


@contextmanager
def whole_file(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Open a file that gets its name when all is written and on the disk; after an error there is none.

    :param mode: permissions, less those of the umask; by default only its owner can read it. It is not encrypted.
    :raises OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk; without that a name may be gone after a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
