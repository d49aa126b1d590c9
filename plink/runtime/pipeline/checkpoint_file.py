"""One rank's part of a checkpoint in a file: a header in JSON, with the SHA-256 of what follows, then tensors.

Written beside and renamed, so a file is whole or not there. Read without running code (``weights_only``). It is not
encrypted; only its owner can read it.
"""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import torch
from msgspec import structs

from plink.errors import InputError
from plink.model.codec import decode
from plink.model.pipeline.rank_report import CheckpointHeader
from plink.model.storage import parse_document
from plink.runtime.whole_file import DigestedWriter, sync_folder, whole_file

_HEADER_BYTES = 4096
_READ_BYTES = 1 << 20


def write_checkpoint(path: Path, header: CheckpointHeader, state: dict[str, Any]) -> None:
    """Write a checkpoint, whole or not at all; it is on the disk when this returns.

    :param header: its digest is filled in. :param state: tensors, numbers and texts in dicts and lists.
    :raises OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(b" " * _HEADER_BYTES)
        writer: Any = DigestedWriter(file)
        try:
            torch.save(state, writer)
        except RuntimeError as error:  # what torch makes of an error of its file, with a C++ stack in its text
            raise writer.error or error from None
        text = json.dumps(structs.replace(header, sha256=writer.digest.hexdigest()).to_json()).encode()
        assert len(text) < _HEADER_BYTES
        file.seek(0)
        file.write(text.ljust(_HEADER_BYTES - 1) + b"\n")
    sync_folder(path.parent.parent)


def peek_header(path: Path) -> CheckpointHeader:
    """Return the header of a file, whatever follows it.

    :raises InputError: when it is no checkpoint.
    """
    try:
        with path.open("rb") as file:
            return _header(file.read(_HEADER_BYTES), str(path))
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from None


def read_header(path: Path) -> CheckpointHeader:
    """Return the header of a file whose digest is right.

    :raises InputError: when it is no checkpoint, or damaged.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            header = _header(file.read(_HEADER_BYTES), str(path))
            while data := file.read(_READ_BYTES):
                digest.update(data)
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from None
    _check_digest(header, digest.hexdigest(), str(path))
    return header


def read_checkpoint(path: Path) -> tuple[CheckpointHeader, dict[str, Any]]:
    """Return header and state, on the CPU.

    :raises InputError: as :func:`checkpoint_from`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from None
    return checkpoint_from(data, str(path))


def checkpoint_from(data: bytes, location: str) -> tuple[CheckpointHeader, dict[str, Any]]:
    """Return header and state of a file's content, which another host may have sent.

    :raises InputError: when it is no checkpoint, or damaged.
    """
    header = _header(data[:_HEADER_BYTES], location)
    content = memoryview(data)[_HEADER_BYTES:]
    _check_digest(header, hashlib.sha256(content).hexdigest(), location)
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(location, f"it cannot be read: {type(error).__name__}") from error
    return header, state


def _check_digest(header: CheckpointHeader, digest: str, location: str) -> None:
    if digest != header.sha256:
        raise InputError(location, "it is damaged: its SHA-256 is another")


def _header(data: bytes, location: str) -> CheckpointHeader:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InputError(location, "it is no checkpoint of a pipeline") from None
    return decode(CheckpointHeader, parse_document(text, location), location)
