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
from plink.runtime.agileml.transport import records
from plink.runtime.agileml.transport.keys import RunKeys, Stranger
from plink.runtime.agileml.transport.records import RECORD_BYTES, Forged, Lost, SealedChannel
from tests.runtime.agileml.stores import KEYS, together

OTHERS = RunKeys.make()
TIMEOUT_S = 30.0


@contextmanager
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """One that connected, one that was connected to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other = listening.accept()[0]
        for sock in (one, other):
            sock.settimeout(TIMEOUT_S)
        try:
            yield one, other
        finally:
            one.close()
            other.close()


@contextmanager
def channels() -> Iterator[tuple[SealedChannel, SealedChannel]]:
    """Two that have met."""
    with sockets() as (one, other):
        found = together(lambda: KEYS.connect(one), lambda: KEYS.accept(other))
        yield found  # type: ignore[misc]
        for channel in found:
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
            found = bytearray(len(content))
            start = 0
            while start < len(content):
                length = min(lengths[start % len(lengths)], len(content) - start)
                channel.receive_into(memoryview(found)[start : start + length])
                start += length
            sender.join()
            return bytes(found)

        assert together(lambda: talk(pair[0], [3, 100_000, 17]), lambda: talk(pair[1], [RECORD_BYTES * 2, 1])) == [
            content,
            content,
        ]


def test_keys_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_REKEY_RECORDS", 3)
    made: list[bytes] = []
    real = records.AESGCM
    monkeypatch.setattr(records, "AESGCM", lambda key: (made.append(bytes(key)), real(key))[1])
    with channels() as (one, other):
        for number in range(20):
            one.send([memoryview(bytes([number]) * 5)])
            found = bytearray(5)
            other.receive_into(memoryview(found))
            assert found == bytes([number]) * 5
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
    with channels() as (one, other):
        changed = bytearray(sealed(one, b"a secret of some length, that nobody may read"))
        assert b"secret" not in changed
        changed[where] ^= 1
        one.socket.sendall(changed + bytes(64))
        with pytest.raises(Forged):
            other.receive_into(memoryview(bytearray(45)))


@pytest.mark.parametrize("follows", ["the same", "an endless one"])
def test_a_repeated_record_and_an_endless_one_do_not_open(follows: str) -> None:
    with channels() as (one, other):
        sent = sealed(one, b"once")
        one.socket.sendall(sent + (sent if follows == "the same" else struct.pack("<I", 0xFFFFFFFF) + bytes(64)))
        found = memoryview(bytearray(4))
        other.receive_into(found)
        assert found == b"once"
        with pytest.raises(Forged, match="not sealed" if follows == "the same" else "4294967295"):
            other.receive_into(found)


def test_keys_of_another_run_are_refused_by_both() -> None:
    with sockets() as (one, other):
        errors = []

        def meet(keys: RunKeys, accept: bool, sock: socket.socket) -> None:
            try:
                (keys.accept if accept else keys.connect)(sock)
            except PlinkError as error:
                errors.append(error)

        together(lambda: meet(OTHERS, False, one), lambda: meet(KEYS, True, other))
    assert len(errors) == 2
    assert any(isinstance(error, Stranger) for error in errors)


def test_without_a_certificate_nobody_is_let_in() -> None:
    """TLS alone is not enough: the one who connects must show the run's certificate too."""
    with sockets() as (one, other):
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE

        def connect() -> None:
            with contextlib.suppress(OSError), bare.wrap_socket(one) as met:
                met.sendall(bytes(32))

        def accept() -> None:
            with pytest.raises(Stranger):
                KEYS.accept(other)

        together(connect, accept)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b""])
def test_who_speaks_no_tls_is_refused(said: bytes) -> None:
    with sockets() as (one, other):
        one.sendall(said)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises((Stranger, Lost)):
            KEYS.accept(other)


def test_silence_ends_with_the_time_out() -> None:
    with sockets() as (_, other):
        other.settimeout(0.05)
        with pytest.raises(Lost, match="timed out"):
            KEYS.accept(other)


def test_keys_touch_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever is killed leaves nothing behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not there"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda: pytest.fail("a file on disk"))
    with sockets() as (one, other):
        keys = RunKeys(KEYS.pem)
        for channel in together(lambda: keys.connect(one), lambda: keys.accept(other)):
            channel.close()  # type: ignore[attr-defined]


def test_keys_are_not_printed_and_garbage_is_no_key() -> None:
    assert "PRIVATE" not in repr(KEYS)
    with sockets() as (one, _), pytest.raises(InputError, match="keys of the run"):
        RunKeys(b"nonsense").connect(one)
