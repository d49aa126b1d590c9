"""A gate at the first rank's, at the very port of the job's rendezvous: it opens when every other rank has come there.

So no program starts before all can meet, and all are where they should be: who is not does not come. Runs on the hosts:
standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import selectors
import socket
import time

from plink.remote.addresses import family_of

# Ranks do not start at the same time. A host that answers "refused" may be about to listen; one that does not answer
# is there or is not.
_LATE_S = 60.0
_SILENT_S = 15.0
_ALL_S = 75.0
_CONNECT_S = 5.0
_AGAIN_S = 0.1
_LEAVE_S = 5.0
_MOST_WAITING = 4096
_GREETING_S = 5.0  # until a connection has said which rank it is
_MAX_STRANGERS = 256  # connections that have not
_GO = b"g"


class BarrierClosed(Exception):
    """The gate was given up because of others, who say why."""


def keep(address: str, port: int, token: str, others: int) -> str | None:
    """The first rank's part: returns when all others have come, and have gone again; else why not.

    :param token: of this job; who does not know it is not heard.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))  # a connection a rank
        with socket.socket(family_of(address), socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((address, port))
            server.listen(_MOST_WAITING)
            server.setblocking(False)
            return _keep(server, token, set(range(1, others + 1)))
    except OSError as error:
        return f"port {port} of {address} cannot be used: {error.strerror}"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _keep(server: socket.socket, token: str, missing: set[int]) -> str | None:
    names = {f"{token} {rank}\n".encode(): rank for rank in missing}
    longest = max(map(len, names), default=0)
    said: dict[socket.socket, bytes] = {}
    strangers: dict[socket.socket, float] = {}  # who has not given a name yet, until when
    deadline = time.monotonic() + _ALL_S
    with contextlib.ExitStack() as guests, selectors.DefaultSelector() as selector:

        def accept() -> None:
            if len(strangers) >= _MAX_STRANGERS:
                hang_up(next(iter(strangers)))
            try:
                guest = guests.enter_context(server.accept()[0])
            except OSError as error:  # it has gone again, or no descriptors are left
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    if strangers:
                        hang_up(next(iter(strangers)))
                    else:
                        time.sleep(_AGAIN_S)
                return
            guest.setblocking(False)
            said[guest], strangers[guest] = b"", time.monotonic() + _GREETING_S
            selector.register(guest, selectors.EVENT_READ, guest)

        def hang_up(guest: socket.socket) -> None:
            selector.unregister(guest)
            strangers.pop(guest, None)
            word = said.pop(guest)
            if word in names and word not in said.values():
                missing.add(names[word])
            guest.close()

        selector.register(server, selectors.EVENT_READ, server)
        while missing:
            now = time.monotonic()
            if now >= deadline:
                first = ", ".join(map(str, sorted(missing)[:4])) + (" ..." if len(missing) > 4 else "")
                address, port = server.getsockname()[:2]
                return f"not all ranks reached port {port} of {address} within {_ALL_S:.0f} s (missing: {first})"
            for guest in [guest for guest, until in strangers.items() if until <= now]:
                hang_up(guest)
            for key, _ in selector.select(min([deadline, *strangers.values()]) - now):
                guest = key.data
                if guest is server:
                    accept()
                elif guest in said:  # nobody hung up on it meanwhile
                    piece = _read(guest)
                    said[guest] += piece or b""
                    # Who leaves before the gate opens does not count any more, nor who has more to say than a rank.
                    if piece is None or len(said[guest]) > longest:
                        hang_up(guest)
                    elif said[guest] in names:
                        strangers.pop(guest, None)
                        missing.discard(names[said[guest]])
        for guest in [guest for guest, word in said.items() if word not in names]:  # strangers hear nothing
            selector.unregister(guest)
            del said[guest]
            guest.close()
        for guest in said:
            with contextlib.suppress(OSError):
                guest.send(_GO)
        # Who hangs up first keeps the port for a while (TIME_WAIT, RFC 9293 3.6.1): the others.
        selector.unregister(server)
        deadline = time.monotonic() + _LEAVE_S
        while said and time.monotonic() < deadline:
            for key, _ in selector.select(_LEAVE_S):
                if _read(key.data) is None:
                    selector.unregister(key.data)
                    del said[key.data]
    return None


def _read(guest: socket.socket) -> bytes | None:
    """What came; None once the other has hung up."""
    try:
        return guest.recv(256) or None
    except BlockingIOError:
        return b""
    except OSError:
        return None


def come(address: str, port: int, token: str, rank: int) -> str | None:
    """Another rank's part: returns when the gate opens; else why it cannot be reached.

    :raises BarrierClosed: when it was reached and will not open.
    """
    began = time.monotonic()
    while True:
        try:
            with socket.create_connection((address, port), timeout=_CONNECT_S) as line:
                line.settimeout(_ALL_S + _LEAVE_S)
                line.sendall(f"{token} {rank}\n".encode())
                if _answer(line) != _GO:
                    raise BarrierClosed
                return None
        except OSError as error:
            patience = _LATE_S if isinstance(error, ConnectionRefusedError) else _SILENT_S
            if time.monotonic() - began >= patience:
                return error.strerror or str(error)
        time.sleep(_AGAIN_S)


def _answer(line: socket.socket) -> bytes:
    try:
        return line.recv(1)
    except OSError:
        return b""
