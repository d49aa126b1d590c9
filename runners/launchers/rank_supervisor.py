"""Supervisor of a rank under an external launcher.

It runs the user's program as a child, sends its output and exit code in frames, and leaves no process behind.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time

from plink.transport.start_barrier import StartBarrier
from plink.transport.supervisor import GRACE_S, ProcessTree, exec_program, on_signal, redirect_output
from runners.launchers.frames import ERR, EXIT, MAX_OUTPUT_BYTES, OUT, encode_frame

FORWARDED_SIGNALS = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGCONT,
)  # fmt: skip
_READ = 1 << 16
_MAX_DRAIN_READS = 1024
_TICK_S = 0.05
# A launcher that sees one rank end ends the others at once; first they get the time to show their stacks.
_STACKS_HOLD_S = 3.0
# Ranks do not start at the same time: a rank that gets SIGTERM so shortly before its own time limit has timed out.
_NEAR_TIMEOUT_S = 10.0


def write_frame(kind: str, data: bytes) -> None:
    """Write a frame to standard output. :raises OSError: when nobody reads it any more."""
    frame = encode_frame(kind, data)
    while frame:
        frame = frame[os.write(1, frame) :]


class RankSupervisor:
    """Supervisor of a child that waits at a start barrier until it may become the program."""

    def __init__(self, argv: list[str], workdir: str, env: dict[str, str]) -> None:
        out, err, barrier = os.pipe(), os.pipe(), StartBarrier()
        self._tree = ProcessTree()
        self.pid = self._tree.fork(lambda: _run_program(argv, workdir, env, (out[1], err[1]), barrier))
        for end in (out[1], err[1]):
            os.close(end)
        barrier.all_forked()
        self._barrier = barrier
        self._outputs = {out[0]: OUT, err[0]: ERR}
        self._was_signalled = False
        self._time_out_at = float("inf")

    def run(self, timeout_s: float | None) -> int:
        """Let the program start; return its exit code, as a shell has it, once it has ended.

        :param timeout_s: seconds after which SIGABRT makes it show its stacks, and it is ended.
        """
        for number in FORWARDED_SIGNALS:
            on_signal(number, self._forward_signal)
        parent = os.getppid()
        if timeout_s is not None:
            self._time_out_at = time.monotonic() + timeout_s
        self._barrier.open()
        aborted_at: float | None = None
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
                        raise BrokenPipeError("the supervisor, or the launcher, has ended")
                    if aborted_at is None and code is None and now >= self._time_out_at:
                        aborted_at = now
                        self._signal(signal.SIGABRT)
                    if aborted_at is not None and now - aborted_at >= GRACE_S:
                        self._tree.signal(signal.SIGKILL)
                for fd in list(self._outputs):
                    # Bounded: a child that the program left behind may go on writing.
                    for _ in range(_MAX_DRAIN_READS):
                        if not self._forward(fd):
                            break
                if code == 0 and (leftovers := self._tree.leftovers()):
                    write_frame(ERR, f"plink: left running by the program, ended with it: {leftovers}\n".encode())
                exit_message = {"code": code, "signalled": self._was_signalled, "timed_out": aborted_at is not None}
                write_frame(EXIT, json.dumps(exit_message).encode())
            except OSError:
                self._tree.end(GRACE_S)
                return 1
        self._tree.end(GRACE_S)
        if aborted_at is not None:
            time.sleep(max(0.0, aborted_at + _STACKS_HOLD_S - time.monotonic()))
        return code

    def _forward(self, fd: int) -> bool:
        """Forward what one pipe holds; return False when it holds nothing now, or ever."""
        if fd not in self._outputs:
            return False
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            del self._outputs[fd]
            return False
        for start in range(0, len(data), MAX_OUTPUT_BYTES):
            write_frame(self._outputs[fd], data[start : start + MAX_OUTPUT_BYTES])
        return True

    def _forward_signal(self, number: int, frame: object) -> None:
        if number == signal.SIGTERM and time.monotonic() >= self._time_out_at - _NEAR_TIMEOUT_S:
            self._time_out_at = 0.0
            return
        self._was_signalled = True
        self._signal(number)

    def _signal(self, number: int) -> None:
        self._tree.signal(number, group=self.pid)


def _run_program(
    argv: list[str], workdir: str, env: dict[str, str], outputs: tuple[int, int], barrier: StartBarrier
) -> None:
    if barrier.wait():
        redirect_output(*outputs)
        exec_program(argv, workdir, env)
