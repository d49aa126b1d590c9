"""Kernel interface of a lab, through iproute2: namespaces, batches of ``ip`` and ``tc``, sysctls."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from plink.errors import PlinkError
from plink.transport.command_output import run_to_end

_CLONE_NEWNET = 0x40000000
_RUN = Path("/run/netns")
_COMMAND_TIMEOUT_S = 60.0
_KILL_TIMEOUT_S = 15.0


def _run(argv: Sequence[str], stdin: str | None = None) -> str:
    try:
        done = run_to_end(argv, _COMMAND_TIMEOUT_S, None if stdin is None else stdin.encode())
    except FileNotFoundError:
        raise PlinkError(f"{argv[0]} is not installed: `apt-get install iproute2 openssh-server`") from None
    except subprocess.SubprocessError as failure:
        raise PlinkError(f"`{' '.join(argv)}` was ended: {failure}") from None
    if done.returncode:
        error = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise PlinkError(f"`{' '.join(argv)}` failed: {error}")
    return done.stdout


def ip(lines: Sequence[str], namespace: str | None = None) -> None:
    """Run ``ip`` commands in one batch, in a namespace or in the machine's own; the first failure ends it."""
    if lines:
        _run(["ip", *(["-n", namespace] if namespace else []), "-batch", "-"], "\n".join(lines) + "\n")


def tc(lines: Sequence[str], namespace: str) -> None:
    """Run ``tc`` commands in one batch in a namespace."""
    if lines:
        _run(["tc", "-n", namespace, "-batch", "-"], "\n".join(lines) + "\n")


def query(argv: Sequence[str]) -> str:
    """Return the output of one read-only command."""
    return _run(argv)


def namespaces(prefix: str) -> list[str]:
    """Return the named namespaces with this prefix."""
    return sorted(path.name for path in _RUN.glob(f"{prefix}*")) if _RUN.is_dir() else []


def pids(namespace: str) -> list[int]:
    """Return the processes in a namespace."""
    return [int(word) for word in _run(["ip", "netns", "pids", namespace]).split()]


def kill_all(namespace: str) -> None:
    """End every process in a namespace (they were all started there by the lab or through it).

    One that waits for the kernel's network lock is dead only when it has got it: seconds, on a loaded machine.
    """
    latest = time.monotonic() + _KILL_TIMEOUT_S
    alive: list[int] = []
    while time.monotonic() < latest:
        alive = [pid for pid in pids(namespace) if pid != os.getpid()]
        if not alive:
            return
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    raise PlinkError(f"processes in {namespace} do not end: {alive}")


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread (and those it starts meanwhile) has the namespace's network; afterwards it has its own again.

    :raises PlinkError: when there is no such namespace or no right to enter it.
    """
    with Path(f"/proc/self/task/{threading.get_native_id()}/ns/net").open() as home:
        enter(namespace)
        try:
            yield
        finally:
            _setns(home.fileno())


def enter(namespace: str) -> None:
    """Move this thread, and all that it starts from now on, into a namespace's network."""
    try:
        with (_RUN / namespace).open() as file:
            _setns(file.fileno())
    except FileNotFoundError:
        raise PlinkError(f"there is no network namespace {namespace!r} on this machine") from None
    except OSError as error:
        raise PlinkError(
            f"cannot enter the network namespace {namespace!r}: {error.strerror} (are you root?)"
        ) from None


def _setns(fd: int) -> None:
    # os.setns came with Python 3.12
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sysctl(namespace: str, values: dict[str, str]) -> None:
    """Set ``net.*`` values of a namespace; one that this kernel does not have is passed over."""
    with inside(namespace):
        for key, value in values.items():
            path = Path("/proc/sys/net") / key
            if path.exists():
                path.write_text(value)
