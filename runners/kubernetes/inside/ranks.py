"""Ranks of one pod: started together, their output marked, ended together.

Runs in pods: standard library only. The pod's first process stays their parent: Kubernetes sends it SIGTERM, which a
first process without a handler would not receive.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType

from plink.transport.start_barrier import StartBarrier
from plink.transport.supervisor import exec_program

REFUSED = 125  # as of `env` and `timeout`: not the program failed, but what should have started it
_GRACE_S = 10.0
_NOT_STARTED = 127


class PodRanks:
    """Child processes that wait at a start barrier until :meth:`run` opens it.

    :param commands: of each rank: number, arguments, folder, environment.
    :param label: whether lines are marked with their rank; where a pod has one only, its output stays as it is.
    """

    def __init__(self, commands: list[tuple[int, list[str], str, dict[str, str]]], label: bool) -> None:
        self._ranks: dict[int, int] = {}  # by process id
        self._readers: list[threading.Thread] = []
        self._write_lock = threading.Lock()
        self._was_signalled = False
        self._barrier = StartBarrier()
        pipes: list[tuple[int, int, int]] = []
        for rank, argv, folder, environment in commands:
            ends = [os.pipe(), os.pipe()] if label else []
            pid = os.fork()
            if pid == 0:
                _run_program(self._barrier, [write for _, write in ends], argv, folder, environment)
            self._ranks[pid] = rank
            for stream, (read, write) in enumerate(ends, 1):
                os.close(write)
                pipes.append((rank, read, stream))
        self._barrier.all_forked()
        for rank, read, stream in pipes:
            thread = threading.Thread(target=self._forward, args=(rank, read, stream), daemon=True)
            thread.start()
            self._readers.append(thread)

    def pids(self) -> dict[int, int]:
        """Return process ids, by rank."""
        return {rank: pid for pid, rank in self._ranks.items()}

    def run(self) -> int:
        """Open the barrier and wait; the first rank that fails ends the others. Return its exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        self._barrier.open(len(self._ranks))
        failed = 0
        while self._ranks:
            pid, status = os.wait()  # as the first process of a pod also for orphans
            rank = self._ranks.pop(pid, None)
            if rank is None:
                continue
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if code and not failed:
                failed = code if code > 0 else 128 - code
                if not self._was_signalled:
                    os.write(2, f"plink: rank {rank} ended with exit code {failed}\n".encode())
                self._end(signal.SIGTERM, None)
        for thread in self._readers:
            thread.join(_GRACE_S)
        return failed

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._was_signalled = True
        self._signal(signal.SIGTERM)
        alarm = threading.Timer(_GRACE_S, self._signal, (signal.SIGKILL,))
        alarm.daemon = True
        alarm.start()

    def _signal(self, number: int) -> None:
        for pid in list(self._ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _forward(self, rank: int, read: int, stream: int) -> None:
        mark = b"[%d] " % rank
        with os.fdopen(read, "rb") as file:
            for line in file:
                data = mark + line if line.endswith(b"\n") else mark + line + b"\n"
                with self._write_lock:
                    while data:
                        data = data[os.write(stream, data) :]


def _run_program(
    barrier: StartBarrier, outputs: list[int], argv: list[str], folder: str, environment: dict[str, str]
) -> None:
    """Wait in the child, then become the program."""
    try:
        if not barrier.wait():  # refused, or the parent has ended
            os._exit(REFUSED)
        for stream, output in enumerate(outputs, 1):
            os.dup2(output, stream)
        exec_program(argv, folder, environment)
    finally:
        os._exit(_NOT_STARTED)
