"""What torchrun starts as each of its workers: the keeper of a rank.

Runs on the hosts: standard library only. The keeper asks the agent, over its UNIX socket, what to run and where output
goes, and forks. The child reports who and where it is, waits at the gate, and becomes the user's program under the same
process id. The keeper, which stays, tells the agent how the program ended: torchrun, whose child it is, tells nobody.

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

from plink.remote.addresses import local_addresses
from plink.remote.supervisor import NOT_STARTED, die_with, exec_program, redirect_output

GATE = "PLINK_START_BARRIER"  # the environment variable with the name of the agent's socket
_READ = 1 << 16
# torchrun hands on what it is sent, and ends its workers with the first.
_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Entry point of a worker. It ends with the exit code of the program, 128 + N when signal N ended that."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect("\0" + os.environ.pop(GATE))
    task, outputs = _task(line)
    if not die_with(task["parent"]):
        os._exit(NOT_STARTED)
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            if die_with(keeper):
                _become(line, task, outputs)
        finally:
            os._exit(NOT_STARTED)
    for end in outputs:
        os.close(end)
    _keep(line, pid)


def _task(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    fds = array.array("i")
    data, extra, _, _ = line.recvmsg(_READ, socket.CMSG_LEN(2 * fds.itemsize))
    for level, kind, value in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(value[: len(value) - len(value) % fds.itemsize])
    while data and not data.endswith(b"\n"):
        more = line.recv(_READ)
        if not more:
            break
        data += more
    if not data.endswith(b"\n"):  # the agent is gone
        os._exit(NOT_STARTED)
    return json.loads(data), list(fds)


def _become(line: socket.socket, task: dict[str, Any], outputs: list[int]) -> None:
    """In the child: report, wait at the gate, become the user's program. Its process group bears its number."""
    os.setpgid(0, 0)
    redirect_output(*outputs)
    who = {"rank": int(os.environ["RANK"]), "pid": os.getpid(), "hostname": socket.gethostname(),
           "addresses": local_addresses()}  # fmt: skip
    line.sendall((json.dumps(who) + "\n").encode())
    if line.recv(1) == b"g":
        exec_program(task["argv"], task["workdir"], os.environ, _HANDED_ON)


def _keep(line: socket.socket, pid: int) -> None:
    """Wait for the child's end and tell it; what it left running the agent ends."""

    def hand_on(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # the agent sends it to all, and so does torchrun
        with contextlib.suppress(OSError):
            os.killpg(pid, number)

    for number in _HANDED_ON:
        signal.signal(number, hand_on)
    # Not reaped yet, so that its number cannot be another group's.
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    code = ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
    with contextlib.suppress(OSError):
        line.sendall((json.dumps({"code": code}) + "\n").encode())
    os._exit(code)
