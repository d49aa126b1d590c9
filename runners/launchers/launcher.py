"""Protocol of an external launcher (mpirun, srun, ...)."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from plink.errors import PlinkError
from plink.model.dry_run import LaunchCommand
from plink.model.hosts import Hosts
from plink.transport.supervisor import GRACE_S, die_with
from runners.job.runner import Job, RunContext

_POLL_S = 0.2
_GRACE_S = 5.0  # from SIGTERM to SIGKILL: the launcher ends its ranks by then
_MAX_QUEUED_LINES = 10_000
_MAX_LINE_BYTES = 1 << 20  # a longer one comes in pieces


class Launcher(Protocol):
    """An external launcher: the files it reads, its command, and how its output names ranks.

    :ivar rank_variables: environment variables in which it passes the rank to a process; the first that is set counts.
    :ivar interface_variables: set, unless they are set already, so that its ranks use the interface that leads to the
        other hosts; ``{}`` stands for it.
    :ivar waits_for_ranks: whether it waits without end for ranks that failed ones leave behind, or that ignore SIGTERM:
        only SIGKILL ends it then, and its ranks with it.
    """

    name: str
    rank_variables: tuple[str, ...]
    interface_variables: Mapping[str, str]
    waits_for_ranks: bool

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """Return the files that it reads, text by file name; they are written into the run's folder.

        :raises UsageError: when it could not keep this order, or is not installed.
        """

    def command(
        self, hosts: Hosts, job: Job, folder: Path, arguments: Sequence[str], forwarded: Sequence[str] = ()
    ) -> LaunchCommand:
        """Return the command that runs ``arguments`` once a rank.

        :param folder: absolute, of the files. :param forwarded: names of variables of its environment that ranks get.
        """

    def allocation(
        self, hosts: Hosts, job: Job, folder: Path, context: RunContext
    ) -> contextlib.AbstractContextManager[dict[str, str]]:
        """Hold the hosts during the dry run and the job; gives variables for the environment of both commands."""

    def parse_output_line(self, stream: str, line: str) -> Iterable[tuple[int | None, str, str]]:
        """Yield (rank, stream, part) for the parts of one line of the launcher's output; rank None: its own text.

        Output of ranks is in frames: it holds no ``[`` but those of the launcher's own marks.
        """

    def first_failure(self, own_lines: Sequence[str]) -> tuple[int, int] | None:
        """Return (rank, exit code) of the first rank that failed, by the launcher's own lines; None if unknown."""


# Process of an external launcher: its lines as they come, and its end.


class LauncherProcess:
    """A child process in a session of its own; a context manager that ends it. It also ends when plink does."""

    def __init__(self, command: LaunchCommand, waits_for_ranks: bool = False) -> None:
        """:raises PlinkError: when it cannot be started."""
        self._grace_s = GRACE_S if waits_for_ranks else _GRACE_S
        try:
            self._child = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                cwd=command.workdir,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid(), signal.SIGKILL if waits_for_ranks else signal.SIGTERM),
            )
        except OSError as error:
            raise PlinkError(f"cannot start {command.argv[0]}: {error.strerror}") from None
        except subprocess.SubprocessError as error:
            raise PlinkError(f"cannot start {command.argv[0]}: {error}") from None
        self._open_streams = 2
        self._ending = threading.Event()
        self._queue: queue.Queue[tuple[str, str] | None] = queue.Queue(_MAX_QUEUED_LINES)
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        for stream, pipe in (("out", self._child.stdout), ("err", self._child.stderr)):
            threading.Thread(target=self._read, args=(stream, pipe), daemon=True, name=f"plink-{stream}").start()

    def _read(self, stream: str, pipe: IO[bytes]) -> None:
        # Bytes that are no UTF-8 travel as lone surrogates and come out as they went in.
        with pipe:
            for line in iter(lambda: pipe.readline(_MAX_LINE_BYTES), b""):
                self._put((stream, line.rstrip(b"\n").decode("utf-8", "surrogateescape")))
        self._put(None)

    def _put(self, item: tuple[str, str] | None) -> None:
        # Dropped once nobody reads lines: a launcher that cannot write does not end in order.
        while not self._ending.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=_POLL_S)
                return

    @property
    def open(self) -> bool:
        """Return whether there may be more lines."""
        return self._open_streams > 0

    def lines(self, clock: Callable[[], float], deadline: float | None) -> Iterator[tuple[str, str]]:
        """Yield (stream, line) until both streams end, or the deadline passes; may be called again then."""
        while self.open and (deadline is None or clock() < deadline):
            try:
                item = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if item is None:
                self._open_streams -= 1
            else:
                yield item

    def end(self, grace_s: float) -> int:
        """Return its exit code, as a shell has it; SIGTERM if it still runs after so long, then SIGKILL.

        Drops what it prints from now on. What it leaves in its process group gets SIGTERM.
        """
        self._ending.set()
        try:
            self._child.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self._child.terminate()
            try:
                self._child.wait(timeout=self._grace_s)
            except subprocess.TimeoutExpired:
                os.killpg(self._child.pid, signal.SIGKILL)
        code = self._child.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGTERM)
        return code if code >= 0 else 128 - code

    def __enter__(self) -> "LauncherProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.poll() is None:
            self.end(0.0)
