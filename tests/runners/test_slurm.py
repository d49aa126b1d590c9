"""What plink types for Slurm and makes of its words; tests/lab/test_slurm.py has a real one."""

import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from plink.errors import PlinkError, UsageError
from plink.model.dry_run import LaunchCommand
from plink.model.hosts import Host, Hosts
from runners.job.placement import RankAssignment
from runners.job.runner import Job, RunContext, RunObserver
from runners.launchers.launcher import LauncherProcess
from runners.launchers.monitor import LauncherMonitor
from runners.launchers.slurm import Slurm, allocation_options, batch_script
from tests.stand_ins import program

HOSTS = Hosts((Host("c", "10.0.0.3"), Host("a", "10.0.0.1", slots=2), Host("b", "10.0.0.2")))
JOB = Job("train.py", (), ("/work",), launcher_args=("--partition=fast", "--mpi=none"))


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ("3: loss: 0.7", 3, "loss: 0.7"),
        ("  3: loss: 0.7", 3, "loss: 0.7"),
        ("12:   indented", 12, "  indented"),
        ("4: carriage\rreturn", 4, "carriage\rreturn"),
        ("srun: error: node-01: task 2: Exited with exit code 7", None, None),
        ("slurmstepd: error: *** STEP 3.1 ON node-01 CANCELLED AT 2026-11-21T14:58:42 ***", None, None),
    ],
)
def test_labels(line: str, rank: int | None, text: str | None) -> None:
    """srun pads its labels with blanks; what it says itself has none."""
    assert list(Slurm().parse_output_line("out", line)) == [(rank, "out", line if text is None else text)]


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        (["srun: error: node-01: task 2: Exited with exit code 7", "srun: error: b: task 3: Terminated"], (2, 7)),
        (["srun: launch/slurm: _step_signal: Terminating StepId=3.1", "srun: error: b: tasks 4-5: Killed"], (4, 137)),
        (["srun: error: node-01: tasks 0,2-3: Segmentation fault (core dumped)"], (0, 139)),
        (["srun: Force Terminated StepId=3.1", "srun: error: Node failure on node-01"], None),
    ],
)
def test_the_first_failure(lines: list[str], failure: tuple[int, int] | None) -> None:
    """Lines as srun 22.05 prints them."""
    assert Slurm().first_failure(lines) == failure


def test_the_file_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node a task; addresses are no names of nodes, and without Slurm there is nothing to type."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert Slurm().files(HOSTS, JOB) == {"slurm-hostfile": "c\na\na\nb\n"}
    with pytest.raises(UsageError, match=r"--runner slurm: 10\.0\.0\.3 is an address"):
        Slurm().files(Hosts((Host("10.0.0.3", "10.0.0.3"),)), JOB)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UsageError, match="srun is not installed here"):
        Slurm().files(HOSTS, JOB)


def test_options_of_steps_are_not_for_allocations() -> None:
    """salloc would refuse what it does not know."""
    options = [
        "--partition=fast",
        "--cpu-bind=none",
        "--exact",
        "--whole",
        "--exclusive",
        "--overlap",
        "-A",
        "team",
        "--mpi=a\nb",
    ]
    assert allocation_options(options) == ["--partition=fast", "--exclusive", "-A", "team"]


@pytest.mark.parametrize(
    "options",
    [
        ("-o", "x"),
        ("-ox",),
        ("--output=x",),
        ("--err", "x"),
        ("-w", "a"),
        ("--nodelist=a",),
        ("--jobid=7",),
        ("-r1",),
        ("--pty",),
        ("-N", "3"),
        ("-N3",),
        ("--nodes=3",),
        ("--ou=x",),
        ("-lo", "x"),
        ("-vw", "a"),
    ],
)
def test_options_that_hide_or_move_ranks_are_refused(monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    """Ranks report by what srun forwards, and are where the hostfile has them."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(UsageError, match=re.escape(f"--launcher-args {options[0]}: ")):
        Slurm().files(HOSTS, replace(JOB, launcher_args=options))


def test_options_that_plink_has_too_are_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """srun takes the last of two."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    options = ("-n", "2", "--distribution=block")
    argv = Slurm().command(HOSTS, replace(JOB, launcher_args=options), tmp_path, ["true"]).argv
    last = max(argv.index(word) for word in options)
    assert all(argv.index(word) > last for word in ("--ntasks=4", "--distribution=arbitrary"))


@pytest.mark.parametrize(("options", "shares"), [((), True), (("--exclusive",), False), (("--exclude=a",), True)])
def test_steps_share_unless_exclusive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...], shares: bool
) -> None:
    """A step that says both shares."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    command = Slurm().command(HOSTS, replace(JOB, launcher_args=options), tmp_path, ["true"])
    assert ("SLURM_OVERLAP" in command.env) is shares
    assert "--overlap" not in command.argv


def test_nodes_are_counted_by_the_hostfile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Slurm refuses --nodes beside --distribution=arbitrary (since 23.11): in steps, and where nodes are requested."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    refusing = """case " $* " in *arbitrary*" --nodes"* | *arbitrary*" -N"*) echo incompatible >&2; exit 1;; esac"""
    program(tmp_path, "salloc", f'{refusing}\nexec cat "$SLURM_HOSTFILE"')
    program(tmp_path, "squeue", "echo 7")
    program(tmp_path, "scancel", "")
    (tmp_path / "slurm-hostfile").write_text("c\na\na\nb\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    lines: list[str] = []
    context = RunContext(RunObserver(lambda rank, stream, line: lines.append(line)), time.monotonic)
    with Slurm().allocation(HOSTS, JOB, tmp_path, context) as env:
        assert env == {"SLURM_JOB_ID": "7"}
    assert lines == ["c", "a", "a", "b"]
    argv = Slurm().command(HOSTS, JOB, tmp_path, ["true"]).argv
    assert not [word for word in argv if word.startswith(("-N", "--nodes"))]


def test_refused_allocation_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where salloc does not call it an error, as it does not for options that it does not have."""
    program(tmp_path, "salloc", "echo \"salloc: invalid option -- 'Z'\" >&2; exit 255")
    program(tmp_path, "scancel", "")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    context = RunContext(RunObserver(), time.monotonic)
    with (
        pytest.raises(PlinkError, match="invalid option -- 'Z'"),
        Slurm().allocation(HOSTS, JOB, tmp_path, context),
    ):
        pass


def test_the_batch_script(tmp_path: Path) -> None:
    """A shell reads every word as it was; sbatch's options stand in lines of their own."""
    words = ["it's", "$(touch evil)", "two\nlines", "", '"', "*"]
    script = batch_script(HOSTS, ["--comment=a b", "--mpi=none"], ["printf", "%s|", *words])
    assert script.splitlines()[:7] == [
        "#!/bin/sh",
        "#SBATCH --job-name=plink",
        "#SBATCH '--comment=a b'",
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks=6",
        "#SBATCH --ntasks-per-node=2",
        "#SBATCH --nodelist=c,a,b",
    ]
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "".join(f"{word}|" for word in words)
    with pytest.raises(UsageError, match="one line"):
        batch_script(HOSTS, ["--comment=a\nb"], ["true"])


def test_lines_of_the_launcher_are_kept_in_part_and_its_failure_named() -> None:
    """However much it prints."""
    script = f"seq {(count := 20_000)}; echo 'srun: error: node-01: tasks 0: Exited with exit code 7'; exit 7"
    shown: list[str] = []
    observer = RunObserver(lambda rank, stream, line: shown.append(line))
    ranks = [RankAssignment(0, 0, "node-01", None, None)]
    monitor = LauncherMonitor(Slurm(), ranks, RunContext(observer, time.monotonic), None, [])
    with LauncherProcess(LaunchCommand(("sh", "-c", script))) as process:
        monitor.follow(process)
        monitor.finish(process.end(10))
    assert len(shown) == count + 1
    assert len(monitor.launcher_lines) < count
    assert monitor.failure is not None
    assert (monitor.failure.rank, monitor.failure.code) == (0, 7)


def test_lost_node_is_named_before_the_tasks_that_slurm_ends() -> None:
    """srun reports the ends of all tasks, in no order; the step ends because of the node."""
    script = "echo 'srun: error: Node failure on node-02'; echo 'srun: error: node-01: task 0: Terminated'; exit 143"
    ranks = [RankAssignment(rank, 0, name, None, None) for rank, name in enumerate(("node-01", "node-02"))]
    monitor = LauncherMonitor(Slurm(), ranks, RunContext(RunObserver(), time.monotonic), None, [])
    with LauncherProcess(LaunchCommand(("sh", "-c", script))) as process:
        monitor.follow(process)
        monitor.finish(process.end(10))
    assert monitor.failure is not None
    assert monitor.failure.rank == 1
    assert "node-02" in str(monitor.failure.cause)
