"""The elasticity controller: the state machine of :mod:`solvers.elastic` with a clock and a line to the supervisor.

It is a child process of the supervisor: JSON lines on standard input and output. One thread, which never waits. All
that it knows can be had again from the hosts: one that dies or stands still is killed, and another goes on. Nobody
waits for it: messages to it are queued, for a thread that writes them.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from plink.model.elastic.codec import Envelope, decode_message, encode_request
from plink.transport.stdio_channel import LineBuffer
from solvers.elastic import commands, events
from solvers.elastic.events import Tick
from solvers.elastic.settings import Settings
from solvers.elastic.state import State, initial
from solvers.elastic.step import step

_HEARTBEAT_TIMEOUT_S = 4.0
_START_TIMEOUT_S = 60.0  # to import what it needs, on a busy machine
_END_TIMEOUT_S = 2.0
_MAX_QUEUED_MESSAGES = 500_000  # messages that it has not taken: a minute of what a thousand hosts say
# It imports from where this process does, and never from the folder it is started in: a job's may hold a `runners` too.
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from runners.elastic.controller import main; main()"


class ControllerProcess:
    """Child process of the controller.

    :param on_message: gets its messages, and None when it is gone; from a thread of its own.
    :param errors: a file for what it prints.
    """

    def __init__(self, on_message: Callable[[dict[str, Any] | None], None], errors: Path | None) -> None:
        stderr: Any = subprocess.DEVNULL if errors is None else errors.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        if errors is not None:
            stderr.close()
        self._on_message = on_message
        self.pid = self._process.pid
        self._last_heartbeat_s, self._has_started = time.monotonic(), False
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="plink-to-controller", daemon=True)
        self._writer.start()
        threading.Thread(target=self._listen, name="plink-controller", daemon=True).start()

    def tell(self, message: dict[str, Any]) -> None:
        """Queue a message to the controller; lost if it is. One that is too far behind is ended: another asks the hosts
        anew."""
        if self._waiting.qsize() < _MAX_QUEUED_MESSAGES:
            self._waiting.put(json.dumps(message).encode() + b"\n")
        else:
            self.kill()

    @property
    def silent(self) -> bool:
        """Return whether its heartbeat is overdue."""
        timeout_s = _HEARTBEAT_TIMEOUT_S if self._has_started else _START_TIMEOUT_S
        return time.monotonic() - self._last_heartbeat_s > timeout_s

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def close(self) -> None:
        """End the process: it ends by itself, or is killed."""
        self._waiting.put(None)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._writer.join()  # whose pipe nobody reads now

    def _write_all(self) -> None:
        """Write all queued messages. Only this thread uses the pipe: who closed it from another would wait for what is
        being written."""
        pipe = self._process.stdin
        assert pipe
        with contextlib.suppress(OSError):
            while (line := self._waiting.get()) is not None:
                pipe.write(line)
                pipe.flush()
        with contextlib.suppress(OSError):
            pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                self._last_heartbeat_s, self._has_started = time.monotonic(), True
                with contextlib.suppress(ValueError):  # whoever is killed may be in the middle of a line
                    message = json.loads(line)
                    if message.get("type") != "alive":
                        self._on_message(message)
        self._process.wait()
        self._waiting.put(None)
        self._on_message(None)


# Under these names; what else there is never travels.
_TYPES: dict[str, type[Any]] = {
    "start": events.JobStarted,
    "restart": events.ControllerRestarted,
    "joined": events.HostsJoined,
    "lost": events.HostsLost,
    "evict": events.EvictionNotice,
    "get_status": events.StatusRequested,
    "get_checkpoint": events.CheckpointRequested,
    "get_log": events.LogRequested,
    "host_message": events.HostMessage,
    "alive": events.SupervisorAlive,
    "send": commands.Send,
    "drop": commands.DropHost,
    "say": commands.Say,
    "status": commands.StatusAnswer,
    "checkpoint": commands.CheckpointAnswer,
    "start_reliable_hosts": commands.StartReliableHosts,
    "end": commands.EndJob,
    "log": commands.LogLine,
    "note": commands.Note,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


@dataclass(frozen=True)
class RequestLine:
    """A request on its way to a host, as it is sent on."""

    host: int
    body: dict[str, Any]


def encode(item: Any, term: int = 0) -> dict[str, Any]:
    """Return an event, a command or a log entry as it travels. ``term``: of the controller that sends requests."""
    if isinstance(item, commands.Send):
        request = encode_request(Envelope(item.request, term, item.id))
        return {"type": "send", "host": item.host, "request": request}
    return {"type": _NAMES[type(item)], **msgspec.to_builtins(item, str_keys=True)}


def decode(body: dict[str, Any]) -> Any:
    """Return the event, command or log entry of an object; a request stays as it goes on to its host."""
    kind = _TYPES[body["type"]]
    fields = {name: value for name, value in body.items() if name != "type"}
    if kind is commands.Send:
        return RequestLine(fields["host"], fields["request"])
    if kind is events.HostMessage:
        return events.HostMessage(fields["host"], decode_message(fields["message"]))
    return msgspec.convert(fields, kind, str_keys=True)


_HEARTBEAT_INTERVAL_S = 0.5
_READ_BYTES = 1 << 16


class Controller:
    """Controller of one job.

    :param write: takes a message on its way to the supervisor. :param term: greater than any before it.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, write: Callable[[dict[str, Any]], None], settings: Settings, term: int, clock: Callable[[], float]
    ) -> None:
        self._write, self._clock = write, clock
        self.state: State = initial(settings, term, clock())

    def tick(self) -> float:
        """Do what is due; returns the seconds until something else is."""
        return self.handle(Tick())

    def handle(self, event: Any) -> float:
        """Do what follows from an event (:mod:`solvers.elastic.events`); returns as :meth:`tick`."""
        outcome = step(self.state, event, self._clock())
        self.state = outcome.state
        for item in (*outcome.entries, *outcome.commands):
            self._write(encode(item, self.state.term))
        return outcome.wait_s


def main() -> None:
    """Run the controller until the supervisor is gone, or the job is over."""

    def write(message: dict[str, Any]) -> None:
        out.write(json.dumps(message).encode() + b"\n")

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not come between
    controller: Controller | None = None
    buffer, next_alive, wait_s = LineBuffer(), 0.0, 0.0
    while True:
        ready, _, _ = select.select([0], [], [], min(wait_s, _HEARTBEAT_INTERVAL_S))
        if ready:
            data = os.read(0, _READ_BYTES)
            if not data:
                return
            for message in map(json.loads, buffer.lines(data)):
                if message["type"] == "settings":
                    settings = msgspec.convert(message["settings"], Settings)
                    controller = Controller(write, settings, message["term"], time.monotonic)
                elif controller is not None:
                    controller.handle(decode(message))
        if controller is not None:
            wait_s = controller.tick()
        if time.monotonic() >= next_alive:
            next_alive = time.monotonic() + _HEARTBEAT_INTERVAL_S
            write({"type": "alive"})
        try:
            out.flush()
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
