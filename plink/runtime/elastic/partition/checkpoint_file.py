"""A partition in a file: the messages that would take it to another server, one after the other, and their SHA-256."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from plink.errors import InputError
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.partition.serialization import begun, take
from plink.runtime.elastic.transport.messages import Part
from plink.runtime.elastic.transport.records import ConnectionLost, Forged
from plink.runtime.elastic.transport.wire import receive, send
from plink.runtime.whole_file import whole_file


class _File:
    """A file as a channel; ``digest`` covers all that went through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def send(self, buffers: Sequence[memoryview]) -> None:
        for buffer in buffers:
            self._file.write(buffer)
            self.digest.update(buffer)

    def receive_into(self, view: memoryview) -> None:
        if self._file.readinto(view) != view.nbytes:  # type: ignore[attr-defined]
            raise ConnectionLost("the file ends too early")
        self.digest.update(view)

    def close(self) -> None:
        self._file.close()


def write_partition(path: Path, parts: Sequence[Part], layout: Layout) -> None:
    """Write a partition, whole or not at all; it is on the disk when this returns. It is not encrypted; only its owner
    can read it.

    :param parts: from :func:`plink.runtime.elastic.partition.serialization.parts_of`.
    """
    with whole_file(path) as file:
        channel = _File(file)
        for part in parts:
            send(channel, part, layout)
        file.write(channel.digest.digest())


def read_partition(path: Path, layout: Layout, *, sees_ahead: bool) -> Partition:
    """Read a partition from a file.

    :raises InputError: the file is none of these, is damaged, or for other tables.
    """
    try:
        with path.open("rb") as file:
            channel, size = _File(file), os.fstat(file.fileno()).st_size - hashlib.sha256().digest_size
            partition = begun(layout, _part(channel, layout), sees_ahead=sees_ahead)
            while file.tell() < size:
                take(partition, _part(channel, layout))
            if file.read() != channel.digest.digest():
                raise Forged("it is damaged: what is in it is not what was written")
    except (Forged, ConnectionLost, RejectedRequest, ValueError) as error:
        raise InputError(str(path), str(error)) from error
    return partition


def _part(channel: _File, layout: Layout) -> Part:
    part, _ = receive(channel, layout)
    if not isinstance(part, Part):
        raise Forged(f"{type(part).__name__} is no part of a partition")
    return part
