"""The environment that the user gives to the ranks, on its way through a launcher.

It may hold secrets, and what stands in a command is for every user of a host to read (/proc/PID/cmdline). It therefore
travels in one environment variable, which only the user's own processes can read (/proc/PID/environ) and which the
launcher is told by name to hand on. Runs on the hosts too: standard library only.
"""

from __future__ import annotations

import base64
import json
import os
import zlib

VARIABLE = "PLINK_USER_ENVIRONMENT"
_MOST_UNPACKED = 1 << 28
MOST_BYTES = 1 << 17  # MAX_ARG_STRLEN of Linux: one variable, with its name and the zero at its end


def packed(given: dict[str, str]) -> str:
    """The variable's value."""
    return base64.b64encode(zlib.compress(json.dumps(given).encode(), 9)).decode()


def taken() -> dict[str, str] | None:
    """What was given, out of this process's environment; None where it did not arrive whole."""
    value = os.environ.pop(VARIABLE, None)
    if value is None:
        return None
    unpacked = zlib.decompressobj()
    try:
        text = unpacked.decompress(base64.b64decode(value, validate=True), _MOST_UNPACKED)
        found: dict[str, str] | None = json.loads(text) if unpacked.eof else None
    except (ValueError, RecursionError, zlib.error):
        return None
    fine = isinstance(found, dict) and all(isinstance(one, str) for one in found.values())
    return found if fine else None
