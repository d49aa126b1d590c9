"""Ranks as real processes that cost 50 ms: forked from a server that has imported PyTorch, one for each pytest worker.

A rank runs one module-level function. It has an environment, a working directory, a session, sockets and output of its
own, as if a launcher had started it; only the start of the interpreter and ``import torch`` are saved. What those read
from the environment is handled here: the server starts without plink's variables, and each rank loads plink's backend
as ``import torch`` would with the rank's own (:func:`plink.runtime.torch_backend.autoload`).

Tests of an interpreter's start, an entry point or a launcher start fresh processes instead.
"""

import atexit
import contextlib
import functools
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120.0
KILL_TIMEOUT_S = 30.0
# What rank functions and the test modules that hold them import, so that no rank has to.
PRELOADED = [
    "hypothesis", "numpy", "pytest", "torch", "torch._dynamo", "torch.distributed", "torch.distributed.device_mesh",
    "torch.distributed.fsdp", "torch.distributed.nn.functional", "torch.distributed.run", "torch.nn.parallel",
    "plink.runtime.allreduce.backend", "plink.runtime.elastic.worker.client", "plink.runtime.elastic.server",
    "solvers.schedules.catalogue", "tests.runtime.ranks",
]  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How one rank ended."""

    code: int  # -9 when it was killed
    result: Any  # what its function returned; None where it did not return
    out: str
    err: str  # with the traceback of what it raised


@dataclass(frozen=True)
class _Task:
    """What a forked process is to do."""

    module: str
    function: str
    arguments: tuple[Any, ...]
    environment: dict[str, str]
    folder: Path  # for its working directory and what it leaves behind
    name: str


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Return as soon as it holds.

    :raises TimeoutError: when it does not by then.
    """
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not so within {timeout_s:.0f} s")
        time.sleep(0.005)


@functools.cache
def _server() -> ForkServerContext:
    """Start this process's fork server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith(("PLINK_", "TORCH_", "GLOO_"))]:
            environment.delenv(name)
        environment.setenv("OMP_NUM_THREADS", "1")
        environment.setenv("PYTHONPATH", str(ROOT))
        multiprocessing.forkserver.ensure_running()
    return context


class RankProcess:
    """One forked process."""

    def __init__(self, task: _Task) -> None:
        self._task = task
        self._process = _server().Process(target=_run, args=(task,), daemon=False)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, and to none that has its id by now."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate_session(self) -> None:
        """End the process and whatever it started, also where it is frozen."""
        for numbers in ((signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)):
            for number in numbers:
                if self.poll() is None:
                    try:
                        os.killpg(self.pid, number)
                    except ProcessLookupError:  # its session is not there yet, or it has just ended
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(self.pid, number)
            self._process.join(10)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)
        self._process.join(KILL_TIMEOUT_S)

    def wait(self, timeout_s: float = TIMEOUT_S) -> Ended:
        """Wait for its end.

        :raises TimeoutError: with what it wrote, when it has not ended by then.
        """
        self._process.join(max(0.0, timeout_s))
        if (code := self.poll()) is None:
            raise TimeoutError(f"{self._task.name} still runs after {timeout_s:.0f} s:\n{self._written('err')[-5000:]}")
        path = self._task.folder / f"{self._task.name}.result"
        result = pickle.loads(path.read_bytes()) if path.exists() else None
        return Ended(code, result, self._written("out"), self._written("err"))

    def _written(self, stream: str) -> str:
        path = self._task.folder / f"{self._task.name}.{stream}"
        return path.read_text(errors="replace") if path.exists() else ""


class Ranks:
    """Processes started one by one; a context manager that leaves none behind."""

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="ranks-")
        self.folder = folder or Path(self._temporary.name)  # type: ignore[union-attr]
        self.started: list[RankProcess] = []

    def start(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        name: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> RankProcess:
        """Start a process that runs a function of a module, with these variables besides this process's own.

        ``arguments`` are pickled, or connections of a pipe; ``name`` is that of its files in the folder.
        """
        task = _Task(
            function.__module__, function.__qualname__, arguments, {**os.environ, **(environment or {})}, self.folder,
            name or str(len(self.started)),
        )  # fmt: skip
        self.started.append(RankProcess(task))
        return self.started[-1]

    def wait(self, timeout_s: float = TIMEOUT_S, processes: Iterable[RankProcess] | None = None) -> list[Ended]:
        """Wait for all of them, or these, to end; in the order of their start."""
        end = time.monotonic() + timeout_s
        return [process.wait(end - time.monotonic()) for process in processes or self.started]

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.started:
            process.terminate_session()
        if self._temporary:
            self._temporary.cleanup()


def environment_of(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return what a launcher tells a rank of a job on this machine."""
    return {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "RANK": str(rank),
        "LOCAL_RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def run_ranks(
    function: Callable[..., Any],
    ranks: int,
    *arguments: Any,
    timeout_s: float = TIMEOUT_S,
    unending: Sequence[int] = (),
    **environment: str,
) -> list[Ended]:
    """Run a function as all ranks of a job; all have ended when this returns.

    ``unending``: ranks that may never end by themselves, and are killed when the others have.
    """
    port = free_port()
    with Ranks() as job:
        for rank in range(ranks):
            job.start(function, *arguments, environment={**environment_of(rank, ranks, port), **environment})
        job.wait(timeout_s, [process for rank, process in enumerate(job.started) if rank not in unending])
        for rank in unending:
            job.started[rank].kill()
        return job.wait(KILL_TIMEOUT_S)


def results_of(ended: Sequence[Ended]) -> list[Any]:
    """Return what all ranks' functions returned; a rank that failed fails the test with its traceback."""
    for rank, end in enumerate(ended):
        assert end.code == 0, f"rank {rank} ended with exit code {end.code}:\n{end.err}"
    return [end.result for end in ended]


def _run(task: _Task) -> None:
    """Be the rank: in the forked process."""
    os.setsid()
    for stream, number in (("out", 1), ("err", 2)):
        file = os.open(task.folder / f"{task.name}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(task.environment)
    os.chdir(task.folder)
    tempfile.tempdir = None  # it may be another by this environment
    code = 1
    try:
        from plink.runtime.torch_backend import autoload

        autoload()
        function = functools.reduce(getattr, task.function.split("."), importlib.import_module(task.module))
        result = function(*task.arguments)
        (task.folder / f"{task.name}.result").write_bytes(pickle.dumps(result))
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    # As an interpreter does at its end, and a process of multiprocessing does not.
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
