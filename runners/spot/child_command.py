"""Run one command of a provider as a child process: an argument vector, never a shell, JSON out."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from plink.transport.command_output import TooMuchOutput, run_to_end
from runners.spot.provider import ProviderError

COMMAND_TIMEOUT_S = 120.0
MAX_SHOWN_CHARACTERS = 300


def run_command(argv: Sequence[str], document: Any = None, env: Mapping[str, str] | None = None) -> Any:
    """Return the JSON value that a command prints; None where it prints nothing.

    :param document: goes to its standard input as JSON. :param env: is added to the environment.
    :raises ProviderError: when it is missing, fails, is too slow, or prints too much or no JSON. Only what is missing
        certainly had no effect; callers that understand the message know more.
    """
    try:
        stdin = None if document is None else json.dumps(document).encode()
        done = run_to_end(argv, COMMAND_TIMEOUT_S, stdin, {**os.environ, **(env or {})})
    except TooMuchOutput as error:
        raise ProviderError("unavailable", f"{argv[0]}: {error}; it was ended", has_no_effect=False) from None
    except subprocess.TimeoutExpired:
        raise ProviderError(
            "unavailable", f"{argv[0]}: no answer within {COMMAND_TIMEOUT_S:.0f} s", has_no_effect=False
        ) from None
    except OSError as error:
        raise ProviderError("unavailable", f"cannot run {argv[0]}: {error.strerror}") from None
    except ValueError as error:  # a NUL in an argument
        raise ProviderError("invalid", f"cannot run {argv[0]}: {error}") from None
    if done.returncode:
        text = " ".join((done.stderr or done.stdout).split())[-MAX_SHOWN_CHARACTERS:]
        raise ProviderError(
            "unavailable", f"{argv[0]} ended with exit code {done.returncode}: {text}", has_no_effect=False
        )
    if not done.stdout.strip():
        return None
    try:
        return json.loads(done.stdout)
    except (ValueError, RecursionError):
        shown = done.stdout.strip()[:80]
        raise ProviderError("unavailable", f"{argv[0]} printed no JSON: {shown!r}", has_no_effect=False) from None
