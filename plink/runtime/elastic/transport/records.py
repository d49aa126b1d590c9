"""Records between two processes that share a secret, sealed with AES-128-GCM, over a connected socket.

Python's ``ssl`` reads and writes TLS records of 16 KB, each with system calls and turns of its lock of its own, and
does 0.9 GB/s on loopback where plain sockets do 2.7 and these records 2.2; AES itself does 20 GB/s in records of 256 KB
(``python -m benchmarks.parameter_server``). So TLS is for meeting (:mod:`.keys`), records are for data.

A record is its length (4 bytes, authenticated with it), the sealed bytes, and a tag of 16. Each direction has a key of
its own, and the nonce counts its records: one that was changed, repeated, left out or moved does not open. Keys are
replaced long before AES-GCM wears out (RFC 8446, 5.5: 2**24.5 records of 2**14 bytes, 388 GB).
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol
from weakref import WeakSet

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from msgspec import structs

from plink.errors import PlinkError
from plink.model.elastic.fields import TrafficCounters
from plink.runtime.elastic.arrays.row_blocks import RowBlock


class TrafficAccount:
    """Counters of all connections, also those that have ended; for any thread."""

    def __init__(self) -> None:
        self._open: WeakSet[SealedChannel] = WeakSet()
        self._past = TrafficCounters()
        self._guard = threading.Lock()

    def add(self, connection: "SealedChannel") -> None:
        """Count a connection."""
        with self._guard:
            self._open.add(connection)

    def end(self, connection: "SealedChannel") -> None:
        """Stop counting a connection; a second time changes nothing."""
        with self._guard:
            if connection in self._open:
                self._open.discard(connection)
                self._past = _with(self._past, connection)

    def replicated(self, blocks: Iterable[RowBlock]) -> None:
        """Count what is pushed to a replica."""
        size = sum(block.values.nbytes for block in blocks)
        with self._guard:
            self._past = structs.replace(self._past, replicated=self._past.replicated + size)

    def total(self) -> TrafficCounters:
        """Return the bytes so far."""
        with self._guard:
            result = self._past
            for connection in self._open:
                result = _with(result, connection)
            return result


def _with(traffic: TrafficCounters, item: "SealedChannel") -> TrafficCounters:
    side = "server" if item.accepted else "client"
    more = {f"{side}_sent": item.sent, f"{side}_received": item.received}
    return structs.replace(traffic, **{name: getattr(traffic, name) + size for name, size in more.items()})


TRAFFIC = TrafficAccount()


RECORD_BYTES = 1 << 18
_GATHER_BYTES = 1 << 15  # buffers shorter than this share records with their neighbours
_TAG_BYTES, _KEY_BYTES, _SECRET_BYTES = 16, 16, 32
_REKEY_RECORDS = 1 << 17  # 32 GB
_LENGTH = struct.Struct("<I")
_SEALED_BYTES = _LENGTH.size + RECORD_BYTES + _TAG_BYTES
_sealing: list[memoryview] = []  # what no thread seals a record in now; the last one used is the next


class ConnectionLost(PlinkError):
    """The connection ended, broke or timed out: what was under way may or may not have been done."""


class Forged(PlinkError):
    """A record was not sealed by the other end, or makes no sense; the connection is closed."""


class Channel(Protocol):
    """Stream of bytes in both directions, for one thread at a time."""

    def send(self, buffers: Sequence[memoryview]) -> None:
        """Send all bytes of all buffers, in order. :raises ConnectionLost: they did not all leave."""

    def receive_into(self, view: memoryview) -> None:
        """Fill a view. :raises ConnectionLost: the stream ended before. :raises Forged: it was tampered with."""

    def close(self) -> None:
        """Close both directions."""


def _untouched(size: int) -> memoryview:
    """Return memory that costs nothing before it is used: a bytearray is filled with zeros, and on a virtual machine
    the fresh pages of one connection's took longer than its handshake."""
    return np.empty(size, dtype=np.uint8).data


class _Sealing:
    """Key of one direction, and how often it was used."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._count = secret, 0
        self.key = self._key()

    def _key(self) -> AESGCM:
        return AESGCM(HKDFExpand(hashes.SHA256(), _KEY_BYTES, b"plink records key").derive(self._secret))

    def nonce(self) -> bytes:
        """Return the nonce of the next record, and renew the key where it is due."""
        self._count += 1
        if self._count % _REKEY_RECORDS == 0:
            self._secret = HKDFExpand(hashes.SHA256(), _SECRET_BYTES, b"plink records next").derive(self._secret)
            self.key = self._key()
        return self._count.to_bytes(12, "little")


class SealedChannel:
    """Channel of sealed records over a socket.

    :param secret: known to both ends and nobody else, and used for this connection only.
    :param accepted: whether this end is the one that was connected to.
    """

    def __init__(self, sock: socket.socket, secret: bytes, *, accepted: bool) -> None:
        derived = HKDF(hashes.SHA256(), 2 * _SECRET_BYTES, salt=None, info=b"plink records").derive(secret)
        there, back = derived[:_SECRET_BYTES], derived[_SECRET_BYTES:]
        self.socket, self.accepted = sock, accepted
        self.sent = self.received = 0
        TRAFFIC.add(self)
        self._out, self._in = (_Sealing(back), _Sealing(there)) if accepted else (_Sealing(there), _Sealing(back))
        self._arrived = _untouched(2 * _SEALED_BYTES)
        self._start = self._end = 0
        self._plain = _untouched(RECORD_BYTES)
        self._plain_start = self._plain_end = 0

    def send(self, buffers: Sequence[memoryview]) -> None:
        """Send buffers: long ones are sealed in place, short ones are gathered first."""
        gathered = bytearray()
        for buffer in buffers:
            if buffer.nbytes < _GATHER_BYTES and len(gathered) + buffer.nbytes <= RECORD_BYTES:
                gathered += buffer
                continue
            if gathered:
                self._send_record(memoryview(gathered))
                gathered = bytearray()
            for start in range(0, buffer.nbytes, RECORD_BYTES):
                self._send_record(buffer[start : start + RECORD_BYTES])
        if gathered:
            self._send_record(memoryview(gathered))

    def _send_record(self, plain: memoryview) -> None:
        end = _LENGTH.size + plain.nbytes + _TAG_BYTES
        length = _LENGTH.pack(plain.nbytes)
        try:
            record = _sealing.pop()
        except IndexError:  # more threads seal at a time than ever before
            record = _untouched(_SEALED_BYTES)
        try:
            record[: _LENGTH.size] = length
            nonce = self._out.nonce()
            self._out.key.encrypt_into(nonce, plain, length, record[_LENGTH.size : end])
            self.socket.sendall(record[:end])
        except OSError as error:
            raise ConnectionLost(f"connection lost while sending: {error}") from error
        finally:
            _sealing.append(record)
        self.sent += end

    def receive_into(self, view: memoryview) -> None:
        """Fill a view; records that fit are opened right into it."""
        done = 0
        while done < view.nbytes:
            if self._plain_start == self._plain_end:
                done += self._open(view[done:])
                continue
            count = min(view.nbytes - done, self._plain_end - self._plain_start)
            view[done : done + count] = self._plain[self._plain_start : self._plain_start + count]
            self._plain_start += count
            done += count

    def _open(self, view: memoryview) -> int:
        """Open the next record into the view, or aside if it is too long for it; how many bytes went into the view."""
        self._want(_LENGTH.size)
        length: int = _LENGTH.unpack_from(self._arrived, self._start)[0]
        if not 0 < length <= RECORD_BYTES:
            raise Forged(f"a record of {length} bytes")
        self._want(_LENGTH.size + length + _TAG_BYTES)
        body = self._start + _LENGTH.size
        fits = length <= view.nbytes
        nonce = self._in.nonce()
        try:
            self._in.key.decrypt_into(
                nonce,
                self._arrived[body : body + length + _TAG_BYTES],
                bytes(self._arrived[self._start : body]),
                view[:length] if fits else self._plain[:length],
            )
        except InvalidTag:
            raise Forged("a record that was not sealed by the other end") from None
        self._start = body + length + _TAG_BYTES
        if fits:
            return length
        self._plain_start, self._plain_end = 0, length
        return 0

    def _want(self, count: int) -> None:
        """Have so many sealed bytes, and not many more, for what is left over of them is moved to the front."""
        if self._end - self._start < count and self._start:
            remaining = self._end - self._start
            self._arrived[:remaining] = bytes(self._arrived[self._start : self._end])
            self._start, self._end = 0, remaining
        while self._end - self._start < count:
            room = max(count + _LENGTH.size, self._end + _GATHER_BYTES)
            try:
                got = self.socket.recv_into(self._arrived[self._end : room])
            except OSError as error:
                raise ConnectionLost(f"connection lost while receiving: {error}") from error
            if not got:
                raise ConnectionLost("the other end closed the connection")
            self._end += got
            self.received += got

    def close(self) -> None:
        """Close; a thread that waits in it wakes up."""
        with contextlib.suppress(OSError):  # it was not connected any more
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        TRAFFIC.end(self)
