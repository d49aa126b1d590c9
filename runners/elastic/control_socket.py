"""Control socket of an elastic job: takes requests of `plink elastic`, from the user who runs the job alone."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from plink.errors import PlinkError
from plink.records.scratch import ScratchFolder
from plink.transport.stdio_channel import decode_line, encode_line, is_own_user

_REPLY_TIMEOUT_S = 120.0
_LONG_REPLY_TIMEOUT_S = 900.0  # to add hosts, which have ten minutes to make the program, and to write a checkpoint
_REPLY_MARGIN_S = 5.0  # the client times out first, and reports it
_MAX_LINE_BYTES = 1 << 22
_ACCEPT_RETRY_S = 0.05

Answer = Callable[[dict[str, Any]], None]


class ControlSocket:
    """Listening socket for requests of `plink elastic`.

    :param on_message: gets a request and what takes its answer, from a thread.
    """

    def __init__(self, on_message: Callable[[dict[str, Any], Answer], None]) -> None:
        # A file, in a folder of the user's own: abstract names end at a network namespace, and labs are in some.
        self._folder = ScratchFolder()
        self.name = str(self._folder.path / "socket")
        self._on_message, self._closed = on_message, False
        self._waiting: set[threading.Event] = set()  # for answers
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.name)
        self._server.listen(16)
        threading.Thread(target=self._accept, name="plink-asking", daemon=True).start()

    def close(self) -> None:
        """Close: no request is taken any more, and waiting clients are disconnected."""
        self._closed = True
        for done in self._waiting.copy():
            done.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._folder.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(_ACCEPT_RETRY_S)  # no files are left, or who called has gone again
                continue
            if not is_own_user(peer):
                peer.close()
                continue
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        done = threading.Event()

        def answer(message: dict[str, Any]) -> None:
            with contextlib.suppress(OSError):
                peer.sendall(encode_line(message))
            done.set()

        with peer, contextlib.suppress(OSError):
            peer.settimeout(_REPLY_TIMEOUT_S)
            with peer.makefile("rb") as file:
                line = file.readline(_MAX_LINE_BYTES)
            request = decode_line(line)
            if request is not None:
                self._waiting.add(done)
                try:
                    self._on_message(request, answer)
                    if not self._closed:
                        done.wait(_reply_timeout_s(request) + _REPLY_MARGIN_S)
                finally:
                    self._waiting.discard(done)


def ask(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the job that listens at ``name``. :raises PlinkError: it ended, refuses, or is too slow."""
    timeout_s = _reply_timeout_s(request)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect(name)
            sock.sendall(encode_line(request))
            with sock.makefile("rb") as file:
                line = file.readline(_MAX_LINE_BYTES)
        except TimeoutError:
            raise PlinkError(
                f"the job has not answered within {timeout_s:g} s, and may still do it: `plink elastic status` tells"
            ) from None
        except OSError as error:
            raise PlinkError(
                f"the job does not answer ({error.strerror or error}): it has ended, or runs elsewhere"
            ) from None
    answer = decode_line(line)
    if answer is None:
        raise PlinkError("the job ended before it answered")
    if refusal := answer.get("error"):
        raise PlinkError(refusal)
    return answer


def _reply_timeout_s(request: dict[str, Any]) -> float:
    return _LONG_REPLY_TIMEOUT_S if request.get("method") in ("add", "checkpoint") else _REPLY_TIMEOUT_S
