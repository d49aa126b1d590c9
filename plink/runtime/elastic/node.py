"""One host of an elastic job: ``python -m plink.runtime.elastic.node APP.py ARGUMENTS``.

It has a parameter server and workers, and executes the controller's requests from the agent's channel; it decides
nothing. What takes long runs in threads of its own and is answered when it is done; everything else is done in the
order in which it was received.

Every request that wants an answer has an ``id``, which the answer repeats; every one has the term of the controller
that sent it, and those of an older term than was received already are refused (fencing).
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import msgspec

from plink import __version__
from plink.elastic.app import App, check_app
from plink.errors import InputError, PlinkError, ProtocolError
from plink.model.elastic import requests as r
from plink.model.elastic.codec import VERSION, Envelope, decode_request, encode_message
from plink.model.elastic.reports import Alive, Answer, Failed, Hello, Log, NodeMessage
from plink.model.elastic.requests import Result, method_of
from plink.runtime.elastic.host.control_channel import ControlChannel
from plink.runtime.elastic.host.memory_limits import memory
from plink.runtime.elastic.host.preemption import PreemptionNotice
from plink.runtime.elastic.partition.divergence import float_tables
from plink.runtime.elastic.request_handlers import (
    LONG_HANDLERS,
    LOW_PRIORITY_REQUESTS,
    MOVING,
    SHORT_HANDLERS,
    RequestHandlers,
    in_thread,
)
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.users_file import EXAMPLE, make_from_file

HEARTBEAT_INTERVAL_S = 0.3
_MAX_CONCURRENT_MOVES = 4  # sent by one host at a time: more would each be later


class Node(RequestHandlers):
    """Node of one job on one host; :meth:`run` is for the main thread."""

    def __init__(self, app: App[Any], channel: ControlChannel) -> None:
        super().__init__(app)
        self._channel = channel
        self._term = 0  # of the latest controller
        self._movers = ThreadPoolExecutor(_MAX_CONCURRENT_MOVES, thread_name_prefix="plink-move")

    def run(self) -> None:
        """Execute the controller's requests until it ends the node, or is gone."""
        app = self._app
        layout, room = job_layout(app, 1), memory()
        self._send(
            Hello(
                version=VERSION,
                plink=__version__,
                app=app.name,
                pid=os.getpid(),
                tables=layout.fingerprint,
                shards=app.shards,
                batches=app.batches,
                grains=app.grains,
                shapes=tuple((table.rows, table.row_bytes) for table in layout.tables),
                memory=None if room is None else room.available,
                pool=room.pool if room else "",
                optimisers=tuple(layout.optimisers),
                float_tables=len(float_tables(layout)),
            )
        )
        threading.Thread(target=self._stay_alive, name="plink-alive", daemon=True).start()
        try:
            for body in self._channel:
                self._receive(body)
                if self._ending:
                    break
        finally:
            self._close()

    def terminated(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: the host will be taken away, or somebody ends the job."""
        if self._ending or self._server is None:
            os._exit(128 + number)
        self._ending_notice(PreemptionNotice(self._notice_s, "SIGTERM"))

    def _send(self, message: NodeMessage) -> None:
        self._channel.send(encode_message(message))

    def _receive(self, body: dict[str, Any]) -> None:
        """Decode and execute a request; an invalid one is refused, because its sender may want something else."""
        try:
            envelope = decode_request(body)
        except ProtocolError as error:
            self._send(Log(f"a request was refused: {error}"))
            if type(number := body.get("id")) is int:
                self._send(Answer(number, str(error), "ProtocolError"))
        else:
            self._execute(envelope)

    def _execute(self, envelope: Envelope) -> None:
        if envelope.term < self._term:
            error = f"the controller of term {envelope.term} is stale: term {self._term} is current"
            self._answer(envelope, error, "StaleTerm")
            return
        self._term = envelope.term
        request = envelope.request
        numbers = [getattr(request, name) for name in ("term", "generation", "count") if hasattr(request, name)]
        self._number = max([self._number, *numbers])
        self._dispatch(envelope)

    def _dispatch(self, envelope: Envelope) -> None:
        """Run a request's handler: here, or in a thread where it takes long."""
        kind = type(envelope.request)
        if self._low_priority and kind not in LOW_PRIORITY_REQUESTS:
            self._raise_priority()
        if kind in LONG_HANDLERS:
            pool: Callable[..., object] = self._movers.submit if kind in MOVING else in_thread
            pool(self._do, envelope, LONG_HANDLERS[kind])
        else:
            self._do(envelope, SHORT_HANDLERS[kind])

    def _do(self, envelope: Envelope, does: "Callable[[Node, Any], Result | None]") -> None:
        try:
            self._answer(envelope, result=does(self, envelope.request))
        except BaseException as error:  # of a thread of its own, or whoever asked would wait for ever
            text = str(error) if isinstance(error, PlinkError) else f"{type(error).__name__}: {error}"
            self._answer(envelope, text, type(error).__name__)

    def _answer(
        self, envelope: Envelope, error: str | None = None, kind: str = "", result: Result | None = None
    ) -> None:
        if envelope.id is not None:
            fields = {} if result is None else msgspec.to_builtins(result, str_keys=True)
            self._send(Answer(envelope.id, error, kind, fields))
        elif error is not None and isinstance(envelope.request, r.AssignShards | r.TakeOver):
            self._send(Failed(error, kind=kind))
        elif error is not None:
            self._send(Log(f"{method_of(envelope.request)}: {error}"))

    # What runs beside.

    def _stay_alive(self) -> None:
        while not self._ending:
            self._channel.mention(encode_message(Alive(self._traffic())))
            time.sleep(HEARTBEAT_INTERVAL_S)

    def _close(self) -> None:
        self._ending = True
        if self._notices is not None:
            self._notices.close()
        self._channel.close()


def load_app(path: str, arguments: Sequence[str]) -> App[Any]:
    """Load the app of a file with these arguments; ``make`` may also return a tuple with the app in front.

    :raises InputError: there is no such file, it cannot be run, or it gives no app.
    """
    app = make_from_file(path, arguments)
    if not isinstance(app, App):
        raise InputError(path, f"make() gave {type(app).__name__}, which is no App: {EXAMPLE}")
    check_app(app)
    return app


def main(arguments: list[str]) -> int:
    """Run a node and return the exit code."""
    try:
        node = Node(load_app(arguments[0], arguments[1:]), ControlChannel())
    except PlinkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    signal.signal(signal.SIGTERM, node.terminated)
    node.run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads that wait for a network are not waited for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
