"""Jobs under torchrun that are refused before anything runs; tests/runners/live has those that run."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from plink.errors import PlinkError
from plink.model.hosts import Host, Hosts
from plink.transport.fleet import AgentMessage, Fleet
from runners.job.agent_pool import AgentPool
from runners.job.fleet_runner import TorchrunRunner
from runners.job.messages import PlacementReport
from runners.job.placement import RankLocation, RunResult
from runners.job.runner import Job, RunContext, RunObserver
from tests.child_hosts import ChildHosts
from tests.stand_ins import program


class Jobs:
    """Runs a script as two workers of one torchrun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed: list[tuple[int | None, str, str]] = []
        self.locations: list[RankLocation] = []

    def run(self, text: str, *args: str, python: str = sys.executable, env: dict[str, str] | None = None) -> RunResult:
        """Run Python code."""
        (self.folder / "train.py").write_text(text)
        job = Job("train.py", args, (str(self.folder),), (python,), env or {})
        observer = RunObserver(lambda *line: self.printed.append(line), self.locations.extend)
        watch = RunContext(observer, time.monotonic)
        with ChildHosts() as connector:
            connector.environment["TMPDIR"] = str(self.folder)
            try:
                return TorchrunRunner("torchrun", connector).run(
                    job, Hosts((Host("here", "127.0.0.1", slots=2),)), watch
                )
            finally:
                assert connector.all_end()

    def lines(self, rank: int | None, stream: str = "out") -> list[str]:
        """What one rank printed."""
        return [line for r, s, line in self.printed if (r, s) == (rank, stream)]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Jobs in an empty folder, which is their temporary folder, too: nothing is left there."""
    yield Jobs(tmp_path)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(("plink-", "torchelastic"))]


def test_an_interpreter_without_pytorch_is_refused(jobs: Jobs) -> None:
    bare = program(jobs.folder, "python", f'exec {sys.executable} -S "$@"')
    with pytest.raises(PlinkError, match=r"here: torchrun needs PyTorch, which .*/python lacks; nothing was run"):
        jobs.run("print('ran')", python=str(bare))


def test_a_worker_of_another_order_never_starts(jobs: Jobs) -> None:
    """Ranks that were not asked for are refused before anything of the user's runs."""
    messages = [AgentMessage("here", PlacementReport(rank, 1, "h", [])) for rank in (0, 2)]
    fleet = cast(Fleet, SimpleNamespace(receive=lambda timeout_s: messages.pop(0)))
    hosts = Hosts((Host("here", "127.0.0.1", slots=2),))
    pool = AgentPool(fleet, hosts, Job("train.py", (), ("/",)), lambda *line: None, time.monotonic)
    with pytest.raises(
        PlinkError, match=r"ranks started that are not of this job \(0 on here, 2 on here\); nothing was run"
    ):
        pool.rank_reports()
