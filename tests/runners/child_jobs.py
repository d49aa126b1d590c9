"""Real jobs on hosts that are child processes, for tests."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plink.model.hosts import Host, Hosts
from runners.job.fleet_runner import FleetRunner
from runners.job.placement import RankLocation, RunResult
from runners.job.runner import Job, RunContext, RunObserver
from tests.child_hosts import ChildHosts


class ChildJobs:
    """Starts jobs on child processes and keeps what they printed."""

    def __init__(self, connector: ChildHosts, folder: Path) -> None:
        self.connector, self.folder = connector, folder
        self.printed: list[tuple[int | None, str, str]] = []
        self.placements: list[list[RankLocation]] = []

    def job(self, program: str, *args: str, env: dict[str, str] | None = None) -> Job:
        """A job in the test's folder."""
        return Job(program, args, (str(self.folder),), (sys.executable,), env or {})

    def launch(
        self,
        job: Job,
        slots: int = 1,
        on_line: Callable[[], None] = lambda: None,
        hosts: Hosts | None = None,
        identities: dict[str, dict[str, Any]] | None = None,
    ) -> RunResult:
        """Run it on one host with so many slots (or on ``hosts``); ``on_line`` is called at every line of output."""

        def sink(rank: int | None, stream: str, line: str) -> None:
            self.printed.append((rank, stream, line))
            on_line()

        hosts = hosts or Hosts((Host("here", "127.0.0.1", slots=slots),))
        context = RunContext(
            RunObserver(sink, self.placements.append), time.monotonic, host_identities=identities or {}
        )
        return FleetRunner("children", self.connector).run(job, hosts, context)

    def python(self, code: str, *args: str, slots: int = 1, env: dict[str, str] | None = None) -> RunResult:
        """Run Python code."""
        return self.launch(self.job(sys.executable, "-c", code, *args, env=env), slots)

    def lines(self, rank: int, stream: str = "out") -> list[str]:
        """What one rank printed."""
        return [line for r, s, line in self.printed if (r, s) == (rank, stream)]
