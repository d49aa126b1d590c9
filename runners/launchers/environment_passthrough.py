"""Passthrough of the user's ``--env`` variables to the ranks of an external launcher.

They may be secrets, and every user of a host can read a command (/proc/PID/cmdline). So they are packed into one
environment variable, which only the user's own processes can read (/proc/PID/environ), and the launcher is told its
name. Runs on the hosts too: standard library only.
"""

from __future__ import annotations

import base64
import json
import os
import zlib

VARIABLE = "PLINK_USER_ENVIRONMENT"
_MAX_UNPACKED_BYTES = 1 << 28
MAX_BYTES = 1 << 17  # MAX_ARG_STRLEN of Linux: one variable, with its name and the zero at its end


def pack(variables: dict[str, str]) -> str:
    """Return the value of the packed variable."""
    return base64.b64encode(zlib.compress(json.dumps(variables).encode(), 9)).decode()


def unpack_environment() -> dict[str, str] | None:
    """Remove the packed variable from this process's environment; return its content, None if it is not complete."""
    value = os.environ.pop(VARIABLE, None)
    if value is None:
        return None
    unpacked = zlib.decompressobj()
    try:
        text = unpacked.decompress(base64.b64decode(value, validate=True), _MAX_UNPACKED_BYTES)
        variables: dict[str, str] | None = json.loads(text) if unpacked.eof else None
    except (ValueError, RecursionError, zlib.error):
        return None
    valid = isinstance(variables, dict) and all(isinstance(text, str) for text in variables.values())
    return variables if valid else None
