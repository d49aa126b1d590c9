"""Shim that an external launcher starts in place of the user's program: reports its location, then runs the program.

Runs on the hosts: standard library only. The report is one frame on standard output, which every launcher forwards to
where it was started; it needs no other network connection. The process id in it is that of the process that becomes
the user's program.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import signal
import socket
import time
import zlib
from typing import Any, NamedTuple

from plink.transport.addresses import local_addresses
from plink.transport.start_barrier import BarrierClosed, StartBarrier, serve_barrier, wait_at_barrier
from plink.transport.supervisor import (
    GRACE_S,
    NOT_STARTED,
    ProcessTree,
    exec_program,
    on_signal,
    redirect_output,
    supervise,
)
from runners.job.execution_environment import resolve_execution
from runners.launchers.frames import ERR, EXIT, MAX_OUTPUT_BYTES, OUT, REPORT, encode_frame

USER_ENVIRONMENT = "PLINK_USER_ENVIRONMENT"
_MAX_UNPACKED_BYTES = 1 << 28
MAX_VARIABLE_BYTES = 1 << 17  # MAX_ARG_STRLEN of Linux: one variable, with its name and the zero at its end


_FORWARDED = ("TERM", "INT", "HUP", "QUIT", "ABRT", "USR1", "USR2", "ALRM", "CONT")
FORWARDED_SIGNALS = tuple(signal.Signals[f"SIG{name}"] for name in _FORWARDED)
_READ = 1 << 16
_MAX_DRAIN_READS = 1024
_TICK_S = 0.05
# A launcher that sees one rank end ends the others at once; first they get the time to show their stacks.
_STACKS_HOLD_S = 3.0
# Ranks do not start at the same time: a rank that gets SIGTERM so shortly before its own time limit has timed out.
_NEAR_TIMEOUT_S = 10.0
_HOLD_S = 2.0  # a launcher ends all ranks when the first ends: others with the same problem shall report it before


def pack_environment(variables: dict[str, str]) -> str:
    """Return the value of the packed variable.

    The variables of ``--env`` may be secrets, and every user of a host can read a command (/proc/PID/cmdline). So
    they are packed into one environment variable, which only the user's own processes can read (/proc/PID/environ), and
    the launcher is told its name.
    """
    return base64.b64encode(zlib.compress(json.dumps(variables).encode(), 9)).decode()


def unpack_environment() -> dict[str, str] | None:
    """Remove the packed variable from this process's environment; return its content, None if it is not complete."""
    value = os.environ.pop(USER_ENVIRONMENT, None)
    if value is None:
        return None
    unpacked = zlib.decompressobj()
    try:
        text = unpacked.decompress(base64.b64decode(value, validate=True), _MAX_UNPACKED_BYTES)
        variables: dict[str, str] | None = json.loads(text) if unpacked.eof else None
    except (ValueError, RecursionError, zlib.error):
        return None
    valid = isinstance(variables, dict) and all(isinstance(text, str) for text in variables.values())
    return variables if valid else None


# Supervisor of a rank under an external launcher.
#
# It runs the user's program as a child, sends its output and exit code in frames, and leaves no process behind.
#
# Runs on the hosts: standard library only.


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


class RankEnvironments(NamedTuple):
    """What the ranks' environments have besides what the launcher sets.

    ``by_rank``: without the names of interfaces, which are known on the hosts. ``common``: to every rank.
    ``interface_variables``: set where they are not set yet; ``{}`` in a value stands for the interface.
    ``passthrough``: whether the user's own variables are to arrive.
    """

    by_rank: list[dict[str, str]]
    common: dict[str, str]
    interface_variables: dict[str, str]
    passthrough: bool


class ExpectedPlacement(NamedTuple):
    """Where the dry run found the ranks.

    ``identities``: ``hostname`` and ``addresses`` of each rank's host; the program does not run on another.
    ``barrier``: ``address`` and ``port`` on ``host``, rank 0's, to which all have to connect, and a ``token``; None
    where there is one host only.
    """

    identities: list[dict[str, Any]]
    barrier: dict[str, Any] | None


def main(
    rank_variables: list[str],
    request: dict[str, Any],
    environments: dict[str, Any],
    placement: dict[str, Any] | None,
    runs_program: bool,
    timeout_s: float | None,
) -> None:
    """Report, and run the user's program if asked to.

    :param rank_variables: the launcher puts the rank into the first of these that is set.
    :param request: of :func:`runners.job.execution_environment.resolve_execution`.
    :param environments: fields of :class:`RankEnvironments`.
    :param placement: fields of :class:`ExpectedPlacement`; None in the dry run.
    :param runs_program: whether the program is run, for ``timeout_s`` at most.
    """
    variables = RankEnvironments(**environments)
    expected = None if placement is None else ExpectedPlacement(**placement)
    rank_count = len(variables.by_rank)
    rank = next((int(os.environ[name]) for name in rank_variables if name in os.environ), -1)
    user_env = unpack_environment()
    with contextlib.suppress(OSError):
        os.chdir(os.path.expanduser("~"))  # which folders are relative to, as with SSH
    execution = resolve_execution({**request, "port": request["port"] if rank == 0 else 0})
    problems = execution["problems"]
    if not 0 <= rank < rank_count:
        problems.insert(0, f"none of {', '.join(rank_variables)} is a rank below {rank_count}")
    if variables.passthrough and user_env is None:
        problems.append(f"the variables of --env did not arrive: let the launcher export {USER_ENVIRONMENT}")
    hostname, addresses = socket.gethostname(), local_addresses()
    moved = bool(expected and not problems and not _is_same_host(expected.identities[rank], hostname, addresses))
    if expected is not None and expected.barrier is not None and not problems and not moved:
        barrier_error = _pass_barrier(expected.barrier, rank, rank_count)
        problems += [barrier_error] if barrier_error else []
    supervisor = None
    if runs_program and not problems and not moved:
        interface = execution["interface"]
        launcher_env = {name: value.format(interface) for name, value in variables.interface_variables.items()}
        interface_env = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": "=" + interface}
        env = {**launcher_env, **os.environ, **interface_env}
        env.update({**variables.by_rank[rank], **variables.common, **(user_env or {})})
        supervise(FORWARDED_SIGNALS, ends_with_parent=True)
        supervisor = RankSupervisor(execution["argv"], execution["workdir"], env)
    report = {
        "rank": rank,
        "pid": supervisor.pid if supervisor else os.getpid(),
        "hostname": hostname,
        "addresses": addresses,
        "moved": moved,
        **{key: execution[key] for key in ("workdir", "port", "address", "versions", "problems")},
    }
    write_frame(REPORT, json.dumps(report).encode())
    if supervisor is not None:
        os._exit(supervisor.run(timeout_s))
    if problems:
        time.sleep(_HOLD_S)
    os._exit(NOT_STARTED if problems or moved else 0)


def _pass_barrier(barrier: dict[str, Any], rank: int, rank_count: int) -> str | None:
    """Return None when all ranks have connected to rank 0's port, else why they have not, as far as this one knows."""
    address, port, token = barrier["address"], barrier["port"], barrier["token"]
    if rank == 0:
        return serve_barrier(address, port, token, rank_count - 1)
    try:
        error = wait_at_barrier(address, port, token, rank)
    except BarrierClosed:
        os._exit(NOT_STARTED)
    return error and f"cannot reach port {port} of {address} ({barrier['host']}, rank 0's host): {error}"


def _is_same_host(identity: dict[str, Any], hostname: str, addresses: list[str]) -> bool:
    expected = set(identity["addresses"])
    return bool(identity["hostname"] == hostname and (not expected or expected & set(addresses)))
