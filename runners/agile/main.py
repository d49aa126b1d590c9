"""The controller's process: JSON lines from the supervisor on standard input, to the supervisor on standard output."""

import json
import os
import select
import time
from typing import Any

from runners.agile.controller import Controller
from runners.agile.wire import decode
from solvers.elastic.settings import Settings

_HEARTBEAT_INTERVAL_S = 0.5
_READ_BYTES = 1 << 16


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
