"""The elasticity controller: the state machine of :mod:`solvers.elastic` with a clock and a line to the supervisor.

It is a process: JSON lines from the supervisor on standard input, to the supervisor on standard output. One thread,
which never waits. All that it knows can be had again from the hosts: it may be killed at any time, and another goes on.
"""

import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

from runners.elastic.wire import decode, encode
from solvers.elastic.events import Tick
from solvers.elastic.settings import Settings
from solvers.elastic.state import State, initial
from solvers.elastic.step import step

_HEARTBEAT_INTERVAL_S = 0.5
_READ_BYTES = 1 << 16


class Controller:
    """Controller of one job.

    :param write: takes a message on its way to the supervisor. :param term: greater than any before it.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, write: Callable[[dict[str, Any]], None], settings: Settings, term: int, clock: Callable[[], float]
    ) -> None:  # fmt: skip
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
    buffer, next_alive, wait_s = bytearray(), 0.0, 0.0
    while True:
        ready, _, _ = select.select([0], [], [], min(wait_s, _HEARTBEAT_INTERVAL_S))
        if ready:
            data = os.read(0, _READ_BYTES)
            if not data:
                return
            buffer += data
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            for line in lines:
                message = json.loads(line)
                if message["type"] == "settings":
                    settings = Settings.from_json(message["settings"])
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
