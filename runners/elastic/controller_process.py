"""The controller as its supervisor sees it: a child that may die, or stand still, and is then started anew.

Nobody waits for it: messages to it are queued, for a thread that writes them.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

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
            [sys.executable, "-P", "-c", _START, json.dumps(sys.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=stderr, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
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
