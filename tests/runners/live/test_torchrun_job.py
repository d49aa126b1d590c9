"""Jobs under torchrun on a "host" that is a child process: output, exit codes, and what keeps it from starting."""

import json
import os

import pytest

from plink.errors import PlinkError
from runners.job import fleet_runner
from tests.child_hosts import ends
from tests.runners.test_torchrun_job import Jobs, jobs

__all__ = ["jobs"]


NASTY = ("", " ", "--", "it's", "$(touch gotcha)", "line\nbreak", "--nnodes=7", os.fsdecode(b"not \xff utf-8"))


MANY = 3000


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
    assert [(finding.rank, finding.problem) for finding in jobs.locations] == [(0, None), (1, None)]
    for rank in range(2):
        first, *rest, last = jobs.lines(rank)
        pid, args, env, folder = json.loads(first)
        assert pid == jobs.locations[rank].pid
        assert tuple(args) == NASTY
        same = {"WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "RANK": str(rank), "TORCHELASTIC_MAX_RESTARTS": "0"}
        own = {"GREETING": "it's\n$(me)", "PLINK_ADDRESSES": "127.0.0.1,127.0.0.1"}
        assert env | same | own | {"GLOO_SOCKET_IFNAME": "lo"} == env
        assert "PLINK_START_BARRIER" not in env
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
        "print('child', subprocess.Popen(['sleep', '300'], start_new_session=True).pid)\nsys.stdout.flush()\n"
        "if os.environ['RANK'] == '0':\n    open('printed', 'w').close()\n    time.sleep(100)\n"
        "while not os.path.exists('printed'):\n    time.sleep(0.01)\n"  # the other is ended once this one fails
        f"print('last words', flush=True)\n{end}\n"
    )
    result = jobs.run(text)
    assert result.exit_code == code
    assert result.failure is not None
    assert (result.failure.rank, result.failure.host) == (1, "here")
    assert "last words" in result.failure.last_lines
    for rank in range(2):
        (child,) = [int(line.split()[1]) for line in jobs.lines(rank) if line.startswith("child")]
        assert ends(child)


def test_failed_torchrun_reports_the_reason(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_runner, "_TORCHRUN", ("-m", "torch.distributed.run", "--no-such-option"))
    with pytest.raises(
        PlinkError, match=r"here: torchrun ended with exit code 2 before its workers connected: .*no-such"
    ):
        jobs.run("print('ran')")
    assert jobs.lines(0) == []


def test_each_line_of_torchrun_is_shown_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than a pipe holds, so that it is read in several pieces."""
    script = f"import sys\nfor n in range({MANY}): print(n, 'x' * 60)\nprint(); sys.exit('last words')"
    monkeypatch.setattr(fleet_runner, "_TORCHRUN", ("-c", script))
    with pytest.raises(PlinkError, match="exit code 1 before its workers connected: last words"):
        jobs.run("print('ran')")
    numbers = [line.split(": torchrun: ")[1].split()[0] for line in jobs.lines(None, "err")[:MANY]]
    assert numbers == [str(n) for n in range(MANY)]
    assert len(jobs.lines(None, "err")) == MANY + 2
