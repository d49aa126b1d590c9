"""Jobs under torchrun on a "host" that is a child process: the gate, output, exit codes, what is refused."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from plink.errors import PlinkError
from plink.hosts import Host, Hosts
from plink.remote.fleet import Fleet, Message
from runners.job import torchrun_runner
from runners.job.crew import Crew
from runners.job.job import Job
from runners.job.proof import Finding
from runners.job.result import RunResult
from runners.job.torchrun_runner import TorchrunRunner
from runners.runner import Watch
from tests.child_hosts import ChildHosts, ends

pytest.importorskip("torch")
NASTY = ("", " ", "--", "it's", "$(touch gotcha)", "line\nbreak", "--nnodes=7", os.fsdecode(b"not \xff utf-8"))
MANY = 3000


class Jobs:
    """Runs a script as two workers of one torchrun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed: list[tuple[int | None, str, str]] = []
        self.proof: list[Finding] = []
        self.agents: list[int] = []

    def run(self, text: str, *args: str, python: str = sys.executable, env: dict[str, str] | None = None) -> RunResult:
        """Run Python code."""
        (self.folder / "train.py").write_text(text)
        job = Job("train.py", args, (str(self.folder),), (python,), env or {})
        watch = Watch(lambda *line: self.printed.append(line), self.proof.extend, time.monotonic)
        with ChildHosts() as connector:
            connector.environment["TMPDIR"] = str(self.folder)
            try:
                return TorchrunRunner(connector).run(job, Hosts((Host("here", "127.0.0.1", slots=2),)), watch)
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


def test_the_proven_process_is_the_program(jobs: Jobs) -> None:
    """Same process id; torchrun's environment and the job's; arguments as they were; output whole, with its rank."""
    text = (
        "import json, os, sys\n"
        "print(json.dumps([os.getpid(), sys.argv[1:], dict(os.environ), os.getcwd()]))\n"
        f"for n in range({MANY}): print(n, 'x' * 60); print(n, file=sys.stderr)\n"
        "print('unfinished', end='')\n"
    )
    result = jobs.run(text, *NASTY, env={"GREETING": "it's\n$(me)"})
    assert (result.exit_code, dict(result.exits)) == (0, {0: 0, 1: 0})
    assert [(finding.rank, finding.wrong) for finding in jobs.proof] == [(0, None), (1, None)]
    for rank in range(2):
        first, *rest, last = jobs.lines(rank)
        pid, args, env, folder = json.loads(first)
        assert pid == jobs.proof[rank].pid
        assert tuple(args) == NASTY
        same = {"WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "RANK": str(rank), "TORCHELASTIC_MAX_RESTARTS": "0"}
        own = {"GREETING": "it's\n$(me)", "PLINK_ADDRESSES": "127.0.0.1,127.0.0.1"}
        assert env | same | own | {"GLOO_SOCKET_IFNAME": "lo"} == env
        assert "PLINK_GATE" not in env
        assert folder == str(jobs.folder)
        assert [line.split()[0] for line in rest] == [str(n) for n in range(MANY)]
        assert last == "unfinished"
        assert jobs.lines(rank, "err") == [str(n) for n in range(MANY)]
    assert jobs.lines(None, "err") == []


@pytest.mark.parametrize(("end", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 11)", 139)])
def test_the_first_worker_that_fails_is_named(jobs: Jobs, end: str, code: int) -> None:
    """By its own code, with its last words; the other is ended, and what both left running."""
    text = (
        "import os, subprocess, sys, time\n"
        "print('child', subprocess.Popen(['sleep', '300']).pid)\nsys.stdout.flush()\n"
        f"if os.environ['RANK'] == '1':\n    print('last words', flush=True)\n    {end}\ntime.sleep(100)\n"
    )
    result = jobs.run(text)
    assert result.exit_code == code
    assert result.failure is not None
    assert (result.failure.rank, result.failure.host) == (1, "here")
    assert "last words" in result.failure.last_lines
    for rank in range(2):
        (child,) = [int(line.split()[1]) for line in jobs.lines(rank) if line.startswith("child")]
        assert ends(child)


def test_a_torchrun_that_cannot_start_says_why(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun_runner, "_TORCHRUN", ("-m", "torch.distributed.run", "--no-such-option"))
    with pytest.raises(PlinkError, match=r"here: torchrun ended with exit code 2 before its workers came: .*no-such"):
        jobs.run("print('ran')")
    assert jobs.lines(0) == []


def test_an_interpreter_without_pytorch_is_refused(jobs: Jobs) -> None:
    bare = jobs.folder / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(PlinkError, match=r"here: torchrun needs PyTorch, which .*/python lacks; nothing was run"):
        jobs.run("print('ran')", python=str(bare))


def test_a_worker_of_another_order_never_starts(jobs: Jobs) -> None:
    """Ranks that were not asked for are refused before anything of the user's runs."""
    report = {"is": "reported", "hostname": "h", "addresses": [], "pid": 1}
    dealt = [Message("here", {"rank": 0, **report}), Message("here", {"rank": 2, **report})]
    fleet = cast(Fleet, SimpleNamespace(receive=lambda timeout_s: dealt.pop(0)))
    hosts = Hosts((Host("here", "127.0.0.1", slots=2),))
    crew = Crew(fleet, hosts, Job("train.py", (), ("/",)), lambda *line: None, time.monotonic)
    with pytest.raises(
        PlinkError, match=r"ranks came that were not asked for \(0 on here, 2 on here\); nothing was run"
    ):
        crew.ranks()
