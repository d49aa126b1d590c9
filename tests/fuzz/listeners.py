"""Targets for unauthenticated clients: listening sockets, and messages over accepted connections.

Callers come over local sockets, which are as good as TCP's to who listens, and leave no ports behind that wait.
See :mod:`tests.fuzz.targets` for what holds for all targets.
"""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from typing import Any
from unittest.mock import patch

WORD = b"sixteen letters."
RANKS = ((1, 0), (2, 0))  # expected clients: rank and channel
_CALLERS = 8
_WITHIN_S = 5.0


def calls(*words: bytes) -> bytes:
    """An input of a listener: each caller's bytes after their length, whose lowest bit is 1 if it closes."""
    return b"".join(bytes([len(word) << 1 & 0xFF]) + word for word in words)


def _callers(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """What each says, and whether it has nothing more to say."""
    for _ in range(_CALLERS):
        if not data:
            return
        length = data[0] >> 1
        yield data[1 : 1 + length], bool(data[0] & 1)
        data = data[1 + length :]


@contextlib.contextmanager
def _called(
    data: bytes, honest: tuple[bytes, ...]
) -> Iterator[tuple[socket.socket, list[tuple[socket.socket, bytes]]]]:
    """Who listens, and all who have called, with their words: strangers, then the honest."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind("")  # some name of the kernel's
        listening.listen(64)
        calls = []
        for words, ends in (*_callers(data), *((words, False) for words in honest)):
            line = stack.enter_context(socket.socket(socket.AF_UNIX))
            line.connect(listening.getsockname())
            line.sendall(words)
            if ends:
                line.shutdown(socket.SHUT_WR)
            line.settimeout(_WITHIN_S)
            calls.append((line, words))
        yield listening, calls


def _local() -> Any:
    """Local sockets have none of TCP's options."""
    return patch.object(socket.socket, "setsockopt", lambda *option: None)


def _answer(line: socket.socket) -> bytes:
    """What a caller is told; nothing where it is hung up on."""
    try:
        return line.recv(1 << 16)
    except ConnectionResetError:
        return b""


def listener(data: bytes) -> None:
    """AggEngine's: whoever knows the word and is expected comes in, once; all others are hung up on."""
    from plink.runtime.allreduce.mesh import _GREETING, _Acceptor

    expected, result = set(RANKS), dict[tuple[int, int], socket.socket]()
    words = {who: _GREETING.pack(WORD, *who) for who in RANKS}
    with _called(data, tuple(words.values())) as (listening, calls):
        listener = _Acceptor(listening, WORD, expected, result, _WITHIN_S)
        try:
            listener.run()
            listening.close()
            assert not expected, "somebody who was expected is not let in"
            assert result.keys() == set(RANKS)
            for (rank, _), line in result.items():
                line.sendall(bytes([rank]))
            for line in result.values():
                line.close()
            messages = [(_answer(line), its) for line, its in calls]
        finally:
            listener.close()
            for line in result.values():
                line.close()
    assert sorted(answer for answer, _ in messages if answer) == [bytes([rank]) for rank, _ in RANKS]
    for answer, its in messages:
        assert not answer or its[: _GREETING.size] == words[answer[0], 0]


def short_message(data: bytes) -> None:
    """What another rank sends once it is connected: the messages that were expected, or a line that names it."""
    import torch

    from plink.runtime.allreduce import eager
    from plink.runtime.allreduce.mesh import FullMesh
    from plink.runtime.allreduce.watchdog import PeerLost

    here, there = socket.socketpair()
    with there:
        there.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        with patch.object(eager, "_CLOSE_CHECK_INTERVAL_S", 0.0), _local():
            transport = eager.EagerTransport({(1, 0): here}, FullMesh(0, (0, 7), 1), timedelta(0))
            try:
                at = 0
                for signature in (4, 5, 1 << 26):
                    room = torch.zeros(signature % 16 + 1)
                    waits = transport.receive(room, 1, 0, signature)
                    transport.wait(waits, 1, 0)
                    wanted = eager._MESSAGE.pack(signature, room.nbytes) + room.numpy().tobytes()
                    assert data[at : at + len(wanted)] == wanted
                    at += len(wanted)
            except PeerLost as lost:
                named = str(lost)
            else:
                named = "rank 7"
            finally:
                transport.release()
            assert "rank 7" in named


def gate(data: bytes) -> None:
    """The first rank's, at the port of the rendezvous: it opens when all have come, and strangers hear nothing."""
    from plink.transport import start_barrier

    words = tuple(f"token {rank}\n".encode() for rank in (1, 2))
    quick = patch.multiple(start_barrier, _DISCONNECT_TIMEOUT_S=0.0, _BARRIER_TIMEOUT_S=_WITHIN_S)
    with quick, _called(data, words) as (listening, calls):
        assert start_barrier._serve(listening, "token", {1, 2}) is None
        listening.close()
        messages = [(_answer(line), its) for line, its in calls]
    assert all(answer in (b"", start_barrier._GO) and (not answer or its in words) for answer, its in messages)
    assert sum(bool(answer) for answer, _ in messages) >= len(words)


def pods(data: bytes) -> None:
    """Where the pods of a job meet; each line is a caller's."""
    from runners.kubernetes.inside import rendezvous

    honest = [pod(group) for group in (0, 1)]
    with _called(b"", ()) as (listening, _), contextlib.ExitStack() as stack:
        for line in (*data.split(b"\n")[:_CALLERS], *honest):
            caller = stack.enter_context(socket.socket(socket.AF_UNIX))
            caller.connect(listening.getsockname())
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.sendall(line + b"\n")
        with patch.object(rendezvous.socket, "create_server", lambda *where, **how: listening):
            met = rendezvous.RendezvousServer(["a", "b"], rendezvous.Bootstrap("this", "", 0, _WITHIN_S, True))
        reports, refused = met.finish()
    json.dumps([reports, refused])
    assert refused or reports.keys() == {0, 1}
    assert all(isinstance(report[key], str) for report in reports.values() for key in ("pod", "node"))


def pod(group: int) -> bytes:
    """What one of that group says."""
    calls = {"job": "this", "group": group, "pod": f"p{group}", "node": "ab"[group], "problems": []}
    return json.dumps(calls).encode()


def control_request(data: bytes) -> None:
    """A request of ``plink elastic`` to an elastic job, and its answer."""
    control_socket = _control_socket()
    here, there = socket.socketpair()
    with there:
        there.sendall(data[: 1 << 15] + b"\n")
        control_socket._serve(here)
        messages = _answer(there)
    assert not messages or isinstance(json.loads(messages)["request"], dict)


@cache
def _control_socket() -> Any:
    import atexit

    from runners.elastic.control_socket import ControlSocket

    control_socket = ControlSocket(lambda request, answer: answer({"request": request}))
    atexit.register(control_socket.close)
    return control_socket


def handshake(data: bytes) -> None:
    """An unauthenticated peer of a parameter server, as client or as server: none of its bytes is a message."""
    from plink.runtime.elastic.transport.keys import Unauthenticated
    from plink.runtime.elastic.transport.records import ConnectionLost

    for handshake in (_keys().accept, _keys().connect):
        here, there = socket.socketpair()
        with there:
            there.sendall(data[: 1 << 15])
            there.shutdown(socket.SHUT_WR)
            here.settimeout(_WITHIN_S)
            with _local():
                try:
                    handshake(here)
                except (Unauthenticated, ConnectionLost):
                    continue
            raise AssertionError("an unauthenticated client was accepted")


@cache
def _keys() -> Any:
    from plink.runtime.elastic.transport.keys import RunKeys

    return RunKeys.make()


SECRET = b"known to both ends"
PLAIN = b"a message, and another one" * 3


def records(data: bytes) -> None:
    """What comes over a connection that is sealed: what the other end sealed, as far as it is whole, or nothing."""
    from plink.runtime.elastic.transport.records import ConnectionLost, Forged, SealedChannel

    here, there = socket.socketpair()
    with there:
        there.sendall(data[: 1 << 15])
        there.shutdown(socket.SHUT_WR)
        channel = SealedChannel(here, SECRET, accepted=True)
        try:
            for at in range(0, len(PLAIN), 7):
                room = bytearray(min(7, len(PLAIN) - at))
                channel.receive_into(memoryview(room))
                assert room == PLAIN[at : at + 7]
        except (Forged, ConnectionLost):
            pass
        finally:
            channel.close()


def sealed() -> bytes:
    """:data:`PLAIN` in two records."""
    from plink.runtime.elastic.transport.records import SealedChannel

    here, there = socket.socketpair()
    with there:
        channel = SealedChannel(here, SECRET, accepted=False)
        for half in (PLAIN[:30], PLAIN[30:]):
            channel.send([memoryview(half)])
        channel.close()
        return _answer(there)


def worker(data: bytes) -> None:
    """Whoever calls an agent that runs torchrun: a worker that says who it is, or nobody."""
    from plink.transport.stdio_channel import LineBuffer
    from runners.job.torchrun_agent import valid_message

    for message in LineBuffer().messages(data + b"\n"):
        result = valid_message(message)
        assert not result or type(result.get("code")) is int or {type(result["rank"]), type(result["pid"])} == {int}


def rank_line(data: bytes) -> None:
    """What a rank says over its line to the agent beside it: lines of text."""
    from runners.job.rank_channel import RankChannel

    line = RankChannel()
    with socket.socket(socket.AF_UNIX) as rank:
        rank.connect(f"\0{line.name}")
        rank.sendall(data[: 1 << 15])
        rank.shutdown(socket.SHUT_WR)
        output = line.poll()
        line.close()
    assert len(output) == data[: 1 << 15].count(b"\n")


def node_messages(data: bytes) -> None:
    """What is said to a node of an elastic job: objects, whatever stands between them."""
    from plink.runtime.elastic.host.control_channel import ControlChannel

    with _connected(data, ControlChannel) as line:
        assert all(isinstance(message, dict) for message in line)


def first_rank_messages(data: bytes) -> None:
    """What its launcher says to rank 0: as for :func:`node_messages`."""
    from plink.runtime.allreduce import launcher_channel

    with patch.object(launcher_channel, "_POLL_S", 0.001), _connected(data, launcher_channel.LauncherChannel) as line:
        while line.connected:
            assert all(isinstance(message, dict) for message in line.received())


@contextlib.contextmanager
def _connected(data: bytes, made: Callable[[str], Any]) -> Iterator[Any]:
    """A connection to a peer that has sent this and closed it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("")
        listening.listen(1)
        line = made(listening.getsockname()[1:].decode())
        agent, _ = listening.accept()
        with agent:
            agent.sendall(data[: 1 << 15])
        yield line
        line.close()


EVERY: tuple[Callable[[bytes], Any], ...] = (
    *(
        listener,
        short_message,
        gate,
        pods,
        control_request,
        handshake,
        records,
        worker,
        rank_line,
        node_messages,
        first_rank_messages,
    ),
)
