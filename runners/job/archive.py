"""Archive of the user's folder, to be copied to hosts; it is the same for the same content."""

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plink.errors import PlinkError, UsageError

# Not part of a program, or created again.
EXCLUDED_FOLDERS = frozenset({".git", ".hg", ".plink", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache"})
_MAX_BYTES = 1 << 30
_PART_BYTES = 1 << 16  # about a second at the slowest rates that anybody trains over


@dataclass(frozen=True)
class WorkspaceArchive:
    """An archive file.

    :param digest: SHA-256 of the archive, hexadecimal.
    """

    digest: str
    file: Path

    @property
    def size(self) -> int:
        """Return its size in bytes."""
        return self.file.stat().st_size

    def parts(self) -> Iterator[bytes]:
        """Yield its bytes in parts."""
        with self.file.open("rb") as file:
            while part := file.read(_PART_BYTES):
                yield part


def archive_folder(folder: Path, target: Path) -> WorkspaceArchive:
    """Archive a folder's files into ``target``, without :data:`EXCLUDED_FOLDERS`; follows links.

    :raises UsageError: when it is no folder, or too large. :raises PlinkError: when it cannot be read or written.
    """
    if not folder.is_dir():
        raise UsageError(f"--sync {folder}: no such folder")
    try:
        size = 0
        with tarfile.open(target, "w", dereference=True) as tar:
            for path in _files(folder):
                size += path.stat().st_size
                if size > _MAX_BYTES:
                    raise UsageError(
                        f"--sync {folder}: more than {_MAX_BYTES >> 30} GiB; copy the program's folder only, "
                        f"and keep data on a file system that the hosts share"
                    )
                entry = tar.gettarinfo(path, str(path.relative_to(folder)))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                entry.mtime = 0
                entry.mode &= 0o755
                with path.open("rb") as file:
                    tar.addfile(entry, file)
        with target.open("rb") as archive:
            digest = hashlib.file_digest(archive, "sha256").hexdigest()
    except OSError as error:
        raise PlinkError(f"cannot archive {folder}: {error.strerror or error}") from None
    return WorkspaceArchive(digest, target)


def _files(folder: Path) -> Iterator[Path]:
    """Yield regular files, sorted by name; follows links, but not back to a folder above them."""
    yield from _files_in(folder, (folder.resolve(),))


def _files_in(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.is_dir() and path.name not in EXCLUDED_FOLDERS and (real := path.resolve()) not in above:
            yield from _files_in(path, (*above, real))
