"""Runs the user's program as a child, in the place where a launcher started plink: what it prints goes out in frames,
its exit code too, and nothing of it stays behind.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time

from plink.remote.supervisor import GRACE_S, ProcessTree, exec_program, on_signal, redirect_output
from runners.launchers.frames import ERR, EXIT, LONGEST, OUT, framed

HANDED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGCONT,
)  # fmt: skip
_READ = 1 << 16
_DRAIN_READS = 1024
_TICK_S = 0.05
# A launcher that sees one rank end ends the others at once: they shall have had the time to show their stacks.
_HOLD_S = 3.0
# Ranks do not start at the same time: who is told to end so shortly before its own time is over ends for that.
_NEAR_S = 10.0


def write(kind: str, data: bytes) -> None:
    """A frame on standard output. :raises OSError: when nobody reads it any more."""
    frame = framed(kind, data)
    while frame:
        frame = frame[os.write(1, frame) :]


class RankSupervisor:
    """A child that waits at a gate until it may become the program."""

    def __init__(self, argv: list[str], workdir: str, env: dict[str, str]) -> None:
        out, err, gate = os.pipe(), os.pipe(), os.pipe()
        self._tree = ProcessTree()
        self.pid = self._tree.fork(lambda: _become(argv, workdir, env, (out[1], err[1]), gate))
        for end in (out[1], err[1], gate[0]):
            os.close(end)
        self._gate = gate[1]
        self._outputs = {out[0]: OUT, err[0]: ERR}
        self._told_to_end = False
        self._limit = float("inf")

    def run(self, timeout_s: float | None) -> int:
        """Open the gate; the program's exit code as a shell says it, once it has ended.

        :param timeout_s: seconds after which it is asked for its stacks by SIGABRT, and ended.
        """
        for number in HANDED_ON:
            on_signal(number, self._hand_on)
        parent = os.getppid()
        if timeout_s is not None:
            self._limit = time.monotonic() + timeout_s
        os.write(self._gate, b"g")
        asked_at: float | None = None
        code = None
        with selectors.DefaultSelector() as selector:
            for fd in self._outputs:
                os.set_blocking(fd, False)
                selector.register(fd, selectors.EVENT_READ)
            try:
                while code is None:
                    for key, _ in selector.select(_TICK_S):
                        if not self._forward(key.fd):
                            selector.unregister(key.fd)
                    code = self._tree.exit_code(self.pid)
                    now = time.monotonic()
                    if os.getppid() != parent:
                        raise BrokenPipeError("the supervisor, or the launcher, has gone")
                    if asked_at is None and code is None and now >= self._limit:
                        asked_at = now
                        self._signal(signal.SIGABRT)
                    if asked_at is not None and now - asked_at >= GRACE_S:
                        self._tree.signal(signal.SIGKILL)
                for fd in list(self._outputs):
                    # Bounded: a child that the program left behind may go on writing.
                    for _ in range(_DRAIN_READS):
                        if not self._forward(fd):
                            break
                if code == 0 and (leftovers := self._tree.leftovers()):
                    write(ERR, f"plink: left running by the program, ended with it: {leftovers}\n".encode())
                ended = {"code": code, "told": self._told_to_end, "out_of_time": asked_at is not None}
                write(EXIT, json.dumps(ended).encode())
            except OSError:
                self._tree.end(GRACE_S)
                return 1
        self._tree.end(GRACE_S)
        if asked_at is not None:
            time.sleep(max(0.0, asked_at + _HOLD_S - time.monotonic()))
        return code

    def _forward(self, fd: int) -> bool:
        """Pass on what one pipe holds; False when it holds nothing now, or ever."""
        if fd not in self._outputs:
            return False
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            del self._outputs[fd]
            return False
        for start in range(0, len(data), LONGEST):
            write(self._outputs[fd], data[start : start + LONGEST])
        return True

    def _hand_on(self, number: int, frame: object) -> None:
        if number == signal.SIGTERM and time.monotonic() >= self._limit - _NEAR_S:
            self._limit = 0.0
            return
        self._told_to_end = True
        self._signal(number)

    def _signal(self, number: int) -> None:
        self._tree.signal(number, group=self.pid)


def _become(
    argv: list[str], workdir: str, env: dict[str, str], outputs: tuple[int, int], gate: tuple[int, int]
) -> None:
    os.close(gate[1])
    if os.read(gate[0], 1) == b"g":
        redirect_output(*outputs)
        exec_program(argv, workdir, env)
