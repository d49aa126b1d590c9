"""Limits of the system for a process: descriptors, memory, threads, its folder."""

import errno
import os
import resource
import subprocess
import sys

from plink.errors import PlinkError

_TRIAL_TIMEOUT_S = 60.0
# Besides what the command line needs: a product of matrices, for which BLAS takes memory, and something to work with.
_TRIAL = """
import sys
sys.path[:] = {path!r}
import plink.cli.app, numpy
numpy.ones((64, 64)) @ numpy.ones((64, 64))
bytearray(1 << 26)
"""
_DESCRIPTOR_ERRORS = (errno.EMFILE, errno.ENFILE)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def check_folder() -> None:
    """Refuse to work in a folder that was removed.

    :raises PlinkError: when it was.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise PlinkError(f"the current folder cannot be used: {error.strerror}; change to another one") from None


def check_memory() -> None:
    """Where address space is limited, try in a child whether numpy loads: otherwise its BLAS ends the process, or
    sends it SIGINT.

    :raises PlinkError: when it cannot be.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.run(
            [sys.executable, "-c", _TRIAL.format(path=sys.path)],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            timeout=_TRIAL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if process.returncode:
        raise PlinkError(_out_of_memory())


def explain(error: BaseException | None) -> str | None:
    """Explain an error that the system's limits caused; None for any other error."""
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        if number in _DESCRIPTOR_ERRORS:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            return f"too many open files: this process may have {soft}; raise that by `ulimit -n`"
        if isinstance(error, MemoryError) or number == errno.ENOMEM or "failed to map segment" in str(error):
            return _out_of_memory()
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            return "cannot start a thread: the limit of processes (`ulimit -u`) or of memory (`ulimit -v`) is reached"
        if isinstance(error, OSError) and number in _DISK_ERRORS:
            return f"{error.filename or 'a file'}: {error.strerror}"
        error = error.__cause__ or error.__context__
    return None


def _out_of_memory() -> str:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return "out of memory"
    return f"out of memory: this process may have {limit >> 20} MiB of address space; raise that by `ulimit -v`"
