"""Those with the keys of the run meet; nobody else is listened to."""

import contextlib
import itertools
import socket
import ssl
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plink.errors import InputError, PlinkError
from plink.runtime.elastic.transport import records
from plink.runtime.elastic.transport.keys import RunKeys, Unauthenticated
from plink.runtime.elastic.transport.records import RECORD_BYTES, ConnectionLost, Forged, SealedChannel
from tests.runtime.elastic.stores import KEYS, together

OTHERS = RunKeys.make()
TIMEOUT_S = 30.0


@contextmanager
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """One that connected, one that was connected to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        item = socket.create_connection(listening.getsockname())
        other = listening.accept()[0]
        for sock in (item, other):
            sock.settimeout(TIMEOUT_S)
        try:
            yield item, other
        finally:
            item.close()
            other.close()


@contextmanager
def channels() -> Iterator[tuple[SealedChannel, SealedChannel]]:
    """Two that have met."""
    with sockets() as (item, other):
        result = together(lambda: KEYS.connect(item), lambda: KEYS.accept(other))
        yield result  # type: ignore[misc]
        for channel in result:
            channel.close()  # type: ignore[attr-defined]


def test_bytes_arrive_however_they_are_cut() -> None:
    """Short and long, in both directions at once."""
    content = bytes(range(256)) * 5000
    cuts = [0, 1, 70, 40_000, 40_001, 300_000, len(content)]
    with channels() as pair:

        def talk(channel: SealedChannel, lengths: list[int]) -> bytes:
            view = memoryview(content)
            sender = threading.Thread(
                target=channel.send, args=([view[start:end] for start, end in itertools.pairwise(cuts)],)
            )
            sender.start()
            result = bytearray(len(content))
            start = 0
            while start < len(content):
                length = min(lengths[start % len(lengths)], len(content) - start)
                channel.receive_into(memoryview(result)[start : start + length])
                start += length
            sender.join()
            return bytes(result)

        assert together(lambda: talk(pair[0], [3, 100_000, 17]), lambda: talk(pair[1], [RECORD_BYTES * 2, 1])) == [
            content,
            content,
        ]


def test_keys_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_REKEY_RECORDS", 3)
    made: list[bytes] = []
    real = records.AESGCM
    monkeypatch.setattr(records, "AESGCM", lambda key: (made.append(bytes(key)), real(key))[1])
    with channels() as (item, other):
        for number in range(20):
            item.send([memoryview(bytes([number]) * 5)])
            result = bytearray(5)
            other.receive_into(memoryview(result))
            assert result == bytes([number]) * 5
    assert len(set(made)) >= 2 + 20 // 3  # one for each direction, and the renewed ones


def sealed(channel: SealedChannel, content: bytes) -> bytes:
    """What would be sent."""
    sent: list[bytes] = []
    real, channel.socket = channel.socket, type("Tap", (), {"sendall": lambda self, data: sent.append(bytes(data))})()
    channel.send([memoryview(content)])
    channel.socket = real
    return b"".join(sent)


@pytest.mark.parametrize("where", [0, 4, 30, -1])
def test_a_changed_record_does_not_open(where: int) -> None:
    with channels() as (item, other):
        changed = bytearray(sealed(item, b"a secret of some length, that nobody may read"))
        assert b"secret" not in changed
        changed[where] ^= 1
        item.socket.sendall(changed + bytes(64))
        with pytest.raises(Forged):
            other.receive_into(memoryview(bytearray(45)))


@pytest.mark.parametrize("follows", ["the same", "an endless one"])
def test_a_repeated_record_and_an_endless_one_do_not_open(follows: str) -> None:
    with channels() as (item, other):
        sent = sealed(item, b"once")
        item.socket.sendall(sent + (sent if follows == "the same" else struct.pack("<I", 0xFFFFFFFF) + bytes(64)))
        result = memoryview(bytearray(4))
        other.receive_into(result)
        assert result == b"once"
        with pytest.raises(Forged, match="not sealed" if follows == "the same" else "4294967295"):
            other.receive_into(result)


def test_keys_of_another_run_are_refused_by_both() -> None:
    with sockets() as (item, other):
        errors = []

        def handshake(keys: RunKeys, accept: bool, sock: socket.socket) -> None:
            try:
                (keys.accept if accept else keys.connect)(sock)
            except PlinkError as error:
                errors.append(error)

        together(lambda: handshake(OTHERS, False, item), lambda: handshake(KEYS, True, other))
    assert len(errors) == 2
    assert any(isinstance(error, Unauthenticated) for error in errors)


def test_without_a_certificate_nobody_is_let_in() -> None:
    """TLS alone is not enough: the one who connects must show the run's certificate too."""
    with sockets() as (item, other):
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE

        def connect() -> None:
            with contextlib.suppress(OSError), bare.wrap_socket(item) as met:
                met.sendall(bytes(32))

        def accept() -> None:
            with pytest.raises(Unauthenticated):
                KEYS.accept(other)

        together(connect, accept)


@pytest.mark.parametrize("sent_bytes", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b""])
def test_who_speaks_no_tls_is_refused(sent_bytes: bytes) -> None:
    with sockets() as (item, other):
        item.sendall(sent_bytes)
        item.shutdown(socket.SHUT_WR)
        with pytest.raises((Unauthenticated, ConnectionLost)):
            KEYS.accept(other)


def test_silence_ends_with_the_time_out() -> None:
    with sockets() as (_, other):
        other.settimeout(0.05)
        with pytest.raises(ConnectionLost, match="timed out"):
            KEYS.accept(other)


def test_keys_touch_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever is killed leaves nothing behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not there"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda: pytest.fail("a file on disk"))
    with sockets() as (item, other):
        keys = RunKeys(KEYS.pem)
        for channel in together(lambda: keys.connect(item), lambda: keys.accept(other)):
            channel.close()  # type: ignore[attr-defined]


def test_keys_are_not_printed_and_garbage_is_no_key() -> None:
    assert "PRIVATE" not in repr(KEYS)
    with sockets() as (item, _), pytest.raises(InputError, match="keys of the run"):
        RunKeys(b"nonsense").connect(item)
