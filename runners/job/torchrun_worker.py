"""Supervisor of a rank under torchrun, which starts it as each of its workers.

Runs on the hosts: standard library only. The supervisor asks the agent, over its UNIX socket, what to run and where
output goes, and forks. The child reports its location, waits at the start barrier, and becomes the user's program under
the same process id. The supervisor then sends its exit code to the agent, for torchrun, its parent, reports none.

Messages are JSON lines: from the agent one with two descriptors (standard output and error) and later a ``g``; to the
agent the child's report, and the exit code.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
from typing import Any

from plink.transport.addresses import local_addresses
from plink.transport.supervisor import NOT_STARTED, die_with, exec_program, redirect_output

BARRIER_SOCKET = "PLINK_START_BARRIER"  # environment variable with the name of the agent's socket
GO = b"g"
_READ = 1 << 16
# torchrun forwards these, and ends its workers with the first.
_FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Run a worker. It ends with the exit code of the program, 128 + N when signal N ended that."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect("\0" + os.environ.pop(BARRIER_SOCKET))
    task, outputs = _receive_task(connection)
    if not die_with(task["parent"]):
        os._exit(NOT_STARTED)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            if die_with(supervisor):
                _run_program(connection, task, outputs)
        finally:
            os._exit(NOT_STARTED)
    for end in outputs:
        os.close(end)
    _supervise_child(connection, pid)


def _receive_task(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    fds = array.array("i")
    data, extra, _, _ = connection.recvmsg(_READ, socket.CMSG_LEN(2 * fds.itemsize))
    for level, kind, value in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(value[: len(value) - len(value) % fds.itemsize])
    while data and not data.endswith(b"\n"):
        more = connection.recv(_READ)
        if not more:
            break
        data += more
    if not data.endswith(b"\n"):  # the agent has ended
        os._exit(NOT_STARTED)
    return json.loads(data), list(fds)


def _run_program(connection: socket.socket, task: dict[str, Any], outputs: list[int]) -> None:
    """Report in the child, wait at the start barrier, and become the user's program, in a process group of its own."""
    os.setpgid(0, 0)
    redirect_output(*outputs)
    location = {
        "rank": int(os.environ["RANK"]),
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "addresses": local_addresses(),
    }
    connection.sendall((json.dumps(location) + "\n").encode())
    if connection.recv(1) == GO:
        exec_program(task["argv"], task["workdir"], os.environ, _FORWARDED_SIGNALS)


def _supervise_child(connection: socket.socket, pid: int) -> None:
    """Wait for the child's end and report it; the agent ends what it left running."""

    def forward(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # both the agent and torchrun send it
        with contextlib.suppress(OSError):
            os.killpg(pid, number)

    for number in _FORWARDED_SIGNALS:
        signal.signal(number, forward)
    # Not reaped yet, so that its id cannot be another group's.
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert status is not None
    code = status.si_status if status.si_code == os.CLD_EXITED else 128 + status.si_status
    with contextlib.suppress(OSError):
        connection.sendall((json.dumps({"code": code}) + "\n").encode())
    os._exit(code)
