"""A metadata service of one's own: a real HTTP server whose answers a test changes while it runs."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """``shards``: the body as it is sent, ``pause_s`` before each of them."""

    status: int = 200
    shards: tuple[bytes, ...] = (b"",)
    headers: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0.0


def text(body: str, status: int = 200, **headers: str) -> Reply:
    """A body at once."""
    return Reply(status, (body.encode(),), headers)


Answering = Callable[[str, str, dict[str, str]], Reply]


class Metadata:
    """``answer``: what to say to a method, a path and headers (their names in lower case, and ``:port``, from which the
    question came). ``requests``: all questions."""

    def __init__(self, answer: Answering) -> None:
        self.answer = answer
        self.requests: list[tuple[str, str]] = []
        self.port = 0
        self.ended = threading.Event()


@contextlib.contextmanager
def metadata(answer: Answering) -> Iterator[Metadata]:
    """The service on a port of loopback, as long as the block lasts."""
    service = Metadata(answer)

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            service.requests.append((self.command, self.path))
            headers = {key.lower(): value for key, value in self.headers.items()}
            reply = service.answer(self.command, self.path, {**headers, ":port": str(self.client_address[1])})
            self.send_response_only(reply.status)
            for key, value in reply.headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(sum(map(len, reply.shards))))
            self.end_headers()
            with contextlib.suppress(OSError):
                for shard in reply.shards:
                    if reply.pause_s:
                        service.ended.wait(reply.pause_s)
                    self.wfile.write(shard)
                    self.wfile.flush()

        do_GET = do_PUT = _reply

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield service
    finally:
        service.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def wait_until(true: Callable[[], object], within_s: float = 300.0) -> None:
    """Return as soon as it is so."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)
