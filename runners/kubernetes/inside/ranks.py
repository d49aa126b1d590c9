"""The ranks of one pod: started, told apart, ended together.

Runs in pods: standard library only. The pod's first process stays their parent: Kubernetes asks it to end them, and a
first process without a handler would not hear that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType

from plink.remote.supervisor import exec_program

REFUSED = 125  # as `env` and `timeout` have it: not the program failed, but what should have started it
_GRACE_S = 10.0
_NOT_STARTED = 127
_GO = b"!"


class Ranks:
    """Children that wait at a gate until :meth:`run` opens it.

    :param start: of each rank: number, arguments, folder, environment.
    :param label: whether lines are marked with their rank; where a pod has one only, its output stays as it is.
    """

    def __init__(self, start: list[tuple[int, list[str], str, dict[str, str]]], label: bool) -> None:
        self._ranks: dict[int, int] = {}  # by process id
        self._readers: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._asked_to_end = False
        waiting, self._gate = os.pipe()
        pipes: list[tuple[int, int, int]] = []
        for rank, argv, folder, environment in start:
            ends = [os.pipe(), os.pipe()] if label else []
            pid = os.fork()
            if pid == 0:
                _become(waiting, self._gate, [write for _, write in ends], argv, folder, environment)
            self._ranks[pid] = rank
            for place, (read, write) in enumerate(ends):
                os.close(write)
                pipes.append((rank, read, 1 + place))
        os.close(waiting)
        for rank, read, target in pipes:
            thread = threading.Thread(target=self._pass_on, args=(rank, read, target), daemon=True)
            thread.start()
            self._readers.append(thread)

    def pids(self) -> dict[int, int]:
        """Process ids, by rank."""
        return {rank: pid for pid, rank in self._ranks.items()}

    def run(self) -> int:
        """Open the gate and wait; the first rank that fails ends the others. Its exit code, as a shell says it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        os.write(self._gate, _GO * len(self._ranks))
        os.close(self._gate)
        failed = 0
        while self._ranks:
            pid, status = os.wait()  # as the first process of a pod also for orphans that it was left
            rank = self._ranks.pop(pid, None)
            if rank is None:
                continue
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if code and not failed:
                failed = code if code > 0 else 128 - code
                if not self._asked_to_end:
                    os.write(2, f"plink: rank {rank} ended with exit code {failed}\n".encode())
                self._end(signal.SIGTERM, None)
        for thread in self._readers:
            thread.join(_GRACE_S)
        return failed

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_end = True
        self._signal(signal.SIGTERM)
        late = threading.Timer(_GRACE_S, self._signal, (signal.SIGKILL,))
        late.daemon = True
        late.start()

    def _signal(self, number: int) -> None:
        for pid in list(self._ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pass_on(self, rank: int, read: int, target: int) -> None:
        mark = b"[%d] " % rank
        with os.fdopen(read, "rb") as file:
            for line in file:
                whole = mark + line if line.endswith(b"\n") else mark + line + b"\n"
                with self._guard:
                    while whole:
                        whole = whole[os.write(target, whole) :]


def _become(
    waiting: int, gate: int, outputs: list[int], argv: list[str], folder: str, environment: dict[str, str]
) -> None:
    """In the child: wait, then go on as the program."""
    try:
        os.close(gate)
        if os.read(waiting, 1) != _GO:  # the gate was closed: refused, or the parent is gone
            os._exit(REFUSED)
        for place, output in enumerate(outputs):
            os.dup2(output, 1 + place)
        exec_program(argv, folder, environment)
    finally:
        os._exit(_NOT_STARTED)
