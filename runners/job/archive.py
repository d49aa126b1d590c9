"""A folder of the user's as an archive that is the same for the same content, to be copied to hosts."""

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plink.errors import PlinkError, UsageError

# What is no part of a program, or is made anew.
LEFT_OUT = frozenset({".git", ".hg", ".plink", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache"})
_MOST_BYTES = 1 << 30
_PIECE = 1 << 16  # on its way for a second or so at the slowest rates that anybody trains over


@dataclass(frozen=True)
class Package:
    """``digest``: SHA-256 of the archive, hexadecimal; ``file``: the archive."""

    digest: str
    file: Path

    @property
    def size(self) -> int:
        """Of the archive, in bytes."""
        return self.file.stat().st_size

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, some at a time."""
        with self.file.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece


def pack(folder: Path, target: Path) -> Package:
    """Archive a folder's files into ``target``; links are followed, :data:`LEFT_OUT` is left out.

    :raises UsageError: when it is no folder, or too large to be copied this way. :raises PlinkError: when it cannot be
        read, or there is no room for the archive.
    """
    if not folder.is_dir():
        raise UsageError(f"--sync {folder}: there is no such folder")
    try:
        size = 0
        with tarfile.open(target, "w", dereference=True) as tar:
            for path in _files(folder):
                size += path.stat().st_size
                if size > _MOST_BYTES:
                    raise UsageError(
                        f"--sync {folder}: more than {_MOST_BYTES >> 30} GiB; give the folder of the program alone, "
                        f"and have data on a file system that the hosts share"
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
        raise PlinkError(f"cannot pack {folder}: {error.strerror or error}") from None
    return Package(digest, target)


def _files(folder: Path) -> Iterator[Path]:
    """Regular files, sorted by their names; links are followed, but for one that leads back to a folder above it."""
    yield from _files_in(folder, (folder.resolve(),))


def _files_in(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.is_dir() and path.name not in LEFT_OUT and (real := path.resolve()) not in above:
            yield from _files_in(path, (*above, real))
