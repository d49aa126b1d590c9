"""Where ranks meet for connections of their own: each listens for those after it, and calls those before it.

Who calls says the word of the rank that it calls, which only those learn who can read the group's store.
"""

import contextlib
import hmac
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed import Store  # type: ignore[attr-defined]

_WORD_BYTES = 16
_COMING = struct.Struct("<16sII")  # word of the one that is called, who calls, lane
_MEETING_S = 10.0  # in which all have called: they have just met over Gloo
_HELLO_S = 2.0  # for a caller to say who it is
_STRANGERS = 64  # heard at a time


@dataclass(frozen=True)
class FullMesh:
    """Connections between all ranks of a group, ``lanes`` a pair, as the group's rank ``rank`` has them.

    :ivar names: the job's number of every rank of the group, by which errors name them.
    """

    rank: int
    names: Sequence[int]
    lanes: int


class CannotConnect(Exception):
    """Some rank cannot be reached so."""


@dataclass(eq=False)
class _Caller:
    """Somebody who has not said who it is yet."""

    socket: socket.socket
    until: float
    said: bytes = b""


def meet(store: Store, mesh: FullMesh, address: str, within_s: float) -> dict[tuple[int, int], socket.socket]:
    """Connections to all other ranks, by rank and lane; every rank does it at once.

    :param address: of this host, as the others reach it.
    :raises CannotConnect: naming the rank that could not be reached, or has not called.
    """
    rank, names, found = mesh.rank, mesh.names, dict[tuple[int, int], socket.socket]()
    within_s = min(within_s, _MEETING_S)
    word = os.urandom(_WORD_BYTES)
    try:
        listening = socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=len(names) * mesh.lanes
        )
    except OSError as error:
        stay_away(store, rank)
        raise CannotConnect(f"no port can be had at {address}: {error}") from error
    expected = {(peer, lane) for peer in range(rank + 1, len(names)) for lane in range(mesh.lanes)}
    door = _Door(listening, word, expected, found, within_s)
    store.set(f"at{rank}", word + f"{address} {listening.getsockname()[1]}".encode())  # type: ignore[arg-type]
    answering = threading.Thread(target=door.answer, name="plink-meeting", daemon=True)
    answering.start()
    try:
        for peer in range(rank):
            said = store.get(f"at{peer}")
            for lane in range(mesh.lanes):
                try:
                    found[peer, lane] = _call(said, rank, lane, address, within_s)
                except OSError as error:
                    raise CannotConnect(f"rank {names[peer]} cannot be called: {error}") from error
        answering.join(within_s)
        if expected:
            raise CannotConnect(f"rank {names[min(expected)[0]]} has not called rank {names[rank]}")
    except BaseException:
        door.close()
        answering.join()  # nobody comes in any more
        for one in found.values():
            one.close()
        raise
    door.close()
    answering.join()
    return found


def stay_away(store: Store, rank: int) -> None:
    """Tell all that this rank cannot be called."""
    store.set(f"at{rank}", b"")  # type: ignore[arg-type]


def _call(said: bytes, rank: int, lane: int, address: str, within_s: float) -> socket.socket:
    host, _, port = said[_WORD_BYTES:].decode().rpartition(" ")
    if not port:
        raise OSError("it says so itself")
    made = socket.create_connection((host, int(port)), timeout=within_s, source_address=(address, 0))
    try:
        made.sendall(_COMING.pack(said[:_WORD_BYTES], rank, lane))
    except OSError:
        made.close()
        raise
    return made


class _Door:
    """Hears all callers at once, until all have called who are expected or time is over. Strangers are hung up on."""

    def __init__(
        self, listening: socket.socket, word: bytes, expected: set[tuple[int, int]],
        found: dict[tuple[int, int], socket.socket], within_s: float,
    ) -> None:  # fmt: skip
        self._listening, self._word, self._expected, self._found = listening, word, expected, found
        self._until = time.monotonic() + within_s
        self._closing, self._close = socket.socketpair()

    def close(self) -> None:
        """Hear nobody any more."""
        with contextlib.suppress(OSError):  # it was closed before
            self._close.close()

    def answer(self) -> None:
        """Until there is nobody more to hear."""
        callers: dict[int, _Caller] = {}
        with self._listening, self._closing:
            while self._expected and (now := time.monotonic()) < self._until:
                for fd in [fd for fd, caller in callers.items() if caller.until <= now]:
                    callers.pop(fd).socket.close()
                soonest = min([self._until, *(caller.until for caller in callers.values())])
                ready = _readable([self._closing, *self._door(callers), *_sockets(callers)], soonest - now)
                if self._closing.fileno() in ready:
                    break
                if self._listening.fileno() in ready:
                    self._accept(callers)
                for fd in ready & callers.keys():
                    self._hear(callers, fd)
            for caller in callers.values():
                caller.socket.close()

    def _door(self, callers: dict[int, _Caller]) -> list[socket.socket]:
        return [self._listening] if len(callers) < _STRANGERS else []

    def _accept(self, callers: dict[int, _Caller]) -> None:
        with contextlib.suppress(OSError):  # it went, or there are no more files
            made, _ = self._listening.accept()
            made.setblocking(False)
            callers[made.fileno()] = _Caller(made, time.monotonic() + _HELLO_S)

    def _hear(self, callers: dict[int, _Caller], fd: int) -> None:
        caller = callers[fd]
        try:
            more = caller.socket.recv(_COMING.size - len(caller.said))
        except OSError:
            more = b""
        caller.said += more
        if more and len(caller.said) < _COMING.size:
            return
        del callers[fd]
        word, *who = _COMING.unpack(caller.said) if len(caller.said) == _COMING.size else (b"", -1, -1)
        if hmac.compare_digest(word, self._word) and tuple(who) in self._expected:
            self._found[who[0], who[1]] = caller.socket
            self._expected.discard((who[0], who[1]))
        else:
            caller.socket.close()


def _sockets(callers: dict[int, _Caller]) -> list[socket.socket]:
    return [caller.socket for caller in callers.values()]


def _readable(among: Sequence[socket.socket], within_s: float) -> set[int]:
    """Descriptors from which something can be read, or that have ended."""
    poll = select.poll()
    for one in among:
        poll.register(one, select.POLLIN)
    return {fd for fd, _ in poll.poll(max(within_s, 0.0) * 1e3)}
