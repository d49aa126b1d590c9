"""Output of a command that is run to its end: bounded in bytes and time, and ended with all that it started.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

MAX_OUTPUT_BYTES = 1 << 25  # standard output and error together
_READ = 1 << 16
_PIPE_BYTES = 512  # POSIX's least PIPE_BUF: what a pipe that is ready certainly takes
_POLL_S = 1.0


class TooMuchOutput(subprocess.SubprocessError):
    """A command printed more than :data:`MAX_OUTPUT_BYTES`, and was ended."""


def run_to_end(
    argv: Sequence[str],
    timeout_s: float,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    renew: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, in a session of its own, until it has ended and closed its output.

    Its whole process group is killed when it prints or takes too much, and when anything is raised here, also by
    ``renew``. Only processes that made a session of their own stay then.

    :param stdin: its standard input. :param env: instead of this process's. :param renew: is called every second.
    :raises OSError: when it cannot be started; ValueError for a NUL in an argument. It had no effect then.
    :raises subprocess.SubprocessError: ``TimeoutExpired`` after ``timeout_s``, or :class:`TooMuchOutput`.
    """
    deadline, null, pipe = time.monotonic() + timeout_s, subprocess.DEVNULL, subprocess.PIPE
    out, err, rest = bytearray(), bytearray(), memoryview(stdin or b"")
    process = subprocess.Popen(
        argv, stdin=null if stdin is None else pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=env, cwd=cwd
    )
    with process, selectors.DefaultSelector() as selector:
        try:
            if process.stdin is not None:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            for stream, buffer in ((process.stdout, out), (process.stderr, err)):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, buffer)
            renewed_s = time.monotonic()
            while process.returncode is None:
                wait_s = min(_POLL_S, deadline - time.monotonic())
                if wait_s <= 0:
                    raise subprocess.TimeoutExpired(argv, timeout_s)
                if not selector.get_map():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(wait_s)
                for key, _ in selector.select(wait_s) if selector.get_map() else ():
                    if key.data is None:
                        with contextlib.suppress(BrokenPipeError):  # it does not read all
                            rest = rest[os.write(key.fd, rest[:_PIPE_BYTES]) :]
                            if rest:
                                continue
                    elif data := os.read(key.fd, _READ):
                        key.data.extend(data)
                        if len(out) + len(err) > MAX_OUTPUT_BYTES:
                            raise TooMuchOutput(f"it printed more than {MAX_OUTPUT_BYTES >> 20} MiB")
                        continue
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                if renew is not None and time.monotonic() - renewed_s >= _POLL_S:
                    renewed_s = time.monotonic()
                    renew()
        except BaseException:
            if process.returncode is None:  # not reaped, so that the group is its own still
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(
        argv, process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
    )
