"""A small agent for the tests of fleets: says what it was told, and dies when it is told to. Standard library only."""

import os
import sys
import time

from plink.transport.stdio_channel import AgentStdioChannel, ControllerLost


def main(lease_s: float, first: str) -> None:
    """Entry point. ``first``: ``hello`` to work, ``die`` to end before that, ``silence`` never to say
    hello, ``babble`` to say anything else."""
    if first == "die":
        sys.exit(3)
    line = AgentStdioChannel(lease_s)
    if first == "babble":
        os.write(1, b"x" * ((1 << 20) + 1))
    elif first != "silence":
        line.hello()
    try:
        while True:
            message = line.receive(lease_s)
            if message is None:
                continue
            if message["method"] == "die":
                os._exit(message["code"])
            if message["method"] == "sleep":
                time.sleep(message["seconds"])
            if message["method"] == "flood":
                for _ in range(message["count"]):
                    line.send(**{"type": "flood", "at": time.monotonic(), "filling": "x" * 1000})
            while message["method"] == "endless":
                os.write(1, b"x" * (1 << 16))
            while message["method"] == "junk":
                os.write(1, b"not json\n" * 7000)
            if message["method"] == "chatter":
                os.write(1, b"not json\n" + b"[" * 100_000 + b"\n")
            line.send(**{"type": "echo", "pid": os.getpid(), "said": message})
    except ControllerLost:
        return
