"""The elastic job that a driver rents instances for."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from plink.errors import PlinkError
from plink.model.elastic.status import JobControl
from plink.model.hosts import Host
from plink.model.storage import read_document
from plink.transport.supervisor import process_status
from runners.elastic.control_socket import ask
from runners.spot.journal import FOLDER, JOB_END
from solvers.spot.deadline import JobProgress


@dataclass(frozen=True)
class JobView:
    """How a job stands. ``hosts``: names of those in it; ``is_ready``: it takes hosts; ``has_ended``: for good;
    ``progress``: None before its first iteration."""

    hosts: frozenset[str] = frozenset()
    is_ready: bool = True
    has_ended: bool = False
    progress: JobProgress | None = None


class DrivenJob(Protocol):
    """A job as a driver sees it. No method waits for hosts."""

    def view(self) -> JobView | None:
        """Return how the job stands, None where it does not answer."""

    def add(self, hosts: Sequence[Host]) -> None:
        """Begin to add hosts."""

    def evict(self, names: Sequence[str], seconds: float) -> None:
        """Have the job move away from hosts within so many seconds."""

    def errors(self) -> Sequence[str]:
        """Return what failed since the last call."""


class ElasticJob:
    """The job of a run, by its control socket.

    :param folder: of the run. :param job: its ``plink.elastic-job/1``. :param speed: how many seconds of the driver's
        pass in one of the job's. :param is_observer: hosts are neither added nor warned.
    """

    def __init__(self, folder: Path, job: JobControl, speed: float = 1.0, is_observer: bool = False) -> None:
        self._speed, self._is_observer = speed, is_observer
        self._folder, self._socket, self._pid = folder, job.socket, job.pid
        self._process = process_status(self._pid)
        self._errors: list[str] = []
        self._was_silent = False
        self._adding: set[str] = set()  # names of hosts on their way

    def view(self) -> JobView | None:
        """Return how the job stands: it has ended when its process says so, or its record, or its process is gone."""
        if (self._folder / FOLDER / JOB_END).exists():
            return JobView(has_ended=True)
        try:
            status = ask(self._socket, {"method": "status"})
        except PlinkError as error:
            if self._is_over():
                return JobView(has_ended=True)
            if self._was_silent:  # once may be a job that is about to end
                self._errors.append(str(error))
            self._was_silent = True
            return None
        self._was_silent = False
        ready = status.get("stage") is not None
        names = frozenset(host["name"] for host in status.get("hosts", ())) if ready else frozenset()
        return JobView(names, ready, progress=self._progress(status))

    def _progress(self, status: Mapping[str, Any]) -> JobProgress | None:
        iteration, seconds = status.get("iteration", -1), status.get("iteration_s")
        if iteration < 0 or seconds is None:
            return None
        workers, hosts = status.get("iteration_workers", 0), frozenset(status.get("work", ()))
        return JobProgress(iteration + 1, seconds * self._speed, workers, hosts)

    def _is_over(self) -> bool:
        try:
            if read_document(self._folder / "run.json").get("exit_code") is not None:
                return True
        except PlinkError:
            pass  # a damaged record says nothing
        process = process_status(self._pid)
        if process and (process.state in ("Z", "X") or (self._process and process.started != self._process.started)):
            return True  # its parent has not waited for it, or another process has its id
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def add(self, hosts: Sequence[Host]) -> None:
        """Begin to add hosts, each by itself, so that one that never answers does not keep the others out."""
        for host in () if self._is_observer else hosts:
            if host.name not in self._adding:
                self._adding.add(host.name)
                threading.Thread(target=self._add_host, args=(host,), daemon=True).start()

    def _add_host(self, host: Host) -> None:
        try:
            ask(self._socket, {"method": "add", "hosts": [vars(host)], "bulk": True})
        except PlinkError as error:
            if "already" not in str(error):  # by the driver before this one
                self._errors.append(str(error))
        finally:
            self._adding.discard(host.name)

    def evict(self, names: Sequence[str], seconds: float) -> None:
        """Have the job move away from hosts."""
        if self._is_observer:
            return
        try:
            ask(self._socket, {"method": "evict", "hosts": list(names), "seconds": seconds / self._speed})
        except PlinkError as error:
            self._errors.append(str(error))

    def errors(self) -> Sequence[str]:
        """Return what failed since the last call."""
        errors, self._errors = self._errors, []
        return errors
