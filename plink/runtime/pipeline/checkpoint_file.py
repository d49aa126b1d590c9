"""One rank's part of a checkpoint in a file: a header in JSON, with the SHA-256 of what follows, then tensors.

Written beside and renamed, so a file is whole or not there. Read without running code (``weights_only``). It is not
encrypted; only its owner can read it.
"""

import hashlib
import io
import os
import secrets
from pathlib import Path
from typing import Any

import torch

from plink.documents.codec import decode
from plink.documents.pipeline_checkpoint import PipelineCheckpointDocument
from plink.errors import InputError
from plink.model.storage import parse_document

SCHEMA = "plink.pipeline-checkpoint/1"
_HEADER_BYTES = 4096
_READ_BYTES = 1 << 20


class _Hashed(io.RawIOBase):
    """A file that is written from its header on, and the digest of that."""

    def __init__(self, file: Any) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return int(self._file.write(data))


def write_checkpoint(path: Path, header: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a checkpoint, whole or not at all; it is on the disk when this returns.

    :param header: without ``schema`` and ``sha256``. :param state: tensors, numbers and texts in dicts and lists.
    :raises OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(b" " * _HEADER_BYTES)
            hashed: Any = _Hashed(file)
            torch.save(state, hashed)
            document = {"schema": SCHEMA, "sha256": hashed.digest.hexdigest(), **header}
            file.seek(0)
            file.write(_encoded(document))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        _sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk, and that which it is in its parent."""
    for entry in (folder, folder.parent):
        descriptor = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _encoded(document: dict[str, Any]) -> bytes:
    from json import dumps

    data = dumps(document).encode()
    assert len(data) < _HEADER_BYTES
    return data.ljust(_HEADER_BYTES - 1) + b"\n"


def read_header(path: Path) -> PipelineCheckpointDocument:
    """Return the header of a file whose digest is right.

    :raises InputError: when it is no checkpoint, or damaged.
    """
    header, digest = _header(path), hashlib.sha256()
    try:
        with path.open("rb") as file:
            file.seek(_HEADER_BYTES)
            while data := file.read(_READ_BYTES):
                digest.update(data)
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from None
    if digest.hexdigest() != header["sha256"]:
        raise InputError(str(path), "it is damaged: its SHA-256 is another")
    return header


def read_state(path: Path) -> dict[str, Any]:
    """Return what was written after the header, on the CPU.

    :raises InputError: when it cannot be read.
    """
    try:
        data = io.BytesIO(path.read_bytes()[_HEADER_BYTES:])
        state: dict[str, Any] = torch.load(data, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(str(path), f"it cannot be read: {type(error).__name__}") from error
    return state


def _header(path: Path) -> PipelineCheckpointDocument:
    try:
        with path.open("rb") as file:
            text = file.read(_HEADER_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        raise InputError(str(path), "it is no checkpoint of a pipeline") from None
    return decode(PipelineCheckpointDocument, parse_document(text, str(path)), str(path))
