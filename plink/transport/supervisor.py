"""Process supervisor of an agent: no process that its programs start outlives it.

Runs on the hosts: standard library only. An agent that calls :func:`supervise` goes on in a child; the process that
called stays its parent, as its supervisor. Both are child subreapers (prctl(2), PR_SET_CHILD_SUBREAPER): a process
whose parent ends becomes a child of the nearest of the two. So all that programs start stays below the agent, even in
sessions of its own or forked twice, and is found by walking /proc.

=========================  ==========================================================================================
what ends                  who ends the rest: SIGTERM, and SIGKILL after a grace, until nothing runs
=========================  ==========================================================================================
the agent, even SIGKILLed  its supervisor; that of a rank agent, too, when it is stopped as long as a lease (SIGSTOP)
the supervisor             the agent, which then gets SIGHUP (PR_SET_PDEATHSIG)
both, by SIGKILL at once   the kernel: direct children of the agent die with it; what had detached itself lives on
=========================  ==========================================================================================

Out of reach are processes of another user (setuid programs), and a chain of forks that is faster than /proc is read.
Where the kernel has no subreapers there is no supervisor, and process groups are ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

LOW_PRIORITY = "PLINK_LOW_PRIORITY"  # if set, a program starts at low priority until it has work
_FILE = "/proc/self/autogroup"
_NICE = b"10"  # a tenth of what others get; with 19 a host that is busy with something else never lets it begin
# The kernel lets such changes through ten times a second, of all users together. Lowering is worth a wait of a second;
# raising must get through even where a hundred others try.
_TRIES, _RETRY_S = {True: 10, False: 100}, 0.1


GRACE_S = 2.0
NOT_STARTED = 127
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_KILL_LIMIT_S = 5.0  # for processes in an uninterruptible sleep, and those of other users
_TICK_S = 0.02
_PARENT_CHECK_S = 0.5
STOPPED_LIMIT_S = 30.0  # as a lease of :mod:`plink.transport.fleet`: by then the controller counts the agent as lost
_HELPERS_GRACE_S = 1.0  # for helpers of libraries to end after the program
_SAME_SIGNAL_WINDOW_S = 1.0  # within which a signal may come both directly and by the supervisor
_MAX_NAMED = 4
# By signal: deliveries that came by one path only so far (which path, when).
_unmatched: dict[int, deque[tuple[int, float]]] = {}


def set_low_priority(enabled: bool) -> None:
    """Lower the CPU priority of this process's session, which must be plink's own, or restore it.

    A process that starts beside a running job takes only the cores that the job leaves free.

    Only root may take back a nice value of a process, but anybody that of a session (sched(7), "The autogroup
    feature"). Where there are no autogroups nothing changes.
    """
    try:
        file = os.open(_FILE, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(_TRIES[enabled]):
            try:
                os.write(file, _NICE if enabled else b"0")
            except BlockingIOError:
                time.sleep(_RETRY_S)
            else:
                break
    except OSError:
        pass
    finally:
        os.close(file)


def become_subreaper() -> bool:
    """Become a child subreaper; return False where that fails, or where /proc does not show processes."""
    try:
        done = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (AttributeError, OSError):
        return False
    return done and process_status(os.getpid()) is not None


def die_with(parent: int, number: int = signal.SIGKILL) -> bool:
    """Have this signal sent to this process when its parent ends; return False if the parent has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    return os.getppid() == parent


def supervise(forwarded: Iterable[int], ends_with_parent: bool = False, stopped_limit_s: float = math.inf) -> None:
    """Go on in a child, in a session of its own, supervised by this process, which ends with the child's exit code.

    Call it before there are threads, or descriptors whose end others wait for.

    :param forwarded: signals that are passed on to the child, for :func:`on_signal` there.
    :param ends_with_parent: whether the end of this process's parent ends the child, too.
    :param stopped_limit_s: seconds after which a child that is stopped all the time is ended, as its own lease cannot
        end it. Not counted while this process is stopped, too.
    """
    if not become_subreaper():
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored by inheritance, exit codes of children are lost
    parent, supervisor = os.getppid(), os.getpid()
    agent = os.fork()
    if agent == 0:
        os.setsid()  # so that signals to the supervisor's group come once
        if not die_with(supervisor, signal.SIGHUP):
            os._exit(NOT_STARTED)
        return
    code = NOT_STARTED
    try:
        code = _supervise(agent, forwarded, parent if ends_with_parent else None, stopped_limit_s)
    finally:
        os._exit(code)


def _supervise(agent: int, forwarded: Iterable[int], parent: int | None, stopped_limit_s: float) -> int:
    forwarded = tuple(forwarded)
    for number in forwarded:
        signal.signal(number, lambda number, frame: _forward(agent, number))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)  # so that the peer sees the agent's end at once
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    tree = ProcessTree()
    tree.add(agent)
    checked, stopped_s = time.monotonic(), 0.0
    while (code := tree.exit_code(agent)) is None and parent in (None, os.getppid()):
        before, checked = checked, time.monotonic()
        stopped_s = stopped_s + min(checked - before, 2 * _PARENT_CHECK_S) if is_stopped(agent) else 0.0
        if stopped_s > stopped_limit_s:
            break
        signal.sigtimedwait({signal.SIGCHLD}, _PARENT_CHECK_S)
    for number in forwarded:
        signal.signal(number, signal.SIG_IGN)
    tree.end(GRACE_S)
    return NOT_STARTED if code is None else code


def _forward(agent: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended, and is collected in a moment
        os.kill(agent, signal.SIGRTMIN + number)


def redirect_output(out: int, err: int) -> None:
    """Make these descriptors standard output and error, and standard input empty."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)


def exec_program(argv: list[str], workdir: str, environment: Mapping[str, str], handled: Iterable[int] = ()) -> None:
    """Become a program; return only where it cannot be started, with the error on standard error.

    :param handled: signals that this process handles, and the program is not to inherit as ignored.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ, *handled):  # Python ignores the first two
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(workdir)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"plink: cannot start {argv[0]}: {error.strerror}\n".encode())


def on_signal(number: int, handler: Callable[[int, Any], object]) -> None:
    """Call the handler at this signal, sent to the supervisor or to this process.

    Once where both get it, as from Slurm or from a system that shuts down.
    """

    def receive(path: int, frame: object) -> None:
        now = time.monotonic()
        unmatched = _unmatched.setdefault(number, deque())
        while unmatched and now - unmatched[0][1] >= _SAME_SIGNAL_WINDOW_S:
            unmatched.popleft()
        if unmatched and unmatched[0][0] != path:
            unmatched.popleft()
            return
        unmatched.append((path, now))
        handler(number, frame)

    signal.signal(number, lambda _, frame: receive(0, frame))
    signal.signal(signal.SIGRTMIN + number, lambda _, frame: receive(1, frame))


class ProcessTree:
    """All processes below this one. It reaps those that have ended: nothing else may wait for children meanwhile.

    Without subreapers: the process groups of the children added, which are not reaped, so that their group ids stay
    their own.
    """

    def __init__(self) -> None:
        self._is_subreaper = become_subreaper()
        self._codes: dict[int, int | None] = {}  # of children added

    def fork(self, run: Callable[[], object]) -> int:
        """Fork a child, in a session of its own, that dies with this process and calls ``run``; return its id."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                if die_with(parent):
                    run()
            finally:
                os._exit(NOT_STARTED)
        self.add(pid)
        return pid

    def add(self, pid: int) -> None:
        """Keep the exit code of this child, which leads a process group."""
        self._codes[pid] = None

    def exit_code(self, pid: int) -> int | None:
        """Return the exit code of a child that has ended, 128 + N when signal N ended it."""
        if self._is_subreaper:
            self._collect()
        elif self._codes[pid] is None:
            self._codes[pid] = _exit_code(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        return self._codes[pid]

    def _collect(self) -> bool:
        """Reap children that have ended; return whether there are others.

        A subreaper without children has no descendants, whatever forks meanwhile.
        """
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                return False
            if ended is None:
                return True
            if ended.si_pid in self._codes:
                self._codes[ended.si_pid] = _exit_code(ended)

    def _running(self) -> bool:
        return self._collect() if self._is_subreaper else any(self.exit_code(pid) is None for pid in self._codes)

    def leftovers(self) -> str | None:
        """Return the names of processes that ended children left running, and that still run a second later."""
        deadline = time.monotonic() + _HELPERS_GRACE_S
        while self._is_subreaper and self._collect():
            orphans = [
                f"{process.name} (process {pid})"
                for pid, process in _processes().items()
                if process.parent == os.getpid() and pid not in self._codes and process.state != "Z"
            ]
            if not orphans or time.monotonic() >= deadline:
                more = [f"{len(orphans) - _MAX_NAMED} more"] if len(orphans) > _MAX_NAMED else []
                return ", ".join([*orphans[:_MAX_NAMED], *more]) or None
            time.sleep(_TICK_S)
        return None

    def signal(self, number: int, group: int | None = None) -> None:
        """Send a signal to every process below this one, or to one process group of them."""
        if not self._is_subreaper:
            for pid in self._codes if group is None else (group,):
                with contextlib.suppress(OSError):
                    os.killpg(pid, number)
            return
        for pid, process in _below(os.getpid()):
            if group in (None, process.group):
                _send(pid, process, number)

    def end(self, grace_s: float) -> None:
        """End every process below this one: SIGTERM, and after a grace SIGKILL until nothing runs."""
        if self._running():
            self.signal(signal.SIGTERM)
        kill_at = time.monotonic() + grace_s
        while self._running() and (now := time.monotonic()) < kill_at + _KILL_LIMIT_S:
            if now >= kill_at:
                self.signal(signal.SIGKILL)
            time.sleep(_TICK_S)
        if not self._is_subreaper:
            self.signal(signal.SIGKILL)


def _exit_code(ended: Any) -> int | None:
    if ended is None:
        return None
    return int(ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status)


class ProcessStatus(NamedTuple):
    """Fields of ``/proc/PID/stat`` (proc(5)); a process id and its start time identify a process."""

    name: str
    state: str
    parent: int
    group: int
    started: str


def process_status(pid: int) -> ProcessStatus | None:
    """Return the status of a process; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            head, _, tail = file.read().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    return ProcessStatus(head.partition("(")[2], fields[0], int(fields[1]), int(fields[2]), fields[19])


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, by SIGSTOP or a debugger: it takes part in nothing and does not end."""
    process = process_status(pid)
    return process is not None and process.state in ("T", "t")


def _processes() -> dict[int, ProcessStatus]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: process for pid in pids for process in (process_status(pid),) if process is not None}


def _below(root: int) -> Iterator[tuple[int, ProcessStatus]]:
    """Yield the descendants of a process, parents first."""
    processes = _processes()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    waiting = children.get(root, [])
    while waiting:
        pid = waiting.pop(0)
        yield pid, processes[pid]
        waiting += children.get(pid, [])


def _send(pid: int, process: ProcessStatus, number: int) -> None:
    """Send a signal to this very process, not to another that got its id meanwhile."""
    handle = None
    with contextlib.suppress(OSError, AttributeError):  # it has ended, or Python is 3.8, or the kernel older than 5.3
        handle = os.pidfd_open(pid)
    try:
        current = process_status(pid)
        if current is not None and current.started == process.started:
            with contextlib.suppress(OSError):
                if handle is None:
                    os.kill(pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)
    finally:
        if handle is not None:
            os.close(handle)
